"""Morgan fingerprints with counts, and hashed counts of substructures, stored sparsely."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator

from molattn.chem.fast import AtomPairs, Counts, Pieces, each

FINGERPRINT_SIZE = 2048
FINGERPRINT_RADIUS = 2
_GENERATOR = rdFingerprintGenerator.GetMorganGenerator(
    radius=FINGERPRINT_RADIUS, fpSize=FINGERPRINT_SIZE
)

Fingerprint = NDArray[np.uint16]
"""Positions, below 2,048, of the c atom environments of a molecule, ascending ``[c]``.

A position is there as often as it is counted: 2 times 7 and once 9 are ``[7, 7, 9]``.
"""


def morgan_fingerprint(mol: Chem.Mol) -> Fingerprint:
    """Return the fingerprint of a sanitized molecule, of radius 2."""
    positions, counts = _positions(_GENERATOR, mol)
    return np.repeat(positions.astype(np.uint16), counts)


def split_fingerprints(
    positions: Fingerprint, lengths: NDArray[np.integer[Any]]
) -> Sequence[Fingerprint]:
    """Return fingerprints of the given lengths that are stored one after another."""
    ends = accumulate(lengths.tolist(), initial=0)
    return [positions[start:end] for start, end in pairwise(ends)]


MOST_COUNTED = 255
"""Largest count; more are counted as so many."""

_GENERATORS: Mapping[str, Any] = {
    "morgan": lambda size, radius: rdFingerprintGenerator.GetMorganGenerator(
        radius=radius, fpSize=size
    ),
    "atom_pairs": lambda size, _: rdFingerprintGenerator.GetAtomPairGenerator(fpSize=size),
    "torsions": lambda size, _: rdFingerprintGenerator.GetTopologicalTorsionGenerator(fpSize=size),
    "feature_morgan": lambda size, radius: rdFingerprintGenerator.GetMorganGenerator(
        radius=radius,
        fpSize=size,
        atomInvariantsGenerator=rdFingerprintGenerator.GetMorganFeatureAtomInvGen(),
    ),
}
KINDS = tuple(_GENERATORS)
"""Kinds of substructures that can be counted."""


class HashedCounts(NamedTuple):
    """Non-zero counts of a molecule, at most 255 each, and their positions, ascending ``[k]``."""

    positions: NDArray[np.uint16]
    counts: NDArray[np.uint8]


class Environments(NamedTuple):
    """The substructures in a molecule of n atoms: positions ``[E]``, atoms ``bool [E, n]``."""

    positions: NDArray[np.int64]
    atoms: NDArray[np.bool_]


@dataclass(frozen=True)
class SubstructureCounter:
    """Counts substructures of a molecule, each kind hashed to its own ``size`` positions.

    - ``morgan``: atom environments of radius 0 to ``radius`` (Rogers and Hahn, J. Chem. Inf. Model.
      2010, 50, 742);
    - ``atom_pairs``: the types of two atoms and their distance in bonds (Carhart et al., J. Chem.
      Inf. Comput. Sci. 1985, 25, 64);
    - ``torsions``: the types of four atoms in a chain (Nilakantan et al., J. Chem. Inf. Comput.
      Sci. 1987, 27, 82);
    - ``feature_morgan``: environments of atoms of equal pharmacophore features (donor, acceptor,
      aromatic, halogen, acidic, basic).

    Args:
        kinds: Kinds of ``KINDS``; the positions of the first come first.
        size: Positions of each kind. All together at most 65,536.
        radius: Largest radius of an environment, in bonds.

    Example:
        >>> SubstructureCounter(("morgan",))(Chem.MolFromSmiles("CC")).counts
        array([1, 2], dtype=uint8)
    """

    kinds: tuple[str, ...] = KINDS[:2]
    size: int = 4096
    radius: int = 2

    def __len__(self) -> int:
        return len(self.kinds) * self.size

    @cached_property
    def groups(self) -> dict[str, slice]:
        """Positions of each kind."""
        starts = range(0, len(self), self.size)
        return {
            kind: slice(start, start + self.size)
            for kind, start in zip(self.kinds, starts, strict=True)
        }

    def __call__(self, mol: Chem.Mol) -> HashedCounts:
        """Return the counts of a sanitized molecule."""
        return self.many([mol], [None])[0]

    def many(self, mols: Sequence[Chem.Mol], pieces: Sequence[Pieces | None]) -> list[HashedCounts]:
        """Return the counts of sanitized molecules, with their pieces from :func:`fast.cut`."""
        columns: list[list[Counts]] = []
        for kind in self.kinds:
            plain = partial(self._counted, kind)
            is_fast = kind == "atom_pairs"
            columns.append(
                each(mols, pieces, self._atom_pairs, plain) if is_fast else [*map(plain, mols)]
            )
        return [self._joined(row) for row in zip(*columns, strict=True)]

    def _counted(self, kind: str, mol: Chem.Mol) -> Counts:
        return _positions(self._generators[kind], _ordered(kind, mol)[0])

    @cached_property
    def _atom_pairs(self) -> AtomPairs:
        return AtomPairs(self.size)

    def _joined(self, counts_by_kind: Sequence[Counts]) -> HashedCounts:
        """Join the counts of each kind."""
        starts = range(0, len(self), self.size)
        shifted = [
            positions + start for (positions, _), start in zip(counts_by_kind, starts, strict=True)
        ]
        counts = np.minimum(np.concatenate([counts for _, counts in counts_by_kind]), MOST_COUNTED)
        return HashedCounts(np.concatenate(shifted).astype(np.uint16), counts.astype(np.uint8))

    def fingerprint(self, counts: HashedCounts, mol: Chem.Mol) -> Fingerprint:
        """Return :func:`morgan_fingerprint` of a counted molecule, from the counts if they do."""
        group = self.groups.get("morgan")
        if group is None or self.radius != FINGERPRINT_RADIUS or self.size % FINGERPRINT_SIZE:
            return morgan_fingerprint(mol)
        start, end = np.searchsorted(counts.positions, (group.start, group.stop))
        morgan_counts = counts.counts[start:end]
        if morgan_counts.max(initial=0) == MOST_COUNTED:
            return morgan_fingerprint(mol)
        folded = (counts.positions[start:end] - np.uint16(group.start)) % np.uint16(
            FINGERPRINT_SIZE
        )
        return np.sort(np.repeat(folded, morgan_counts))

    def environments(self, mol: Chem.Mol) -> Environments:
        """Return each substructure that is counted in a sanitized molecule."""
        positions: list[int] = []
        atoms: list[NDArray[np.bool_]] = []
        distances = Chem.GetDistanceMatrix(mol)
        for kind, group in self.groups.items():
            output = rdFingerprintGenerator.AdditionalOutput()
            output.AllocateBitInfoMap()
            output.AllocateBitPaths()
            ordered, order = _ordered(kind, mol)
            self._generators[kind].GetCountFingerprint(ordered, additionalOutput=output)
            info = output.GetBitPaths() if kind == "torsions" else output.GetBitInfoMap()
            for position, matches in info.items():
                for match in matches:
                    if kind in ("morgan", "feature_morgan"):
                        center, radius = match
                        inside = distances[center] <= radius
                    else:
                        inside = np.isin(np.arange(len(order)), order[[*match]])
                    positions.append(group.start + position)
                    atoms.append(inside)
        inside = np.array(atoms, dtype=bool).reshape(len(atoms), mol.GetNumAtoms())
        return Environments(np.array(positions, dtype=np.int64), inside)

    def __reduce__(self) -> tuple[type["SubstructureCounter"], tuple[tuple[str, ...], int, int]]:
        return type(self), (self.kinds, self.size, self.radius)  # RDKit's generators do not pickle

    @cached_property
    def _generators(self) -> dict[str, Any]:
        return {kind: _GENERATORS[kind](self.size, self.radius) for kind in self.kinds}


def _ordered(kind: str, mol: Chem.Mol) -> tuple[Chem.Mol, NDArray[np.intp]]:
    """Return a molecule in the order in which RDKit counts a kind, and the order of its atoms.

    RDKit begins a torsion that closes a ring of three at an atom that depends on the order.
    """
    if kind != "torsions" or all(len(ring) > 3 for ring in mol.GetRingInfo().AtomRings()):
        return mol, np.arange(mol.GetNumAtoms())
    # Of a copy: ranking the atoms clears the rings of a molecule whose atoms were renumbered.
    order = np.argsort(list(Chem.CanonicalRankAtoms(Chem.Mol(mol))))
    return Chem.RenumberAtoms(mol, order.tolist()), order


def _positions(generator: Any, mol: Chem.Mol) -> Counts:
    # Pairs of position and count after four numbers: much faster than RDKit's dictionary.
    numbers = np.frombuffer(generator.GetCountFingerprint(mol).ToBinary(), dtype=np.uint32)[4:]
    return numbers[::2], numbers[1::2]
