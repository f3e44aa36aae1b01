"""SMILES, InChI, RDKit molecules and mol blocks to molecules as the rest of molattn reads them.

Invalid text is rejected before RDKit's parser reads it.
"""

import re
import sys
import threading
from collections.abc import Iterable
from itertools import accumulate, repeat

from rdkit import Chem, rdBase
from rdkit.Chem import rdChemReactions
from rdkit.Chem.MolStandardize import rdMolStandardize

from molattn.chem.drawings import MAY_BE_REDRAWN, redrawn
from molattn.chem.grammar import (
    ATOM,
    ATOM_MAP,
    EXTENSION,
    INCHI,
    SMILES,
    chemistry_error,
    grammar_error,
    rdkit_error,
)
from molattn.config import MoleculeLimits
from molattn.errors import SmilesError, quoted
from molattn.utils.time_limit import call_within

Molecule = str | Chem.Mol
"""A SMILES, a standard InChI or an RDKit molecule."""
NO_LIMITS = MoleculeLimits(max_length=sys.maxsize, max_atoms=sys.maxsize)

_NUMBER = "_molattn_number"
_QUERY = "it has query atoms or bonds, or an R group: not one molecule"
_MAX_NESTING = 200
_MOST_TAUTOMERS = 64
# RDKit reads amides as imidic acids, of which many have more tautomers than are tried.
_AMIDES = (
    "[NX2H0:1]=[CX3:2]-[OX2H:3]>>[NH:1]-[C:2]=[OH0:3]",
    "[NX2H:1]=[CX3:2]-[OX2H:3]>>[NH2:1]-[C:2]=[OH0:3]",
)
# A standard InChI has no bonds to other elements, and metals have none in salts of these cations.
_BONDED = frozenset("H He B C N O F Ne Si P S Cl Ar Ge As Se Br Kr Te I Xe At Rn".split())
_CATIONS = frozenset("Li1 Na1 K1 Rb1 Cs1 Ag1 Mg2 Ca2 Sr2 Ba2 Zn2 Al3".split())
# Carbanions and hydride, and chlorides and the like of aluminum, are bonded to metals, unlike
# cyanide, acetylides, and the carbon of ylides and diazo compounds.
_ORGANOMETALLIC = Chem.MolFromSmarts("[#1,#6;!+0;!+;!$(*#*);!$(*~[+])]")
_ALUMINUM_HALIDE = Chem.MolFromSmarts("[Al].[Cl,Br,I;-]")
_LOST_BONDS = "an InChI does not say how its metal is bonded; use its SMILES"
_DEPTH = {"(": 1, ")": -1}
_STEREO = re.compile(r"[@/\\]")
# An aromatic bond outside a ring; between two aromatic rings it is read as single.
_STRAY = Chem.MolFromSmarts("[!$(*:@*)]:!@*")
_AROMATIC_BOND = re.compile(r"^(?:[ \d]{6}  4|M  V30 +\d+ +4 )", re.MULTILINE)
_AXES = Chem.BondStereo.STEREOATROPCW, Chem.BondStereo.STEREOATROPCCW
_WEDGES = Chem.BondDir.BEGINWEDGE, Chem.BondDir.BEGINDASH
_EXPLICIT_HYDROGEN = re.compile(r"\[\d*H(?![efgos])")


