"""Molecules within a limit of time, as they are, or their parent or standard form."""

import re
from collections.abc import Callable
from functools import cache
from typing import Any, Literal, TypeVar

import numpy as np
from rdkit import Chem
from rdkit.Chem import rdDepictor
from rdkit.Chem.MolStandardize import rdMolStandardize

from molattn.chem.drawings import REDRAWN, is_redrawn
from molattn.chem.grammar import ATOM, CLOSURE
from molattn.chem.parents import parent_of, uncharged, uncharger
from molattn.chem.parse import (
    Molecule,
    atom_numbers,
    number_atoms,
    parse_molecule,
    quiet,
    written,
)
from molattn.config import MoleculeLimits
from molattn.errors import SmilesError
from molattn.utils.time_limit import call_within

Result = TypeVar("Result")
Standardize = bool | Literal["parent", "uncharged"]
"""Whether a molecule is read as its standard form, its parent, or uncharged; False = as given."""

# RDKit lists the smallest rings, of which there can be two to the power of the number of closures;
# the time of some descriptors grows with the square of that and with the cube of the number of
# atoms. Below these numbers, reading a molecule takes at most about a second.
_MOST_ATOMS = 200
_MOST_CLOSURES = 10
_ALWAYS_FAST = 60  # characters of a SMILES, or bonds of a mol block
_BRACKETS = re.compile(r"\[[^\]]*\]")
_SMILES = "_molattn_standardized"
_COUNTS = re.compile(r"(?:.*\n){3}(?!.*V3000)(  \d| \d\d|\d{3})(  \d| \d\d|\d{3})")


def read_molecule(
    molecule: Molecule,
    limits: MoleculeLimits,
    calculate: Callable[[Chem.Mol], Result],
    *,
    standardize: Standardize = False,
    unify: bool = True,
) -> tuple[Chem.Mol, Result]:
    """Read a SMILES or an RDKit molecule, and apply a function to it that can be pickled.

    A large molecule, or one of many rings, is read in a child process, which is ended when the time
    is up: RDKit cannot be interrupted. So is every molecule to bring into standard form, as the
    number of its tautomers is not known before. The atoms of a SMILES that this changes, or whose
    parent differs, are in the order of the new one, those of an RDKit molecule keep theirs. With
    ``unify``, usual drawings of a molecule are read as one.

    Raises:
        SmilesError: It is not a molecule, it is beyond a limit, or cannot be standardized.
    """
    if is_fast(molecule) and standardize is not True:
        mol = parse_molecule(molecule, limits, unify=unify)
        mol = _standardized(mol, molecule, standardize) if standardize else mol
        return mol, calculate(mol)
    options = limits, calculate, standardize, unify
    data, calculated = _within(limits, molecule, _read, molecule, *options)
    return Chem.Mol(data), calculated  # pyright: ignore[reportCallIssue, reportArgumentType]


def read_mol_block(block: str, read: Callable[[str], Result]) -> Result:
    """Apply a function of :mod:`molattn.chem.parse` to a mol block, within a limit of time."""
    # The number of bonds and not of closures, which depends on that of the parts of the molecule.
    if counts := _COUNTS.match(block):
        atoms, bonds = map(int, counts.groups())
        if atoms <= _MOST_ATOMS and bonds <= _ALWAYS_FAST:
            return read(block)
    return _within(MoleculeLimits(), block, read, block)


def write_mol_block(smiles: str, limits: MoleculeLimits) -> str:
    """Return the mol block of a SMILES, with 2D coordinates."""
    return read_molecule(smiles, limits, _mol_block)[1]


def _mol_block(mol: Chem.Mol) -> str:
    mol = Chem.Mol(mol)
    rdDepictor.Compute2DCoords(mol)
    return Chem.MolToMolBlock(mol)


def is_fast(molecule: Molecule) -> bool:
    """Return whether a molecule has so few atoms and rings that RDKit needs no limit of time."""
    if isinstance(molecule, Chem.Mol):
        bonds = molecule.GetNumBonds()
        fragments = len(Chem.GetMolFrags(molecule))
        closures = bonds - molecule.GetNumAtoms() + fragments
        return closures <= _MOST_CLOSURES and molecule.GetNumHeavyAtoms() <= _MOST_ATOMS
    if not isinstance(molecule, str) or len(molecule) <= _ALWAYS_FAST:
        return True
    if len(CLOSURE.findall(_BRACKETS.sub("", molecule))) // 2 > _MOST_CLOSURES:
        return False
    return len(molecule) <= _MOST_ATOMS or len(ATOM.findall(molecule)) <= _MOST_ATOMS


