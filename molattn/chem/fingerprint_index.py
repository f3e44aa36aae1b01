"""Fingerprints of the training molecules, and the similarity of others to them."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from rdkit import Chem
from safetensors import SafetensorError
from scipy import sparse

from molattn.chem.fingerprints import FINGERPRINT_BYTES, packed_fingerprints
from molattn.chem.limits import read_molecule
from molattn.chem.parse import Molecule, check_list
from molattn.config import MoleculeLimits
from molattn.errors import InputError, SmilesError
from molattn.utils.sampling import in_turn

__all__ = ["MOST_KEPT", "FingerprintIndex", "read_fingerprints"]

MOST_KEPT = 100_000
"""Most fingerprints kept with a model: 25.6 MB."""
_TENSOR = "fingerprints"
_LABELED = "labeled"
_SET_BITS = np.array([byte.bit_count() for byte in range(256)], dtype=np.uint8)
_OFTEN = 0.05  # of the molecules: faster as a dense matrix
_SIMILARITIES = 2**22  # at once: 32 MB
_UNPACKED = 4096  # fingerprints at once: 8 MB


class FingerprintIndex:
    """Morgan fingerprints of the training molecules: radius 2, 2,048 bits in 256 bytes each.

    This is the model's applicability domain: a molecule unlike all of these is predicted less
    accurately. Of more than 100,000 distinct fingerprints a random sample of that size is kept; the
    nearest of the sample may be less similar than the nearest of all.

    Args:
        fingerprints: ``uint8 [m, 256]``, one or more.
        labeled: Which tasks the training molecules have labels of, ``bool [m, T]``; None = all.
    """

    def __init__(
        self, fingerprints: NDArray[np.uint8], labeled: NDArray[np.bool_] | None = None
    ) -> None:
        self.fingerprints = fingerprints
        self.labeled = labeled

    @classmethod
    def from_fingerprints(
        cls,
        fingerprints: NDArray[np.uint8],
        seed: int = 0,
        labeled: NDArray[np.bool_] | None = None,
    ) -> "FingerprintIndex":
        """Keep the distinct fingerprints of ``[n, 256]``, at most ``MOST_KEPT`` drawn at random.

        They are drawn in turn for each task, so that of a task with few labels all are kept.

        Args:
            fingerprints: Of n molecules.
            seed: Seed of the drawing.
            labeled: Which tasks each has a label of, ``[n, T]``; None = all.

        Raises:
            InputError: No fingerprint.
        """
        if not len(fingerprints):
            raise InputError("training molecules: got none, expected one or more")
        found, places = np.unique(fingerprints, axis=0, return_inverse=True)
        have = None
        if labeled is not None and not labeled.all():
            have = np.zeros((len(found), labeled.shape[1]), dtype=bool)
            np.logical_or.at(have, places.ravel(), labeled)
        kept = np.arange(len(found))
        if len(found) > MOST_KEPT:
            order = np.random.default_rng(seed).permutation(len(found))
            kept = np.sort((order if have is None else in_turn(order, have))[:MOST_KEPT])
        return cls(found[kept], None if have is None else have[kept])

    @classmethod
    def from_bytes(cls, content: bytes, path: Path) -> "FingerprintIndex":
        """Read the output of :meth:`to_bytes`.

        Args:
            content: The content of a file.
            path: The file, for error messages.

        Raises:
            InputError: The file is damaged or holds something else.
        """
        try:
            tensors = safetensors.numpy.load(content)
        except SafetensorError as error:
            raise InputError(f"{path}: not a readable file of fingerprints: {error}") from error
        found, labeled = tensors.get(_TENSOR, np.zeros(0)), tensors.get(_LABELED)
        is_packed = found.dtype == np.uint8 and found.shape[1:] == (FINGERPRINT_BYTES,)
        if not is_packed or not len(found):
            raise InputError(
                f"{path}: got {found.dtype} {list(found.shape)}, expected uint8 "
                f"[molecules, {FINGERPRINT_BYTES}]"
            )
        if labeled is not None and (
            labeled.dtype != np.bool_ or labeled.ndim != 2 or len(labeled) != len(found)
        ):
            raise InputError(
                f"{path}: got {labeled.dtype} {list(labeled.shape)}, expected bool "
                f"[{len(found)}, tasks]"
            )
        return cls(found, labeled)

    def to_bytes(self) -> bytes:
        """Return the fingerprints as the content of a safetensors file."""
        labeled = {} if self.labeled is None else {_LABELED: self.labeled}
        return safetensors.numpy.save({_TENSOR: self.fingerprints, **labeled})

    def similarity(self, molecules: Sequence[Molecule] | NDArray[np.uint8]) -> NDArray[np.float64]:
        """Return each molecule's Tanimoto similarity to the nearest of these, ``[n]``.

        That is the number of common bits over the number of bits set in either; 0 without any.

        Args:
            molecules: n SMILES or RDKit molecules, or their fingerprints ``uint8 [n, 256]``.

        Raises:
            SmilesError: One that is not a molecule; names its position.
            TypeError: A single molecule where a list is expected.
        """
        found = [similarity.max(axis=1) for similarity in self._to_all(molecules)]
        return np.concatenate([np.zeros(0), *found])

    def task_similarity(
        self, molecules: Sequence[Molecule] | NDArray[np.uint8], tasks: int
    ) -> NDArray[np.float64]:
        """Return the similarity to the nearest training molecule with a label of each task.

        Args:
            molecules: As of :meth:`similarity`, n of them.
            tasks: Number of tasks T.

        Returns:
            ``[n, T]``; 0 for a task without labels.
        """
        if self.labeled is None:
            return np.repeat(self.similarity(molecules)[:, None], tasks, axis=1)
        found = [np.zeros((0, tasks))]
        places = [np.flatnonzero(column) for column in self.labeled.T]
        for similarity in self._to_all(molecules):
            nearest = [similarity[:, own].max(axis=1, initial=0.0) for own in places]
            found.append(np.stack(nearest, axis=1))
        return np.concatenate(found)

    def nearest(
        self, molecules: Sequence[Molecule] | NDArray[np.uint8], count: int
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """Yield for each molecule the places of the most similar ones and their similarity.

        Args:
            molecules: As of :meth:`similarity`.
            count: Most places of each; fewer if there are no more.
        """
        for similarity in chain.from_iterable(self._to_all(molecules)):
            order = np.argsort(-similarity, kind="stable")[:count]
            yield order, similarity[order]

    def _to_all(
        self, molecules: Sequence[Molecule] | NDArray[np.uint8]
    ) -> Iterator[NDArray[np.float64]]:
        """Yield the similarity of some molecules at a time to these, ``[k, m]``."""
        fingerprints, at_once = _fingerprints(molecules), max(1, _SIMILARITIES // len(self._sizes))
        is_often, often, rare = self._by_bit
        for start in range(0, len(fingerprints), at_once):
            some = _bits(fingerprints[start : start + at_once])
            # Whole numbers, which single precision has exactly.
            common = some[:, is_often].astype(np.float32) @ often
            common += (_sparse(some[:, ~is_often]) @ rare).toarray()
            either = some.sum(axis=1, dtype=np.float64)[:, None] + self._sizes
            either -= common
            yield np.divide(common, np.maximum(either, 1.0, out=either), out=either)

    def contains(self, molecules: Sequence[Molecule] | NDArray[np.uint8]) -> list[bool]:
        """Return for each molecule whether its fingerprint is among these.

        Different molecules can share a fingerprint: chains of different length, mirror images.
        """
        known = {row.tobytes() for row in self.fingerprints}
        return [row.tobytes() in known for row in _fingerprints(molecules)]

    @cached_property
    def _by_bit(self) -> tuple[NDArray[np.bool_], NDArray[np.float32], Any]:
        """Which bits many molecules have, and who has each: of those bits dense, of others sparse.

        ``[2048]``, ``[bits, m]``, ``[2048 - bits, m]``.
        """
        parts = (
            self.fingerprints[i : i + _UNPACKED] for i in range(0, len(self._sizes), _UNPACKED)
        )
        whole = sparse.vstack([_sparse(_bits(part)) for part in parts])
        whole = whole.T.tocsr()
        is_often = np.diff(whole.indptr) > _OFTEN * len(self._sizes)
        return is_often, whole[is_often].toarray(), whole[~is_often]

    @cached_property
    def _sizes(self) -> NDArray[np.float64]:
        return _SET_BITS[self.fingerprints].sum(axis=1, dtype=np.float64)


def _bits(fingerprints: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.unpackbits(fingerprints, axis=1, bitorder="little")


def _sparse(bits: NDArray[np.uint8]) -> Any:
    return sparse.csr_matrix(bits, dtype=np.float32)


def read_fingerprints(
    molecules: Sequence[Molecule], *, standardize: bool = False
) -> NDArray[np.uint8]:
    """Return the packed Morgan fingerprints of n molecules, ``uint8 [n, 256]``.

    Args:
        molecules: SMILES or RDKit molecules.
        standardize: Whether to standardize them before.

    Raises:
        SmilesError: One that is not a molecule; names its position.
        TypeError: A single molecule where a list is expected.
    """
    check_list("smiles", molecules)
    return packed_fingerprints(_read(molecules, standardize))


def _fingerprints(molecules: Sequence[Molecule] | NDArray[np.uint8]) -> NDArray[np.uint8]:
    if isinstance(molecules, np.ndarray) and molecules.dtype == np.uint8:
        return molecules
    return read_fingerprints(molecules)  # pyright: ignore[reportArgumentType]


def _read(molecules: Sequence[Molecule], standardize: bool) -> Iterator[Chem.Mol]:
    for position, molecule in enumerate(molecules):
        try:
            yield read_molecule(molecule, MoleculeLimits(), bool, standardize=standardize)[0]
        except SmilesError as error:
            raise error.at(position) from error
