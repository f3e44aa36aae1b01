"""Predictions of atoms and bonds: intervals, and cells of tables."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, NamedTuple

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from molattn.chem import Featurizer
from molattn.config.base import checked
from molattn.errors import quoted
from molattn.model.artefact import (
    ENVIRONMENTS_FILE,
    LABELED_SITES_FILE,
    SITE_CALIBRATION_FILE,
    ModelFiles,
    to_json,
)
from molattn.model.columns import cell_text
from molattn.model.config import MolAttnConfig
from molattn.model.environments import RADII, site_environments
from molattn.model.networks import Networks, Records
from molattn.model.site_process import SiteProcess, site_inputs
from molattn.model.uncertainty import fewest_scores
from molattn.record import MoleculeRecord
from molattn.task import Level, Task, output_slices
from molattn.utils.console import counted

Array = NDArray[np.float64]

_MOST_SCORES = 1000
_PRIOR_ERRORS = 10.0  # of the mean, which count as those of each kind
_MOST_CODES = 256  # of an element


class SitePrediction(NamedTuple):
    """Predictions of the atoms, or the bonds, of n molecules, one molecule after another.

    They are in the order of :class:`molattn.chem.sites.Sites`; NaN of a site that is not in the
    graph.
    """

    outputs: Array  # values in own units, probabilities of classes, [S, outputs]
    low: Array  # lower end of the interval, infinite with too few molecules, [S, T]
    high: Array  # upper end, likewise
    expected_error: Array  # absolute, in own units, NaN of classes and without calibration, [S, T]
    starts: NDArray[np.int64]  # first site of each molecule, and the number of sites, [n + 1]


@checked
class SiteScores:
    """Absolute errors of the atoms (or bonds) of molecules, which determine intervals.

    Scores are errors relative to a difficulty: that of a kind of atoms, such as an element, times
    that of the radius up to which the surroundings of the atom had a label in the training. The
    difficulty of a kind is its mean error as a multiple of the mean of all, where 10 errors of the
    mean are added to its own; that of a radius likewise, of errors over the difficulties of kinds,
    by isotonic regression at least that of a larger radius. Atoms of one molecule are not
    independent, so that coverage is measured over molecules: for a new molecule that is
    exchangeable with the n others, the expected fraction of its atoms within their intervals is at
    least the level p. The half-width is the difficulty times the smallest score up to which the
    others have a mean fraction of at least (n + 1) p / n.

    Source: Angelopoulos et al., Conformal risk control, ICLR 2024.
    """

    molecules: int
    scores: tuple[float, ...]  # ascending; of more than 1,000, those at 1,000 even fractions
    fractions: tuple[float, ...]  # of scores up to each, the mean over molecules
    mean: float = 0.0  # error
    difficulties: dict[int, float] = field(default_factory=dict[int, float])  # of each kind
    by_radius: tuple[float, ...] = (1.0,) * (1 + RADII)  # of none, and of radius 0 to 3

    @classmethod
    def fit(
        cls,
        errors: Array,
        molecule: NDArray[np.int64],
        kinds: NDArray[np.int64],
        radii: NDArray[np.int64],
    ) -> "SiteScores":
        """Return the scores of errors ``[m]``.

        Each has the index of its molecule, its kind, and the number of its radii, see
        :meth:`SiteCalibration.radii`.
        """
        from scipy.optimize import isotonic_regression  # slow to import

        mean = float(errors.mean()) if len(errors) else 0.0
        names, index = np.unique(kinds, return_inverse=True)
        difficulties, _ = _difficulties(errors, index, len(names))
        errors = errors / difficulties[index]
        means, weights = _difficulties(errors, radii, 1 + RADII)
        by_radius: Array = isotonic_regression(means, weights=weights, increasing=False).x
        errors = errors / by_radius[radii]
        order = np.argsort(errors, kind="stable")
        _, index, counts = np.unique(molecule, return_inverse=True, return_counts=True)
        fractions = (1.0 / counts[index])[order].cumsum() / max(1, len(counts))
        even = np.arange(1, _MOST_SCORES + 1) / _MOST_SCORES
        ranks = np.arange(len(errors))
        if len(errors) > _MOST_SCORES:
            ranks = np.unique(np.minimum(np.searchsorted(fractions, even - 1e-9), len(errors) - 1))
        by_kind = dict(zip(names.tolist(), difficulties.tolist(), strict=True)) if mean else {}
        return cls(
            *(len(counts), tuple(errors[order][ranks].tolist()), tuple(fractions[ranks].tolist())),
            *(mean, by_kind, tuple(by_radius.tolist())),
        )

    def expected_errors(self, kinds: NDArray[np.int64], radii: NDArray[np.int64]) -> Array:
        """Return the expected absolute error of atoms, see :meth:`fit`; NaN without labels."""
        by_radius = np.array(self.by_radius)[radii] * (self.mean if self.molecules else math.nan)
        return by_radius * [self.difficulties.get(kind, 1.0) for kind in kinds.tolist()]

    def bound(self, level: float) -> float:
        """Return half the width of intervals as a multiple of the expected error.

        It is infinite with too few molecules for the level.
        """
        if not 0.0 < level < 1.0:
            raise ValueError(f"level: got {level}, expected a number between 0 and 1")
        needed = (self.molecules + 1) * level / max(1, self.molecules)
        rank = int(np.searchsorted(self.fractions, needed - 1e-9))
        if rank == len(self.scores):
            return math.inf
        return self.scores[rank] / (self.mean or 1.0)

    def half_widths(self, expected_errors: Array, level: float) -> Array:
        """Return half the width of intervals of atoms with these expected errors."""
        bound = self.bound(level)
        return bound * expected_errors if self.mean else np.full_like(expected_errors, bound)

    def __str__(self) -> str:
        molecules = counted(self.molecules, "molecule")
        highest = self.molecules / (self.molecules + 1)
        return f"intervals calibrated on {molecules} (highest possible level {highest:.3g})"


def _difficulties(errors: Array, groups: NDArray[np.int64], count: int) -> tuple[Array, Array]:
    """Return the mean errors of groups as multiples of the mean of all, and their weights."""
    mean = (errors.mean() if len(errors) else 0.0) or 1.0
    weights = np.bincount(groups, minlength=count).astype(np.float64) + _PRIOR_ERRORS
    sums = np.bincount(groups, errors / mean, minlength=count) + _PRIOR_ERRORS
    return sums / weights, weights


class SiteLabeled(NamedTuple):
    """Labels of atoms or bonds: values ``[S, T]``, NaN where missing; molecule and kind ``[S]``."""

    targets: Array
    molecule: NDArray[np.int64]
    kinds: NDArray[np.int64]  # of site_kinds
    environments: NDArray[np.uint64]  # of site_environments, [S, 4]


class SiteCalibration(NamedTuple):
    """What is known of atoms and bonds besides networks: errors, what had labels, processes.

    A task predicts atoms (bonds) of the kinds that had a label in the training, see
    :func:`site_kinds`; without a list of them it predicts all. ``environments`` are those of atoms
    (bonds) with a label, see :func:`molattn.model.environments.site_environments`.
    """

    scores: Mapping[str, SiteScores]  # of each regression by its name
    labeled: Mapping[str, tuple[int, ...]] = {}
    environments: Mapping[str, NDArray[np.uint64]] = {}
    processes: Mapping[Level, SiteProcess] = {}

    def fit(
        self,
        config: MolAttnConfig,
        outputs: Mapping[Level, Array],
        labels: Mapping[Level, SiteLabeled],
    ) -> "SiteCalibration":
        """Fit to labels of held-out molecules, and what :meth:`Networks.predict_sites` returns."""
        scores = {}
        for level, tasks in config.site_tasks.items():
            targets, molecule, kinds, hashes = labels[level]
            for index, (task, columns) in enumerate(zip(tasks, output_slices(tasks), strict=True)):
                errors = np.abs(targets[:, index] - outputs[level][:, columns.start])
                is_labeled = ~np.isnan(errors)
                if task.kind == "regression":
                    about = molecule, kinds, self.radii(task.name, hashes)
                    selected = (column[is_labeled] for column in about)
                    scores[task.name] = SiteScores.fit(errors[is_labeled], *selected)
        return self._replace(scores=scores)

    def radii(self, name: str, environments: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return up to how many radii each atom (bond) occurred with a label of a task, ``[S]``.

        0 = it did not even with radius 0; 4 = it did with radius 3.
        """
        learned = self.environments.get(name, environments[:0, 0])
        if not len(learned):
            return np.zeros(len(environments), dtype=np.int64)
        nearest = np.searchsorted(learned, environments).clip(max=len(learned) - 1)  # ascending
        return (learned[nearest] == environments).cumprod(axis=1).sum(axis=1)

    def lines(self) -> list[str]:
        """Return a log line on the calibration of each task."""
        return [f"{quoted(name)}: {errors}" for name, errors in self.scores.items()]

    def shortfalls(self, level: float) -> list[str]:
        """Return a log line for each task that is not calibrated for the level."""
        return [
            f"{quoted(name)}: no {level:.4g} interval: calibrated on "
            f"{counted(errors.molecules, 'molecule')}, at least {fewest_scores(level)} needed: "
            "train with a larger --validation-size"
            for name, errors in self.scores.items()
            if math.isinf(errors.bound(level))
        ]

    def to_files(self) -> dict[str, bytes]:
        """Return the content of its files in a saved model, by name."""
        scores = to_json(dict(self.scores), dict[str, SiteScores])
        content = {
            SITE_CALIBRATION_FILE: scores,
            LABELED_SITES_FILE: to_json(dict(self.labeled)),
            ENVIRONMENTS_FILE: safetensors.numpy.save(dict(self.environments)),
        }
        for level, process in self.processes.items():
            content |= process.to_files(level)
        return content

    @classmethod
    def from_files(cls, files: ModelFiles, config: MolAttnConfig) -> "SiteCalibration | None":
        """Read the files of :meth:`to_files`; None without them."""
        scores = files.parse(SITE_CALIBRATION_FILE, dict[str, SiteScores])
        labeled = files.parse(LABELED_SITES_FILE, dict[str, tuple[int, ...]])
        environments = files.arrays(ENVIRONMENTS_FILE)
        if scores is None:
            return None
        processes: dict[Level, SiteProcess] = {}
        for level in config.site_tasks:
            if process := SiteProcess.from_files(files, config, level):
                processes[level] = process
        return cls(scores, labeled or {}, environments, processes)


