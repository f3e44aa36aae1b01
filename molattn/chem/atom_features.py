"""Atom and bond features: how RDKit gives each, and which values have a code of their own."""

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem

from molattn.config.base import checked
from molattn.errors import InputError, quoted
from molattn.utils.registry import Registry

Value = bool | int | str


@checked
class Column:
    """A feature and its vocabulary, the values that have a code of their own.

    The code of ``values[i]`` is ``i``. An open column has one further code, ``len(values)``, for
    every value that is not listed; a closed column lists all values that can occur.

    Args:
        name: Name of the feature, registered in :data:`ATOM_FEATURES` or :data:`BOND_FEATURES`.
        values: Distinct values of one type, in the order of their codes.
        is_open: Whether values outside ``values`` are allowed.

    Raises:
        InputError: No values, equal values, values of several types, or more than 256 codes.
    """

    name: str
    values: tuple[Value, ...]
    is_open: bool = True

    def __post_init__(self) -> None:
        types = {type(value) for value in self.values}
        if len(types) != 1 or len(self._codes) < len(self.values) or self.size > 256:
            raise InputError(
                f"feature {quoted(self.name)}: expected distinct booleans, integers or texts, and "
                f"at most 256 codes, got {self.values!r:.200}"
            )

    @property
    def size(self) -> int:
        """Number of codes, including the one for unlisted values."""
        return len(self.values) + self.is_open

    @cached_property
    def _codes(self) -> dict[Value, int]:
        return {value: code for code, value in enumerate(self.values)}

    def code(self, value: Value) -> int:
        """Return the code of a value, which a closed column must list."""
        if (code := self._codes.get(value)) is not None:
            return code
        if not self.is_open:
            raise InputError(
                f"feature {quoted(self.name)}: got {quoted(value)}, expected one of {self.values}"
            )
        return len(self.values)


ATOM_FEATURES: Registry[Callable[[Chem.Atom], Value]] = Registry("atom feature")
"""Functions from an RDKit atom to a feature's value, by the feature's name.

Register a function to add a feature. A saved model stores the name and the vocabulary, so the same
function must be registered before the model is loaded.
"""

BOND_FEATURES: Registry[Callable[[Chem.Bond], Value]] = Registry("bond feature")
"""Functions from an RDKit bond to a feature's value, as :data:`ATOM_FEATURES`."""

_BOND_TYPES = {name.upper(): name for name in ("single", "double", "triple", "aromatic", "dative")}
_BOND_STEREO = {"STEREONONE": "none", "STEREOANY": "any", "STEREOZ": "Z", "STEREOE": "E"}

ATOM_FEATURES.register("element")(Chem.Atom.GetAtomicNum)
ATOM_FEATURES.register("degree")(Chem.Atom.GetDegree)
ATOM_FEATURES.register("hydrogens")(Chem.Atom.GetTotalNumHs)
ATOM_FEATURES.register("charge")(Chem.Atom.GetFormalCharge)
ATOM_FEATURES.register("hybridization")(lambda atom: atom.GetHybridization().name)
ATOM_FEATURES.register("aromatic")(Chem.Atom.GetIsAromatic)
ATOM_FEATURES.register("radicals")(Chem.Atom.GetNumRadicalElectrons)
ATOM_FEATURES.register("isotope")(lambda atom: atom.GetIsotope() != 0)


@ATOM_FEATURES.register("ring_size")
def _ring_size(atom: Chem.Atom) -> int:
    """Return the size of the smallest ring, 0 outside rings."""
    rings = atom.GetOwningMol().GetRingInfo()
    index = atom.GetIdx()
    return rings.MinAtomRingSize(index) if rings.NumAtomRings(index) else 0


_TETRAHEDRAL = (Chem.ChiralType.CHI_TETRAHEDRAL_CW, Chem.ChiralType.CHI_TETRAHEDRAL_CCW)


@ATOM_FEATURES.register("chirality")
def _chirality(atom: Chem.Atom) -> str:
    """Return "R" or "S" of a tetrahedral atom, "unlabeled" of other stereocenters, or "none"."""
    # Labels of atoms that are not tetrahedral depend on the order of the atoms.
    tag = atom.GetChiralTag()
    if tag == Chem.ChiralType.CHI_UNSPECIFIED:
        return "none"
    is_labeled = tag in _TETRAHEDRAL and atom.HasProp("_CIPCode")
    return atom.GetProp("_CIPCode") if is_labeled else "unlabeled"


BOND_FEATURES.register("bond")(lambda bond: _BOND_TYPES.get(bond.GetBondType().name, "other"))
BOND_FEATURES.register("conjugated")(Chem.Bond.GetIsConjugated)
BOND_FEATURES.register("ring")(Chem.Bond.IsInRing)
BOND_FEATURES.register("stereo")(lambda bond: _BOND_STEREO.get(bond.GetStereo().name, "other"))

_FLAG = (False, True)

# Dummy atom (0), the first five rows of the periodic table, and the heavier elements of drugs,
# contrast agents, catalysts and poisons.
_ELEMENTS = (*range(55), 64, *range(76, 84))

ATOM_COLUMNS = (
    Column("element", _ELEMENTS),
    Column("degree", tuple(range(7))),
    Column("hydrogens", tuple(range(5))),
    Column("charge", (0, -1, 1, -2, 2, -3, 3)),
    Column("hybridization", ("SP3", "SP2", "SP", "S", "UNSPECIFIED", "SP3D", "SP3D2", "SP2D")),
    Column("aromatic", _FLAG, is_open=False),
    Column("ring_size", (0, 3, 4, 5, 6, 7, 8)),
    Column("chirality", ("none", "R", "S")),
    Column("radicals", (0, 1, 2)),
    Column("isotope", _FLAG, is_open=False),
)
"""The default features of an atom."""

BOND_COLUMNS = (
    Column("bond", ("none", "single", "double", "triple", "aromatic", "dative")),
    Column("conjugated", _FLAG, is_open=False),
    Column("ring", _FLAG, is_open=False),
    Column("stereo", ("none", "any", "Z", "E")),
)
"""The default features of a bond; the first value of each is that of a pair without a bond."""


def atom_row(atom: Chem.Atom, columns: Sequence[Column]) -> bytes:
    """Return the code of an atom in each column."""
    return bytes([column.code(ATOM_FEATURES[column.name](atom)) for column in columns])


def bond_code(bond: Chem.Bond, columns: Sequence[Column], first: int) -> int:
    """Return the joint code of a bond, counted from ``first``."""
    kind, *codes = (column.code(BOND_FEATURES[column.name](bond)) for column in columns)
    joint = kind - 1
    for column, code in zip(columns[1:], codes, strict=True):
        joint = joint * column.size + code
    return joint + first


def graph_codes(
    mol: Chem.Mol, atom_columns: Sequence[Column], bond_columns: Sequence[Column], first: int
) -> tuple[NDArray[np.uint8], NDArray[np.intp], NDArray[np.uint8]]:
    """Return the codes of atoms ``[n, A]``, the bonds ``[2, B]`` and their joint codes ``[B]``."""
    rows = b"".join(atom_row(atom, atom_columns) for atom in mol.GetAtoms())
    bonds = list(mol.GetBonds())
    ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in bonds]
    return (
        np.frombuffer(bytearray(rows), dtype=np.uint8).reshape(-1, len(atom_columns)),
        np.array(ends, dtype=np.intp).reshape(-1, 2).T,
        np.array([bond_code(bond, bond_columns, first) for bond in bonds], dtype=np.uint8),
    )
