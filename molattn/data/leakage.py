"""Leakage between training and test: shared and similar molecules, and conflicting labels."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from molattn.chem.fingerprint_index import FingerprintIndex
from molattn.chem.groups import same_molecule
from molattn.chem.split import Split
from molattn.data.dataset import TrainingTable

__all__ = ["Leakage", "find_leakage", "leakage_warnings"]

_MOST_TEST = 1000
_MOST_TRAINING = 50_000
_NEAR = 0.9


@dataclass(frozen=True)
class Leakage:
    """Overlap and similarity of the test molecules and the training molecules.

    Args:
        duplicates: Number of molecules in more than one usable row; of pairs, first molecules.
        conflicts: Number of those whose uncensored labels differ; of pairs, for the same second
            molecule.
        first_conflict: The rows of the first conflict, such as ``lines 2 and 42``, or empty.
        shared_test: Number of test molecules that are also in the training or validation set.
        test_molecules: Number of distinct test molecules.
        median_similarity: Median over test molecules of the Tanimoto similarity of Morgan
            counts (radius 2) to the nearest training molecule; None without test molecules.
        near_share: Fraction of the test molecules with such a similarity of at least 0.9, likewise.
        compared: Numbers of test and training molecules compared: random samples of at most 1,000
            and 50,000.
        pretrained_test: Number of test molecules with the fingerprint of a molecule that the
            pretrained model was trained on; None without one, or where its molecules are unknown.
    """

    duplicates: int
    conflicts: int
    first_conflict: str
    shared_test: int
    test_molecules: int
    median_similarity: float | None
    near_share: float | None
    compared: tuple[int, int]
    pretrained_test: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON types."""
        return {**asdict(self), "compared": list(self.compared)}

    def lines(self) -> list[str]:
        """Return the findings as lines for the log."""
        lines = []
        if self.duplicates:
            conflicts = f", {self.conflicts} with conflicting labels" + (
                f" (first: {self.first_conflict})" if self.conflicts else ""
            )
            molecules = "molecule occurs" if self.duplicates == 1 else "molecules occur"
            lines.append(
                f"duplicates: {self.duplicates} {molecules} in more than one row{conflicts}"
            )
        lines += self.warnings()
        if self.median_similarity is not None:
            lines.append(
                "Tanimoto similarity of test molecules to the nearest training molecule: median "
                f"{self.median_similarity:.2f}, at least {_NEAR:g} for {self.near_share:.0%}"
            )
        return lines

    def warnings(self) -> list[str]:
        """Return which findings make the test scores too good, as lines for the log."""
        return leakage_warnings([asdict(self)])


def leakage_warnings(findings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what makes the test scores too good, as lines for the log.

    ``findings`` are those of a run, or of each fold of a cross-validation, whose numbers are added
    up; see :meth:`Leakage.to_dict`.
    """
    shared, pretrained, tested = (
        sum(one[key] or 0 for one in findings)
        for key in ("shared_test", "pretrained_test", "test_molecules")
    )
    lines = []
    if shared:
        lines.append(
            f"leakage: {shared} of {tested} test molecules are also in the training or validation "
            "set"
        )
    if pretrained:
        lines.append(
            f"leakage: {pretrained} of {tested} test molecules have the same fingerprint as a "
            "molecule that the --init-from model learned from"
        )
    return lines


def find_leakage(
    table: TrainingTable,
    parts: Split,
    seed: int = 0,
    pretrained: FingerprintIndex | None = None,
) -> Leakage:
    """Compare the test rows with the others, and with the molecules of a pretrained model."""
    groups = same_molecule(table.records)
    repeated = [group for group in groups if len(group) > 1]
    rounding = 1e-9 * np.nanmedian(np.abs(table.targets), axis=0)
    pairs = (_conflict(table.targets, rounding, group) for group in _same_input(table, repeated))
    conflicts = [pair for pair in pairs if pair]
    in_test = np.zeros(len(table.rows), dtype=bool)
    in_test[parts.test] = True
    tested = [group for group in groups if in_test[group].any()]
    rng = np.random.default_rng(seed)
    test = _some([group[0] for group in tested], _MOST_TEST, rng)
    is_training, is_learned = np.zeros((2, len(table.rows)), dtype=bool)
    is_training[parts.train] = True
    is_learned[np.concatenate([parts.train, parts.val])] = True
    training = [group[0] for group in groups if is_training[group].any()]
    training = _some(training, _MOST_TRAINING, rng)
    known = FingerprintIndex(table.fingerprints(training))
    nearest = known.similarity(table.fingerprints(test))
    return Leakage(
        duplicates=len(repeated),
        conflicts=len(conflicts),
        first_conflict=_places(table, conflicts[0]) if conflicts else "",
        shared_test=sum(bool(is_learned[group].any()) for group in tested),
        test_molecules=len(tested),
        median_similarity=float(np.median(nearest)) if test else None,
        near_share=float((nearest >= _NEAR).mean()) if test else None,
        compared=(len(test), len(training)),
        pretrained_test=None
        if pretrained is None
        else sum(pretrained.contains(table.fingerprints([group[0] for group in tested]))),
    )


def _same_input(table: TrainingTable, groups: list[list[int]]) -> list[list[int]]:
    """Split groups of rows by their second molecules, if there are any."""
    if table.partners is None:
        return groups
    partners = [record.partner for record in table.records if record.partner is not None]
    return [
        [group[index] for index in indices]
        for group in groups
        for indices in same_molecule(partners[row] for row in group)
    ]


def _conflict(
    targets: NDArray[np.float64], rounding: NDArray[np.float64], group: list[int]
) -> tuple[int, int] | None:
    """Return the first two rows of a molecule whose labels of a target differ, but for rounding."""
    for labels, noise in zip(targets[group].T, rounding, strict=True):
        known = np.flatnonzero(~np.isnan(labels))
        first = labels[known[:1]]
        other = known[~np.isclose(labels[known], first, rtol=1e-6, atol=noise)]
        if len(other):
            return group[known[0]], group[other[0]]
    return None


def _places(table: TrainingTable, rows: tuple[int, int]) -> str:
    first, second = (table.rows[row].line for row in rows)
    return f"{table.unit}s {first} and {second}"


def _some(rows: list[int], most: int, rng: np.random.Generator) -> list[int]:
    if len(rows) <= most:
        return rows
    return sorted(rng.choice(rows, most, replace=False).tolist())
