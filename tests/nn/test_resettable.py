"""Every public module of ``molattn.nn`` can be reset."""

import inspect

import pytest
import torch
from torch import nn

from molattn import nn as parts

TABLE = torch.tensor([[0, 0], [2, 1]])
MODULES = {
    parts.AttentionBias: lambda: parts.AttentionBias(parts.PathBias(2, 6)),
    parts.AttentionBlock: lambda: parts.AttentionBlock(parts.EGTConv(8, 8, 2), 8),
    parts.CodeEmbedding: lambda: parts.CodeEmbedding([3, 2], 8),
    parts.DistanceBias: lambda: parts.DistanceBias(2, 6),
    parts.DistanceSlopes: lambda: parts.DistanceSlopes(2, 6),
    parts.EGTConv: lambda: parts.EGTConv(8, 8, 2),
    parts.EdgeAttentionConv: lambda: parts.EdgeAttentionConv(8, 8, 2, gate=True, score="additive"),
    parts.EdgeSetAttention: lambda: parts.EdgeSetAttention(8, 8, 2, edge_dim=3),
    parts.EdgeTransformerConv: lambda: parts.EdgeTransformerConv(8, 2),
    parts.Encoder: lambda: parts.Encoder(lambda: parts.EGTConv(8, 8, 2), 2, 8),
    parts.FixedPairEmbedding: lambda: parts.FixedPairEmbedding(
        TABLE, (3, 2), torch.ones(5, 4), torch.ones(4)
    ),
    parts.FourierHead: lambda: parts.FourierHead(8, 0, 8, 3, 0.0, scale=0.2),
    parts.GRITConv: lambda: parts.GRITConv(8, 8, 2, edge_dim=3),
    parts.GaANConv: lambda: parts.GaANConv(8, 8, 2),
    parts.GraphNetwork: lambda: parts.GraphNetwork(8, 8, 2, global_dim=3, update_global=True),
    parts.GraphTransformerBlock: lambda: parts.GraphTransformerBlock(
        parts.EGTConv(8, 8, 2, edge_dim=4), 8, 4, virtual_node=True
    ),
    parts.HeadGate: lambda: parts.HeadGate((8, 8), 2, 8),
    parts.Linear: lambda: parts.Linear(8, 8),
    parts.MATConv: lambda: parts.MATConv(8, 8, 2, learn_lambdas=True),
    parts.MLPFourierHead: lambda: parts.MLPFourierHead(8, 0, 8, 3, 0.0),
    parts.MLPHead: lambda: parts.MLPHead(8, 0, 8, 3, 0.0),
    parts.PMA: lambda: parts.PMA(8, 2),
    parts.PairGPSConv: lambda: parts.PairGPSConv(8, None, parts.EdgeAttentionConv(8, 8, 2)),
    parts.PairEmbedding: lambda: parts.PairEmbedding(TABLE, (3, 2), 8),
    parts.PathBias: lambda: parts.PathBias(2, 6),
    parts.Readout: lambda: parts.Readout("attentional+pma+set2set", 8),
    parts.TripletAggregate: lambda: parts.TripletAggregate(8, 2),
    parts.TripletAttention: lambda: parts.TripletAttention(8, 2),
}
BASES = {parts.AttentionConv, parts.HeadCombine}


def test_no_public_module_is_left_out():
    public = [getattr(parts, name) for name in parts.__all__]
    modules = {value for value in public if inspect.isclass(value) and issubclass(value, nn.Module)}
    assert modules == MODULES.keys() | BASES


COMBINED = {kind: lambda kind=kind: parts.COMBINES[kind](2, 8) for kind in ("linear", "weighted")}
WRAPPED = {"wrapped": lambda: parts.Layer(parts.EGTConv, complete_graphs=False).make(8, 8, 2)}


@pytest.mark.parametrize(
    "make",
    [*MODULES.values(), *COMBINED.values(), *WRAPPED.values()],
    ids=[*(module.__name__ for module in MODULES), *COMBINED, *WRAPPED],
)
def test_all_parameters_are_drawn_again_from_the_same_distribution(make):
    torch.manual_seed(0)
    fresh, module = make(), make()
    for weight in module.parameters():
        nn.init.constant_(weight, torch.nan)
    module.reset_parameters()
    for (name, weight), before in zip(module.named_parameters(), fresh.parameters(), strict=True):
        assert weight.isfinite().all(), name
        if weight.numel() > 15:
            largest, expected = (float(x.detach().abs().max()) for x in (weight, before))
            assert expected / 2 <= largest <= 2 * expected, name
