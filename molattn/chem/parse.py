"""SMILES, RDKit molecules and mol blocks to molecules as the rest of molattn reads them.

Invalid text is rejected before RDKit's parser reads it.
"""

import os
import re
import sys
import threading
from collections.abc import Iterable

from rdkit import Chem, rdBase

from molattn.chem.grammar import (
    ATOM,
    ATOM_MAP,
    EXTENSION,
    SMILES,
    chemistry_error,
    grammar_error,
    rdkit_error,
)
from molattn.config import MoleculeLimits
from molattn.errors import SmilesError, quoted

__all__ = [
    "Molecule",
    "assign_stereo",
    "atom_numbers",
    "check_list",
    "mol_of_mol_block",
    "number_atoms",
    "parse_accepted",
    "parse_smiles",
    "prepare_mol",
    "quiet",
    "smiles_of_mol_block",
    "without_labels",
    "written",
]

Molecule = str | Chem.Mol
"""A SMILES or an RDKit molecule."""

_NUMBER = "_molattn_number"
_QUERY = "it has query atoms or bonds, or an R group: not one molecule"
_WHITE_SPACE = " \t\r\n\v\f"
_MAX_NESTING = 200


class _Quiet:
    """Context manager that silences RDKit's log while any thread is inside."""

    def __init__(self) -> None:
        self._reset()
        # A child process forked while another thread holds the lock would wait forever.
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._block: rdBase.BlockLogs | None = None

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._block = rdBase.BlockLogs()
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._block = None


quiet = _Quiet()


def _parser(**options: bool) -> Chem.SmilesParserParams:
    parameters = Chem.SmilesParserParams()
    for name, value in options.items():
        setattr(parameters, name, value)
    return parameters


# Explicit hydrogen atoms are removed by _read: with removeHs, RDKit inverts the label of some
# double bonds in rings, such as [H]/C1=C(/[H])CCCCCC1.
_EXTENDED = _parser(removeHs=False, strictCXSMILES=True, parseName=False)
# RDKit's default also marks possible stereocenters, a fifth of its time, which nothing here uses.
# Without explicit hydrogen atoms to remove, its other steps are those of _read.
_RAW = _parser(sanitize=False, removeHs=False, allowCXSMILES=False, parseName=False)
_STEREO = re.compile(r"[@/\\]")
_EXPLICIT_HYDROGEN = re.compile(r"\[\d*H(?![efgos])")


def parse_smiles(
    text: str,
    *,
    max_atoms: int = MoleculeLimits.max_atoms,
    max_length: int = MoleculeLimits.max_length,
) -> Chem.Mol:
    """Read a SMILES into a sanitized molecule with implicit hydrogens.

    White space around the SMILES is dropped. A CXSMILES extension (``CCO |...|``) is read if it is
    valid; other text after a space is refused, since RDKit would ignore it silently. Atom-map
    numbers are dropped, since RDKit would treat equivalent atoms with different map
    numbers as different, and the centers of stereo groups become unspecified, see
    :func:`without_labels`.

    Args:
        text: The SMILES.
        max_atoms: Maximum number of atoms of a molecule, without implicit hydrogens.
        max_length: Maximum number of characters.

    Raises:
        SmilesError: The text is not a molecule; ``code`` and ``reason`` give the cause.

    Example:
        >>> parse_smiles("OCC").GetNumAtoms()
        3
    """
    if not isinstance(text, str):
        raise SmilesError(text, *grammar_error(text))
    smiles = text.strip(_WHITE_SPACE)
    if len(smiles) > max_length:
        raise SmilesError(
            text, "too_long", f"it has {len(smiles)} characters, the limit is {max_length}"
        )
    parameters = None
    if SMILES.fullmatch(smiles) is None:
        smiles, parameters = _split_extension(text, smiles)
    if len(smiles) > max_atoms and (atoms := len(ATOM.findall(smiles))) > max_atoms:
        raise _too_large(text, atoms, max_atoms)
    if smiles.count("(") > _MAX_NESTING and _nesting(smiles) > _MAX_NESTING:
        raise SmilesError(
            text, "too_nested", f"its branches are nested more than {_MAX_NESTING} deep"
        )
    if ":" in smiles:
        smiles = ATOM_MAP.sub("", smiles)
    with quiet:
        mol = _read(smiles, parameters)
        if mol is None:
            raise SmilesError(text, *rdkit_error(smiles, extended=parameters is not None))
    if mol.GetNumAtoms() > max_atoms:
        raise _too_large(text, mol.GetNumAtoms(), max_atoms)
    return mol


