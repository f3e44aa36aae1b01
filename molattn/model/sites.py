"""Predictions of atoms and bonds: intervals, and cells of tables."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from molattn.config.base import checked
from molattn.errors import quoted
from molattn.model.artefact import SITE_CALIBRATION_FILE, ModelFiles, to_json
from molattn.model.columns import cell_text
from molattn.model.config import MolAttnConfig
from molattn.model.networks import Networks, Records
from molattn.task import Level, Task, output_slices
from molattn.utils.console import counted

Array = NDArray[np.float64]

_MOST_SCORES = 1000


class SitePrediction(NamedTuple):
    """Predictions of the atoms, or the bonds, of n molecules, one molecule after another.

    They are in the order of :class:`molattn.chem.sites.Sites`; NaN of a site that is not in the
    graph.
    """

    outputs: Array  # values in own units, probabilities of classes, [S, outputs]
    low: Array  # lower end of the interval, infinite with too few molecules, [S, T]
    high: Array  # upper end, likewise
    starts: NDArray[np.int64]  # first site of each molecule, and the number of sites, [n + 1]


@checked
class SiteScores:
    """Absolute errors of the atoms (or bonds) of molecules, which determine intervals.

    Atoms of one molecule are not independent, so that coverage is measured over molecules: for a
    new molecule that is exchangeable with the n others, the expected fraction of its atoms within
    their intervals is at least the level p. The half-width is the smallest error up to which the
    others have a mean fraction of at least (n + 1) p / n.

    Source: Angelopoulos et al., Conformal risk control, ICLR 2024.
    """

    molecules: int
    scores: tuple[float, ...]  # ascending; of more than 1,000, those at 1,000 even fractions
    fractions: tuple[float, ...]  # of errors up to each score, the mean over molecules

    @classmethod
    def fit(cls, errors: Array, molecule: NDArray[np.int64]) -> "SiteScores":
        """Return the scores of errors ``[m]`` of molecules with an index for each error."""
        order = np.argsort(errors, kind="stable")
        _, index, counts = np.unique(molecule, return_inverse=True, return_counts=True)
        fractions = (1.0 / counts[index])[order].cumsum() / max(1, len(counts))
        even = np.arange(1, _MOST_SCORES + 1) / _MOST_SCORES
        ranks = np.arange(len(errors))
        if len(errors) > _MOST_SCORES:
            ranks = np.unique(np.minimum(np.searchsorted(fractions, even - 1e-9), len(errors) - 1))
        kept_errors = errors[order][ranks].tolist()  # name: those of the ranks
        return cls(len(counts), tuple(kept_errors), tuple(fractions[ranks].tolist()))

    def bound(self, level: float) -> float:
        """Return half the width of intervals; infinite with too few molecules for the level."""
        if not 0.0 < level < 1.0:
            raise ValueError(f"level: got {level}, expected a number between 0 and 1")
        needed = (self.molecules + 1) * level / max(1, self.molecules)
        rank = int(np.searchsorted(self.fractions, needed - 1e-9))
        return self.scores[rank] if rank < len(self.scores) else math.inf

    def __str__(self) -> str:
        molecules = counted(self.molecules, "molecule")
        highest = self.molecules / (self.molecules + 1)
        return f"intervals calibrated on {molecules} (highest possible level {highest:.3g})"


class SiteLabeled(NamedTuple):
    """Labels of atoms or bonds: values ``[S, T]``, NaN where missing; molecule of each ``[S]``."""

    targets: Array
    molecule: NDArray[np.int64]


class SiteCalibration(NamedTuple):
    """The errors of each regression of atoms or bonds by its name."""

    scores: Mapping[str, SiteScores]

    @classmethod
    def fit(
        cls,
        config: MolAttnConfig,
        outputs: Mapping[Level, Array],
        labels: Mapping[Level, SiteLabeled],
    ) -> "SiteCalibration":
        """Fit to labels of held-out molecules, and what :meth:`Networks.predict_sites` returns."""
        scores = {}
        for level, tasks in config.site_tasks.items():
            targets, molecule = labels[level]
            for index, (task, columns) in enumerate(zip(tasks, output_slices(tasks), strict=True)):
                errors = np.abs(targets[:, index] - outputs[level][:, columns.start])
                is_labeled = ~np.isnan(errors)
                if task.kind == "regression":
                    scores[task.name] = SiteScores.fit(errors[is_labeled], molecule[is_labeled])
        return cls(scores)

    def half_widths(self, tasks: Sequence[Task], level: float) -> Array:
        """Return half the width of the intervals of each task, ``[T]``; NaN of classes."""
        scores = (self.scores.get(task.name) for task in tasks)
        return np.array([math.nan if errors is None else errors.bound(level) for errors in scores])

    def lines(self) -> list[str]:
        """Return a log line on the calibration of each task."""
        return [f"{quoted(name)}: {errors}" for name, errors in self.scores.items()]

    def to_files(self) -> dict[str, bytes]:
        """Return the content of its file in a saved model, by name."""
        return {SITE_CALIBRATION_FILE: to_json(dict(self.scores), dict[str, SiteScores])}

    @classmethod
    def from_files(cls, files: ModelFiles) -> "SiteCalibration | None":
        """Read the file of :meth:`to_files`; None without it."""
        scores = files.parse(SITE_CALIBRATION_FILE, dict[str, SiteScores])
        return None if scores is None else cls(scores)


def predict_sites(
    networks: Networks,
    calibration: SiteCalibration | None,
    records: Records,
    level: float,
    batch_size: int = 256,
) -> dict[Level, SitePrediction]:
    """Predict the atoms and bonds of molecules with intervals of a nominal coverage."""
    predictions = {}
    for site, outputs in networks.predict_sites(records, batch_size).items():
        tasks = networks.config.site_tasks[site]
        half_widths = np.full(len(tasks), math.nan)
        if calibration is not None:
            half_widths = calibration.half_widths(tasks, level)
        centers = outputs[:, [columns.start for columns in output_slices(tasks)]]
        starts = site_starts(records, site)
        ends = centers - half_widths, centers + half_widths
        predictions[site] = SitePrediction(outputs, *ends, starts)
    return predictions


def site_starts(records: Records, level: Level) -> NDArray[np.int64]:
    """Return the first atom (or bond) of each molecule among all, and their number, ``[n + 1]``."""
    counts = [len(getattr(record.sites, f"{level}s").T) for record in records]
    return np.cumsum([0, *counts])


class SiteColumns:
    """The columns and cells of predictions of atoms and bonds, a list in each cell.

    Each task has the columns of :attr:`molattn.task.Task.columns`; a regression of a calibrated
    model adds ``NAME_low`` and ``NAME_high``. Lists are JSON or, for SDF files, property lists as
    RDKit reads them (``atom.dprop.NAME_predicted``), of the atoms of the mol block alone.

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
        return [f"{task.name}_low", f"{task.name}_high"] if has_interval else []

    def values(
        self, prediction: SitePrediction, level: Level, sites: slice
    ) -> list[list[float | str | None]]:
        """Return the values of some atoms (bonds) in each column of a level; None is missing."""
        values: list[list[float | str | None]] = []
        for index, columns in enumerate(output_slices(tasks := self._tasks[level])):
            task = tasks[index]
            outputs = prediction.outputs[sites, columns]
            is_missing = np.isnan(outputs).any(axis=1)
            if task.classes:
                rows = zip(is_missing.tolist(), outputs.tolist(), strict=True)
                values.append([None if gap else task.cells(row)[0] for gap, row in rows])
            ends = (prediction.low, prediction.high) if self._ends(task) else ()
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
            return " ".join("n/a" if value is None else cell_text(value) for value in values)
        texts = ("null" if x is None else cell_text(x) for x in values)
        quoted_texts = (
            json.dumps(value) if isinstance(value, str) else text
            for value, text in zip(values, texts, strict=True)
        )
        return f"[{', '.join(quoted_texts)}]"
