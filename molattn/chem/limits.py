"""SMILES, RDKit molecules and mol blocks to molecules within a limit of time."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

from rdkit import Chem
from rdkit.Chem import rdDepictor

from molattn.chem.grammar import ATOM, CLOSURE
from molattn.chem.parse import (
    Molecule,
    parse_smiles,
    prepare_mol,
    written,
)
from molattn.chem.standardize import standardize as standard_form
from molattn.config import MoleculeLimits
from molattn.errors import SmilesError
from molattn.utils.time_limit import call_within

__all__ = [
    "is_fast",
    "read_mol_block",
    "read_molecule",
    "write_mol_block",
]

Result = TypeVar("Result")

# RDKit lists the smallest rings, of which there can be two to the power of the number of closures;
# the time of some descriptors grows with the square of that and with the cube of the number of
# atoms. Below these numbers, reading a molecule takes at most about a second.
_MOST_ATOMS = 200
_MOST_CLOSURES = 10
_MOST_CLOSURES_WITHOUT_DESCRIPTORS = 14
_ALWAYS_FAST = 60  # characters of a SMILES, or bonds of a mol block
# Where RDKit reads the counts, and nowhere else: the other lines may contain anything.
_COUNTS = re.compile(
    r"(?:.*\n){3}(?:"
    r"(?!.*V3000)(  \d| \d\d|\d{3})(  \d| \d\d|\d{3})"
    r"|.{34}V3000\s*\nM  V30 BEGIN CTAB\s*\nM  V30 COUNTS +(\d+) +(\d+)\s"
    r")"
)
_OPTION = " (--max-seconds)"
_BRACKETS = re.compile(r"\[[^\]]*\]")


def read_molecule(
    molecule: Molecule,
    limits: MoleculeLimits,
    calculate: Callable[[Chem.Mol], Result],
    *,
    standardize: bool = False,
    descriptors: bool = True,
) -> tuple[Chem.Mol, Result]:
    """Read a SMILES or an RDKit molecule, and calculate something from the molecule.

    A large molecule, or one of many rings, is read in a child process, which is ended when the time
    is up: RDKit cannot be interrupted. So is every molecule standardized, as the number of its
    tautomers is not known before.

    Args:
        molecule: The SMILES, or the RDKit molecule, which is not changed.
        limits: Limits of the molecule.
        calculate: A function that can be pickled.
        standardize: Whether to standardize the molecule before, see
            :func:`molattn.chem.standardize.standardize`. The atoms of a SMILES that this changes
            are in the order of the standardized SMILES, those of an RDKit molecule keep theirs.
        descriptors: Whether the function may calculate descriptors; see :func:`is_fast`.

    Raises:
        SmilesError: It is not a molecule, it is beyond a limit, or cannot be standardized.
    """
    if is_fast(molecule, descriptors=descriptors):
        mol = _parsed(molecule, limits)
        if standardize:
            arguments = molecule, _data(mol)  # which keeps the numbers of its atoms
            data = _within(molecule, limits.max_seconds, _OPTION, _standard_data, *arguments)
            mol = mol if data is None else Chem.Mol(data)  # pyright: ignore
        return mol, calculate(mol)
    arguments = molecule, limits, calculate, standardize
    data, result = _within(molecule, limits.max_seconds, _OPTION, _read, *arguments)
    return Chem.Mol(data), result  # pyright: ignore


def read_mol_block(block: str, read: Callable[[str], Result]) -> Result:
    """Return what a function of :mod:`molattn.chem.parse` reads from a mol block.

    Raises:
        SmilesError: The function raises it, or takes too long.
    """
    # The number of bonds and not of closures, which depends on that of the parts of the molecule.
    if counts := _COUNTS.match(block):
        atoms, bonds = (int(number) for number in counts.groups() if number is not None)
        if atoms <= _MOST_ATOMS and bonds <= _ALWAYS_FAST:
            return read(block)
    return _within(block, MoleculeLimits().max_seconds, "", read, block)


def write_mol_block(smiles: str, limits: MoleculeLimits) -> str:
    """Return the mol block of a SMILES, with 2D coordinates.

    Raises:
        SmilesError: The text is not a molecule, or the molecule is beyond a limit.
    """
    return read_molecule(smiles, limits, _mol_block)[1]


def _mol_block(mol: Chem.Mol) -> str:
    mol = Chem.Mol(mol)
    rdDepictor.Compute2DCoords(mol)
    return Chem.MolToMolBlock(mol)


def is_fast(molecule: Molecule, *, descriptors: bool = True) -> bool:
    """Return whether a molecule has so few atoms and rings that RDKit needs no limit of time.

    So it is with what is neither a SMILES nor an RDKit molecule, which is refused at once. Without
    ``descriptors`` there may be more rings: counts and features of atoms take less time.
    """
    most = _MOST_CLOSURES if descriptors else _MOST_CLOSURES_WITHOUT_DESCRIPTORS
    if isinstance(molecule, Chem.Mol):
        bonds, parts = molecule.GetNumBonds(), len(Chem.GetMolFrags(molecule))
        closures = bonds - molecule.GetNumAtoms() + parts
        return closures <= most and molecule.GetNumHeavyAtoms() <= _MOST_ATOMS
    if not isinstance(molecule, str) or len(molecule) <= _ALWAYS_FAST:
        return True
    if len(CLOSURE.findall(_BRACKETS.sub("", molecule))) // 2 > most:
        return False
    return len(molecule) <= _MOST_ATOMS or len(ATOM.findall(molecule)) <= _MOST_ATOMS


def _within(
    molecule: Molecule,
    seconds: float,
    option: str,
    function: Callable[..., Result],
    *arguments: Any,
) -> Result:
    try:
        return call_within(seconds, function, *arguments)
    except TimeoutError:
        reason = f"reading it takes more than {seconds:g} s{option} or 2 GB of memory"
        raise SmilesError(written(molecule), "too_slow", reason) from None


def _parsed(molecule: Molecule, limits: MoleculeLimits) -> Chem.Mol:
    if isinstance(molecule, Chem.Mol):
        return prepare_mol(molecule, max_atoms=limits.max_atoms)
    return parse_smiles(molecule, max_atoms=limits.max_atoms, max_length=limits.max_length)


def _read(
    molecule: Molecule,
    limits: MoleculeLimits,
    calculate: Callable[[Chem.Mol], Result],
    standardize: bool,
) -> tuple[bytes, Result]:
    mol = _parsed(molecule, limits)
    if standardize:
        mol = _standard(molecule, mol)
    return _data(mol), calculate(mol)


def _standard_data(molecule: Molecule, data: bytes) -> bytes | None:
    mol = Chem.Mol(data)  # pyright: ignore
    found = _standard(molecule, mol)
    return None if found is mol else _data(found)


def _standard(molecule: Molecule, mol: Chem.Mol) -> Chem.Mol:
    try:
        return standard_form(mol, reorder=isinstance(molecule, str))
    except (RuntimeError, ValueError) as error:
        reason = f"RDKit cannot standardize it: {str(error).strip().partition(chr(10))[0]}"
        raise SmilesError(written(molecule), "standardize", reason) from None


def _data(mol: Chem.Mol) -> bytes:
    return mol.ToBinary(int(Chem.PropertyPickleOptions.AllProps))