def prepare_mol(mol: Chem.Mol, *, max_atoms: int = MoleculeLimits.max_atoms) -> Chem.Mol:
    """Return a copy of an RDKit molecule as :func:`parse_smiles` reads its SMILES.

    Explicit hydrogen atoms, atom-map numbers, stereo groups, conformers and properties are dropped.
    The atoms that are left keep their order.

    Args:
        mol: A sanitized molecule.
        max_atoms: Maximum number of atoms, without the hydrogen atoms that are dropped.

    Raises:
        SmilesError: No atoms, a molecule that is not sanitized or cannot be, a query, or too many
            atoms.

    Example:
        >>> [atom.GetSymbol() for atom in prepare_mol(Chem.MolFromSmiles("OCC")).GetAtoms()]
        ['O', 'C', 'C']
    """
    if not mol.GetNumAtoms():
        raise SmilesError("", "empty", "the molecule has no atoms")
    if mol.NeedsUpdatePropertyCache():
        reason = "the molecule is not sanitized; call rdkit.Chem.SanitizeMol first"
        raise SmilesError(written(mol), "sanitize", reason)
    if mol.HasQuery():
        raise SmilesError(written(mol), "smarts", _QUERY)
    copy = without_labels(Chem.Mol(mol, True))  # without conformers and properties
    number_atoms(copy, range(copy.GetNumAtoms()))
    with quiet:
        copy = Chem.RemoveHs(copy, sanitize=False)
        if copy.GetNumAtoms() > max_atoms:
            raise _too_large(written(mol), copy.GetNumAtoms(), max_atoms)
        if Chem.SanitizeMol(copy, catchErrors=True) != Chem.SANITIZE_NONE:
            raise SmilesError(written(mol), *chemistry_error(mol))
    assign_stereo(copy)
    return copy


def without_labels(mol: Chem.Mol) -> Chem.Mol:
    """Return a copy without atom-map numbers and stereo groups; its stereo is not assigned anew.

    RDKit would tell equivalent atoms apart by their numbers. Which stereoisomer of a group of type
    AND or OR is meant is not known, so that its centers and bonds become unspecified.
    """
    copy = Chem.RWMol(mol)
    for atom in copy.GetAtoms():
        atom.SetAtomMapNum(0)
    for group in copy.GetStereoGroups():
        if group.GetGroupType() != Chem.StereoGroupType.STEREO_ABSOLUTE:
            for atom in group.GetAtoms():
                atom.SetChiralTag(Chem.ChiralType.CHI_UNSPECIFIED)
            for bond in group.GetBonds():
                bond.SetStereo(Chem.BondStereo.STEREONONE)
                for other in (*bond.GetBeginAtom().GetBonds(), *bond.GetEndAtom().GetBonds()):
                    other.SetBondDir(Chem.BondDir.NONE)  # from which it would be assigned again
    copy.SetStereoGroups([])
    return copy.GetMol()


def number_atoms(mol: Chem.Mol, numbers: Iterable[int]) -> None:
    """Let atoms keep their numbers in the input when others are removed."""
    for atom, number in zip(mol.GetAtoms(), numbers, strict=True):
        atom.SetIntProp(_NUMBER, number)


def atom_numbers(mol: Chem.Mol) -> tuple[int, ...]:
    """Return the number of each atom in the input, from 0, explicit hydrogen atoms included."""
    key = _NUMBER
    return tuple(a.GetIntProp(key) if a.HasProp(key) else a.GetIdx() for a in mol.GetAtoms())


def assign_stereo(mol: Chem.Mol) -> None:
    """Assign the stereo labels that the SMILES of a molecule gives it."""
    for bond in mol.GetBonds():
        if bond.GetStereo() == Chem.BondStereo.STEREOANY:  # which a SMILES leaves out
            bond.SetStereo(Chem.BondStereo.STEREONONE)
    Chem.SetDoubleBondNeighborDirections(mol)  # from which the labels are assigned
    Chem.AssignStereochemistry(mol, cleanIt=True, force=True)


def written(molecule: Molecule) -> str:
    """Return what errors call a molecule: a text as it is, the SMILES of an RDKit molecule."""
    if isinstance(molecule, str):
        return molecule
    try:
        return Chem.MolToSmiles(molecule, canonical=False)
    except RuntimeError:  # such as a molecule that is not sanitized
        return repr(molecule)


