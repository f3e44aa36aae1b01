"""SMILES to complete graphs: where chemistry and PyG meet."""

from functools import cache
from typing import Optional

import torch
from torch_geometric.data import Data

from .chem import Featurizer, parse_smiles

__all__ = ["default_featurizer", "from_smiles"]


@cache
def default_featurizer() -> Featurizer:
    """The featurizer used where none is given."""
    return Featurizer.default()


def from_smiles(
    smiles: str, *, self_loops: bool = False, featurizer: Optional[Featurizer] = None
) -> Data:
    """Turn a SMILES into a complete graph; usable as ``from_smiles=`` of PyG's data sets.

    Args:
        smiles: The molecule.
        self_loops: Whether an atom has an edge to itself.
        featurizer: What to record of atoms and pairs; None = ``Featurizer.default()``.

    Returns:
        ``Data`` with ``x`` ``int64 [n, A]`` (codes, columns ``featurizer.atom_names``),
        ``edge_index`` ``[2, n (n - 1)]`` of all ordered pairs, sorted by sender, ``edge_attr``
        ``int64 [E, P]`` (codes, columns ``featurizer.pair_names``) and ``smiles``.

    Raises:
        SmilesError: The text is not a molecule; says why.

    Example:
        >>> data = from_smiles("CCO")
        >>> data.x.size(0), data.edge_index.size(1)
        (3, 6)
    """
    featurizer = featurizer or default_featurizer()
    record = featurizer(parse_smiles(smiles))
    pairs = torch.ones(record.num_atoms, record.num_atoms, dtype=torch.bool)
    if not self_loops:
        pairs.fill_diagonal_(False)
    edge_index = pairs.nonzero().t().contiguous()
    codes = torch.from_numpy(record.pairs)[edge_index[0], edge_index[1]]
    table = torch.tensor(featurizer.pair_table).long()
    return Data(
        x=torch.from_numpy(record.atoms).long(),
        edge_index=edge_index,
        edge_attr=table[codes.long()],
        smiles=smiles,
    )
