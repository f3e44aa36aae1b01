"""Deletion and insertion tests: do the atoms that a method ranks highest matter to the model?"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Optional, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from molattn.chem.parse import Molecule
from molattn.errors import InputError, check_one_of
from molattn.explain.explainer import read_instances
from molattn.explain.instance import Instance, Masking
from molattn.explain.methods import METHODS, Method, MethodOptions
from molattn.model.model import MolAttn

__all__ = [
    "FRACTIONS",
    "Estimate",
    "Faithfulness",
    "MethodFaithfulness",
    "bootstrap_mean",
    "instances_faithfulness",
    "measure_faithfulness",
]

FRACTIONS = np.linspace(0.0, 1.0, 21)
"""Fractions of a molecule's atoms at which curves are sampled."""

Measure = Literal["support", "distance"]
"""How the change of the prediction ``f`` is measured when only some atoms are kept.

``support``: ``(f(all) - f(kept)) s``, where ``s`` is the sign of ``f(all) - f(none)``: how far the
prediction moves toward the prediction for the empty graph. Atoms are ranked by their scores, times
``s`` for a signed method. ``distance``: ``|f(all) - f(kept)|``; atoms are ranked by the absolute
value of their scores.
"""

_RESAMPLES = 2000
_VERDICTS = {
    (1, 1): "beats random",
    (1, 0): "beats random in deletion only",
    (0, 1): "beats random in insertion only",
    (0, 0): "no better than random",
    (1, -1): "beats random in deletion, worse in insertion",
    (-1, 1): "beats random in insertion, worse in deletion",
    (-1, 0): "worse than random in deletion",
    (0, -1): "worse than random in insertion",
    (-1, -1): "worse than random",
}


@dataclass(frozen=True)
class Estimate:
    """A mean over molecules and its 95% confidence interval.

    Args:
        mean: The mean.
        low: Lower bound (percentile bootstrap over molecules).
        high: Upper bound.
    """

    mean: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        return f"{self.mean:{spec}} ({self.low:{spec}} to {self.high:{spec}})"


def bootstrap_mean(values: NDArray[np.float64], seed: int = 0) -> Estimate:
    """Estimate the mean of one value per molecule, ``[molecules]``.

    Values of the same molecules with the same seed are resampled alike.

    Example:
        >>> f"{bootstrap_mean(np.array([1.0, 1.0])):.1f}"
        '1.0 (1.0 to 1.0)'
    """
    rng = np.random.default_rng(seed)
    picked = rng.integers(len(values), size=(_RESAMPLES, len(values)))
    low, high = np.quantile(values[picked].mean(axis=1), [0.025, 0.975])
    return Estimate(float(values.mean()), float(low), float(high))


@dataclass(frozen=True, eq=False)
class MethodFaithfulness:
    """Result of one method, averaged over molecules.

    Args:
        method: A method; ``uniform``, which gives every atom the same score and so ranks them in
            the order of the SMILES; or ``random``, the mean over random orders.
        deletion: Mean change of the prediction (:data:`Measure`) with the top-ranked fraction of
            atoms masked, at :data:`FRACTIONS`.
        insertion: Mean change with all but the top-ranked fraction masked.
        deletion_area: Area under the deletion curve; large if the top-ranked atoms are necessary.
        insertion_area: Area under the insertion curve; small if they are sufficient.
        deletion_gain: Deletion area minus that of random orders of the same molecule.
        insertion_gain: Insertion area of random orders minus that of the method.
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
        """Whether it beats random, that is, the 95% CIs of both gains are above 0."""
        gains = (self.deletion_gain, self.insertion_gain)
        deletion, insertion = (int(gain.low > 0) - int(gain.high < 0) for gain in gains)
        return _VERDICTS[deletion, insertion]

    @property
    def cells(self) -> tuple[list[Optional[Estimate]], str]:
        """Areas and gains in the order of a table's columns, and the verdict."""
        if self.method == "random":  # not compared with itself
            return [self.deletion_area, None, self.insertion_area, None], "-"
        deletion, insertion = self.deletion_gain, self.insertion_gain
        return [self.deletion_area, deletion, self.insertion_area, insertion], self.verdict

    @property
    def beats_random(self) -> bool:
        """Whether it beats random in both tests."""
        return self.deletion_gain.low > 0 and self.insertion_gain.low > 0