def check_list(name: str, molecules: object) -> None:
    """Refuse one molecule where several are expected: the characters of a text are molecules too.

    Raises:
        TypeError: It is a SMILES, an RDKit molecule or a table.
    """
    if isinstance(molecules, Molecule):
        got = quoted(written(molecules))
        raise TypeError(f"{name}: got one molecule, expected a list: [{got}]")
    if getattr(molecules, "ndim", 1) != 1:
        got = f"a {type(molecules).__name__} of shape {list(getattr(molecules, 'shape', []))}"
        raise TypeError(f"{name}: got {got}, expected a list of molecules")


def parse_accepted(molecule: Molecule) -> Chem.Mol:
    """Read a molecule again that has been accepted, with limits that may have been higher."""
    if isinstance(molecule, Chem.Mol):
        return prepare_mol(molecule, max_atoms=sys.maxsize)
    return parse_smiles(molecule, max_atoms=sys.maxsize, max_length=sys.maxsize)


def smiles_of_mol_block(block: str) -> str | None:
    """Return the canonical SMILES of a mol block (V2000 or V3000), or None if it is not valid.

    A block whose molecule cannot be sanitized gives a SMILES that :func:`parse_smiles` refuses for
    the same reason.

    Raises:
        SmilesError: It is a query.
    """
    mol = mol_of_mol_block(block, hydrogens=False) or mol_of_mol_block(block, sanitize=False)
    if mol is None:
        return None
    if mol.HasQuery() or any(atom.GetAtomicNum() == 0 for atom in mol.GetAtoms()):
        raise SmilesError("", "smarts", _QUERY)
    with quiet:
        try:
            if mol.GetStereoGroups():
                mol = without_labels(mol)
                assign_stereo(mol)
            return Chem.MolToSmiles(mol)
        except RuntimeError:  # RDKit's own checks fail on some broken blocks
            return None


def mol_of_mol_block(block: str, sanitize: bool = True, hydrogens: bool = True) -> Chem.Mol | None:
    """Return the molecule of a mol block, its atoms in order, or None if it is not valid."""
    text = block.encode(errors="replace").decode()
    with quiet:
        try:
            return Chem.MolFromMolBlock(text, sanitize, not hydrogens)
        except RuntimeError:  # as above
            return None


def _read(smiles: str, parameters: Chem.SmilesParserParams | None) -> Chem.Mol | None:
    try:
        has_hydrogens = _EXPLICIT_HYDROGEN.search(smiles) is not None
        if parameters is not None:
            mol = Chem.MolFromSmiles(smiles, parameters)
            if mol is not None:
                mol = without_labels(mol)
                Chem.AssignStereochemistry(mol, cleanIt=True, force=True)
        else:
            mol = Chem.MolFromSmiles(smiles, _RAW)
            if mol is None or Chem.SanitizeMol(mol, catchErrors=True) != Chem.SANITIZE_NONE:
                return None
            if _STEREO.search(smiles):
                Chem.AssignStereochemistry(mol, cleanIt=True, force=True)
        if mol is not None and has_hydrogens:
            number_atoms(mol, range(mol.GetNumAtoms()))
            mol = Chem.RemoveHs(mol, sanitize=False)
            if Chem.SanitizeMol(mol, catchErrors=True) != Chem.SANITIZE_NONE:
                return None
            if parameters is not None or _STEREO.search(smiles):
                assign_stereo(mol)
    except RuntimeError:  # RDKit's own checks fail on some atoms with over a hundred bonds.
        return None
    return mol


def _split_extension(text: str, smiles: str) -> tuple[str, Chem.SmilesParserParams]:
    head, *rest = smiles.split(None, 1)[:2] or [""]
    if rest and EXTENSION.fullmatch(rest[0]) and SMILES.fullmatch(head):
        return f"{head} {rest[0]}", _EXTENDED
    raise SmilesError(text, *grammar_error(smiles))


def _too_large(text: str, atoms: int, max_atoms: int) -> SmilesError:
    return SmilesError(text, "too_large", f"it has {atoms} atoms, the limit is {max_atoms}")


def _nesting(smiles: str) -> int:
    deepest = depth = 0
    for bracket in re.findall(r"[()]", smiles):
        depth += 1 if bracket == "(" else -1
        deepest = max(deepest, depth)
    return deepest
