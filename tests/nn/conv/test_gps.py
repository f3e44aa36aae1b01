import pytest
import torch
from torch_geometric.nn import GINEConv, GPSConv

from molattn.graph import CodedEdges, CompleteGraphs
from molattn.nn import DistanceSlopes, EdgeAttentionConv, PairGPSConv

from ..conftest import DOUBLE, assert_near

BONDS = torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]])
GRAPHS = CompleteGraphs([3, 2, 1])


def test_without_pair_features_it_equals_the_layer_of_pyg():
    theirs = GPSConv(8, GINEConv(torch.nn.Linear(8, 8), edge_dim=4), heads=2).double()
    attention = EdgeAttentionConv(8, 8, heads=2, root_weight=False)
    ours = PairGPSConv(8, theirs.conv, attention).double()
    for name in ("mlp", "norm1", "norm2", "norm3"):
        getattr(ours, name).load_state_dict(getattr(theirs, name).state_dict())
    lins = (attention.lin_query, attention.lin_key, attention.lin_value)
    for lin, weight in zip(lins, theirs.attn.in_proj_weight.chunk(3), strict=True):
        lin.load_state_dict({"weight": weight, "bias": torch.zeros(8)})
    attention.head_combine.lin.load_state_dict({"weight": theirs.attn.out_proj.weight})
    x, e = torch.randn(6, 8, dtype=DOUBLE), torch.randn(6, 4, dtype=DOUBLE)
    expected = theirs(x, BONDS, GRAPHS.batch, edge_attr=e)
    for pairs in (GRAPHS, GRAPHS.edge_index):
        assert_near(ours(x, BONDS, GRAPHS.batch, edge_attr=e, pair_index=pairs), expected)


@pytest.mark.parametrize("norm", ["batch_norm", "graph_norm", None])
def test_both_forms_of_pairs_give_the_same_nodes(norm):
    attention = EdgeAttentionConv(8, 8, heads=2, edge_dim=3, attn_bias=DistanceSlopes(2, 5))
    conv = PairGPSConv(8, None, attention, norm=norm).double()
    conv.reset_parameters()
    x, distance = torch.randn(6, 8, dtype=DOUBLE), torch.tensor([[0.0], [1.0], [2.0]]).double()
    codes = torch.arange(GRAPHS.num_edges) % 3
    table = torch.randn(3, 3, dtype=DOUBLE)
    outputs = []
    for pairs, of_codes in (
        (GRAPHS.edge_index, lambda table: table[codes]),
        (GRAPHS, lambda table: CodedEdges.from_edges(GRAPHS, codes, table)),
    ):
        edges = {"pair_attr": of_codes(table), "bias_attr": of_codes(distance)}
        outputs.append(conv(x, BONDS, GRAPHS.batch, pair_index=pairs, **edges))
    assert_near(*outputs)
    assert repr(conv).startswith("PairGPSConv(8, conv=None, attention=EdgeAttentionConv(8, 8")