@dataclass(frozen=True)
class Faithfulness:
    """Results of all methods on a set of molecules.

    Args:
        target: The target; the task, if several of its classes were tested.
        unit: Unit of the target and of all areas and gains.
        measure: How changes of the prediction were measured, see :data:`Measure`.
        masking: How atoms were masked.
        molecules: Number of molecules tested.
        skipped: Number of molecules that were skipped because they have a single atom.
        random_orders: Number of random orders of each molecule.
        rows: The methods, then ``uniform``, then ``random``.
        outputs: Number of molecules tested on each output: one output, or for a multiclass task
            the most probable class of each molecule.
    """

    target: str
    unit: str
    measure: Measure
    masking: Masking
    molecules: int
    skipped: int
    random_orders: int
    rows: tuple[MethodFaithfulness, ...]
    outputs: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON types."""
        rows = []
        for row in self.rows:
            cells = {**asdict(row), "verdict": row.verdict, "beats_random": row.beats_random}
            curves = {name: cells[name].tolist() for name in ("deletion", "insertion")}
            rows.append(cells | curves)
        return {**vars(self), "fractions": FRACTIONS.tolist(), "rows": rows}

    @property
    def headings(self) -> tuple[str, str, str, str]:
        """Headings of the four columns of estimates."""
        unit = f", {self.unit}" if self.unit else ""
        return (
            f"Deletion area{unit}",
            "gain over random",
            f"Insertion area{unit}",
            "gain over random",
        )

    def table(self) -> str:
        """Return the results as a Markdown table."""
        lines = [["Ranking", *self.headings, "Verdict"], ["---"] * 6]
        for row in self.rows:
            estimates, verdict = row.cells
            cells = ("-" if one is None else f"{one:.3f}" for one in estimates)
            lines.append([row.method, *cells, verdict])
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def measure_faithfulness(
    model: MolAttn,
    smiles: Iterable[Molecule],
    methods: Optional[Sequence[str]] = None,
    *,
    target: Optional[str] = None,
    partners: Optional[Iterable[Molecule]] = None,
    features: Optional[ArrayLike] = None,
    background: Optional[Sequence[Molecule]] = None,
    measure: Measure = "support",
    random_orders: int = 5,
    **options: Any,
) -> Faithfulness:
    """Test explanation methods by deletion and insertion of the atoms that they rank highest.

    Deletion masks the top-ranked atoms: the faster the prediction changes, the better. Insertion
    masks all other atoms: the faster the prediction recovers, the better. Both are compared with
    random rankings of the atoms of the same molecules.

    After Petsiuk, Das and Saenko 2018 ("RISE"), with the change of the prediction in the target's
    unit in place of the probability of a class.

    Args:
        model: The model.
        smiles: Molecules, preferably not in the training set.
        methods: Names in :data:`molattn.explain.METHODS`; None = all of them.
        target: As for :func:`molattn.explain.explain`; given a multiclass task without a class,
            each molecule is tested on its most probable class.
        partners: As for :func:`molattn.explain.explain`.
        features: Likewise.
        background: Likewise.
        measure: How changes of the prediction are measured, see :data:`Measure`.
        random_orders: Number of random rankings of each molecule.
        options: Options of the methods, see :class:`molattn.explain.MethodOptions`; ``masking``
            and ``seed`` apply to the test too.

    Raises:
        InputError: An unknown method or option, no molecule with two or more atoms, or
            ``random_orders`` below 1.
    """
    instances = [*read_instances(model, smiles, target, partners, features, background)]
    return instances_faithfulness(
        instances, methods, MethodOptions.named(options), measure, random_orders
    )


def instances_faithfulness(
    instances: Sequence[Instance],
    methods: Optional[Sequence[str]],
    options: MethodOptions,
    measure: Measure = "support",
    random_orders: int = 5,
    progress: Callable[[], object] = lambda: None,
) -> Faithfulness:
    """Run the tests on featurized molecules; ``progress`` is called after each of them."""
    methods = tuple(METHODS) if methods is None else methods
    chosen = [METHODS[name] for name in methods]
    check_one_of("measure", measure, get_args(Measure))
    if random_orders < 1:
        raise InputError(f"random_orders: got {random_orders}, expected 1 or more")
    tested = [instance for instance in instances if instance.num_atoms > 1]
    if not tested:
        raise InputError(
            f"molecules: got {len(instances)}, none with two or more atoms; expected at least one"
        )
    names = [*methods, "uniform", "random"]
    curves = np.zeros((len(tested), len(names), 2, len(FRACTIONS)))
    areas = np.zeros((len(tested), len(names), 2))
    for place, instance in enumerate(map(replace, tested)):  # copies, to free what they cache
        rng = np.random.default_rng([options.seed, place])
        random = [rng.permutation(instance.num_atoms) for _ in range(random_orders)]
        losses = _losses_by_order(instance, chosen, random, options, measure)
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
            *(bootstrap_mean(areas[:, row, test]) for test in (0, 1)),
            *(bootstrap_mean(gains[:, row, test]) for test in (0, 1)),
        )
        for row, name in enumerate(names)
    )
    target = tested[0].target
    outputs = Counter(instance.target.name for instance in tested)
    return Faithfulness(
        target=target.name if len(outputs) == 1 else target.task.name,
        unit=target.unit,
        measure=measure,
        masking=options.masking,
        molecules=len(tested),
        skipped=len(instances) - len(tested),
        random_orders=random_orders,
        rows=rows,
        outputs=dict(outputs),
    )


def _losses_by_order(
    instance: Instance,
    methods: Sequence[Method],
    random: Sequence[NDArray[np.int64]],
    options: MethodOptions,
    measure: Measure,
) -> NDArray[np.float64]:
    """Return :func:`_losses` of each method, of ``uniform``, and the mean of random orders."""
    everything = np.ones((1, instance.num_atoms), dtype=bool)
    ends = instance.predict_kept(np.concatenate([everything, ~everything]), options.masking)
    support = 1.0 if ends[0] >= ends[1] else -1.0
    orders = [_order(instance, method, options, measure, support) for method in methods]
    orders = np.array([*orders, np.arange(instance.num_atoms), *random])
    losses = support * _losses(instance, orders, options.masking)
    losses = np.abs(losses) if measure == "distance" else losses
    at_random = losses[-len(random) :].mean(axis=0, keepdims=True)
    return np.concatenate([losses[: -len(random)], at_random])


def _order(
    instance: Instance, method: Method, options: MethodOptions, measure: Measure, support: float
) -> NDArray[np.int64]:
    scores = method(instance, options).atoms
    if method.signed:
        scores = scores * support if measure == "support" else np.abs(scores)
    return np.argsort(-scores, kind="stable")


def _losses(instance: Instance, orders: NDArray[np.int64], masking: Masking) -> NDArray[np.float64]:
    """Return ``f(all) - f(kept)`` with the first k atoms of each order masked, and all others.

    From ``[orders, n]`` to ``[orders, 2, n + 1]``.
    """
    n = instance.num_atoms
    position = np.argsort(orders, axis=1)
    masked = position[:, np.newaxis, :] < np.arange(n + 1)[:, np.newaxis]  # [orders, n + 1, n]
    kept = np.stack([~masked, masked], axis=1)
    values = instance.predict_kept(kept.reshape(-1, n), masking).reshape(kept.shape[:-1])
    return values[0, 0, 0] - values
