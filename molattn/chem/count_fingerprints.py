"""Hashed counts of substructures, stored sparsely."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator

from molattn.chem.atom_pairs import AtomPairs
from molattn.chem.fingerprints import (
    FINGERPRINT_RADIUS,
    FINGERPRINT_SIZE,
    Fingerprint,
    morgan_fingerprint,
)
from molattn.chem.mol_binary import PROBES, Pieces, cut

__all__ = [
    "KINDS",
    "MOST_COUNTED",
    "Environments",
    "HashedCounts",
    "SubstructureCounter",
]

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


_Counted = tuple[NDArray[np.integer[Any]], NDArray[np.integer[Any]]]  # positions, counts


class HashedCounts(NamedTuple):
    """Non-zero counts of a molecule, at most 255 each, and their positions, ascending ``[k]``."""

    places: NDArray[np.uint16]
    counts: NDArray[np.uint8]


class Environments(NamedTuple):
    """The E substructures that are counted in a molecule of n atoms.

    Args:
        places: Position at which each is counted, ``int64 [E]``.
        atoms: Which atoms each consists of, ``bool [E, n]``; those of a Morgan environment are all
            within its radius of the center.
    """

    places: NDArray[np.int64]
    atoms: NDArray[np.bool_]


class SubstructureCounter:
    """Counts substructures of a molecule, each kind hashed to its own ``size`` positions.

    - ``morgan``: atom environments of radius 0 to ``radius`` (Rogers and Hahn, J. Chem. Inf. Model.
      2010, 50, 742);
    - ``atom_pairs``: the types of two atoms and their distance in bonds (Carhart et al., J. Chem.
      Inf. Comput. Sci. 1985, 25, 64);
    - ``torsions``: the types of four atoms in a chain (Nilakantan et al., J. Chem. Inf. Comput.
      Sci. 1987, 27, 82);
    - ``feature_morgan``: environments of atoms that are told apart by pharmacophore features only
      (donor, acceptor, aromatic, halogen, acidic, basic).

    Args:
        kinds: Kinds of ``KINDS``; the positions of the first come first.
        size: Positions of each kind. All together at most 65,536.
        radius: Largest radius of an environment, in bonds.

    Example:
        >>> SubstructureCounter(("morgan",))(Chem.MolFromSmiles("CC")).counts
        array([2, 1], dtype=uint8)
    """

    def __init__(
        self, kinds: tuple[str, ...] = KINDS[:2], size: int = 1024, radius: int = 2
    ) -> None:
        self.kinds = kinds
        self.size = size
        self.radius = radius

    def __len__(self) -> int:
        return len(self.kinds) * self.size

    @property
    def _starts(self) -> range:
        return range(0, len(self), self.size)

    @property
    def groups(self) -> dict[str, slice]:
        """Positions of each kind."""
        places = (slice(start, start + self.size) for start in self._starts)
        return dict(zip(self.kinds, places, strict=True))

    def __call__(self, mol: Chem.Mol) -> HashedCounts:
        """Return the counts of a sanitized molecule."""
        given = zip(self.kinds, self.generators, strict=True)
        return self._joined([_counted(kind, generator, mol) for kind, generator in given])

    def many(self, mols: Sequence[Chem.Mol], pieces: Sequence[Pieces | None]) -> list[HashedCounts]:
        """Return the counts of sanitized molecules, faster than one at a time.

        Args:
            mols: The molecules.
            pieces: What :func:`molattn.chem.mol_binary.cut` returns of each.
        """
        of_kinds: list[list[_Counted]] = []
        for kind, generator in zip(self.kinds, self.generators, strict=True):
            fast: dict[int, _Counted] = {}
            if kind == "atom_pairs" and self._fast_pairs is not None:
                known = {at: one for at, one in enumerate(pieces) if one and one.is_covalent}
                found = self._fast_pairs([mols[at] for at in known], [*known.values()])
                fast = dict(zip(known, found, strict=True))
            of_kinds.append(
                [
                    fast[at] if at in fast else _counted(kind, generator, mol)
                    for at, mol in enumerate(mols)
                ]
            )
        return [self._joined(found) for found in zip(*of_kinds, strict=True)]

    @cached_property
    def _fast_pairs(self) -> AtomPairs | None:
        """Counts atom pairs of many molecules; None if not as the installed RDKit counts them."""
        fast, mols = AtomPairs(self.size), [Chem.MolFromSmiles(smiles) for smiles in PROBES]
        pieces = [piece for mol in mols if (piece := cut(mol)) is not None]
        if len(pieces) < len(mols):
            return None
        generator = _GENERATORS["atom_pairs"](self.size, 0)
        expected = [_counted("atom_pairs", generator, mol) for mol in mols]
        same = all(
            np.array_equal(one, other)
            for found, right in zip(fast(mols, pieces), expected, strict=True)
            for one, other in zip(found, right, strict=True)
        )
        return fast if same else None

    def _joined(self, found: Sequence[_Counted]) -> HashedCounts:
        """Join the counts of each kind."""
        places = [one + start for (one, _), start in zip(found, self._starts, strict=True)]
        counts = np.minimum(np.concatenate([counts for _, counts in found]), MOST_COUNTED)
        return HashedCounts(np.concatenate(places).astype(np.uint16), counts.astype(np.uint8))

    def fingerprint(self, counts: HashedCounts, mol: Chem.Mol) -> Fingerprint:
        """Return the :func:`molattn.chem.fingerprints.morgan_fingerprint` of a counted molecule.

        It is derived from the counts if they tell it.
        """
        group = self.groups.get("morgan")
        if group is None or self.radius != FINGERPRINT_RADIUS or self.size % FINGERPRINT_SIZE:
            return morgan_fingerprint(mol)
        start, end = np.searchsorted(counts.places, (group.start, group.stop))
        own = counts.counts[start:end]
        if own.max(initial=0) == MOST_COUNTED:
            return morgan_fingerprint(mol)
        places = (counts.places[start:end] - np.uint16(group.start)) % np.uint16(FINGERPRINT_SIZE)
        return np.sort(np.repeat(places, own))

    def environments(self, mol: Chem.Mol) -> Environments:
        """Return each substructure that is counted in a sanitized molecule.

        Example:
            >>> SubstructureCounter(("atom_pairs",)).environments(Chem.MolFromSmiles("CCO")).atoms
            array([[ True,  True, False],
                   [False,  True,  True],
                   [ True, False,  True]])
        """
        places: list[int] = []
        atoms: list[NDArray[np.bool_]] = []
        distances = Chem.GetDistanceMatrix(mol)
        for kind, generator, group in zip(
            self.kinds, self.generators, self.groups.values(), strict=True
        ):
            found = rdFingerprintGenerator.AdditionalOutput()
            found.AllocateBitInfoMap()
            found.AllocateBitPaths()
            order = _order(kind, mol)
            ordered = mol if order is None else Chem.RenumberAtoms(mol, order)
            generator.GetCountFingerprint(ordered, additionalOutput=found)
            info = found.GetBitPaths() if kind == "torsions" else found.GetBitInfoMap()
            for place, several in info.items():
                for one in several:
                    if kind in ("morgan", "feature_morgan"):
                        center, radius = one
                        inside = distances[center] <= radius
                    else:
                        inside = np.zeros(mol.GetNumAtoms(), dtype=bool)
                        inside[[*one] if order is None else [order[atom] for atom in one]] = True
                    places.append(group.start + place)
                    atoms.append(inside)
        shape = len(atoms), mol.GetNumAtoms()
        return Environments(
            np.array(places, dtype=np.int64), np.array(atoms, dtype=bool).reshape(shape)
        )

    def __reduce__(self) -> tuple[type["SubstructureCounter"], tuple[tuple[str, ...], int, int]]:
        # RDKit's generators cannot be pickled.
        return type(self), (self.kinds, self.size, self.radius)

    @cached_property
    def generators(self) -> tuple[Any, ...]:
        """RDKit's fingerprint generator of each kind."""
        return tuple(_GENERATORS[kind](self.size, self.radius) for kind in self.kinds)


def _order(kind: str, mol: Chem.Mol) -> list[int] | None:
    """Return the order of atoms in which RDKit counts a kind; None = any.

    RDKit begins a torsion that closes a ring of three at an atom that depends on the order.
    """
    if kind != "torsions" or all(len(ring) > 3 for ring in mol.GetRingInfo().AtomRings()):
        return None
    # Of a copy: ranking the atoms clears the rings of a molecule whose atoms were renumbered.
    return np.argsort(list(Chem.CanonicalRankAtoms(Chem.Mol(mol)))).tolist()


def _counted(kind: str, generator: Any, mol: Chem.Mol) -> _Counted:
    if (order := _order(kind, mol)) is not None:
        mol = Chem.RenumberAtoms(mol, order)
    # Pairs of position and count after four numbers: much faster than RDKit's dictionary.
    found = np.frombuffer(generator.GetCountFingerprint(mol).ToBinary(), dtype=np.uint32)[4:]
    return found[::2], found[1::2]
