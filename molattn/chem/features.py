"""Molecules as small integers: one row of codes per atom, one joint code per atom pair."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem

from molattn.chem.vocabulary import ATOM_COLUMNS, BOND_COLUMNS, Column, Value
from molattn.errors import InputError
from molattn.record import MoleculeRecord

__all__ = ["Featurizer"]

_VERSION = 1
_MAX_PAIR_CODES = 256
# RDKit marks a pair without a path by 1e8; no molecule has a path this long.
_UNREACHABLE = 1e6

_BOND_NAMES: dict[str, str] = {
    "SINGLE": "single",
    "DOUBLE": "double",
    "TRIPLE": "triple",
    "AROMATIC": "aromatic",
    "DATIVE": "dative",
}
_STEREO_NAMES: dict[str, str] = {
    "STEREONONE": "none",
    "STEREOANY": "any",
    "STEREOZ": "Z",
    "STEREOCIS": "Z",
    "STEREOE": "E",
    "STEREOTRANS": "E",
}


def _chirality(atom: Chem.Atom) -> str:
    if atom.HasProp("_CIPCode"):
        return atom.GetProp("_CIPCode")
    return "none" if atom.GetChiralTag() == Chem.ChiralType.CHI_UNSPECIFIED else "unlabelled"


def _ring_size(atom: Chem.Atom, rings: Chem.RingInfo) -> int:
    index = atom.GetIdx()
    return rings.MinAtomRingSize(index) if rings.NumAtomRings(index) else 0


def _atom_values(atom: Chem.Atom, rings: Chem.RingInfo) -> dict[str, Value]:
    return {
        "element": atom.GetAtomicNum(),
        "degree": atom.GetDegree(),
        "hydrogens": atom.GetTotalNumHs(),
        "charge": atom.GetFormalCharge(),
        "hybridization": atom.GetHybridization().name,
        "aromatic": atom.GetIsAromatic(),
        "ring_size": _ring_size(atom, rings),
        "chirality": _chirality(atom),
        "radicals": atom.GetNumRadicalElectrons(),
        "isotope": atom.GetIsotope() != 0,
    }


def _bond_values(bond: Chem.Bond) -> dict[str, Value]:
    return {
        "bond": _BOND_NAMES.get(bond.GetBondType().name, "other"),
        "conjugated": bond.GetIsConjugated(),
        "ring": bond.IsInRing(),
        "stereo": _STEREO_NAMES.get(bond.GetStereo().name, "other"),
    }


@dataclass(frozen=True)
class Featurizer:
    """Turns a molecule into atom codes and joint pair codes; an unknown value never fails.

    A pair's five components are ``pair_names``. Distance is the length of the shortest path in
    bonds: code 0 is an atom with itself, ``d`` is ``d`` bonds, ``max_distance`` is that many or
    more, ``max_distance + 1`` is an atom of another fragment. A bonded pair is at distance 1. The
    joint code numbers the combinations that can occur; ``pair_table`` gives back the components.

    Chirality is the CIP label RDKit stored when it read the molecule, and a double bond's stereo is
    Z or E, because both stay when the atoms are listed in another order.

    Args:
        atom_columns: Features of an atom, a selection of the default ones with any values.
        bond_columns: Features of a bond: ``bond``, ``conjugated``, ``ring``, ``stereo``, in this
            order. The first value of each is that of a pair without a bond.
        max_distance: Longest distance with a code of its own (shared by all that are longer).
        version: Version of the meaning of the features.

    Example:
        >>> from rdkit import Chem
        >>> featurizer = Featurizer.default()
        >>> record = featurizer(Chem.MolFromSmiles("CCO"))
        >>> featurizer.pair_table[record.pairs[0], -1].tolist()
        [0, 1, 2]
    """

    atom_columns: tuple[Column, ...] = ATOM_COLUMNS
    bond_columns: tuple[Column, ...] = BOND_COLUMNS
    max_distance: int = 10
    version: int = field(default=_VERSION)

    def __post_init__(self) -> None:
        if self.version != _VERSION:
            raise InputError(
                f"featurizer version: expected {_VERSION}, got {self.version!r}; "
                "another release of molattn wrote it"
            )
        known = {column.name for column in ATOM_COLUMNS}
        names = self.atom_names
        if not names or len(set(names)) != len(names) or not set(names) <= known:
            raise InputError(
                f"atom features: expected distinct names out of {sorted(known)}, got {names}"
            )
        expected = tuple(column.name for column in BOND_COLUMNS)
        if self.pair_names[:-1] != expected:
            raise InputError(f"bond features: expected {expected}, got {self.pair_names[:-1]}")
        if type(self.max_distance) is not int or self.max_distance < 1:
            raise InputError(
                f"max_distance: expected a whole number from 1, got {self.max_distance!r}"
            )
        if self.num_pair_codes > _MAX_PAIR_CODES:
            raise InputError(
                f"pair features: expected at most {_MAX_PAIR_CODES} joint codes, "
                f"got {self.num_pair_codes}; list fewer values or a smaller max_distance"
            )

    @classmethod
    def default(cls) -> "Featurizer":
        """Return the featurizer of the current version with its standard vocabularies."""
        return cls()

    @property
    def atom_names(self) -> tuple[str, ...]:
        """Names of the atom columns."""
        return tuple(column.name for column in self.atom_columns)

    @property
    def atom_sizes(self) -> tuple[int, ...]:
        """Number of codes of each atom column, the one for "other" included."""
        return tuple(column.size for column in self.atom_columns)

    @property
    def pair_names(self) -> tuple[str, ...]:
        """Names of the components of a pair."""
        return (*(column.name for column in self.bond_columns), "distance")

    @property
    def pair_sizes(self) -> tuple[int, ...]:
        """Number of codes of each component of a pair, the one for "other" included."""
        return (*(column.size for column in self.bond_columns), self.max_distance + 2)

    @property
    def self_code(self) -> int:
        """Joint code of an atom with itself."""
        return 0

    @property
    def num_pair_codes(self) -> int:
        """Number ``K`` of joint pair codes."""
        kinds, *rest = (column.size for column in self.bond_columns)
        return self.max_distance + 2 + (kinds - 1) * int(np.prod(rest))

    @cached_property
    def pair_table(self) -> NDArray[np.uint8]:
        """Component codes of each joint pair code, ``uint8 [K, 5]``.

        First the pairs without a bond, by distance code, then the bonded ones.
        """
        unbonded = [(0, 0, 0, 0, distance) for distance in range(self.max_distance + 2)]
        kinds, *rest = (range(column.size) for column in self.bond_columns)
        bonded = [(*codes, 1) for codes in product(kinds[1:], *rest)]
        table = np.array(unbonded + bonded, dtype=np.uint8)
        table.flags.writeable = False
        return table

    def __call__(self, mol: Chem.Mol) -> MoleculeRecord:
        """Return the codes of a sanitised molecule.

        Args:
            mol: Molecule with rings, hybridisation and stereochemistry perceived, as
                :func:`molattn.chem.parse_smiles` gives it.

        Returns:
            Record with ``atoms`` ``uint8 [n, A]`` and ``pairs`` ``uint8 [n, n]``.
        """
        rings = mol.GetRingInfo()
        atoms = np.array(
            [self._atom_row(_atom_values(atom, rings)) for atom in mol.GetAtoms()], dtype=np.uint8
        ).reshape(mol.GetNumAtoms(), len(self.atom_columns))
        distance = Chem.GetDistanceMatrix(mol)
        pairs = np.minimum(distance, self.max_distance).astype(np.uint8)
        pairs[distance > _UNREACHABLE] = self.max_distance + 1
        for bond in mol.GetBonds():
            begin, end = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
            pairs[begin, end] = pairs[end, begin] = self._bond_code(_bond_values(bond))
        return MoleculeRecord(atoms, pairs)

    @cached_property
    def _codes(self) -> dict[str, dict[Value, int]]:
        return {column.name: column.codes() for column in (*self.atom_columns, *self.bond_columns)}

    def _atom_row(self, values: dict[str, Value]) -> list[int]:
        return [self._codes[c.name].get(values[c.name], len(c.values)) for c in self.atom_columns]

    def _bond_code(self, values: dict[str, Value]) -> int:
        code = 0
        for column in self.bond_columns:
            own = self._codes[column.name].get(values[column.name], len(column.values))
            code = code * column.size + own
        kinds, *rest = (column.size for column in self.bond_columns)
        return self.num_pair_codes - kinds * int(np.prod(rest)) + code

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types from which :meth:`from_dict` makes an equal featurizer."""
        return {
            "version": self.version,
            "atom_columns": [column.to_dict() for column in self.atom_columns],
            "bond_columns": [column.to_dict() for column in self.bond_columns],
            "max_distance": self.max_distance,
        }

    @classmethod
    def from_dict(cls, data: object) -> "Featurizer":
        """Make a featurizer from :meth:`to_dict`'s data.

        Raises:
            InputError: A key is unknown or missing, or the version or a value is not valid.
        """
        expected = {"version", "atom_columns", "bond_columns", "max_distance"}
        if not isinstance(data, Mapping) or set(data) != expected:
            got = sorted(map(str, data)) if isinstance(data, Mapping) else repr(data)[:80]
            raise InputError(f"featurizer: expected keys {sorted(expected)}, got {got}")
        for key in ("atom_columns", "bond_columns"):
            if not isinstance(data[key], list):
                raise InputError(f"featurizer key {key!r}: expected a list, got {data[key]!r:.80}")
        return cls(
            atom_columns=tuple(map(Column.from_dict, data["atom_columns"])),
            bond_columns=tuple(map(Column.from_dict, data["bond_columns"])),
            max_distance=data["max_distance"],
            version=data["version"],
        )
