"""Molecules to graphs of all atom pairs or of bonds, as PyG's ``Data``."""

from typing import Literal, Union, get_args

import torch
from rdkit import Chem
from torch_geometric.data import Data

from molattn.chem import FEATURIZERS, ConformerGenerator, Featurizer
from molattn.chem.limits import read_molecule
from molattn.chem.parse import Molecule, assign_stereo, quiet, without_labels
from molattn.config import MoleculeLimits
from molattn.errors import InputError, check_one_of
from molattn.record import MoleculeRecord

Pairs = Literal["all", "bonds"]


def from_smiles(
    smiles: Molecule,
    *,
    pairs: Pairs = "all",
    self_loops: bool = False,
    featurizer: Union[str, Featurizer] = "default",
    conformer: Union[bool, ConformerGenerator] = False,
    unify_drawings: bool = True,
) -> Data:
    """Turn a SMILES into a graph; usable as ``from_smiles=`` of PyG's datasets.

    Its edges are all pairs of atoms, which attention reads. What takes edges for bonds
    (``GINEConv``, ``AddRandomWalkPE``, ``VirtualNode``, the local part of ``GPSConv``) needs
    ``pairs="bonds"``, the edges of PyG's own ``from_smiles``.

    A PyG dataset stops with a ``SmilesError`` at a row that RDKit cannot read: drop such rows
    first, or train with ``molattn train``, which skips and lists them.

    Args:
        smiles: The molecule; an RDKit molecule is read as its SMILES, with its atoms in their order
            and without explicit hydrogen atoms and coordinates, which :func:`from_mol` keeps.
        pairs: ``all``: edges between all atoms; ``bonds``: only bonds, with the same
            features.
        self_loops: Whether an atom has an edge to itself.
        featurizer: A featurizer, or the name of one in :data:`molattn.chem.FEATURIZERS`.
        conformer: Whether to generate three-dimensional coordinates; a ``ConformerGenerator`` to
            set its options, such as a seed.
        unify_drawings: Whether usual drawings of a molecule are read as one, see
            :func:`molattn.chem.drawings.redrawn`.

    Returns:
        ``Data`` with ``x`` ``int64 [n, A]`` (codes, columns ``featurizer.atom_names``),
        ``edge_index`` ``[2, E]`` of ordered pairs, sorted by sender, ``edge_attr``
        ``int64 [E, P]`` (codes, columns ``featurizer.pair_names``) and ``smiles``. With a
        conformer also ``pos`` ``float32 [n, 3]`` in angstrom and ``pos_method``
        (``Conformer.method``); neither if none was found, which
        ``pre_filter=lambda data: "pos" in data`` of PyG's datasets leaves out. Leave such graphs
        out of batches: PyG takes the attributes of the first graph for all.

    Raises:
        InputError: Other ``pairs``.
        SmilesError: It is not a molecule, or beyond a limit; ``code`` and ``reason`` say why.

    Example:
        >>> data = from_smiles("CCO", conformer=True)
        >>> data.x.size(0), data.edge_index.size(1), data.pos.shape
        (3, 6, torch.Size([3, 3]))
    """
    featurizer = FEATURIZERS[featurizer]() if isinstance(featurizer, str) else featurizer
    mol, record = read_molecule(smiles, MoleculeLimits(), featurizer, unify=unify_drawings)
    mol.RemoveAllConformers()  # what a CXSMILES draws
    data = _graph(mol, record, featurizer, pairs, self_loops)
    if isinstance(smiles, str):
        data.smiles = smiles
    return _with_coordinates(data, mol, conformer)


def from_mol(
    mol: Chem.Mol,
    *,
    pairs: Pairs = "all",
    self_loops: bool = False,
    featurizer: Union[str, Featurizer] = "default",
    conformer: Union[bool, ConformerGenerator] = True,
) -> Data:
    """Turn an RDKit molecule, from an SDF file for example, into a graph.

    Args:
        mol: A sanitized molecule. Its atoms are the nodes, in its order, explicit hydrogen atoms
            included.
        pairs: See :func:`from_smiles`.
        self_loops: Whether an atom has an edge to itself.
        featurizer: A featurizer, or the name of one in :data:`molattn.chem.FEATURIZERS`.
        conformer: Whether to add coordinates: the molecule's own if they are three-dimensional,
            otherwise generated as by :func:`from_smiles`.

    Returns:
        ``Data`` as of :func:`from_smiles`; ``pos_method`` is ``given`` for the molecule's own
        coordinates.

    Raises:
        InputError: Not a molecule (RDKit returns None for unreadable text), one without atoms or
            not sanitized, coordinates that are not finite, a query, other ``pairs``, or RDKit's
            legacy stereo perception is off.

    Example:
        >>> from molattn.chem import parse_smiles
        >>> data = from_mol(parse_smiles("CCO"))
        >>> data.pos.shape, data.pos_method
        (torch.Size([3, 3]), 'etkdg')
    """
    if not isinstance(mol, Chem.Mol) or not mol.GetNumAtoms():
        description = "a molecule without atoms" if isinstance(mol, Chem.Mol) else repr(mol)[:80]
        raise InputError(f"mol: got {description}, expected an RDKit molecule")
    if not _is_sanitized(mol):
        raise InputError("mol: got a molecule that is not sanitized; call rdkit.Chem.SanitizeMol")
    if mol.HasQuery():
        raise InputError("mol: got a query, expected one molecule")
    featurizer = FEATURIZERS[featurizer]() if isinstance(featurizer, str) else featurizer
    mol = without_labels(mol)
    assign_stereo(mol)
    data = _graph(mol, featurizer(mol), featurizer, pairs, self_loops)
    return _with_coordinates(data, mol, conformer)


def _is_sanitized(mol: Chem.Mol) -> bool:
    """Whether the valences and rings of a molecule are known."""
    with quiet:
        try:
            return not mol.NeedsUpdatePropertyCache() and mol.GetRingInfo().NumRings() >= 0
        except RuntimeError:
            return False


def _graph(
    mol: Chem.Mol, record: MoleculeRecord, featurizer: Featurizer, pairs: Pairs, self_loops: bool
) -> Data:
    check_one_of("pairs", pairs, get_args(Pairs))
    codes = torch.from_numpy(record.pairs).long()
    table = torch.tensor(featurizer.pair_table).long()
    is_edge = table[codes, 0] > 0 if pairs == "bonds" else torch.ones_like(codes, dtype=torch.bool)
    edge_index = is_edge.fill_diagonal_(self_loops).nonzero().t().contiguous()
    edge_attr = table[codes[edge_index[0], edge_index[1]]]
    x = torch.from_numpy(record.atoms).long()
    return Data(x=x, edge_index=edge_index, edge_attr=edge_attr, smiles=Chem.MolToSmiles(mol))


def _with_coordinates(
    data: Data, mol: Chem.Mol, conformer: Union[bool, ConformerGenerator]
) -> Data:
    if conformer:
        generator = ConformerGenerator() if conformer is True else conformer
        if (geometry := generator(mol)) is None:
            return data
        data.pos = torch.from_numpy(geometry.coordinates).float()
        data.pos_method = geometry.method
    return data
