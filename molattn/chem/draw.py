"""Molecules as SVG, and the atoms in which two molecules differ."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

from rdkit import Chem
from rdkit.Chem import rdFMCS

from molattn.chem.limits import is_fast, read_mol_block
from molattn.chem.parse import Molecule, mol_of_mol_block, parse_molecule
from molattn.chem.sites import with_hydrogens
from molattn.errors import MolattnError
from molattn.utils.time_limit import call_within

_MOST_ATOMS = 200
_MOST_SECONDS = 5.0
_SEARCH_SECONDS = 2  # of a search that may last for ever, and ends with the best so far
NOT_DRAWN = (
    f"Not drawn: more than {_MOST_ATOMS} atoms,",
    f"or more than {_MOST_SECONDS:g} s to lay them out",
)
"""Two lines of text in place of the drawing of a molecule that :func:`laid_out` does not return."""

_COLORS = {7: "#1F4FD8", 8: "#C81E1E", 16: "#8A6100", 15: "#B4530A"}
_COLORS |= dict.fromkeys((9, 17, 35, 53), "#1A7F37")  # the other elements are black
_MARK = (0.98, 0.80, 0.36)


def drawing_module() -> Any:
    """Return RDKit's module for drawings, which needs libraries that small servers lack."""
    try:
        from rdkit.Chem.Draw import rdMolDraw2D
    except ImportError as error:
        raise MolattnError(
            f"RDKit cannot draw molecules: {error}; on Debian and Ubuntu: apt install libxrender1 "
            "libxext6"
        ) from error
    return rdMolDraw2D


# The drawings of a molecule follow one another.
@lru_cache(maxsize=1)
def laid_out(
    molecule: Molecule, *, unify: bool | None = None, hydrogens: bool = False
) -> Chem.Mol | None:
    """Return a molecule with coordinates; None if its layout takes more than 5 s, or 200 atoms.

    ``unify`` is that of :func:`molattn.chem.parse.parse_molecule`, by default True for SMILES; with
    ``hydrogens``, these are atoms too.

    The time grows with the square of the number of atoms and more, and RDKit cannot be interrupted:
    a large molecule is laid out in a child process.
    """
    try:
        read = _prepared if is_fast(molecule) else partial(call_within, _MOST_SECONDS, _prepared)
        data = read(molecule, unify, hydrogens)
    except TimeoutError:
        return None
    return None if data is None else Chem.Mol(data)  # pyright: ignore


def _prepared(molecule: Molecule, unify: bool | None, hydrogens: bool) -> bytes | None:
    mol = parse_molecule(molecule, unify=isinstance(molecule, str) if unify is None else unify)
    mol = with_hydrogens(mol) if hydrogens else mol
    if mol.GetNumAtoms() > _MOST_ATOMS:
        return None
    properties = Chem.PropertyPickleOptions
    mol = drawing_module().PrepareMolForDrawing(mol, addChiralHs=False)
    return mol.ToBinary(int(properties.AllProps) | int(properties.CoordsAsDouble))


def draw_molecule(
    smiles: str, width: int = 250, height: int = 180, marked: Sequence[int] = ()
) -> str | None:
    """Draw a molecule as transparent SVG with marked atoms; None if it is too large.

    Numbers that are no atoms, such as those of implicit hydrogen atoms, mark nothing.
    """
    if (mol := laid_out(smiles)) is None:
        return None
    marked = [atom for atom in marked if 0 <= atom < mol.GetNumAtoms()]
    drawer = drawing_module().MolDraw2DSVG(width, height)
    options = drawer.drawOptions()
    options.clearBackground = False
    options.maxFontSize = 16
    options.fixedBondLength = 28  # at most, so that small molecules are not magnified
    options.useBWAtomPalette()
    options.updateAtomPalette({number: _rgb(color) for number, color in _COLORS.items()})
    options.prepareMolsBeforeDrawing = False
    options.setHighlightColour(_MARK)
    bonds = [
        bond.GetIdx()
        for bond in mol.GetBonds()
        if bond.GetBeginAtomIdx() in marked and bond.GetEndAtomIdx() in marked
    ]
    drawer.DrawMolecule(mol, highlightAtoms=marked, highlightBonds=bonds)
    drawer.FinishDrawing()
    return drawer.GetDrawingText()


def draw_png(structure: str, width: int = 160, height: int = 105) -> bytes | None:
    """Draw a SMILES or mol block for a spreadsheet; None if it is too large."""
    molecule = read_mol_block(structure, mol_of_mol_block) if "\n" in structure else structure
    if not molecule or (mol := laid_out(molecule)) is None:
        return None
    drawer = drawing_module().MolDraw2DCairo(width, height)
    drawer.drawOptions().prepareMolsBeforeDrawing = False
    drawer.drawOptions().fixedBondLength = 20
    drawer.DrawMolecule(mol)
    drawer.FinishDrawing()
    return drawer.GetDrawingText()


def _rgb(color: str) -> tuple[float, ...]:
    return tuple(int(color[start : start + 2], 16) / 255 for start in (1, 3, 5))


def differing_atoms(smiles: str, other: str) -> list[int]:
    """Return the atoms of a molecule that are not in its largest common part with another.

    Connected parts that both have, such as a counterion, are in common. An atom of another charge
    differs; isotopes and stereochemistry are ignored. All differ if the search takes too long.
    """
    try:
        return call_within(_MOST_SECONDS, _differing, smiles, other)
    except TimeoutError:
        return list(range(parse_molecule(smiles).GetNumAtoms()))


def _differing(smiles: str, other: str) -> list[int]:
    first = parse_molecule(smiles)
    last = parse_molecule(other)
    atoms, mol = _without_common_fragments(first, last)
    _, second = _without_common_fragments(last, first)
    parameters = rdFMCS.MCSParameters()
    parameters.Timeout = _SEARCH_SECONDS
    parameters.AtomCompareParameters.MatchFormalCharge = True
    parameters.BondTyper = rdFMCS.BondCompare.CompareOrderExact
    parameters.BondCompareParameters.RingMatchesRingOnly = True
    parameters.BondCompareParameters.CompleteRingsOnly = True
    common = rdFMCS.FindMCS([mol, second], parameters)
    same = set(mol.GetSubstructMatch(common.queryMol)) if common.numAtoms else ()
    return [atom for index, atom in enumerate(atoms) if index not in same]


def _without_common_fragments(mol: Chem.Mol, other: Chem.Mol) -> tuple[list[int], Chem.Mol]:
    """Return the atoms of fragments that only this molecule has, and a molecule of these atoms."""
    same = Counter(Chem.MolToSmiles(fragment) for fragment in Chem.GetMolFrags(other, asMols=True))
    differing: list[int] = []
    joined = Chem.Mol()
    fragments = Chem.GetMolFrags(mol, asMols=True)
    for atoms, fragment in zip(Chem.GetMolFrags(mol), fragments, strict=True):
        text = Chem.MolToSmiles(fragment)
        same[text] -= 1
        if same[text] < 0:
            differing += atoms
            joined = Chem.CombineMols(joined, fragment)
    Chem.GetSymmSSSR(joined)  # which are unknown after joining
    return differing, joined