class _Quiet:
    """Context manager that silences RDKit's log while any thread is inside."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._block: rdBase.BlockLogs | None = None

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            self._block = self._block or rdBase.BlockLogs()

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._block = None


quiet = _Quiet()


# _read removes explicit hydrogen atoms: with removeHs, RDKit inverts the label of some double bonds
# in rings, such as [H]/C1=C(/[H])CCCCCC1. RDKit's default also marks possible stereocenters, a
# fifth of its time, which nothing here uses.
_SMILES_PARAMS = Chem.SmilesParserParams()
_CXSMILES_PARAMS = Chem.SmilesParserParams()
_SMILES_PARAMS.removeHs = _CXSMILES_PARAMS.removeHs = _SMILES_PARAMS.parseName = (
    _CXSMILES_PARAMS.parseName
) = False
_SMILES_PARAMS.sanitize = _SMILES_PARAMS.allowCXSMILES = False
_CXSMILES_PARAMS.strictCXSMILES = True


def parse_smiles(
    text: str,
    *,
    max_atoms: int = MoleculeLimits.max_atoms,
    max_length: int = MoleculeLimits.max_length,
    unify: bool = True,
) -> Chem.Mol:
    """Read a SMILES into a sanitized molecule with implicit hydrogens.

    A CXSMILES extension (``CCO |...|``) is read if it is valid; other text after a space is
    refused, since RDKit would ignore it. Atom-map numbers are dropped, and the centers of stereo
    groups become unspecified, see :func:`without_labels`.

    A standard InChI is read too, its atoms in its order. It does not say where hydrogen atoms that
    can move are: the molecule is the one that RDKit scores best among up to 64 tautomers with the
    same InChI, such as an amide, where RDKit alone reads an imidic acid.

    Args:
        text: The SMILES, or an InChI that begins with ``InChI=1S/``.
        max_atoms: Maximum number of atoms of a molecule, without implicit hydrogens.
        max_length: Maximum number of characters.
        unify: Whether usual drawings of a molecule are read as one, see
            :func:`molattn.chem.drawings.redrawn`.

    Raises:
        SmilesError: The text is not a molecule; ``code`` and ``reason`` give the cause.

    Example:
        >>> parse_smiles("OCC").GetNumAtoms()
        3
    """
    if not isinstance(text, str):
        raise SmilesError(text, *grammar_error(text))
    smiles = text.strip(" \t\r\n\v\f")
    if len(smiles) > max_length:
        reason = f"it has {len(smiles)} characters, the limit is {max_length}"
        raise SmilesError(text, "too_long", reason)
    extended = SMILES.fullmatch(smiles) is None
    if extended:
        if INCHI.fullmatch(smiles) and (mol := _mol_of_inchi(smiles, unify)) is not None:
            _check_atoms(text, mol.GetNumAtoms(), max_atoms)
            return mol
        head, extension = (*smiles.split(None, 1), "", "")[:2]
        if not (SMILES.fullmatch(head) and EXTENSION.fullmatch(extension)):
            raise SmilesError(text, *grammar_error(smiles))
        smiles = f"{head} {extension}"
    if len(smiles) > max_atoms:
        _check_atoms(text, len(ATOM.findall(smiles)), max_atoms)
    if smiles.count("(") > _MAX_NESTING < max(accumulate(map(_DEPTH.get, smiles, repeat(0)))):
        reason = f"its branches are nested more than {_MAX_NESTING} deep"
        raise SmilesError(text, "too_nested", reason)
    smiles = ATOM_MAP.sub("", smiles)
    with quiet:
        if (mol := _read(smiles, extended, unify)) is None:
            raise SmilesError(text, *rdkit_error(smiles, extended=extended))
    if ":" in smiles:
        _check_drawn_bonds(text, Chem.MolFromSmiles(smiles.split()[0], _SMILES_PARAMS))
    _check_atoms(text, mol.GetNumAtoms(), max_atoms)
    return mol


def _read(smiles: str, extended: bool, unify: bool) -> Chem.Mol | None:
    try:
        mol = Chem.MolFromSmiles(smiles, _CXSMILES_PARAMS if extended else _SMILES_PARAMS)
        if mol is None or Chem.SanitizeMol(mol, catchErrors=True) != Chem.SANITIZE_NONE:
            return None
        if unify and MAY_BE_REDRAWN.search(smiles):
            mol = redrawn(mol)
        if extended:
            mol = without_labels(mol)
        if has_stereo := extended or _STEREO.search(smiles) is not None:
            Chem.AssignStereochemistry(mol, cleanIt=True, force=True)
        if _EXPLICIT_HYDROGEN.search(smiles):
            number_atoms(mol, range(mol.GetNumAtoms()))
            mol = Chem.RemoveHs(mol, sanitize=False)
            if Chem.SanitizeMol(mol, catchErrors=True) != Chem.SANITIZE_NONE:
                return None
            if has_stereo:
                assign_stereo(mol)
    except RuntimeError:  # RDKit's own checks fail on some atoms with over a hundred bonds.
        return None
    return mol


def _mol_of_inchi(inchi: str, unify: bool) -> Chem.Mol | None:
    """Return the molecule of a standard InChI, or None if it cannot be read."""
    try:  # in another process, as InChI's library crashes on some wrong texts
        data = call_within(MoleculeLimits.max_seconds, _read_inchi, inchi, unify)
    except TimeoutError:
        return None
    return data and Chem.Mol(data)  # pyright: ignore[reportCallIssue, reportArgumentType]


def _read_inchi(inchi: str, unify: bool) -> bytes | None:
    """Return a molecule in RDKit's binary form; None if RDKit writes another InChI for it."""
    tautomers = rdMolStandardize.TautomerEnumerator()
    tautomers.SetMaxTautomers(_MOST_TAUTOMERS)
    tautomers.SetRemoveSp3Stereo(False)
    tautomers.SetRemoveBondStereo(False)
    with quiet:
        mol = Chem.MolFromInchi(inchi)
        if mol is None or Chem.MolToInchi(mol) != inchi:  # such as one without hydrogen atoms
            return None
        if _lacks_bonds(mol):
            raise SmilesError(inchi, "inchi", _LOST_BONDS)
        start = Chem.RWMol(mol)
        for reaction in map(rdChemReactions.ReactionFromSmarts, _AMIDES):
            reaction.Initialize()
            while reaction.RunReactantInPlace(start, removeUnmatchedAtoms=False):
                Chem.SanitizeMol(start)
        candidates = [*tautomers.Enumerate(start)] if "(H" in inchi else []
        candidates.sort(
            key=lambda tautomer: (-tautomers.ScoreTautomer(tautomer), Chem.MolToSmiles(tautomer))
        )
        same = (tautomer for tautomer in candidates if Chem.MolToInchi(tautomer) == inchi)
        best = prepare_mol(next(same, mol), unify=unify)
    return best.ToBinary(int(Chem.PropertyPickleOptions.AllProps))