def site_outputs(
    networks: Networks,
    calibration: SiteCalibration | None,
    records: Records,
    batch_size: int = 256,
) -> dict[Level, Array]:
    """Predict atoms and bonds in own units and probabilities, ``[S, outputs]``."""
    processes = calibration.processes if calibration else {}
    options = {"batch_size": batch_size, "with_vectors": bool(processes)}
    outputs, vectors = networks.predict_sites(records, **options)
    for level, process in processes.items():
        if len(values := outputs[level]):
            inputs = site_inputs(records, level, vectors[level])
            outputs[level] = process.combine(networks.config.site_tasks[level], values, inputs)
    return outputs


def predict_sites(
    networks: Networks,
    calibration: SiteCalibration | None,
    records: Records,
    level: float,
    batch_size: int = 256,
) -> dict[Level, SitePrediction]:
    """Predict the atoms and bonds of molecules with intervals of a nominal coverage."""
    predictions = {}
    for site, outputs in site_outputs(networks, calibration, records, batch_size).items():
        tasks = networks.config.site_tasks[site]
        errors = np.full((len(outputs), len(tasks)), math.nan)
        half_widths = errors.copy()
        kinds = site_kinds(records, site, networks.config.featurizer)
        environments = site_environments(records, site)
        columns = output_slices(tasks)
        for index, task in enumerate(tasks):
            outputs[_is_unlabeled(calibration, task, kinds), columns[index]] = math.nan
            if calibration and (scores := calibration.scores.get(task.name)):
                radii = calibration.radii(task.name, environments)
                errors[:, index] = scores.expected_errors(kinds, radii)
                half_widths[:, index] = scores.half_widths(errors[:, index], level)
        centers = outputs[:, [at.start for at in columns]]
        errors[np.isnan(centers)] = math.nan
        starts = site_starts(records, site)
        ends = centers - half_widths, centers + half_widths
        predictions[site] = SitePrediction(outputs, *ends, errors, starts)
    return predictions


