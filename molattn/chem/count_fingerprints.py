"""Hashed counts of substructures, stored sparsely."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator

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
        # Pairs of position and count after four numbers: much faster than RDKit's dictionary.
        found = [
            np.frombuffer(generator.GetCountFingerprint(mol).ToBinary(), dtype=np.uint32)[4:]
            for generator in self.generators
        ]
        places = [one[::2] + start for one, start in zip(found, self._starts, strict=True)]
        counts = np.minimum(np.concatenate([one[1::2] for one in found]), MOST_COUNTED)
        return HashedCounts(np.concatenate(places).astype(np.uint16), counts.astype(np.uint8))

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
            generator.GetCountFingerprint(mol, additionalOutput=found)
            info = found.GetBitPaths() if kind == "torsions" else found.GetBitInfoMap()
            for place, several in info.items():
                for one in several:
                    if kind in ("morgan", "feature_morgan"):
                        center, radius = one
                        inside = distances[center] <= radius
                    else:
                        inside = np.zeros(mol.GetNumAtoms(), dtype=bool)
                        inside[[*one]] = True
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
