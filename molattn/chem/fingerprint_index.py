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
    """

    def __init__(
        self,
        fingerprints: Sequence[Fingerprint],
        labeled: NDArray[np.bool_] | None = None,
        seen: SeenAtoms | None = None,
    ) -> None:
        self.fingerprints = fingerprints
        self.labeled = labeled
        self.seen = seen

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
        return cls(split_fingerprints(positions, lengths), arrays.get("labeled"), seen)

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
        return safetensors.numpy.save(tensors)

    def similarity(self, molecules: Sequence[Molecule | Fingerprint]) -> NDArray[np.float64]:
        """Return the Tanimoto similarity of n molecules to their nearest in the index, ``[n]``."""
        nearest = [similarity.max(axis=1) for similarity in self._to_all(molecules)]
        return np.concatenate([np.zeros(0), *nearest])

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

    def nearest(
        self, molecules: Sequence[Molecule | Fingerprint], count: int
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """Yield for each molecule the indices of the ``count`` nearest, and the similarity."""
        for similarity in chain.from_iterable(self._to_all(molecules)):
            order = np.argsort(-similarity, kind="stable")[:count]
            yield order, similarity[order]

    def contains(self, molecules: Sequence[Molecule | Fingerprint]) -> list[bool]:
        """Return for each molecule whether its fingerprint is in the index."""
        keys = {fingerprint.tobytes() for fingerprint in self.fingerprints}
        return [fingerprint.tobytes() in keys for fingerprint in read_fingerprints(molecules)]

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