def _is_unlabeled(
    calibration: SiteCalibration | None, task: Task, kinds: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which atoms (bonds) of the graph are of kinds that never had a label."""
    labeled = calibration.labeled.get(task.name, kinds) if calibration else kinds
    return (kinds >= 0) & ~np.isin(kinds, labeled)


def site_starts(records: Records, level: Level) -> NDArray[np.int64]:
    """Return the first atom (or bond) of each molecule among all, and their number, ``[n + 1]``."""
    counts = [len(getattr(record.sites, f"{level}s").T) for record in records]
    return np.cumsum([0, *counts])


def site_atoms(record: MoleculeRecord, level: Level) -> tuple[list[str], list[list[int]]]:
    """Return the symbols of the atoms of a molecule, and the atoms of each atom or bond.

    Both are in the order of :class:`molattn.chem.sites.Sites`, by which atoms are numbered from 0.
    A bond that is not in the graph has none.
    """
    read = [*(record.symbols or ())]
    atoms = record.sites.atoms.tolist()
    symbols = [read[atom] if 0 <= atom < len(read) else "H" for atom in atoms]
    if level == "atom":
        return symbols, [[number] for number in range(len(atoms))]
    numbers = {atom: number for number, atom in enumerate(atoms) if atom >= 0}
    pairs = record.sites.bonds.T.tolist()
    return symbols, [[numbers[atom] for atom in pair if atom in numbers] for pair in pairs]


def site_kinds(records: Records, level: Level, featurizer: Featurizer) -> NDArray[np.int64]:
    """Return the kind of each atom (bond): its element, or both elements in any order, ``[S]``.

    Elements that the featurizer does not list count as one; -1 is a site that is not in the graph.
    """
    kinds = [np.zeros(0, dtype=np.int64)]
    column = element_column(featurizer)
    for record in records:
        ends = np.atleast_2d(getattr(record.sites, f"{level}s"))
        codes = record.atoms[:, column].astype(np.int64)[ends]
        kinds.append(np.where(ends[0] < 0, -1, _kinds(codes)))
    return np.concatenate(kinds)


def _kinds(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the kinds of atoms (bonds) by the codes of their elements, ``[1 or 2, S]``."""
    codes = np.sort(codes, axis=0)
    return _MOST_CODES * (len(codes) - 1) * codes[0] + codes[-1]


def element_column(featurizer: Featurizer) -> int:
    """Return the index of the code of the element among the codes of an atom."""
    names = featurizer.atom_names
    return names.index("element") if "element" in names else 0


def unlabeled_elements(
    config: MolAttnConfig, calibration: SiteCalibration | None, level: Level
) -> NDArray[np.bool_]:
    """Return which codes of elements never had a label of each output, ``[E, outputs]``.

    Of bonds, pairs of codes, ``[E, E, outputs]``.
    """
    codes = config.featurizer.atom_sizes[element_column(config.featurizer)]
    shape = (codes,) * (1 + (level == "bond"))
    kinds = _kinds(np.indices(shape).reshape(len(shape), -1))
    columns = [
        _is_unlabeled(calibration, task, kinds)
        for task in config.site_tasks[level]
        for _ in task.output_names
    ]
    return np.stack(columns, axis=-1).reshape(*shape, -1)


def count_unlabeled(
    config: MolAttnConfig,
    calibration: SiteCalibration | None,
    records: Records,
    levels: Iterable[Level],
) -> Counter[str]:
    """Count atoms (bonds) of kinds that never had a label, by column."""
    counts = Counter[str]()
    for level in levels:
        kinds = site_kinds(records, level, config.featurizer)
        for task in config.site_tasks[level]:
            unlabeled = _is_unlabeled(calibration, task, kinds)
            counts[f"{quoted(task.name)}, {level}s"] = int(unlabeled.sum())
    return counts


class SiteColumns:
    """The columns and cells of predictions of atoms and bonds, a list in each cell.

    Each task has the columns of :attr:`molattn.task.Task.columns`; a regression of a calibrated
    model adds ``NAME_low``, ``NAME_high`` and ``NAME_expected_error``. Lists are JSON or, for SDF
    files, property lists as RDKit reads them (``atom.dprop.NAME_predicted``), of the atoms of the
    mol block alone.

    Args:
        config: The configuration of the model.
        calibration: The calibration of its intervals; None = there are no intervals.
        structure: What an SDF file is drawn from: the mol ``block`` of the input, or its
            ``smiles``, without explicit hydrogens; "" = cells are JSON.
    """

    def __init__(
        self,
        config: MolAttnConfig,
        calibration: SiteCalibration | None,
        structure: Literal["", "block", "smiles"] = "",
    ) -> None:
        self._tasks = config.site_tasks
        self._is_calibrated = calibration is not None
        self._structure = structure
        self.columns: dict[str, str] = {}
        """The level of each column, by name."""
        for level, tasks in self._tasks.items():
            for task in tasks:
                names = [*task.columns, *self._ends(task)]
                prefixes = [f"{level}.dprop."] * len(names)
                prefixes[0] = f"{level}.prop." if task.classes else prefixes[0]
                for prefix, name in zip(prefixes, names, strict=True):
                    self.columns[prefix * bool(structure) + name] = level

    def _ends(self, task: Task) -> list[str]:
        has_interval = self._is_calibrated and task.kind == "regression"
        ends = ("low", "high", "expected_error")
        return [f"{task.name}_{end}" for end in ends] if has_interval else []

    def values(
        self, prediction: SitePrediction, level: Level, sites: slice
    ) -> list[list[float | str | None]]:
        """Return the values of some atoms (bonds) in each column of a level; None is missing."""
        values: list[list[float | str | None]] = []
        for index, columns in enumerate(output_slices(tasks := self._tasks[level])):
            task = tasks[index]
            outputs = prediction.outputs[sites, columns]
            is_missing = np.logical_or.reduce(np.isnan(outputs), axis=1)
            if task.classes:
                rows = zip(is_missing.tolist(), outputs.tolist(), strict=True)
                values.append([None if gap else task.cells(row)[0] for gap, row in rows])
            ends = (prediction.low, prediction.high, prediction.expected_error)
            ends = ends if self._ends(task) else ()
            for column in (*outputs.T, *(end[sites, index] for end in ends)):
                numbers = zip(np.isfinite(column).tolist(), column.tolist(), strict=True)
                values.append([number if is_finite else None for is_finite, number in numbers])
        return values

    def cells(
        self, predictions: Mapping[Level, SitePrediction], records: Records
    ) -> Iterator[list[str]]:
        """Yield the cells of each molecule."""
        for row, record in enumerate(records):
            cells = []
            for level, prediction in predictions.items():
                sites = slice(prediction.starts[row], prediction.starts[row + 1])
                rows = self._written(record.sites, level)
                values = self.values(prediction, level, sites)
                cells += [self._list([column[row] for row in rows]) for column in values]
            yield cells

    def _written(self, sites: Any, level: Level) -> list[int]:
        """Return the indices of the atoms (bonds) that a cell lists."""
        is_heavy = sites.heavy_sites(level)
        if not self._structure:
            return [*range(len(is_heavy))]
        drawn = sites.drawn[level == "bond"]
        is_block = self._structure == "block"
        return [*range(drawn)] if is_block else np.flatnonzero(is_heavy[:drawn]).tolist()

    def _list(self, values: Sequence[float | str | None]) -> str:
        if self._structure:
            texts = ("n/a" if value is None else cell_text(value) for value in values)
            return " ".join("_".join(text.split()) for text in texts)  # RDKit splits at spaces
        texts = ("null" if x is None else cell_text(x) for x in values)
        quoted_texts = (
            json.dumps(value) if isinstance(value, str) else text
            for value, text in zip(values, texts, strict=True)
        )
        return f"[{', '.join(quoted_texts)}]"
