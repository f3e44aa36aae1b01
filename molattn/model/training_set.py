"""What a model keeps of its training rows: how labels are distributed, and the molecules."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Optional

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from molattn.chem.fingerprint_index import FingerprintIndex
from molattn.chem.fingerprints import Fingerprint
from molattn.chem.parse import Molecule
from molattn.errors import InputError
from molattn.model.artefact import LABELS_FILE, MOLECULES_FILE, ModelFiles, load_arrays
from molattn.task import Task

__all__ = [
    "LEVELS",
    "LabelDistribution",
    "TrainingMolecule",
    "TrainingMolecules",
    "TrainingSet",
    "percentile",
]

Array = NDArray[np.float64]

LEVELS = np.linspace(0.0, 1.0, 101)
"""Levels of the quantiles that describe a distribution."""
_SMILES = "smiles"


@dataclass(frozen=True)
class LabelDistribution:
    """How the training labels of a task are distributed.

    Args:
        count: Number of labels.
        quantiles: Of a regression with labels, their 101 percentiles from 0% to 100%; else empty.
        classes: Of a classification, the number of labels of each class; else empty.
        above: The highest lower bound of a censored label, such as 100 of ``>100``, if any.
        below: The lowest upper bound, such as 0 of ``<0``, if any.
    """

    count: int
    quantiles: tuple[float, ...] = ()
    classes: tuple[int, ...] = ()
    above: Optional[float] = None
    below: Optional[float] = None

    @classmethod
    def of(cls, task: Task, labels: Array, bounds: Optional[Array] = None) -> "LabelDistribution":
        """Describe labels ``[n]`` and bounds of censored ones ``[2, n]``, NaN where missing."""
        known = labels[~np.isnan(labels)]
        if task.kind != "regression":
            counts = np.bincount(known.astype(int), minlength=len(task.classes))
            return cls(len(known), classes=tuple(counts.tolist()))
        quantiles = tuple(np.quantile(known, LEVELS).tolist()) if len(known) else ()
        if bounds is None:
            return cls(len(known), quantiles)
        lower, upper = (ends[~np.isnan(ends)].tolist() for ends in bounds)
        return cls(
            len(known), quantiles, above=max(lower, default=None), below=min(upper, default=None)
        )

    def fits(self, task: Task) -> bool:
        """Return whether labels of a task can be distributed so."""
        return (
            len(self.quantiles) == (len(LEVELS) if self.count and not task.classes else 0)
            and len(self.classes) == len(task.classes)
            and bool(np.isfinite(self.quantiles).all())
            and self.quantiles == tuple(sorted(self.quantiles))
        )


def percentile(value: float, quantiles: Sequence[float]) -> Optional[float]:
    """Return the percentage of numbers that are below a value, from 0 to 100.

    Args:
        value: The value.
        quantiles: The 101 percentiles of the numbers, or none.

    Returns:
        The percentage, of equal quantiles the middle; None without quantiles.
    """
    if not len(quantiles):
        return None
    first, last = (np.searchsorted(quantiles, value, side) for side in ("left", "right"))
    if first < last:  # among equal quantiles
        return float((first + last - 1) / 2)
    return float(np.interp(value, quantiles, 100.0 * LEVELS))


class TrainingMolecule(NamedTuple):
    """A training molecule that is similar to another.

    Args:
        row: Its number in the table of the training, as messages count it.
        smiles: As written there.
        similarity: Tanimoto similarity of the two, from 0 to 1.
        labels: Its labels by task: numbers, and classes by name; None where missing or censored.
    """

    row: int
    smiles: str
    similarity: float
    labels: dict[str, float | str | None]


@dataclass(frozen=True)
class TrainingMolecules:
    """The training molecules with their labels.

    Args:
        rows: Their numbers in the table, as messages count them, ``int64 [n]``.
        smiles: As written.
        targets: Labels ``[n, T]`` in own units and class indices, NaN where missing or censored.
        places: Fingerprint of each among those of the model, ``int32 [n]``; -1 = not among them,
            as of validation rows of a model without a Gaussian process, which learns from them.
    """

    rows: NDArray[np.int64]
    smiles: tuple[str, ...]
    targets: Array
    places: NDArray[np.int32]

    @classmethod
    def of(
        cls,
        rows: NDArray[np.int64],
        smiles: Sequence[str],
        targets: Array,
        fingerprints: Sequence[Fingerprint],
        known: FingerprintIndex,
    ) -> "TrainingMolecules":
        """Look up the fingerprints of n molecules among those of a model."""
        places = {row.tobytes(): place for place, row in enumerate(known.fingerprints)}
        found = np.array([places.get(row.tobytes(), -1) for row in fingerprints], dtype=np.int32)
        return cls(rows, tuple(smiles), targets, found)

    def nearest(
        self,
        molecules: Sequence[Molecule | Fingerprint],
        count: int,
        known: FingerprintIndex,
        tasks: Sequence[Task],
    ) -> list[list[TrainingMolecule]]:
        """Return for each molecule the ``count`` most similar ones, in descending order.

        ``known`` and ``tasks`` are those of the model.
        """
        order = np.argsort(self.places, kind="stable")
        starts = np.searchsorted(self.places[order], np.arange(len(known.fingerprints) + 1))
        result = []
        for places, similarity in known.nearest(molecules, count):
            result.append(
                [
                    TrainingMolecule(
                        int(self.rows[at]), self.smiles[at], value, self._labels(at, tasks)
                    )
                    for place, value in zip(places.tolist(), similarity.tolist(), strict=True)
                    for at in order[starts[place] : starts[place + 1]].tolist()
                ][:count]
            )
        return result

    def _labels(self, at: int, tasks: Sequence[Task]) -> dict[str, float | str | None]:
        return {
            task.name: None
            if np.isnan(value)
            else task.classes[int(value)]
            if task.classes
            else float(value)
            for task, value in zip(tasks, self.targets[at], strict=True)
        }

    def to_bytes(self) -> bytes:
        """Return the content of a safetensors file."""
        text = np.frombuffer(json.dumps(self.smiles).encode(), dtype=np.uint8)
        arrays = {name: getattr(self, name) for name in ("rows", "targets", "places")}
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        return safetensors.numpy.save({_SMILES: text, **contiguous})

    @classmethod
    def from_bytes(
        cls, content: bytes, path: Path, known: FingerprintIndex, tasks: Sequence[Task]
    ) -> "TrainingMolecules":
        """Read the output of :meth:`to_bytes`.

        Args:
            content: The content of a file.
            path: The file, for error messages.
            known: Fingerprints of the model.
            tasks: Of the model.

        Raises:
            InputError: The file is damaged, or of another model.
        """
        schema = {
            "rows": (np.int64, ("rows",)),
            "targets": (np.float64, ("rows", len(tasks))),
            "places": (np.int32, ("rows",)),
            _SMILES: (np.uint8, ("bytes",)),
        }
        found = load_arrays(content, path, schema)
        try:
            smiles = TypeAdapter(list[str]).validate_json(found.pop(_SMILES).tobytes(), strict=True)
        except ValidationError:
            smiles = []
        if len(smiles) != len(found["rows"]):
            raise InputError(f"{path}: expected the SMILES of each row")
        one = cls(smiles=tuple(smiles), **found)
        classes = np.array([len(task.classes) or np.inf for task in tasks])
        is_class = np.isfinite(classes)
        labels = one.targets[:, is_class]
        if ((one.places < -1) | (one.places >= len(known.fingerprints))).any():
            raise InputError(f"{path}: fingerprints that the model does not have")
        if (
            np.isinf(one.targets).any()
            or ((labels < 0.0) | (labels >= classes[is_class]) | (labels % 1.0 > 0.0)).any()
        ):
            raise InputError(f"{path}: labels that do not fit the tasks")
        return one


@dataclass(frozen=True, repr=False)
class TrainingSet:
    """What a model keeps of its training rows.

    Args:
        labels: The distribution of the labels of each task.
        molecules: The molecules; None = they are not kept.
    """

    labels: tuple[LabelDistribution, ...]
    molecules: Optional[TrainingMolecules] = None

    @classmethod
    def of(
        cls,
        tasks: Sequence[Task],
        targets: Array,
        molecules: Optional[TrainingMolecules] = None,
        bounds: Optional[Array] = None,
    ) -> "TrainingSet":
        """Describe labels ``[n, T]`` and bounds of censored ones ``[2, n, T]``; NaN is missing."""
        labels = (
            LabelDistribution.of(
                task, targets[:, place], None if bounds is None else bounds[:, :, place]
            )
            for place, task in enumerate(tasks)
        )
        return cls(tuple(labels), molecules)

    def are_shares(self, task: Task, place: int) -> bool:
        """Return whether the labels of a task are in percent, and all from 0 to 100.

        A censored label such as ``>100`` is not.
        """
        labels = self.labels[place]
        if task.unit != "%" or not labels.quantiles:
            return False
        return (
            0 <= labels.quantiles[0] <= labels.quantiles[-1] <= 100
            and (labels.above is None or labels.above < 100)
            and (labels.below is None or labels.below > 0)
        )

    def to_files(self, tasks: Sequence[Task]) -> dict[str, bytes]:
        """Return the content of each file by name."""
        by_task = {
            task.name: {name: value for name, value in vars(one).items() if value not in ((), None)}
            for task, one in zip(tasks, self.labels, strict=True)
        }
        files = {LABELS_FILE: (json.dumps(by_task, ensure_ascii=False) + "\n").encode()}
        if self.molecules is not None:
            files[MOLECULES_FILE] = self.molecules.to_bytes()
        return files

    @classmethod
    def from_files(
        cls, files: ModelFiles, tasks: Sequence[Task], known: Optional[FingerprintIndex]
    ) -> "Optional[TrainingSet]":
        """Read what a saved model keeps; None if it keeps nothing.

        Args:
            files: Of the model.
            tasks: Its tasks.
            known: Fingerprints of its training molecules; None = it has none.

        Raises:
            InputError: Files that are damaged, or belong to another model.
        """
        if LABELS_FILE not in files.content:
            return None
        by_task, path = (
            files.parse(LABELS_FILE, dict[str, LabelDistribution]),
            files.folder / LABELS_FILE,
        )
        labels = tuple(by_task[task.name] for task in tasks if task.name in by_task)
        if len(labels) != len(tasks) or not all(map(LabelDistribution.fits, labels, tasks)):
            raise InputError(f"{path}: not the labels of the tasks of the model")
        content = files.content.get(MOLECULES_FILE)
        if content is None:
            return cls(labels)
        path = files.folder / MOLECULES_FILE
        if known is None:
            raise InputError(f"{path}: the model has no fingerprints of training molecules")
        return cls(labels, TrainingMolecules.from_bytes(content, path, known, tasks))
