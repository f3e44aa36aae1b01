"""Whether a method finds the atoms that a prediction rests on: deletion and insertion curves."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Optional, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from molattn.errors import InputError, check_one_of
from molattn.explain.explainer import find_average, read_instances
from molattn.explain.faithfulness.bootstrap import Estimate, mean_of_molecules
from molattn.explain.instance import Instance, Masking
from molattn.explain.methods.base import MethodOptions
from molattn.explain.methods.registry import METHODS, find_method
from molattn.model.model import MolAttn

__all__ = [
    "FRACTIONS",
    "Faithfulness",
    "MethodFaithfulness",
    "faithfulness",
    "fidelity_of_subjects",
]

FRACTIONS = np.linspace(0.0, 1.0, 21)
"""Fractions of a molecule's atoms at which curves are given."""

Measure = Literal["support", "distance"]
"""What a loss is, of the prediction ``f`` with some atoms masked.

``support``: ``(f(all) - f(kept)) s`` with ``s`` the sign of ``f(all) - f(none)``, how far the
prediction went back to what it is without any atom. A signed method puts the atoms first that hold
the prediction up, by its scores times ``s``; another puts the largest first. ``distance``:
``|f(all) - f(kept)|``, and the largest scores first, whatever their sign.
"""

_VERDICTS = {
    (1, 1): "beats random",
    (1, 0): "beats random by deletion alone",
    (0, 1): "beats random by insertion alone",
    (0, 0): "no better than random",
    (1, -1): "beats random by deletion, worse by insertion",
    (-1, 1): "beats random by insertion, worse by deletion",
    (-1, 0): "worse than random by deletion",
    (0, -1): "worse than random by insertion",
    (-1, -1): "worse than random",
}


@dataclass(frozen=True, eq=False)
class MethodFaithfulness:
    """How one order of masking did.

    Args:
        method: A method; ``uniform``, which gives every atom the same score, so that atoms come in
            the order of the SMILES; or ``random``, the mean over random orders.
        deletion: Mean loss when the first fraction of atoms is masked, at :data:`FRACTIONS`.
        insertion: The same when all but the first fraction are masked.
        deletion_area: Mean of the deletion curve; large = the first atoms matter.
        insertion_area: Mean of the insertion curve; small = the first atoms are enough.
        deletion_gain: By how much the area is larger than random's, molecule by molecule.
        insertion_gain: By how much it is smaller.
    """

    method: str
    deletion: NDArray[np.float64]
    insertion: NDArray[np.float64]
    deletion_area: Estimate
    insertion_area: Estimate
    deletion_gain: Estimate
    insertion_gain: Estimate

    @property
    def verdict(self) -> str:
        """Whether it beats random, in words: where the 95 % interval of a gain is above 0."""
        gains = (self.deletion_gain, self.insertion_gain)
        deletion, insertion = (int(gain.low > 0) - int(gain.high < 0) for gain in gains)
        return _VERDICTS[deletion, insertion]

    @property
    def beats_random(self) -> bool:
        """Whether it beats random in both tests."""
        return self.deletion_gain.low > 0 and self.insertion_gain.low > 0


@dataclass(frozen=True)
class Faithfulness:
    """How the orders that methods give did on some molecules.

    Args:
        target: The output; the task, where several of its classes were tested.
        unit: Its unit, and that of all numbers below.
        measure: What a loss is, see :data:`Measure`.
        masking: What masking an atom did.
        molecules: How many molecules were tested.
        skipped: How many have one atom, and so no order.
        random_orders: How many random orders of each molecule ``random`` is the mean of.
        rows: The methods, then ``uniform``, then ``random``.
        outputs: How many molecules were tested on each output: on one, or where the target is a
            task of several classes, each molecule on its likeliest.
    """

    target: str
    unit: str
    measure: "Measure"
    masking: Masking
    molecules: int
    skipped: int
    random_orders: int
    rows: tuple[MethodFaithfulness, ...]
    outputs: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """As JSON types."""
        rows = []
        for row in self.rows:
            cells = {**asdict(row), "verdict": row.verdict, "beats_random": row.beats_random}
            curves = {name: cells[name].tolist() for name in ("deletion", "insertion")}
            rows.append(cells | curves)
        return {**vars(self), "fractions": FRACTIONS.tolist(), "rows": rows}

    def table(self) -> str:
        """As a Markdown table."""
        unit = f", {self.unit}" if self.unit else ""
        lines = [
            f"| Order | Deletion area{unit} | more than random | Insertion area{unit} "
            "| less than random | Verdict |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        for row in self.rows:
            cells = [row.method, f"{row.deletion_area:.3f}", "-"]
            cells += [f"{row.insertion_area:.3f}", "-", "-"]
            if row.method != "random":
                cells[2], cells[4] = f"{row.deletion_gain:.3f}", f"{row.insertion_gain:.3f}"
                cells[5] = row.verdict
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines)