def _lacks_bonds(mol: Chem.Mol) -> bool:
    """Return whether a molecule may have metals whose bonds its InChI leaves out."""
    metals = [atom for atom in mol.GetAtoms() if atom.GetSymbol() not in _BONDED]
    ions = {f"{atom.GetSymbol()}{atom.GetFormalCharge()}" for atom in metals}
    has_radicals = any(atom.GetNumRadicalElectrons() for atom in mol.GetAtoms())
    is_bonded = has_radicals or mol.HasSubstructMatch(_ORGANOMETALLIC)
    return bool(
        ions - _CATIONS or (metals and is_bonded) or mol.HasSubstructMatch(_ALUMINUM_HALIDE)
    )


def _check_atoms(molecule: Molecule, atoms: int, max_atoms: int) -> None:
    if atoms > max_atoms:
        reason = f"it has {atoms} atoms, the limit is {max_atoms}"
        raise SmilesError(written(molecule), "too_large", reason)


def _check_aromatic_bonds(molecule: Molecule, mol: Chem.Mol) -> None:
    if mol.HasSubstructMatch(_STRAY):
        raise SmilesError(written(molecule), "aromaticity", "an aromatic bond is not in a ring")


def _check_drawn_bonds(molecule: Molecule, drawn: Chem.Mol) -> None:
    """Check a molecule that is not sanitized: RDKit then makes some aromatic bonds single."""
    Chem.FastFindRings(drawn)
    _check_aromatic_bonds(molecule, drawn)


def prepare_mol(
    mol: Chem.Mol, *, max_atoms: int = MoleculeLimits.max_atoms, unify: bool = True
) -> Chem.Mol:
    """Return a copy of an RDKit molecule as :func:`parse_smiles` reads its SMILES.

    Explicit hydrogen atoms, atom-map numbers, stereo groups, conformers and properties are dropped.
    The other atoms keep their order.

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
        copy = Chem.RemoveHs(redrawn(copy) if unify else copy, sanitize=False)
        _check_atoms(mol, copy.GetNumAtoms(), max_atoms)
        if Chem.SanitizeMol(copy, catchErrors=True) != Chem.SANITIZE_NONE:
            raise SmilesError(written(mol), *chemistry_error(mol))
    _check_aromatic_bonds(mol, copy)
    assign_stereo(copy)
    return copy


def without_labels(mol: Chem.Mol) -> Chem.Mol:
    """Return a copy without atom-map numbers and stereo groups; its stereo is not assigned anew.

    RDKit would tell equivalent atoms apart by their numbers. Which stereoisomer a group of type AND
    or OR has is not known, so that its centers and bonds become unspecified. So do axes of
    atropisomers, which a SMILES cannot tell apart.
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
    for bond in copy.GetBonds():
        if bond.GetStereo() in _AXES:
            bond.SetStereo(Chem.BondStereo.STEREONONE)
        if bond.GetBondDir() in _WEDGES:  # from which axes would be assigned again
            bond.SetBondDir(Chem.BondDir.NONE)
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
    """Return a molecule as errors show it: a text as it is, an RDKit molecule as its SMILES."""
    if isinstance(molecule, str):
        return molecule
    try:
        return Chem.MolToSmiles(molecule, canonical=False)
    except RuntimeError:  # such as a molecule that is not sanitized
        return repr(molecule)


def check_list(name: str, molecules: object) -> None:
    """Raise a TypeError for one molecule, or a table, in place of a list of molecules.

    The characters of a text are molecules too.
    """
    if isinstance(molecules, Molecule):
        molecule = quoted(written(molecules))
        raise TypeError(f"{name}: got one molecule, expected a list: [{molecule}]")
    if getattr(molecules, "ndim", 1) != 1:
        raise TypeError(f"{name}: got a {type(molecules).__name__}, expected a list of molecules")


def parse_molecule(
    molecule: Molecule, limits: MoleculeLimits = NO_LIMITS, *, unify: bool = True
) -> Chem.Mol:
    """Read a molecule; by default without limits, for a molecule that was accepted before."""
    if isinstance(molecule, Chem.Mol):
        return prepare_mol(molecule, max_atoms=limits.max_atoms, unify=unify)
    atoms = limits.max_atoms
    length = limits.max_length
    return parse_smiles(molecule, max_atoms=atoms, max_length=length, unify=unify)


def smiles_of_mol_block(block: str) -> str | None:
    """Return the canonical SMILES of a mol block (V2000 or V3000), or None if it is not valid.

    One that cannot be sanitized gives a SMILES that :func:`parse_smiles` refuses; a query raises,
    and so does an aromatic bond outside a ring.
    """
    mol = mol_of_mol_block(block, hydrogens=False) or mol_of_mol_block(block, sanitize=False)
    if mol is None:
        return None
    if mol.HasQuery() or any(atom.GetAtomicNum() == 0 for atom in mol.GetAtoms()):
        raise SmilesError("", "smarts", _QUERY)
    if _AROMATIC_BOND.search(block) and (drawn := mol_of_mol_block(block, sanitize=False)):
        _check_drawn_bonds("", drawn)
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
