"""What a model knows of its targets and training rows: meaning, labels, and molecules."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import safetensors.numpy
import torch
from numpy.typing import NDArray
from rdkit import Chem

from molattn.chem.fingerprint_index import FingerprintIndex
from molattn.chem.fingerprints import Fingerprint
from molattn.chem.limits import Standardize, read_molecule
from molattn.chem.parse import Molecule, quiet
from molattn.config import MoleculeLimits
from molattn.config.base import checked
from molattn.errors import SmilesError
from molattn.model.artefact import LABELS_FILE, MOLECULES_FILE, ModelFiles, to_json
from molattn.model.config import MolAttnConfig
from molattn.model.target_transform import TargetTransform
from molattn.task import Task

Array = NDArray[np.float64]
Label = float | str | None
"""A label in its own unit, or names of classes; None if it is missing or censored."""

CLASS_SEPARATOR = " / "
"""Between the names of classes of a molecule with labels that differ."""

# Molecules whose parent may be another one have fragments or charges other than of nitro groups.
_NITRO = re.compile(r"\[N\+\]\((=O\)\[O-\]|\[O-\]\)(=O)?)")
_CHARGED = re.compile(r"\.|[+-]\d*\]")
_STEREO = re.compile(r"[@/\\]")
_ATOM = re.compile(r"\[\d*([A-Za-z][a-z]?)[^\]]*\]|(Cl|Br|[BCNOPSFIbcnops])|(%\d\d|\d)")

LEVELS = np.linspace(0.0, 1.0, 101)
"""Levels of the quantiles that describe a distribution."""


@checked
class Threshold:
    """A threshold in use for a property."""

    text: str  # what holds for values in the range, or a remark without a range
    low: int | float | None = None  # smallest value of the range
    high: int | float | None = None  # its upper end, which is not part of it
    source: str = ""  # who uses it
    verdict: Literal["", "good", "poor"] = ""  # of values in the range; empty = neither, or unknown

    def __str__(self) -> str:
        if self.low is None:
            words = "" if self.high is None else f"below {self.high}: "
        else:
            high = "and above" if self.high is None else f"to {self.high}"
            words = f"{self.low} {high}: "
        return f"{words}{self.text}{f' ({self.source})' if self.source else ''}"


@checked
class Endpoint:
    """What a predicted property means, for people who read predictions."""

    title: str
    category: str = ""  # group of properties, such as absorption
    description: str = ""  # what it is, in a sentence or two
    assay: str = ""  # how it was measured
    limitations: str = ""  # what the training data cannot tell
    unit: str = ""  # or what the probability is of
    form: Literal["", "parent", "written"] = ""  # of molecules that are learned and predicted
    direction: str = ""  # which values are desired, as a rule
    thresholds: tuple[Threshold, ...] = ()
    source: str = ""  # of the training data
    license: str = ""  # of the training data
    rows: int | None = None  # number of training molecules
    scores: str = ""  # in cross-validation
    coverage: float | None = None  # of the 90% intervals in cross-validation


@checked
class LabelDistribution:
    """How the training labels of a task are distributed."""

    count: int
    quantiles: tuple[float, ...] = ()  # of a regression with labels: percentiles, 0% to 100%
    classes: tuple[int, ...] = ()  # of a classification: number of labels of each class
    above: float | None = None  # the highest lower bound of a censored label, as 100 of >100
    below: float | None = None  # the lowest upper bound

    @classmethod
    def of(cls, task: Task, labels: Array, bounds: Array | None = None) -> "LabelDistribution":
        """Describe labels ``[n]`` and bounds of censored ones ``[2, n]``, NaN where missing."""
        is_censored = np.isnan(labels)
        labels = labels[~is_censored]
        if task.kind != "regression":
            counts = np.bincount(labels.astype(int), minlength=len(task.classes))
            return cls(len(labels), classes=tuple(counts.tolist()))
        quantiles = tuple(np.quantile(labels, LEVELS).tolist()) if len(labels) else ()
        ends = [] if bounds is None else bounds[:, is_censored]
        lower, upper = (row[~np.isnan(row)] for row in ends) if len(ends) else ([], [])
        return cls(
            len(labels), quantiles, above=max(lower, default=None), below=min(upper, default=None)
        )

    def with_labels(self, task: Task, labels: Array, bounds: Array) -> "LabelDistribution":
        """Add labels and bounds, those of :meth:`of`; earlier ones are known by their quantiles."""
        if task.kind != "regression":
            earlier = np.repeat(np.arange(len(self.classes)), self.classes).astype(float)
        else:
            earlier = np.interp(np.linspace(0.0, 1.0, self.count), LEVELS, self.quantiles or LEVELS)
        limits = np.full((2, len(earlier) + 2), np.nan)
        limits[0, -2], limits[1, -1] = (
            np.nan if x is None else x for x in (self.above, self.below)
        )
        all_labels = np.concatenate([earlier, [np.nan, np.nan], labels])
        return self.of(task, all_labels, np.hstack([limits, bounds]))


def percentile(value: float, quantiles: Sequence[float]) -> float | None:
    """Return the percentage of numbers that are below a value, from 0 to 100.

    ``quantiles`` are the 101 percentiles of the numbers, or none; of equal ones it is the middle.
    """
    if not len(quantiles):
        return None
    first, last = (np.searchsorted(quantiles, value, side) for side in ("left", "right"))
    if first < last:  # among equal quantiles
        return float((first + last - 1) / 2)
    return float(np.interp(value, quantiles, 100.0 * LEVELS))


class TrainingMolecule(NamedTuple):
    """A training molecule that is similar to another."""

    row: int  # its number in the table of the training, as messages count it
    smiles: str  # as written there
    similarity: float  # Tanimoto similarity of the two, from 0 to 1
    labels: dict[str, Label]  # by task


class Measured(NamedTuple):
    """The training label of a molecule, or else of its stereoisomers; None without one."""

    label: Label = None
    of_stereoisomers: Label = None


@dataclass(frozen=True)
class TrainingMolecules:
    """The training molecules with their labels.

    Validation rows have no fingerprint (-1) unless a Gaussian process learns from them.
    """

    rows: NDArray[np.int64]  # their numbers in the table, as messages count them, [n]
    smiles: tuple[str, ...]  # as written
    targets: Array  # labels in own units, class indices, NaN if missing or censored, [n, T]
    # The index of each molecule's fingerprint among the fingerprints of the model, [n].
    places: NDArray[np.int32]  # name: key of a saved file

    @classmethod
    def of(
        cls,
        rows: NDArray[np.int64],
        smiles: Sequence[str],
        targets: Array,
        fingerprints: Sequence[Fingerprint],
        model_fingerprints: FingerprintIndex,
    ) -> "TrainingMolecules":
        """Look up the fingerprints of n molecules among those of a model."""
        index = model_fingerprints.indices(fingerprints)
        return cls(rows, tuple(smiles), targets, index.astype(np.int32))

    def nearest(
        self,
        molecules: Sequence[Molecule | Fingerprint],
        count: int,
        model_fingerprints: FingerprintIndex,
        tasks: Sequence[Task],
    ) -> list[list[TrainingMolecule]]:
        """Return the ``count`` most similar training molecules of each molecule.

        ``model_fingerprints`` and ``tasks`` are those of the model.
        """
        return [
            [
                TrainingMolecule(
                    int(self.rows[row]), self.smiles[row], value, self._labels(row, tasks)
                )
                for number, value in zip(numbers.tolist(), similarity.tolist(), strict=True)
                for row in self._rows_at(number)
            ][:count]
            for numbers, similarity in model_fingerprints.nearest(molecules, count)
        ]

    def _labels(self, row: int, tasks: Sequence[Task]) -> dict[str, Label]:
        columns = zip(tasks, self.targets[row, :, None], strict=True)
        return {task.name: _merged(task, None, labels) for task, labels in columns}

    def measured(self, smiles: str, fingerprint: int, config: MolAttnConfig) -> list[Measured]:
        """Return the labels of a molecule or its stereoisomers, of each task, if there are any.

        See :meth:`molattn.MolAttn.measured`.

        Args:
            smiles: Its canonical SMILES, as the model reads it.
            fingerprint: The index of its fingerprint among those of the model, -1 = none.
            config: The configuration of the model, which says how it reads molecules.
        """
        rows = [*self._rows_at(fingerprint), *self._charged.get(_heavy_atoms(smiles), ())]
        if not (rows and smiles):
            return [Measured()] * len(config.tasks)
        query = _forms(smiles, False, True) if _STEREO.search(smiles) else (smiles, smiles)
        options = config.standardize, config.unify_drawings
        written = [self.smiles[row] for row in rows]
        forms = np.array([query if text == smiles else _forms(text, *options) for text in written])
        is_same = (forms[:, :1] == query[0]) & ~np.isnan(self.targets[rows])
        is_drawn_flat = (forms == query[1]).all(axis=1)[:, None]
        is_used = np.where(is_same.any(axis=0), is_same, is_drawn_flat)
        labels = np.where(is_used, self.targets[rows], np.nan)
        is_isomer = (forms[:, 1:] == query[1]) & np.isnan(labels).all(axis=0)
        of_isomers = np.where(is_isomer, self.targets[rows], np.nan)
        tasks = zip(config.tasks, config.target_transforms, labels.T, of_isomers.T, strict=True)
        return [
            Measured(*(_merged(task, transform, column) for column in columns))
            for task, transform, *columns in tasks
        ]

    def _rows_at(self, fingerprint: int) -> list[int]:
        """Return the molecules with a fingerprint, by its index."""
        order, indices = self._by_fingerprint
        start, stop = np.searchsorted(indices, [fingerprint, fingerprint + 1])
        return order[start:stop].tolist() if fingerprint >= 0 else []

    @cached_property
    def _by_fingerprint(self) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
        order = np.argsort(self.places, kind="stable")
        return order, self.places[order]

    @cached_property
    def _charged(self) -> dict[str, list[int]]:
        """Molecules that their fingerprint does not find, by the heavy atoms of each fragment."""
        rows: dict[str, list[int]] = {}
        for row, smiles in enumerate(self.smiles):
            if self.places[row] < 0 or _CHARGED.search(_NITRO.sub("", smiles)):
                for atoms in {_heavy_atoms(fragment) for fragment in smiles.split(".")}:
                    rows.setdefault(atoms, []).append(row)
        return rows

    def with_rows(
        self,
        smiles: Sequence[str],
        targets: Array,
        fingerprints: Sequence[Fingerprint],
        model_fingerprints: FingerprintIndex,
    ) -> "TrainingMolecules":
        """Add n molecules of another table, whose row is -1."""
        rows = np.full(len(smiles), -1)
        more = self.of(rows, smiles, targets, fingerprints, model_fingerprints)
        return TrainingMolecules(
            np.concatenate([self.rows, more.rows]),
            self.smiles + more.smiles,
            np.concatenate([self.targets, more.targets]),
            np.concatenate([self.places, more.places]),
        )

    def to_bytes(self) -> bytes:
        """Return the content of a safetensors file."""
        names = [field.name for field in fields(self)]
        arrays = {name: np.ascontiguousarray(getattr(self, name)) for name in names}
        arrays["smiles"] = np.frombuffer(json.dumps(self.smiles).encode(), dtype=np.uint8)
        return safetensors.numpy.save(arrays)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "TrainingMolecules":
        """Read the arrays of :meth:`to_bytes`."""
        smiles = tuple(json.loads(arrays["smiles"].tobytes()))
        return cls(**{**arrays, "smiles": smiles})


def _merged(task: Task, transform: TargetTransform | None, labels: Array) -> Label:
    """Return the mean of labels on the transformed scale, or the classes that occur."""
    labels = labels[~np.isnan(labels)]
    if not labels.size:
        return None
    if task.classes:
        return CLASS_SEPARATOR.join(task.classes[index] for index in np.unique(labels.astype(int)))
    if transform is None or len(labels) == 1:
        return labels[0].item()
    values = torch.from_numpy(labels)
    return transform.inverse(transform.forward(values).mean()).item()


def _heavy_atoms(smiles: str) -> str:
    """Return the elements of heavy atoms, and a 1 for each end of a ring closure."""
    matches = _ATOM.findall(smiles)
    symbols = [(bracket or plain).capitalize() or "1" for bracket, plain, _ in matches]
    return "".join(sorted(symbol for symbol in symbols if symbol != "H"))


@lru_cache(maxsize=10_000)
def _forms(smiles: str, standardize: Standardize, unify: bool) -> tuple[str, str]:
    """Return the canonical SMILES of a molecule with and without stereo; empty without a form."""
    options: Any = {"standardize": standardize, "unify": unify}
    try:
        with quiet:
            return read_molecule(smiles, MoleculeLimits(), _canonical, **options)[1]
    except SmilesError:
        return "", ""


def _canonical(mol: Chem.Mol) -> tuple[str, str]:
    smiles = Chem.MolToSmiles(mol)
    if not _STEREO.search(smiles):
        return smiles, smiles
    flat = Chem.Mol(mol)
    Chem.RemoveStereochemistry(flat)
    return smiles, Chem.MolToSmiles(flat)


@dataclass(frozen=True, repr=False)
class TrainingSet:
    """What a model keeps of its training rows: distributions of labels, molecules on request."""

    labels: tuple[LabelDistribution, ...]
    molecules: TrainingMolecules | None = None

    @classmethod
    def of(
        cls,
        tasks: Sequence[Task],
        targets: Array,
        molecules: TrainingMolecules | None = None,
        bounds: Array | None = None,
    ) -> "TrainingSet":
        """Describe labels ``[n, T]`` and bounds of censored ones ``[2, n, T]``; NaN is missing."""
        bounds = np.full((2, *targets.shape), np.nan) if bounds is None else bounds
        labels = (
            LabelDistribution.of(task, targets[:, index], bounds[:, :, index])
            for index, task in enumerate(tasks)
        )
        return cls(tuple(labels), molecules)

    def with_labels(
        self,
        tasks: Sequence[Task],
        targets: Array,
        bounds: Array,
        molecules: TrainingMolecules | None,
    ) -> "TrainingSet":
        """Add labels and bounds, those of :meth:`of`, with all molecules if they are kept."""
        rows = zip(self.labels, tasks, targets.T, np.moveaxis(bounds, 2, 0), strict=True)
        labels = (
            former
            if np.isnan([*limits, column]).all()
            else former.with_labels(task, column, limits)
            for former, task, column, limits in rows
        )
        return TrainingSet(tuple(labels), molecules)

    def to_files(self, config: MolAttnConfig) -> dict[str, bytes]:
        """Return the content of its files in a saved model, by name."""
        labels = dict(zip(config.targets, self.labels, strict=True))
        files = {LABELS_FILE: to_json(labels, dict[str, LabelDistribution])}
        if self.molecules is not None:
            files[MOLECULES_FILE] = self.molecules.to_bytes()
        return files

    @classmethod
    def from_files(cls, files: ModelFiles, config: MolAttnConfig) -> "TrainingSet | None":
        """Read the files of :meth:`to_files`; None without them."""
        labels = files.parse(LABELS_FILE, dict[str, LabelDistribution])
        if not labels:
            return None
        arrays = files.arrays(MOLECULES_FILE)
        with files.reading(MOLECULES_FILE):
            molecules = TrainingMolecules.from_arrays(arrays) if arrays else None
        return cls(tuple(labels[name] for name in config.targets), molecules)

    def is_percentage(self, task: Task, index: int) -> bool:
        """Return whether the labels of a task are in percent, and all from 0 to 100.

        A censored label such as ``>100`` is not.
        """
        labels = self.labels[index]
        if task.unit != "%" or not labels.quantiles:
            return False
        return (
            0 <= labels.quantiles[0] <= labels.quantiles[-1] <= 100
            and (labels.above is None or labels.above < 100)
            and (labels.below is None or labels.below > 0)
        )
