"""Molecules as small integers: one row of codes per atom, one joint code per atom pair."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem

from molattn.chem.atom_features import (
    ATOM_COLUMNS,
    ATOM_FEATURES,
    BOND_COLUMNS,
    BOND_FEATURES,
    Column,
    graph_codes,
)
from molattn.chem.distance import pair_codes
from molattn.chem.fast import Codes, Pieces, cut
from molattn.errors import InputError, quoted
from molattn.record import MoleculeRecord, pairs_within
from molattn.utils.registry import Registry

__all__ = ["FEATURIZERS", "Featurizer"]

_VERSION = 1
_MAX_PAIR_CODES = 255
_DEFAULT_BONDS = tuple(column.name for column in BOND_COLUMNS)


@dataclass(frozen=True)
class Featurizer:
    """Turns a molecule into atom codes and joint pair codes.

    A component code is the index of one feature's value in its vocabulary. A joint code is the
    index of a combination of component codes; ``pair_table`` maps it back to them.

    The components of a pair are its bond features and the distance, ``pair_names``. The distance
    is the number of bonds of the shortest path: code 0 is an atom with itself, ``d`` is ``d``
    bonds, ``max_distance`` is that many or more, ``max_distance + 1`` is an atom of another
    fragment. A bonded pair is at distance 1. Only combinations that can occur have a joint code.

    Chirality is the CIP label and a double bond's stereo is Z or E, because both are independent of
    the order of the atoms.

    Args:
        atom_columns: Features of an atom, by default ``ATOM_COLUMNS``: any of those and of your own
            that are registered in :data:`molattn.chem.ATOM_FEATURES`, each with any vocabulary.
        bond_columns: Features of a bond, by default ``BOND_COLUMNS``; your own, registered in
            :data:`molattn.chem.BOND_FEATURES`, follow those. The first value of each is that of a
            pair without a bond.
        max_distance: Longest distance with a code of its own, shared by all longer ones.
        version: Version of the feature definitions.

    Raises:
        InputError: A feature that is not registered, a default feature with values that it cannot
            have, or more than 255 joint codes of a pair.

    Example:
        >>> from rdkit import Chem
        >>> featurizer = Featurizer.default()
        >>> record = featurizer(Chem.MolFromSmiles("CCO"))
        >>> featurizer.pair_table[record.pairs[0], -1].tolist()
        [0, 1, 2]
    """

    atom_columns: tuple[Column, ...] = field(default=ATOM_COLUMNS, repr=False)
    bond_columns: tuple[Column, ...] = field(default=BOND_COLUMNS, repr=False)
    max_distance: int = 10
    version: int = _VERSION

    def __post_init__(self) -> None:
        if self.version != _VERSION:
            raise InputError(
                f"featurizer version: expected {_VERSION}, got {self.version!r}; "
                "another release of molattn wrote it"
            )
        for kind, columns, registry in (
            ("atom", self.atom_columns, ATOM_FEATURES),
            ("bond", self.bond_columns, BOND_FEATURES),
        ):
            for column in columns:
                if column.name not in registry:
                    raise InputError(
                        f"{kind} feature {quoted(column.name)}: not registered, expected one of "
                        f"{', '.join(registry)}; import the module that registers it in "
                        f"molattn.chem.{kind.upper()}_FEATURES first"
                    )
        names = self.atom_names
        if not names or len(set(names)) != len(names):
            raise InputError(
                f"atom features: expected distinct names, at least one, got {quoted(names)}"
            )
        pairs = self.pair_names
        if pairs[: len(_DEFAULT_BONDS)] != _DEFAULT_BONDS or len(set(pairs)) != len(pairs):
            raise InputError(
                f"bond features: expected {_DEFAULT_BONDS}, then distinct names of your own other "
                f"than 'distance', got {quoted(pairs[:-1])}"
            )
        standard = {column.name: column for column in (*ATOM_COLUMNS, *BOND_COLUMNS)}
        for column in (*self.atom_columns, *self.bond_columns):
            own = standard.get(column.name, column)
            if column.is_open != own.is_open or not (
                own.is_open or set(column.values) == set(own.values)
            ):
                raise InputError(f"feature {column.name!r}: expected {own}, got {column}")
        for column, own in zip(self.bond_columns, BOND_COLUMNS, strict=False):
            if column.values[0] != own.values[0]:
                raise InputError(
                    f"feature {column.name!r}: expected the first value {own.values[0]!r}, "
                    f"that of a pair without a bond, got {column.values[0]!r}"
                )
        if type(self.max_distance) is not int or self.max_distance < 1:
            raise InputError(
                f"max_distance: expected a whole number of at least 1, got {self.max_distance!r}"
            )
        if self.num_pair_codes > _MAX_PAIR_CODES:
            raise InputError(
                f"pair features: expected at most {_MAX_PAIR_CODES} joint codes, "
                f"got {self.num_pair_codes}; list fewer values or a smaller max_distance"
            )

    @classmethod
    @cache
    def default(cls) -> "Featurizer":
        """Return the featurizer with the default features; always the same object."""
        return cls()

    @property
    def atom_names(self) -> tuple[str, ...]:
        """Names of the atom columns."""
        return tuple(column.name for column in self.atom_columns)

    @property
    def atom_sizes(self) -> tuple[int, ...]:
        """Number of codes of each atom column, including the one for unlisted values."""
        return tuple(column.size for column in self.atom_columns)

    @property
    def pair_names(self) -> tuple[str, ...]:
        """Names of the components of a pair."""
        return (*(column.name for column in self.bond_columns), "distance")

    @property
    def pair_sizes(self) -> tuple[int, ...]:
        """Number of codes of each component of a pair, including the one for unlisted values."""
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
        """Component codes of each joint pair code, ``uint8 [K, len(pair_names)]``.

        First the pairs without a bond, by distance code, then the bonded ones.
        """
        no_bond = (0,) * len(self.bond_columns)
        unbonded = [(*no_bond, distance) for distance in range(self.max_distance + 2)]
        kinds, *rest = (range(column.size) for column in self.bond_columns)
        bonded = [(*codes, 1) for codes in product(kinds[1:], *rest)]
        table = np.array(unbonded + bonded, dtype=np.uint8)
        table.flags.writeable = False
        return table

    def __call__(self, mol: Chem.Mol) -> MoleculeRecord:
        """Return the codes of a sanitized molecule.

        Args:
            mol: Molecule with rings, hybridization and stereochemistry perceived, as
                :func:`molattn.chem.parse_smiles` gives it. Double bonds need the labels E or Z:
                cis and trans have the code of unlisted values.

        Returns:
            Record with ``atoms`` ``uint8 [n, A]`` and ``pairs`` ``uint8 [n, n]``.

        Raises:
            InputError: RDKit's legacy stereo perception, which assigns CIP labels, is off.
        """
        return self.many([mol])[0]

    def many(self, mols: Sequence[Chem.Mol], radius: int | None = None) -> list[MoleculeRecord]:
        """Return the codes of many sanitized molecules, about twice as fast as one at a time.

        Args:
            mols: Molecules as for a call. More than 64 at a time are no faster.
            radius: Record only the pairs of atoms at most this many bonds apart, with
                ``edge_index``; None = all pairs.
        """
        return self.of_pieces(mols, [cut(mol) for mol in mols], radius)

    def of_pieces(
        self,
        mols: Sequence[Chem.Mol],
        pieces: Sequence[Pieces | None],
        radius: int | None = None,
    ) -> list[MoleculeRecord]:
        """Do the same, given what :func:`molattn.chem.fast.cut` returns of each molecule."""
        if not Chem.GetUseLegacyStereoPerception():
            raise InputError(
                "RDKit's legacy stereo perception is off, and without it there are no CIP labels; "
                "call rdkit.Chem.SetUseLegacyStereoPerception(True) first"
            )
        if radius is not None:
            return [self._within(mol, radius) for mol in mols]
        known = {n: piece for n, piece in enumerate(pieces) if piece is not None}
        read = self._fast([mols[n] for n in known], [*known.values()])
        found = dict(zip(known, read, strict=True))
        return [found.get(n) or self._plain(mol) for n, mol in enumerate(mols)]

    @cached_property
    def _fast(self) -> Codes:
        return Codes(self.atom_columns, self.bond_columns, self.max_distance)

    def _plain(self, mol: Chem.Mol) -> MoleculeRecord:
        """Return the codes by calling the feature functions on each atom and bond."""
        atoms, bonds, codes = self._graph(mol)
        pairs = pair_codes(np.array([len(atoms)]), bonds, codes, self.max_distance)
        return MoleculeRecord(atoms, pairs)

    def _within(self, mol: Chem.Mol, radius: int) -> MoleculeRecord:
        """Return the codes of pairs within a radius, in memory linear in their number."""
        atoms, bonds, codes = self._graph(mol)
        count = len(atoms)
        both = np.concatenate([bonds, bonds[::-1]], axis=1)
        edge_index, distance = pairs_within(count, both, radius)
        pairs = np.minimum(distance, self.max_distance).astype(np.uint8)
        # Pairs are sorted, so that those of bonds are found by bisection.
        ranks = edge_index[0].astype(np.int64) * count + edge_index[1]
        pairs[np.searchsorted(ranks, both[0] * count + both[1])] = np.tile(codes, 2)
        # Codes of a pair are the same in both directions.
        return MoleculeRecord(atoms, pairs, edge_index=edge_index[::-1].copy())

    def _graph(
        self, mol: Chem.Mol
    ) -> tuple[NDArray[np.uint8], NDArray[np.intp], NDArray[np.uint8]]:
        return graph_codes(mol, self.atom_columns, self.bond_columns, self.first_bond_code)

    def __reduce__(self) -> tuple[Any, ...]:
        columns = self.atom_columns, self.bond_columns
        return type(self), (*columns, self.max_distance, self.version)

    def to_dict(self) -> dict[str, Any]:
        """Return the featurizer as JSON types, for :meth:`from_dict`."""
        return {
            "version": self.version,
            "atom_columns": [column.to_dict() for column in self.atom_columns],
            "bond_columns": [column.to_dict() for column in self.bond_columns],
            "max_distance": self.max_distance,
        }

    @classmethod
    def from_dict(cls, data: object) -> "Featurizer":
        """Return the featurizer that :meth:`to_dict` described.

        Raises:
            InputError: A missing or unknown key, a feature that is not registered, another version
                or a value that is not valid.
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


FEATURIZERS: Registry[Callable[[], Featurizer]] = Registry("featurizer")
"""Functions that return a featurizer, by the name that the option ``featurizer`` selects."""

FEATURIZERS.register("default")(Featurizer.default)
