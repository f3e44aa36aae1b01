"""Deletion and insertion tests: do the atoms that a method ranks highest matter to the model?"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Optional

import numpy as np
from numpy.typing import ArrayLike, NDArray

from molattn.chem.parse import Molecule
from molattn.errors import InputError
from molattn.explain.explainer import read_instances
from molattn.explain.instance import Instance
from molattn.explain.methods import METHODS, Method, MethodOptions
from molattn.model.model import MolAttn

_RESAMPLES = 2000
_RANDOM_ORDERS = 5
FEWEST = 30  # molecules, below which bootstrap intervals are too narrow for a verdict
_WORDS = {1: "better", 0: "no better", -1: "worse"}


@dataclass(frozen=True)
class Estimate:
    """A mean over molecules and its 95% confidence interval, by a percentile bootstrap."""

    mean: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        return f"{self.mean:{spec}} ({self.low:{spec}} to {self.high:{spec}})"


def bootstrap_mean(values: NDArray[np.float64], seed: int = 0) -> Estimate:
    """Estimate the mean of one value per molecule, ``[molecules]``.

    Values of the same molecules with the same seed are resampled in the same way.
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
        deletion_area: Mean change ``(f(all) - f(kept)) s`` of the prediction ``f`` over masks of
            the 0 to n top-ranked atoms (the area under the curve), where ``s`` is the sign of
            ``f(all) - f(none)``; large if they are necessary. Atoms are ranked by their scores,
            times ``s`` for a signed method.
        insertion_area: The same with all other atoms masked; small if these are sufficient.
        deletion_gain: Deletion area minus that of random orders of the same molecule.
        insertion_gain: Insertion area of random orders minus that of the method.
    """

    method: str
    deletion_area: Estimate
    insertion_area: Estimate
    deletion_gain: Estimate
    insertion_gain: Estimate

    @property
    def verdict(self) -> str:
        """Whether the method beats random: the 95% CIs of both gains are above 0."""
        gains = (self.deletion_gain, self.insertion_gain)
        deletion, insertion = (_WORDS[(gain.low > 0) - (gain.high < 0)] for gain in gains)
        if deletion == insertion == "better":
            return "beats random"
        return f"{deletion} in deletion, {insertion} in insertion"

    @property
    def estimates(self) -> list[Optional[Estimate]]:
        """Areas and gains in the order of a table's columns; random has no gains."""
        is_random = self.method == "random"
        gains = (None, None) if is_random else (self.deletion_gain, self.insertion_gain)
        return [self.deletion_area, gains[0], self.insertion_area, gains[1]]


