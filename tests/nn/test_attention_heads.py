"""Pooling over neighbors on complete graphs against an edge list."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.utils import scatter

from molattn.graph import CompleteGraphs
from molattn.nn.attention_heads import neighbor_max, neighbor_mean


@pytest.mark.parametrize("reduce, pool", [("max", neighbor_max), ("mean", neighbor_mean)])
@given(
    sizes=st.lists(st.integers(0, 9), max_size=9),
    self_loops=st.booleans(),
    some=st.booleans(),
    seed=st.integers(0, 99),
)
def test_pools_and_their_gradients_are_those_of_an_edge_list(
    reduce, pool, sizes, self_loops, some, seed
):
    """Also where several neighbors share the maximum."""
    graphs = CompleteGraphs([*sizes, 2], self_loops=self_loops)
    if some:
        kept = np.random.default_rng(seed).random(graphs.num_pairs) < 1 / 3
        graphs = graphs.with_edges(torch.from_numpy(kept))
    generator = torch.Generator().manual_seed(seed)
    # Never 0, where torch's own gradient of a scattered maximum counts the initial value as a tie.
    x = torch.randint(-1, 2, (graphs.num_nodes, 2), generator=generator).double() + 0.5
    upstream = torch.randn(x.shape, generator=generator, dtype=torch.float64)
    sender, receiver = graphs.edge_index
    leaf = x.clone().requires_grad_()
    listed = scatter(leaf[sender], receiver, dim=0, dim_size=len(x), reduce=reduce)
    rows = graphs.nodes_to_rows(leaf)
    rows = torch.where(graphs.row_mask.unsqueeze(-1), rows, 1e6)  # padding must not matter
    pooled = graphs.rows_to_nodes(pool(graphs, rows))
    torch.testing.assert_close(pooled, listed)
    (expected,) = torch.autograd.grad((listed * upstream).sum(), leaf, materialize_grads=True)
    (got,) = torch.autograd.grad((pooled * upstream).sum(), leaf, materialize_grads=True)
    torch.testing.assert_close(got, expected)
