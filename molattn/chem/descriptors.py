"""Numbers of a whole molecule: RDKit's 2D descriptors and Morgan counts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem import Descriptors, rdFingerprintGenerator, rdMolDescriptors
from rdkit.rdBase import rdkitVersion

from molattn.chem.parse import quiet
from molattn.errors import InputError, quoted

_RADIUS = 2
# Coefficients of a characteristic polynomial: Ipc grows without bound with the molecule, and the
# time for both grows with about the fourth power of its size, over ten seconds at 400 atoms.
_LEFT_OUT = ("Ipc", "AvgIpc")
_FUNCTIONS = {name: function for name, function in Descriptors.descList if name not in _LEFT_OUT}
_CUBIC = tuple(
    name
    for name in _FUNCTIONS
    if name in ("BalabanJ", "BertzCT") or name.startswith("BCUT2D") or "EState" in name
)
_MOST_ATOMS_CUBIC = 500
# Descriptors that RDKit calculates together, once for each of them if they are asked for by name.
_BCUT2D = "MWHI MWLOW CHGHI CHGLO LOGPHI LOGPLOW MRHI MRLOW".split()
_JOINT_FUNCTIONS: Mapping[tuple[str, ...], Callable[..., Any]] = {
    ("MolLogP", "MolMR"): rdMolDescriptors.CalcCrippenDescriptors,
    tuple(f"PEOE_VSA{i}" for i in range(1, 15)): rdMolDescriptors.PEOE_VSA_,
    tuple(f"SMR_VSA{i}" for i in range(1, 11)): rdMolDescriptors.SMR_VSA_,
    tuple(f"SlogP_VSA{i}" for i in range(1, 13)): rdMolDescriptors.SlogP_VSA_,
    tuple(f"BCUT2D_{name}" for name in _BCUT2D): rdMolDescriptors.BCUT2D,
}
DESCRIPTORS = tuple(_FUNCTIONS)
"""Names of RDKit's 2D descriptors, without the information content Ipc and its mean AvgIpc."""

_HYDROGEN = Chem.GetPeriodicTable().GetAtomicWeight(1)
# Descriptors that are sums over the atoms, each with its hydrogens.
_SUMS: dict[str, Callable[[Chem.Atom], float]] = {
    "MolWt": lambda atom: atom.GetMass() + _HYDROGEN * atom.GetTotalNumHs(),
    "NOCount": lambda atom: float(atom.GetAtomicNum() in (7, 8)),
    "NHOHCount": lambda atom: float(
        atom.GetAtomicNum() in (7, 8) and atom.GetTotalNumHs(includeNeighbors=True)
    ),
}
DESCRIPTOR_SETS: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "lipinski": tuple(_SUMS),
    "all": DESCRIPTORS,
}
"""Names of the descriptors of each choice of ``--descriptors``."""


@dataclass(frozen=True)
class DescriptorCalculator:
    """Calculates descriptors and Morgan counts of a molecule.

    Args:
        descriptors: Names of RDKit's 2D descriptors, of ``DESCRIPTORS``. Those of cubic time
            (BalabanJ, BertzCT, BCUT2D and E-state) are undefined for more than 500 atoms.
        morgan_counts: Length of the Morgan fingerprint; 0 = none. An entry is ``log(1 + count)`` of
            the atom environments of radius 0 to 2 that are folded into it (Rogers and Hahn, J.
            Chem. Inf. Model. 2010, 50, 742).

    Raises:
        InputError: A descriptor that this RDKit does not have.

    Example:
        >>> from molattn.chem import parse_smiles
        >>> DescriptorCalculator(("HeavyAtomCount", "RingCount"))(parse_smiles("c1ccccc1C"))
        array([7., 1.], dtype=float32)
    """

    descriptors: tuple[str, ...] = ()
    morgan_counts: int = 0

    def __post_init__(self) -> None:
        for name in self.descriptors:
            if name not in _FUNCTIONS:
                raise InputError(f"descriptors: RDKit {rdkitVersion} has no {quoted(name)}")

    def __len__(self) -> int:
        return len(self.descriptors) + self.morgan_counts

    def __call__(self, mol: Chem.Mol) -> NDArray[np.float32]:
        """Return the descriptors and then the counts of a molecule; NaN where undefined."""
        return calculate([mol], [self])[0][0]


@cache  # RDKit's generators cannot be copied with a calculator
def _generator(size: int) -> Any:
    return rdFingerprintGenerator.GetMorganGenerator(radius=_RADIUS, fpSize=size)


def calculate(
    mols: Sequence[Chem.Mol], calculators: Iterable[DescriptorCalculator]
) -> list[NDArray[np.float32]]:
    """Return the numbers of n molecules by each calculator; each descriptor is calculated once."""
    calculators = list(calculators)
    names = dict.fromkeys(name for calculator in calculators for name in calculator.descriptors)
    index = {name: number for number, name in enumerate(names)}
    columns: list[NDArray[np.float32]] = []
    # RDKit logs what it cannot calculate, and NumPy warns of it.
    with quiet, np.errstate(all="ignore"):
        values = np.array([_descriptors(mol, index) for mol in mols], dtype=np.float64)
        values = values.reshape(len(mols), len(names))
        for calculator in calculators:
            numbers = values[:, [index[name] for name in calculator.descriptors]]
            if calculator.morgan_counts:
                generator = _generator(calculator.morgan_counts)
                counts = np.zeros((len(mols), calculator.morgan_counts))
                for row, mol in zip(counts, mols, strict=True):
                    row[:] = generator.GetCountFingerprintAsNumPy(mol)
                numbers = np.concatenate([numbers, np.log1p(counts)], axis=1)
            numbers = numbers.astype(np.float32)
            numbers[~np.isfinite(numbers)] = np.nan
            columns.append(numbers)
    return columns


def _descriptors(mol: Chem.Mol, names: Mapping[str, Any]) -> list[Any]:
    calculated: dict[str, Any] = {}
    if names.keys() - _SUMS:
        mol = Chem.Mol(mol)
        # Some descriptors count the stereocenters that are not specified.
        Chem.AssignStereochemistry(mol, cleanIt=True, force=True, flagPossibleStereoCenters=True)
        if mol.GetNumAtoms() > _MOST_ATOMS_CUBIC:
            calculated = dict.fromkeys(_CUBIC, np.nan)
        for family, function in _JOINT_FUNCTIONS.items():
            if any(name in names and name not in calculated for name in family):
                values = _value(function, mol)
                calculated |= dict(zip(family, np.broadcast_to(values, len(family)), strict=True))
    return [
        calculated[name] if name in calculated else _value(_FUNCTIONS[name], mol) for name in names
    ]


def are_atom_sums(descriptors: Iterable[str]) -> bool:
    """Return whether each descriptor is a sum over atoms, as in the set ``lipinski``."""
    return _SUMS.keys() >= {*descriptors}


def atom_contributions(mol: Chem.Mol, descriptors: Iterable[str]) -> NDArray[np.float64] | None:
    """Return the contributions of n atoms to F descriptors that are sums over atoms, ``[n, F]``.

    None without descriptors, or if a descriptor is no sum over atoms.
    """
    names = list(descriptors)
    if not names or not are_atom_sums(names):
        return None
    return np.array([[_SUMS[name](atom) for name in names] for atom in mol.GetAtoms()])


def _value(function: Callable[[Chem.Mol], Any], mol: Chem.Mol) -> Any:
    try:
        return function(mol)
    except Exception:  # a descriptor's own code may fail in any way on an unusual molecule
        return np.nan
