"""The sites of a molecule: its atoms and bonds in the order of the input, and in its graph."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from operator import and_
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem

from molattn.chem.grammar import SMILES
from molattn.chem.parse import Molecule, atom_numbers, parse_molecule, quiet
from molattn.errors import SmilesError

_AS_WRITTEN = Chem.SmilesParserParams()
_AS_WRITTEN.sanitize = _AS_WRITTEN.removeHs = _AS_WRITTEN.allowCXSMILES = False


class Sites(NamedTuple):
    """Atoms and bonds in the order of the input, and where they are in the graph of the molecule.

    Hydrogens that the input leaves implicit follow, where they are atoms of the graph, with their
    bonds. A site that is not in the graph, such as a hydrogen atom of a graph without hydrogens,
    has the index -1.
    """

    atoms: NDArray[np.int32]  # the atom of the graph, [A]
    bonds: NDArray[np.int32]  # both atoms of the graph, [2, B]
    heavy: int  # number of atoms of the graph before those of hydrogen that were added to it
    drawn: tuple[int, int]  # number of atoms and bonds of the input
    charge: int  # of the molecule

    def heavy_sites(self, level: str) -> NDArray[np.bool_]:
        """Return which atoms (``level`` is ``atom``) or bonds have no hydrogen that was added."""
        ends = self.atoms[None] if level == "atom" else self.bonds
        return np.logical_and.reduce((ends >= 0) & (ends < self.heavy))


def find_sites(molecule: Molecule, mol: Chem.Mol, graph: Chem.Mol) -> Sites:
    """Find the atoms and bonds of an input in its graph.

    Args:
        molecule: The input.
        mol: What :func:`molattn.chem.parse.parse_molecule` reads from it, without explicit hydrogen
            atoms.
        graph: ``mol``, or what :func:`with_hydrogens` returns of it.
    """
    drawn = _as_written(molecule) or mol
    added = defaultdict[int, list[int]](list)
    for atom in [*graph.GetAtoms()][mol.GetNumAtoms() :]:
        added[atom.GetNeighbors()[0].GetIdx()].append(atom.GetIdx())
    position = {number: index for index, number in enumerate(atom_numbers(mol))}
    atoms = [position.get(atom.GetIdx(), -1) for atom in drawn.GetAtoms()]
    for atom in drawn.GetAtoms():
        if atoms[atom.GetIdx()] < 0:  # a hydrogen atom of one that is in the graph
            parents = [position.get(neighbor.GetIdx(), -1) for neighbor in atom.GetNeighbors()]
            hydrogens = added[max(parents, default=-1)]
            atoms[atom.GetIdx()] = hydrogens.pop(0) if hydrogens else -1
    bonds = []
    for bond in drawn.GetBonds():
        ends = atoms[bond.GetBeginAtomIdx()], atoms[bond.GetEndAtomIdx()]
        is_bonded = min(ends) >= 0 and graph.GetBondBetweenAtoms(*ends) is not None
        bonds.append(ends if is_bonded else (-1, -1))
    counts = len(atoms), len(bonds)
    implicit = sorted((index, parent) for parent, indices in added.items() for index in indices)
    atoms += [index for index, _ in implicit]
    bonds += [(parent, index) for index, parent in implicit]
    pairs = np.array(bonds, dtype=np.int32).reshape(-1, 2).T
    charge = Chem.GetFormalCharge(graph)
    return Sites(np.array(atoms, dtype=np.int32), pairs, mol.GetNumAtoms(), counts, charge)


def with_hydrogens(mol: Chem.Mol) -> Chem.Mol:
    """Return a molecule with all of its hydrogens as atoms, after the others."""
    return Chem.AddHs(mol)


def site_keys(
    molecule: Molecule, level: str, *, by_index: bool = False
) -> tuple[dict[str, int], int]:
    """Return the position of each atom (bond) by its keys, and how many the input has.

    Keys are map numbers if an atom has one, without those of several atoms, otherwise (and in any
    case ``by_index``) indices from 0, where hydrogens that the input leaves implicit follow the
    other atoms, as in :class:`Sites`. The keys of a bond have those of both atoms, as in ``3-5``
    and ``5-3``.
    """
    mol = parse_molecule(molecule)
    sites = find_sites(molecule, mol, with_hydrogens(mol))
    drawn = _as_written(molecule) or mol
    numbers = {index: index for index in range(len(sites.atoms))}
    mapped = {atom.GetIdx(): atom.GetAtomMapNum() for atom in drawn.GetAtoms()}
    if any(mapped.values()) and not by_index:
        counts = Counter(mapped.values())
        numbers = {index: n for index, n in mapped.items() if n and counts[n] == 1}
    if level == "atom":
        return {str(number): index for index, number in numbers.items()}, sites.drawn[0]
    atoms = sites.atoms.tolist()
    bonds = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in drawn.GetBonds()]
    bonds += [(atoms.index(a), atoms.index(b)) for a, b in sites.bonds.T[len(bonds) :].tolist()]
    keys = {}
    for bond, indices in enumerate(bonds):
        ends = [numbers.get(index) for index in indices]
        for first, second in (ends, ends[::-1]):
            keys[f"{first}-{second}"] = bond
    return keys, sites.drawn[1]


def labels_hydrogens(molecule: Molecule, level: str, is_labeled: Sequence[bool]) -> bool:
    """Return whether a label is of a hydrogen atom, or of a bond with one.

    Args:
        molecule: The input.
        level: ``atom`` or ``bond``.
        is_labeled: Which atoms (bonds) of the input have a label, or those of all hydrogens too.
    """
    drawn = _as_written(molecule)
    if drawn is None:
        return False
    atoms = [atom.GetAtomicNum() == 1 for atom in drawn.GetAtoms()]
    ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in drawn.GetBonds()]
    is_hydrogen = atoms if level == "atom" else [atoms[a] or atoms[b] for a, b in ends]
    labels = [*is_labeled]
    if len(labels) > len(is_hydrogen):
        try:
            graph = with_hydrogens(parse_molecule(molecule))
        except SmilesError:
            return False
        count = graph.GetNumAtoms() if level == "atom" else graph.GetNumBonds()
        return len(labels) == count and any(labels[len(is_hydrogen) :])
    return len(labels) == len(is_hydrogen) and any(map(and_, labels, is_hydrogen))


def _as_written(molecule: Molecule) -> Chem.Mol | None:
    """Return a SMILES with its atoms and bonds as they are written; None of an InChI."""
    if isinstance(molecule, Chem.Mol):
        return molecule
    text, *_ = [*molecule.split(None, 1), ""]
    with quiet:
        return Chem.MolFromSmiles(text, _AS_WRITTEN) if SMILES.fullmatch(text) else None
