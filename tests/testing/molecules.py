"""Random graphs of the form of molecules."""

from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch_geometric.data import Batch, Data


def random_molecules(
    channels: int,
    edge_dim: Optional[int] = None,
    *,
    sizes: Sequence[int] = (5, 1, 7, 3),
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> Any:
    """Return a batch of random connected graphs, with rings in the larger ones.

    Each bond is two edges. ``x`` ``[N, channels]``, ``edge_attr`` ``[E, edge_dim]`` (the same in
    both directions) and ``pos`` ``[N, 3]`` are normal, ``z`` ``[N]`` are numbers from 1 to 9.
    ``sizes`` are numbers of nodes.
    """
    generator = torch.Generator().manual_seed(seed)
    graphs = []
    for size in sizes:
        bonds = [(int(torch.randint(i, (), generator=generator)), i) for i in range(1, size)]
        if size > 3 and (0, size - 1) not in bonds:
            bonds.append((0, size - 1))
        bond_index = torch.tensor(bonds, dtype=torch.int64).reshape(-1, 2).t()
        data = Data(
            x=torch.randn(size, channels, generator=generator, dtype=dtype),
            edge_index=torch.cat([bond_index, bond_index.flip(0)], dim=1),
            pos=torch.randn(size, 3, generator=generator, dtype=dtype),
            z=torch.randint(1, 10, (size,), generator=generator),
        )
        if edge_dim is not None:
            bond_attr = torch.randn(len(bonds), edge_dim, generator=generator, dtype=dtype)
            data.edge_attr = bond_attr.repeat(2, 1)
        graphs.append(data)
    return Batch.from_data_list(graphs)
