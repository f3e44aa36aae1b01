"""Molecules as small integers: one row of codes per atom, one joint code per atom pair."""

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import cache, cached_property
from itertools import product
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter
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
from molattn.chem.fast import Codes, Pieces, cut, each
from molattn.config.base import Count, checked
from molattn.errors import InputError, quoted
from molattn.record import MoleculeRecord, pairs_within
from molattn.utils.registry import Registry

_MAX_PAIR_CODES = 255


@checked
class Featurizer:
    """Turns a molecule into atom codes and joint pair codes.

    A component code is the index of one feature's value in its vocabulary. A joint code is the
    index of a combination of component codes that can occur; ``pair_table`` maps it back to them.

    The components of a pair are its bond features and the distance, ``pair_names``. The distance
    is the number of bonds of the shortest path: code 0 is an atom with itself, ``max_distance`` is
    that many bonds or more, ``max_distance + 1`` is an atom of another fragment. Chirality is the
    CIP label and a double bond's stereo is Z or E, which do not depend on the order of the atoms.

    Args:
        atom_columns: Features of an atom, by default ``ATOM_COLUMNS``: any of those and of your own
            that are registered in :data:`molattn.chem.ATOM_FEATURES`, each with any vocabulary.
        bond_columns: Features of a bond, by default ``BOND_COLUMNS``; your own, registered in
            :data:`molattn.chem.BOND_FEATURES`, follow those. The first value of each is that of a
            pair without a bond.
        max_distance: Longest distance with a code of its own, shared by all longer ones.
        version: Version of the feature definitions.

    Raises:
        InputError: A feature that is not registered, or more than 255 joint codes of a pair.

    Example:
        >>> from rdkit import Chem
        >>> featurizer = Featurizer.default()
        >>> record = featurizer(Chem.MolFromSmiles("CCO"))
        >>> featurizer.pair_table[record.pairs[0], -1].tolist()
        [0, 1, 2]
    """

    atom_columns: tuple[Column, ...] = field(default=ATOM_COLUMNS, repr=False)
    bond_columns: tuple[Column, ...] = field(default=BOND_COLUMNS, repr=False)
    max_distance: Count = 10
    version: Literal[1] = 1

    def __post_init__(self) -> None:
        registered = [(column, ATOM_FEATURES) for column in self.atom_columns]
        for column, registry in registered + [
            (column, BOND_FEATURES) for column in self.bond_columns
        ]:
            if column.name not in registry:
                raise InputError(
                    f"feature {quoted(column.name)}: not registered, expected one of "
                    f"{', '.join(registry)}; import the module that registers it first"
                )
        names = self.atom_names
        pairs = self.pair_names
        if not names or len({*names}) != len(names) or len({*pairs}) != len(pairs):
            raise InputError(f"features: expected distinct names, got {quoted((*names, *pairs))}")
        no_bond = {column.name: column.values[0] for column in BOND_COLUMNS}
        no_bond_values = {
            column.name: column.values[0] for column in self.bond_columns[: len(no_bond)]
        }
        if list(no_bond_values.items()) != list(no_bond.items()):
            raise InputError(
                "bond features: expected the default ones first, each beginning with the value of "
                f"a pair without a bond, {no_bond}, got {no_bond_values}"
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
        kinds, *sizes = (column.size for column in self.bond_columns)
        return self.first_bond_code + (kinds - 1) * int(np.prod(sizes))

    @cached_property
    def pair_table(self) -> NDArray[np.uint8]:
        """Component codes of each joint pair code, ``uint8 [K, len(pair_names)]``; bonds last."""
        no_bond = (0,) * len(self.bond_columns)
        unbonded = [(*no_bond, distance) for distance in range(self.max_distance + 2)]
        kinds, *codes_of_others = (range(column.size) for column in self.bond_columns)
        bonded = [(*codes, 1) for codes in product(kinds[1:], *codes_of_others)]
        table = np.array(unbonded + bonded, dtype=np.uint8)
        table.flags.writeable = False
        return table

    def __call__(self, mol: Chem.Mol) -> MoleculeRecord:
        """Return the codes of a sanitized molecule, as :func:`molattn.chem.parse_smiles` gives it.

        Double bonds need the labels E or Z.

        Raises:
            InputError: RDKit's legacy stereo perception, which assigns CIP labels, is off.
        """
        return self.many([mol])[0]

    def many(
        self,
        mols: Sequence[Chem.Mol],
        radius: int | None = None,
        pieces: Sequence[Pieces | None] | None = None,
    ) -> list[MoleculeRecord]:
        """Return the codes of many sanitized molecules, about twice as fast as one at a time.

        With a radius only the pairs of atoms at most so many bonds apart, with ``edge_index``; with
        ``pieces``, what :func:`molattn.chem.fast.cut` returns of each, these are not cut again.
        """
        if not Chem.GetUseLegacyStereoPerception():
            raise InputError(
                "RDKit's legacy stereo perception is off, and without it there are no CIP labels; "
                "call rdkit.Chem.SetUseLegacyStereoPerception(True) first"
            )
        if radius is not None:
            return [self._plain(mol, radius) for mol in mols]
        pieces = [cut(mol) for mol in mols] if pieces is None else pieces
        return each(mols, pieces, self._fast, self._plain)

    @cached_property
    def _fast(self) -> Codes:
        return Codes(self.atom_columns, self.bond_columns, self.max_distance)

    def _plain(self, mol: Chem.Mol, radius: int | None = None) -> MoleculeRecord:
        """Return the codes by calling the feature functions on each atom and bond.

        Those of pairs within a radius take memory linear in their number.
        """
        columns = self.atom_columns, self.bond_columns
        atoms, bonds, codes = graph_codes(mol, *columns, self.first_bond_code)
        count = len(atoms)
        if radius is None:
            pairs = pair_codes(np.array([count]), bonds, codes, self.max_distance)
            return MoleculeRecord(atoms, pairs)
        both = np.concatenate([bonds, bonds[::-1]], axis=1)
        edge_index, distance = pairs_within(count, both, radius)
        pairs = np.minimum(distance, self.max_distance).astype(np.uint8)
        # Pairs are sorted, so that those of bonds are found by bisection.
        ranks = edge_index[0].astype(np.int64) * count + edge_index[1]
        pairs[np.searchsorted(ranks, both[0] * count + both[1])] = np.tile(codes, 2)
        # Codes of a pair are the same in both directions.
        return MoleculeRecord(atoms, pairs, edge_index=edge_index[::-1].copy())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.atom_columns, self.bond_columns, self.max_distance, self.version)

    def to_dict(self) -> dict[str, Any]:
        """Return the arguments of the featurizer as JSON types."""
        return TypeAdapter(Featurizer).dump_python(self, mode="json")


FEATURIZERS: Registry[Callable[[], Featurizer]] = Registry("featurizer")
"""Functions that return a featurizer, by the name that the option ``featurizer`` selects."""

FEATURIZERS.register("default")(Featurizer.default)