@dataclass(frozen=True)
class Faithfulness:
    """Results of all methods on a set of molecules.

    Args:
        target: The target; the task, if several of its classes were tested.
        unit: Unit of the target and of all areas and gains.
        molecules: Number of molecules tested.
        skipped: Number of molecules that were skipped because they have a single atom.
        rows: The methods, then ``uniform``, then ``random``.
        outputs: Number of molecules tested on each output: one output, or for a multiclass task
            the most probable class of each molecule.
    """

    target: str
    unit: str
    molecules: int
    skipped: int
    rows: tuple[MethodFaithfulness, ...]
    outputs: dict[str, int]

    @property
    def is_conclusive(self) -> bool:
        """Whether there are enough molecules for a verdict."""
        return self.molecules >= FEWEST

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON types."""
        rows = [{**asdict(row), "verdict": row.verdict} for row in self.rows]
        return {**vars(self), "rows": rows}

    def table(self) -> str:
        """Return the results as a Markdown table."""
        unit = f", {self.unit}" if self.unit else ""
        gain = "gain over random"
        areas = f"Deletion area{unit}", f"Insertion area{unit}"
        lines = [["Ranking", areas[0], gain, areas[1], gain, "Verdict"], ["---"] * 6]
        for row in self.rows:
            values = ("-" if value is None else f"{value:.3f}" for value in row.estimates)
            lines.append([row.method, *values, "-" if row.method == "random" else row.verdict])
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    @property
    def sentence(self) -> str:
        """The methods that passed and those that failed."""
        tests = f"Deletion and insertion tests on {self.molecules:,} molecules"
        if not self.is_conclusive:
            return f"{tests}: too few for a verdict (at least {FEWEST} needed)."
        verdicts = {row.method.replace("_", " "): row.verdict for row in self.rows[:-2]}
        passed = [method for method, verdict in verdicts.items() if verdict == "beats random"]
        failed = [f"{method} ({verdicts[method]})" for method in verdicts if method not in passed]
        sentence = f"{tests}."
        if passed:
            sentence += f" Passed (beats random in both tests): {', '.join(passed)}."
        if failed:
            sentence += f" Not passed: {', '.join(failed)}. Do not rely on their scores."
        return sentence


def measure_faithfulness(
    model: MolAttn,
    smiles: Iterable[Molecule],
    methods: Optional[Sequence[str]] = None,
    *,
    target: Optional[str] = None,
    partners: Optional[Iterable[Molecule]] = None,
    features: Optional[ArrayLike] = None,
    **options: Any,
) -> Faithfulness:
    """Test explanation methods by deletion and insertion of the atoms that they rank highest.

    Deletion masks the top-ranked atoms: the faster the prediction changes, the better. Insertion
    masks all other atoms: the faster the prediction recovers, the better. Both are compared with
    five random rankings of each molecule. After Petsiuk, Das and Saenko 2018 ("RISE"), with the
    change of the prediction in the target's unit in place of the probability of a class.

    Args:
        model: The model.
        smiles: Molecules, preferably not in the training set.
        methods: Names in :data:`molattn.explain.METHODS`; None = all of them.
        target: As for :func:`molattn.explain.explain`, as are the next two.
        partners: Second molecules.
        features: Table features.
        options: Options of the methods, see :class:`molattn.explain.MethodOptions`; ``seed``
            applies to the test too.

    Raises:
        InputError: An unknown method or option, or no molecule with two or more atoms.
    """
    instances = [*read_instances(model, smiles, target, partners, features)]
    return measure_instances(instances, methods, MethodOptions(**options))


def measure_instances(
    instances: Sequence[Instance],
    methods: Optional[Sequence[str]],
    options: MethodOptions,
    progress: Callable[[], object] = lambda: None,
) -> Faithfulness:
    """Run the tests on featurized molecules; ``progress`` is called after each of them."""
    functions = [METHODS[name] for name in methods or METHODS]
    tested = [instance for instance in instances if instance.num_atoms > 1]
    if not tested:
        raise InputError(
            f"molecules: got {len(instances)}, none with two or more atoms; expected at least one"
        )
    names = [*(methods or METHODS), "uniform", "random"]
    areas = np.zeros((len(tested), len(names), 2))
    for k, instance in enumerate(map(replace, tested)):  # copies, to free what they cache
        rng = np.random.default_rng([options.seed, k])
        random = [rng.permutation(instance.num_atoms) for _ in range(_RANDOM_ORDERS)]
        changes = _changes(instance, functions, random, options)
        areas[k] = 0.5 * (changes[..., 1:] + changes[..., :-1]).mean(axis=-1)
        progress()
    gains = (areas - areas[:, -1:]) * np.array([1.0, -1.0])
    rows = tuple(
        MethodFaithfulness(
            name,
            *(bootstrap_mean(values[:, row, test]) for values in (areas, gains) for test in (0, 1)),
        )
        for row, name in enumerate(names)
    )
    target = tested[0].target
    outputs = Counter(instance.target.name for instance in tested)
    return Faithfulness(
        target=target.name if len(outputs) == 1 else target.task.name,
        unit=target.unit,
        molecules=len(tested),
        skipped=len(instances) - len(tested),
        rows=rows,
        outputs=dict(outputs),
    )


def _changes(
    instance: Instance,
    methods: Sequence[Method],
    random: Sequence[NDArray[np.int64]],
    options: MethodOptions,
) -> NDArray[np.float64]:
    """Return changes with the first k atoms masked, and with all others: ``[rows, 2, n + 1]``."""
    n = instance.num_atoms
    ends = instance.predict_kept(np.array([[True], [False]]) & np.ones(n, bool))
    sign = 1.0 if ends[0] >= ends[1] else -1.0
    scores = [
        method(instance, options).atoms * (sign if method.signed else 1) for method in methods
    ]
    orders = [np.argsort(-atom_scores, kind="stable") for atom_scores in scores]
    position = np.argsort([*orders, np.arange(n), *random], axis=1)
    masked = position[:, np.newaxis, :] < np.arange(n + 1)[:, np.newaxis]  # [orders, n + 1, n]
    unmasked = np.stack([~masked, masked], axis=1)
    values = instance.predict_kept(unmasked.reshape(-1, n)).reshape(unmasked.shape[:-1])
    changes = sign * (values[0, 0, 0] - values)
    of_random = changes[-len(random) :].mean(axis=0, keepdims=True)
    return np.concatenate([changes[: -len(random)], of_random])
