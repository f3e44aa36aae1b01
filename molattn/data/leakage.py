"""Leakage between training and test: shared and similar molecules, and conflicting labels."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from molattn.chem.fingerprint_index import FingerprintIndex
from molattn.chem.groups import same_molecule
from molattn.chem.split import Split
from molattn.data.dataset import TrainingTable
from molattn.utils.console import counted

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
        lines = leakage_warnings([asdict(self)])
        if self.duplicates:
            first = f" (first: {self.first_conflict})"
            verb = "occurs" if self.duplicates == 1 else "occur"
            line = f"duplicates: {counted(self.duplicates, 'molecule')} {verb} in more than one row"
            conflicts = f"{self.conflicts} with conflicting labels{first}"
            lines.insert(0, f"{line}, {conflicts}" if self.conflicts else line)
        if self.median_similarity is not None:
            lines.append(
                "Tanimoto similarity of test molecules to the nearest training molecule: median "
                f"{self.median_similarity:.2f}, at least {_NEAR:g} for {self.near_share:.0%}"
            )
        return lines


def leakage_warnings(findings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what makes the test scores too good, as lines for the log.

    ``findings`` are those of a run, or of each fold of a cross-validation, whose numbers are added
    up; see :meth:`Leakage.to_dict`.
    """
    tested = sum(one["test_molecules"] for one in findings)
    what = {
        "shared_test": "are also in the training or validation set",
        "pretrained_test": "have the same fingerprint as a molecule that the pretrained model "
        "learned from",
    }
    counts = {name: sum(one[name] or 0 for one in findings) for name in what}
    return [
        f"leakage: {count} of {tested} test molecules {what[name]}"
        for name, count in counts.items()
        if count
    ]


def find_leakage(
    table: TrainingTable,
    split: Split,
    seed: int = 0,
    pretrained: FingerprintIndex | None = None,
) -> Leakage:
    """Compare the test rows with the others, and with the molecules of a pretrained model."""
    groups = same_molecule(table.records)
    repeated = [group for group in groups if len(group) > 1]
    conflicts = [*_conflicts(table, repeated)]
    (first, second), *_ = conflicts or [(0, 0)]
    lines = f"{table.unit}s {table.rows[first].line} and {table.rows[second].line}"

    def with_rows(*rows: NDArray[np.int64]) -> list[list[int]]:
        members = {*np.concatenate(rows).tolist()}
        return [group for group in groups if not members.isdisjoint(group)]

    tested, learned = with_rows(split.test), {*split.train.tolist(), *split.val.tolist()}
    rng = np.random.default_rng(seed)
    test = _sample([group[0] for group in tested], _MOST_TEST, rng)
    training = _sample([group[0] for group in with_rows(split.train)], _MOST_TRAINING, rng)
    nearest = FingerprintIndex(table.fingerprints(training)).similarity(table.fingerprints(test))
    known = None
    if pretrained is not None:
        known = sum(pretrained.contains(table.fingerprints([group[0] for group in tested])))
    return Leakage(
        duplicates=len(repeated),
        conflicts=len(conflicts),
        first_conflict=lines if conflicts else "",
        shared_test=sum(not learned.isdisjoint(group) for group in tested),
        test_molecules=len(tested),
        median_similarity=float(np.median(nearest)) if test else None,
        near_share=float((nearest >= _NEAR).mean()) if test else None,
        compared=(len(test), len(training)),
        pretrained_test=known,
    )


def _conflicts(table: TrainingTable, groups: list[list[int]]) -> Iterator[tuple[int, int]]:
    """Yield the first two rows of each molecule (and second molecule) whose labels differ."""
    rounding = 1e-9 * np.nanmedian(np.abs(table.targets), axis=0)
    partners = [record.partner for record in table.records]
    for group in groups:
        same: list[list[int]] = [[*range(len(group))]]
        if table.partners is not None:
            same = same_molecule([partners[row] for row in group])  # pyright: ignore
        for own in same:
            if pair := _conflict(table.targets, rounding, [group[one] for one in own]):
                yield pair


def _conflict(
    targets: NDArray[np.float64], rounding: NDArray[np.float64], group: list[int]
) -> tuple[int, int] | None:
    """Return the first two rows of a molecule whose labels of a target differ, but for rounding."""
    for labels, noise in zip(targets[group].T, rounding, strict=True):
        known = np.flatnonzero(~np.isnan(labels))
        other = known[~np.isclose(labels[known], labels[known[:1]], rtol=1e-6, atol=noise)]
        if len(other):
            return group[known[0]], group[other[0]]
    return None


def _sample(rows: list[int], most: int, rng: np.random.Generator) -> list[int]:
    if len(rows) <= most:
        return rows
    return sorted(rng.choice(rows, most, replace=False).tolist())