def _within(
    limits: MoleculeLimits, molecule: Molecule, function: Callable[..., Result], *arguments: Any
) -> Result:
    try:
        return call_within(limits.max_seconds, function, *arguments)
    except TimeoutError:
        reason = f"reading it takes more than {limits.max_seconds:g} s or 2 GB of memory"
        raise SmilesError(written(molecule), "too_slow", reason) from None


def _read(
    molecule: Molecule,
    limits: MoleculeLimits,
    calculate: Callable[[Chem.Mol], Result],
    standardize: Standardize,
    unify: bool,
) -> tuple[bytes, Result]:
    mol = parse_molecule(molecule, limits, unify=unify)
    mol = _standardized(mol, molecule, standardize) if standardize else mol
    return mol.ToBinary(int(Chem.PropertyPickleOptions.AllProps)), calculate(mol)


def _standardized(mol: Chem.Mol, molecule: Molecule, standardize: Standardize) -> Chem.Mol:
    """Return the standard form or the parent of what a molecule was parsed to."""
    try:
        return standard_form(mol, standardize, reorder=isinstance(molecule, str))
    except SmilesError as error:
        raise SmilesError(written(molecule), error.code, error.reason) from None
    except (RuntimeError, ValueError) as error:
        reason = f"RDKit cannot standardize it: {str(error).strip().partition(chr(10))[0]}"
        raise SmilesError(written(molecule), "standardize", reason) from None


def standard_form(
    mol: Chem.Mol, standardize: Standardize = True, *, reorder: bool = False
) -> Chem.Mol:
    """Return the standard form of a molecule, or another one, by RDKit's ``rdMolStandardize``.

    The parent is the organic molecule without usual counterions and solvents, uncharged, see
    :func:`molattn.chem.parents.parent_of`; ``"uncharged"`` keeps all fragments, see
    :func:`molattn.chem.parents.uncharged`. The standard form is the fragment of the most
    atoms, likewise uncharged, and of that the canonical tautomer, within RDKit's limits.
    Stereocenters that it still has are kept: by default, RDKit removes those of all amino acids.
    The labels of double bonds that can move are removed. The same molecule is returned if nothing
    changes. With ``reorder`` the atoms are in the order of the canonical SMILES, else they keep
    their order.

    Raises:
        SmilesError: It has no parent.
        ValueError: RDKit cannot standardize it; also as ``RuntimeError``.
    """
    choose, uncharge, canonicalize = _steps()
    with quiet:
        if standardize == "parent":
            form = parent_of(mol)
        elif standardize == "uncharged":
            form = uncharged(mol)
        else:
            neutral = uncharge(choose(mol))
            Chem.SanitizeMol(neutral)  # such as cyclopentadiene, no longer aromatic
            form = Chem.RemoveHs(canonicalize(neutral))  # [H]/N= keeps its hydrogen for its label
        smiles = "" if form is mol else Chem.MolToSmiles(form)
        if form is mol or (standardize is True and smiles == Chem.MolToSmiles(mol)):
            return mol
    # So that it is what anyone else reads from its SMILES.
    standardized = parse_molecule(smiles, unify=False)
    if not reorder:
        order = form.GetPropsAsDict(True, True)["_smilesAtomOutputOrder"]
        standardized = Chem.RenumberAtoms(standardized, np.argsort(order).tolist())
        number_atoms(standardized, atom_numbers(form))
        Chem.GetSymmSSSR(standardized)  # or ranking the atoms would clear its rings
    standardized.SetProp(_SMILES, smiles)
    standardized.SetBoolProp(REDRAWN, is_redrawn(mol))
    return standardized


def standardized_smiles(mol: Chem.Mol) -> str:
    """Return the canonical SMILES of a standard form, "" if it is the molecule as it was read."""
    return mol.GetProp(_SMILES) if mol.HasProp(_SMILES) else ""


@cache
def _steps() -> tuple[Any, Any, Any]:
    tautomers = rdMolStandardize.TautomerEnumerator()
    tautomers.SetRemoveSp3Stereo(False)
    chooser = rdMolStandardize.LargestFragmentChooser()
    return chooser.choose, uncharger().uncharge, tautomers.Canonicalize
