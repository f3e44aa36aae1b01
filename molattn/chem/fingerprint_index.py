"""Fingerprints of the training molecules, and the similarity of others to them."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from scipy import sparse

from molattn.chem.fingerprints import (
    FINGERPRINT_SIZE,
    Fingerprint,
    morgan_fingerprint,
    split_fingerprints,
)
from molattn.chem.limits import Standardize, read_molecule
from molattn.chem.parse import Molecule, check_list
from molattn.chem.seen_atoms import SeenAtoms
from molattn.config import MoleculeLimits
from molattn.errors import SmilesError
from molattn.task import interleaved

Rows = NDArray[np.int64]

MOST_KEPT = 100_000
"""Most fingerprints kept with a model."""
MOST_ERRORS = 4_000
"""Most training molecules whose errors are kept."""
_LARGEST_ERROR = 4.0  # of a molecule, relative to the mean
# Both of scripts/experiments/confidence.py, on other tables than those of the comparison.
_NEIGHBORS = 20
_PRIOR = 2.0  # sum of squared similarities that weighs as much as the mean of all
_OFTEN = 0.05  # of the molecules: faster as a dense matrix
_SIMILARITIES = 2**22  # at once: 32 MB


class FingerprintIndex:
    r"""Morgan fingerprints of the training molecules: radius 2, counts at 2,048 hashed positions.

    A molecule unlike all of these is predicted less accurately. The Tanimoto similarity of two
    molecules with counts :math:`a` and :math:`b` is

    .. math:: s(a, b) = \frac{\sum_p \min(a_p, b_p)}{\sum_p \max(a_p, b_p)}

    Of more than 100,000 distinct fingerprints a random sample of that size is kept; the nearest of
    the sample may be less similar than the nearest of all.

    Args:
        fingerprints: Of m molecules, one or more; see
            :data:`molattn.chem.fingerprints.Fingerprint`.
        labeled: Which tasks the training molecules have labels of, ``bool [m, T]``; None = all.
        seen: What the training molecules consist of; None = unknown.
        errors: Of models that have not learned from these molecules, relative to the mean, NaN
            where unknown, ``[m, T]``; None = all are unknown.
    """

    def __init__(
        self,
        fingerprints: Sequence[Fingerprint],
        labeled: NDArray[np.bool_] | None = None,
        seen: SeenAtoms | None = None,
        errors: NDArray[np.float16] | None = None,
    ) -> None:
        self.fingerprints = fingerprints
        self.labeled = labeled
        self.seen = seen
        self.errors = errors

    @classmethod
    def from_fingerprints(
        cls,
        fingerprints: Sequence[Fingerprint],
        seed: int = 0,
        labeled: NDArray[np.bool_] | None = None,
    ) -> "FingerprintIndex":
        """Make an index of the distinct fingerprints, at most ``MOST_KEPT`` drawn at random.

        They are drawn in turn for each task, so that of a task with few labels (``labeled``,
        ``[n, T]``; None = all) all are kept.
        """
        keys = np.array([fingerprint.tobytes() for fingerprint in fingerprints], dtype=object)
        _, first, index = np.unique(keys, return_index=True, return_inverse=True)
        have = None
        if labeled is not None and not labeled.all():
            have = np.zeros((len(first), labeled.shape[1]), dtype=bool)
            np.logical_or.at(have, index, labeled)
        sample = np.arange(len(first))
        if len(first) > MOST_KEPT:
            order = np.random.default_rng(seed).permutation(len(first))
            sample = np.sort((order if have is None else interleaved(order, have))[:MOST_KEPT])
        sampled = [fingerprints[index] for index in first[sample].tolist()]
        return cls(sampled, None if have is None else have[sample])

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "FingerprintIndex":
        """Read the arrays of :meth:`to_bytes`."""
        positions = arrays["positions"]
        lengths = arrays["lengths"]
        if int(lengths.sum(dtype=np.uint64)) != len(positions):
            raise ValueError("expected as many positions as the lengths add up to")
        seen = None
        if "seen_codes" in arrays:
            seen = SeenAtoms(arrays["seen_codes"], arrays["most_atoms"])
        optional = arrays.get("labeled"), seen, arrays.get("errors")
        return cls(split_fingerprints(positions, lengths), *optional)

    def to_bytes(self) -> bytes:
        """Return the fingerprints as the content of a safetensors file."""
        tensors = {
            "positions": np.concatenate(self.fingerprints),
            "lengths": np.array([*map(len, self.fingerprints)], dtype=np.uint32),
        }
        if self.labeled is not None:
            tensors["labeled"] = self.labeled
        if self.seen is not None:
            tensors["seen_codes"] = self.seen.codes
            tensors["most_atoms"] = self.seen.most_atoms
        if self.errors is not None:
            tensors["errors"] = self.errors
        return safetensors.numpy.save(tensors)

    def with_molecules(
        self,
        fingerprints: Sequence[Fingerprint],
        labeled: NDArray[np.bool_],
        errors: NDArray[np.float64],
        seen: SeenAtoms,
    ) -> "FingerprintIndex":
        """Return the index with n more molecules after the m; equal fingerprints are one.

        Which labels they have and their relative errors, NaN where unknown, are ``[n, T]``; errors
        that are known stay. An index without errors gets none.
        """
        keys = [*(row.tobytes() for row in (*self.fingerprints, *fingerprints))]
        numbers = {key: index for index, key in enumerate(dict.fromkeys(keys))}
        index = np.array([numbers[key] for key in keys[len(self.fingerprints) :]], dtype=np.int64)
        distinct = dict(zip(keys, (*self.fingerprints, *fingerprints), strict=True))
        have = np.zeros((len(numbers), labeled.shape[1]), dtype=bool)
        have[: len(self.fingerprints)] = True if self.labeled is None else self.labeled
        np.logical_or.at(have, index, labeled)
        all_errors = None
        if self.errors is not None:
            all_errors = np.full(have.shape, np.nan, dtype=np.float16)
            all_errors[: len(self.errors)] = self.errors
            more = errors.clip(max=_LARGEST_ERROR).round(2).astype(np.float16)
            # Equal molecules may have errors of different tasks.
            rows, columns = np.nonzero(~np.isnan(more) & np.isnan(all_errors[index]))
            all_errors[index[rows], columns] = more[rows, columns]
        seen_by_all = None if self.seen is None else self.seen.joined(seen)
        has_all = None if have.all() else have
        return FingerprintIndex([*distinct.values()], has_all, seen_by_all, all_errors)

    def similarity(self, molecules: Sequence[Molecule | Fingerprint]) -> NDArray[np.float64]:
        """Return the Tanimoto similarity of n molecules to their nearest in the index, ``[n]``."""
        nearest = [similarity.max(axis=1) for similarity in self._to_all(molecules)]
        return np.concatenate([np.zeros(0), *nearest])

    def similarities(self, molecules: Sequence[Molecule | Fingerprint]) -> NDArray[np.float64]:
        """Return the Tanimoto similarity of n molecules to the m of the index, ``[n, m]``."""
        return np.concatenate([np.zeros((0, len(self._sizes))), *self._to_all(molecules)])

    def task_similarity(
        self, molecules: Sequence[Molecule | Fingerprint], tasks: int
    ) -> NDArray[np.float64]:
        """Return the similarity to the nearest with a label of each task, or 0, ``[n, T]``."""
        if self.labeled is None:
            return np.repeat(self.similarity(molecules)[:, None], tasks, axis=1)
        similarities = [np.zeros((0, tasks))]
        labeled = [np.flatnonzero(column) for column in self.labeled.T]
        for similarity in self._to_all(molecules):
            nearest = [similarity[:, rows].max(axis=1, initial=0.0) for rows in labeled]
            similarities.append(np.stack(nearest, axis=1))
        return np.concatenate(similarities)

    def set_errors(
        self, fingerprints: Sequence[Fingerprint], errors: NDArray[np.float64], seed: int = 0
    ) -> None:
        """Keep the absolute errors of n molecules, ``[n, T]``, NaN where unknown.

        Of molecules that share a fingerprint it is the mean. Of more than 4,000 fingerprints so
        many are drawn at random, in turn for each task of those with its errors.
        """
        index = self.indices(fingerprints)
        is_known = ~np.isnan(errors) & (index >= 0)[:, None]
        sums, counts = np.zeros((2, len(self.fingerprints), errors.shape[1]))
        np.add.at(counts, index, is_known)
        np.add.at(sums, index, np.where(is_known, errors, 0.0))
        means = sums.sum(axis=0) / np.maximum(counts.sum(axis=0), 1.0)
        relative = np.full(sums.shape, np.nan)
        np.divide(sums, counts * means, out=relative, where=counts * means > 0.0)
        order = np.random.default_rng(seed).permutation(len(relative))
        relative[interleaved(order, counts > 0.0)[MOST_ERRORS:]] = np.nan
        self.errors = relative.clip(max=_LARGEST_ERROR).round(2).astype(np.float16)

    def neighbor_errors(
        self, molecules: Sequence[Molecule | Fingerprint], tasks: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return :meth:`task_similarity` and how large errors are nearby, ``[n, T]`` each.

        The second is 1 on average: the mean of :attr:`errors` over the 20 most similar molecules,
        weighted by the square of the similarity, and 1 with a weight of 2.
        """
        if self.errors is None:
            similarity = self.task_similarity(molecules, tasks)
            return similarity, np.ones(similarity.shape)
        labeled = np.ones((len(self._sizes), tasks), bool) if self.labeled is None else self.labeled
        nearest = [np.zeros((0, tasks))]
        factors = [np.zeros((0, tasks))]
        alike: dict[bytes, list[int]] = {}  # tasks whose errors are of the same molecules
        for task, is_known in enumerate(~np.isnan(self.errors.T)):
            alike.setdefault(is_known.tobytes(), []).append(task)
        for similarity in self._to_all(molecules):
            columns = [similarity[:, rows].max(axis=1, initial=0.0) for rows in labeled.T]
            nearest.append(np.stack(columns, axis=1))
            factors.append(np.ones((len(similarity), tasks)))
            for group in alike.values():
                factors[-1][:, group] = errors_nearby(similarity, self.errors[:, group])
        return np.concatenate(nearest), np.concatenate(factors)

    def similarity_to_others(
        self, fingerprints: Sequence[Fingerprint], labeled: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """Return :meth:`task_similarity` of n molecules to the index and to each other, ``[n, T]``.

        ``labeled`` says which labels the n have, ``[n, T]``.
        """
        nearest = self.task_similarity(fingerprints, labeled.shape[1])
        between = FingerprintIndex(fingerprints).similarities(fingerprints)
        np.fill_diagonal(between, 0.0)
        others = [between[:, rows].max(axis=1, initial=0.0) for rows in labeled.T]
        return np.maximum(nearest, np.stack(others, axis=1))

    def nearest(
        self, molecules: Sequence[Molecule | Fingerprint], count: int
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """Yield for each molecule the indices of the ``count`` nearest, and the similarity."""
        for similarity in chain.from_iterable(self._to_all(molecules)):
            order = np.argsort(-similarity, kind="stable")[:count]
            yield order, similarity[order]

    def indices(self, molecules: Sequence[Molecule | Fingerprint]) -> NDArray[np.int64]:
        """Return the index of the fingerprint of each molecule, -1 of others, ``[n]``."""
        prints = read_fingerprints(molecules)
        return np.array([self._numbers.get(row.tobytes(), -1) for row in prints], dtype=np.int64)

    def contains(self, molecules: Sequence[Molecule | Fingerprint]) -> list[bool]:
        """Return for each molecule whether its fingerprint is in the index."""
        return (self.indices(molecules) >= 0).tolist()

    @cached_property
    def _numbers(self) -> dict[bytes, int]:
        return {row.tobytes(): number for number, row in enumerate(self.fingerprints)}

    def _to_all(self, molecules: Sequence[Molecule | Fingerprint]) -> Iterator[NDArray[np.float64]]:
        """Yield the similarity of k molecules at a time to the m of the index, ``[k, m]``."""
        fingerprints = read_fingerprints(molecules)
        at_once = max(1, _SIMILARITIES // len(self._sizes))
        for start in range(0, len(fingerprints), at_once):
            batch = fingerprints[start : start + at_once]
            intersection = self._reached.common(*_levels(batch), len(batch))
            union = np.array([[len(fingerprint) or 1.0] for fingerprint in batch]) + self._sizes
            union -= intersection
            yield np.divide(intersection, union, out=union)

    @cached_property
    def _reached(self) -> "ReachedLevels":
        return ReachedLevels(*_levels(self.fingerprints), len(self._sizes))

    @cached_property
    def _sizes(self) -> NDArray[np.float64]:
        return np.array([*map(len, self.fingerprints)], dtype=np.float64)


def errors_nearby(
    similarity: NDArray[np.float64], errors: NDArray[np.float16]
) -> NDArray[np.float64]:
    """Return how large errors are near n molecules, ``[n, T]``, by the similarity to m others.

    See :meth:`FingerprintIndex.neighbor_errors`; ``errors`` are relative, NaN where unknown, which
    is of the same molecules for all tasks, ``[m, T]``, and ``similarity`` is ``[n, m]``.
    """
    is_known = ~np.isnan(errors[:, 0])
    if not is_known.any():
        return np.ones((len(similarity), errors.shape[1]))
    similarity = similarity[:, is_known]
    count = min(_NEIGHBORS, similarity.shape[1])
    top = np.argpartition(-similarity, count - 1, axis=1)[:, :count]
    weights = np.take_along_axis(similarity, top, axis=1)[:, :, None] ** 2
    nearby = errors[is_known].astype(np.float64)[top]
    return (_PRIOR + (weights * nearby).sum(axis=1)) / (_PRIOR + weights.sum(axis=1))


class ReachedLevels:
    """Which levels each of m molecules reaches, to sum the minima of their counts with others'.

    A count c at a position reaches the levels 1 to c there, so that ``min(a, b)`` is the number of
    levels that both reach. The sums of minima are thus a product of matrices of zeros and ones:
    sparse for the levels that few of the m molecules reach, dense for those that many reach.
    ``rows`` are the molecules, from 0, and ``levels`` the numbers of the levels that they reach.
    """

    def __init__(self, rows: Rows, levels: Rows, count: int) -> None:
        distinct, index, times = np.unique(levels, return_inverse=True, return_counts=True)
        # Those that any molecule reaches, ascending, and which of them many reach.
        self.levels = distinct
        self.is_often = times > _OFTEN * count
        # The index of each level, -1 of others: in a quarter of the time of bisection.
        self._index = np.full(distinct.max(initial=-1) + 2, -1)
        self._index[distinct] = np.arange(len(distinct))
        reached = _ones(index, rows, (len(distinct), count))
        self.often = reached[self.is_often].toarray()
        self.rare = reached[~self.is_often]

    def common(self, rows: Rows, levels: Rows, count: int) -> NDArray[np.float32]:
        """Return how many levels n molecules have in common with the m, ``[n, m]``."""
        index = self._index[np.minimum(levels, len(self._index) - 1)]
        is_reached = index >= 0
        queries = _ones(rows[is_reached], index[is_reached], (count, len(self.is_often)))
        # Whole numbers, which single precision has exactly.
        common = queries[:, self.is_often].toarray() @ self.often
        common += (queries[:, ~self.is_often] @ self.rare).toarray()
        return common


def _ones(rows: Rows, columns: Rows, shape: tuple[int, int]) -> Any:
    return sparse.csr_matrix((np.ones(len(rows), dtype=np.float32), (rows, columns)), shape)


def _levels(fingerprints: Sequence[Fingerprint]) -> tuple[Rows, Rows]:
    """Return the molecule and the number of each level that molecules reach."""
    rows = np.repeat(np.arange(len(fingerprints)), [*map(len, fingerprints)])
    positions = np.concatenate([np.zeros(0, dtype=np.uint16), *fingerprints])
    index = np.arange(len(rows))
    is_first = (np.diff(rows, prepend=-1) != 0) | (np.diff(positions, prepend=0) != 0)
    times = index - np.maximum.accumulate(np.where(is_first, index, 0))
    return rows, times * FINGERPRINT_SIZE + positions


def read_fingerprints(
    molecules: Sequence[Molecule | Fingerprint],
    *,
    standardize: Standardize = False,
    unify: bool = True,
) -> list[Fingerprint]:
    """Return the Morgan fingerprints of SMILES, RDKit molecules, or fingerprints.

    Raises:
        SmilesError: One that is not a molecule; names its position.
        TypeError: A single molecule where a list is expected.
    """
    check_list("smiles", molecules)
    fingerprints = []
    limits = MoleculeLimits()
    options: Any = {"standardize": standardize, "unify": unify}
    for position, molecule in enumerate(molecules):
        try:
            if not isinstance(molecule, np.ndarray):
                _, molecule = read_molecule(molecule, limits, morgan_fingerprint, **options)
        except SmilesError as error:
            raise error.at(position) from error
        fingerprints.append(molecule)
    return fingerprints
