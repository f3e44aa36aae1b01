"""Molecules as small integers: one row of codes per atom, one joint code per atom pair."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem

from molattn.chem.atom_features import ATOM_COLUMNS, BOND_COLUMNS, Column
from molattn.chem.codes import CodeEncoder
from molattn.errors import InputError
from molattn.record import MoleculeRecord

__all__ = ["Featurizer"]

_VERSION = 1
_MAX_PAIR_CODES = 255


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
    version: int = _VERSION

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
        standard = {column.name: column for column in (*ATOM_COLUMNS, *BOND_COLUMNS)}
        for column in (*self.atom_columns, *self.bond_columns):
            own = standard[column.name]
            if column.is_open != own.is_open or not (
                own.is_open or set(column.values) == set(own.values)
            ):
                raise InputError(f"feature {column.name!r}: expected {own}, got {column}")
        for column, own in zip(self.bond_columns, BOND_COLUMNS, strict=True):
            if column.values[0] != own.values[0]:
                raise InputError(
                    f"feature {column.name!r}: expected the first value {own.values[0]!r}, "
                    f"that of a pair without a bond, got {column.values[0]!r}"
                )
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
    @cache
    def default(cls) -> "Featurizer":
        """Return the featurizer of the current version with its standard vocabularies, one object."""
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
    def first_bond_code(self) -> int:
        """Smallest joint code of a bonded pair; the bonded ones are the last."""
        return self.max_distance + 2

    @property
    def num_pair_codes(self) -> int:
        """Number ``K`` of joint pair codes."""
        kinds, *rest = (column.size for column in self.bond_columns)
        return self.first_bond_code + (kinds - 1) * int(np.prod(rest))

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
        return self._encoder([mol])[0]

    def many(self, mols: Sequence[Chem.Mol]) -> list[MoleculeRecord]:
        """Return the codes of many sanitised molecules, in about half the time of one at a time.

        Args:
            mols: Molecules as for a call; 64 at a time are enough.
        """
        return self._encoder(mols)

    @cached_property
    def _encoder(self) -> CodeEncoder:
        return CodeEncoder(self.atom_columns, self.bond_columns, self.max_distance)

    def __reduce__(self) -> tuple[Any, ...]:
        columns = self.atom_columns, self.bond_columns
        return type(self), (*columns, self.max_distance, self.version)

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