def faithfulness(
    model: MolAttn,
    smiles: Sequence[str],
    methods: Sequence[str] = tuple(METHODS),
    *,
    target: Optional[str] = None,
    partners: Optional[Sequence[str]] = None,
    features: Optional[ArrayLike] = None,
    background: Optional[Sequence[str]] = None,
    measure: Measure = "support",
    random_orders: int = 5,
    **options: Any,
) -> Faithfulness:
    """Mask atoms in the order that each method gives, and see how far the prediction goes.

    Deletion masks the first atoms: the sooner the prediction is lost, the better. Insertion masks
    all others: the sooner it is back, the better. Each is compared with random orders of the same
    molecules.

    After Petsiuk, Das and Saenko 2018 ("RISE"), with a loss in the output's unit in place of a
    class's probability.

    Args:
        model: The model.
        smiles: Molecules; better not those it was trained on.
        methods: Names of :data:`molattn.explain.METHODS`.
        target: As for :func:`molattn.explain.explain`, as are those that follow; of several
            classes of which none is named, each molecule is tested on its likeliest.
        partners: Second molecules.
        features: Further numbers.
        background: Molecules of the average atom.
        measure: What a loss is, see :data:`Measure`.
        random_orders: How many random orders of each molecule.
        options: Of the methods; ``masking`` is also how atoms are masked here, ``seed`` that of the
            random orders too.

    Raises:
        InputError: A method that does not exist, no molecule of two atoms or more, or no order.
    """
    instances = read_instances(
        model,
        smiles,
        target=target,
        average=find_average(model, background),
        partners=partners,
        features=features,
    )
    return fidelity_of_subjects(
        [*instances], methods, MethodOptions(**options), measure, random_orders
    )


def fidelity_of_subjects(
    instances: Sequence[Instance],
    methods: Sequence[str],
    options: MethodOptions,
    measure: Measure = "support",
    random_orders: int = 5,
    progress: Callable[[], object] = lambda: None,
) -> Faithfulness:
    """Do the same with molecules that were read already.

    Args:
        instances: The molecules.
        methods: As for :func:`faithfulness`, as are those that follow.
        options: Of the methods.
        measure: What a loss is.
        random_orders: How many.
        progress: Called after each molecule.
    """
    for name in methods:
        find_method(name)
    check_one_of("measure", measure, get_args(Measure))
    if random_orders < 1:
        raise InputError(f"random_orders: got {random_orders}, expected 1 or more")
    tested = [instance for instance in instances if instance.num_atoms > 1]
    if not tested:
        raise InputError(
            f"molecules: got {len(instances)} and none of two atoms or more, expected some"
        )
    names = [*methods, "uniform", "random"]
    curves = np.zeros((len(tested), len(names), 2, len(FRACTIONS)))
    areas = np.zeros((len(tested), len(names), 2))
    for place, instance in enumerate(map(replace, tested)):  # copies, whose caches go with them
        draw = np.random.default_rng([options.seed, place])
        random = [draw.permutation(instance.num_atoms) for _ in range(random_orders)]
        losses = _losses_by_order(instance, methods, random, options, measure)
        steps = np.linspace(0.0, 1.0, instance.num_atoms + 1)
        for row, both in enumerate(losses):
            curves[place, row] = [np.interp(FRACTIONS, steps, curve) for curve in both]
        areas[place] = 0.5 * (losses[..., 1:] + losses[..., :-1]).mean(axis=-1)
        progress()
    gains = (areas - areas[:, -1:]) * np.array([1.0, -1.0])
    rows = tuple(
        MethodFaithfulness(
            name,
            *curves[:, row].mean(axis=0),
            *(mean_of_molecules(areas[:, row, test]) for test in (0, 1)),
            *(mean_of_molecules(gains[:, row, test]) for test in (0, 1)),
        )
        for row, name in enumerate(names)
    )
    output = tested[0].output
    outputs = Counter(instance.output.name for instance in tested)
    left_out = len(instances) - len(tested)
    return Faithfulness(
        output.name if len(outputs) == 1 else output.task.name,
        output.unit,
        measure,
        options.masking,
        len(tested),
        left_out,
        random_orders,
        rows,
        dict(outputs),
    )


def _losses_by_order(
    instance: Instance,
    methods: Sequence[str],
    random: Sequence[NDArray[np.int64]],
    options: MethodOptions,
    measure: Measure,
) -> NDArray[np.float64]:
    """Return :func:`_losses` by each method, uniformly, and the mean by random orders."""
    everything = np.ones((1, instance.num_atoms), dtype=bool)
    ends = instance.keep(np.concatenate([everything, ~everything]), options.masking)
    support = 1.0 if ends[0] >= ends[1] else -1.0
    orders = [_order(instance, name, options, measure, support) for name in methods]
    orders = np.array([*orders, np.arange(instance.num_atoms), *random])
    losses = support * _losses(instance, orders, options.masking)
    losses = np.abs(losses) if measure == "distance" else losses
    at_random = losses[-len(random) :].mean(axis=0, keepdims=True)
    return np.concatenate([losses[: -len(random)], at_random])


def _order(
    instance: Instance, method: str, options: MethodOptions, measure: Measure, support: float
) -> NDArray[np.int64]:
    scores = METHODS[method].compute(instance, options).atoms
    if METHODS[method].signed:
        scores = scores * support if measure == "support" else np.abs(scores)
    return np.argsort(-scores, kind="stable")


def _losses(instance: Instance, orders: NDArray[np.int64], masking: Masking) -> NDArray[np.float64]:
    """What the prediction loses with the first k atoms masked, and with all others masked.

    Args:
        instance: The molecule, n atoms.
        orders: ``[orders, n]``.
        masking: See :meth:`Instance.keep`.

    Returns:
        ``[orders, 2, n + 1]``.
    """
    n = instance.num_atoms
    position = np.argsort(orders, axis=1)
    masked = position[:, np.newaxis, :] < np.arange(n + 1)[:, np.newaxis]  # [orders, n + 1, n]
    kept = np.stack([~masked, masked], axis=1)
    values = instance.keep(kept.reshape(-1, n), masking).reshape(kept.shape[:-1])
    return values[0, 0, 0] - values
