"""The checks of molattn.testing pass all layers of PyG that keep their promises."""

import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.nn.models.schnet import InteractionBlock

from molattn.testing import check_module

from .molecules import random_molecules


def mlp(width=4):
    return nn.Sequential(nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, 4))


class EGNN(pyg.MessagePassing):
    """E(n)-equivariant layer (Satorras et al. 2021): features stay, positions turn and move."""

    def __init__(self):
        super().__init__()
        self.message_net, self.node_net = mlp(9), mlp(8)
        self.weight = nn.Linear(4, 1)

    def forward(self, x, pos, edge_index):
        out = self.propagate(edge_index, x=x, pos=pos)
        return x + self.node_net(torch.cat([x, out[:, :4]], dim=1)), pos + out[:, 4:]

    def message(self, x_i, x_j, pos_i, pos_j):
        difference = pos_i - pos_j
        distance = difference.square().sum(1, keepdim=True)
        message = self.message_net(torch.cat([x_i, x_j, distance], dim=1))
        return torch.cat([message, difference * self.weight(message)], dim=1)


def within_molecules(pos, batch):
    """Edges between all atoms of a molecule, and their lengths."""
    senders, receivers = torch.cartesian_prod(*[torch.arange(len(pos))] * 2).t()
    kept = (batch[senders] == batch[receivers]) & (senders != receivers)
    edge_index = torch.stack([senders, receivers])[:, kept]
    return edge_index, (pos[edge_index[0]] - pos[edge_index[1]]).norm(dim=1)


DEGREES = torch.tensor([1, 4, 6, 2])
PNA = {"aggregators": ["mean", "max", "std"], "scalers": ["identity", "amplification"]}
LAYERS = {
    "AGNNConv": pyg.AGNNConv,
    "APPNP": lambda: pyg.APPNP(K=3, alpha=0.1),
    "ARMAConv": lambda: pyg.ARMAConv(4, 4, num_stacks=2, num_layers=2),
    "AntiSymmetricConv": lambda: pyg.AntiSymmetricConv(4),
    "CGConv": lambda: pyg.CGConv(4, dim=3),
    "ChebConv": lambda: pyg.ChebConv(4, 4, K=3),
    "ClusterGCNConv": lambda: pyg.ClusterGCNConv(4, 4),
    "EGConv": lambda: pyg.EGConv(4, 4, aggregators=["symnorm", "max"], num_heads=2),
    "EGNN": EGNN,
    "EdgeConv": lambda: pyg.EdgeConv(mlp(8)),
    "FAConv": lambda: pyg.FAConv(4),
    "FeaStConv": lambda: pyg.FeaStConv(4, 4, heads=2),
    "FiLMConv": lambda: pyg.FiLMConv(4, 4),
    "GATConv": lambda: pyg.GATConv(4, 2, heads=2, edge_dim=3),
    "GATv2Conv": lambda: pyg.GATv2Conv(4, 2, heads=2, edge_dim=3),
    "GCNConv": lambda: pyg.GCNConv(4, 4),
    "GENConv": lambda: pyg.GENConv(4, 4, edge_dim=3, learn_t=True),
    "GINConv": lambda: pyg.GINConv(mlp(), train_eps=True),
    "GINEConv": lambda: pyg.GINEConv(mlp(), edge_dim=3),
    "GPSConv": lambda: pyg.GPSConv(4, pyg.GINEConv(mlp(), edge_dim=3), heads=2),
    "GatedGraphConv": lambda: pyg.GatedGraphConv(4, num_layers=2),
    "GeneralConv": lambda: pyg.GeneralConv(4, 4, in_edge_channels=3, attention=True, heads=2),
    "GraphConv": lambda: pyg.GraphConv(4, 4),
    "GraphNorm": lambda: pyg.GraphNorm(4),
    "InteractionBlock": lambda: InteractionBlock(4, 3, 4, cutoff=10.0),
    "LEConv": lambda: pyg.LEConv(4, 4),
    "NNConv": lambda: pyg.NNConv(4, 4, nn.Linear(3, 16)),
    "PNAConv": lambda: pyg.PNAConv(4, 4, **PNA, deg=DEGREES, edge_dim=3),
    "PPFConv": lambda: pyg.PPFConv(mlp(8)),
    "ResGatedGraphConv": lambda: pyg.ResGatedGraphConv(4, 4, edge_dim=3),
    "SAGEConv": lambda: pyg.SAGEConv(4, 4),
    "SGConv": lambda: pyg.SGConv(4, 4, K=2),
    "SchNet": lambda: pyg.SchNet(4, 4, 1, 4, interaction_graph=within_molecules),
    "SuperGATConv": lambda: pyg.SuperGATConv(4, 2, heads=2),
    "TAGConv": lambda: pyg.TAGConv(4, 4),
    "TransformerConv": lambda: pyg.TransformerConv(4, 2, heads=2, edge_dim=3, beta=True),
    "flow=target_to_source": lambda: pyg.SAGEConv(4, 4, flow="target_to_source"),
    "DenseGATConv": lambda: pyg.DenseGATConv(4, 2, heads=2),
    "DenseGCNConv": lambda: pyg.DenseGCNConv(4, 4),
    "DenseGINConv": lambda: pyg.DenseGINConv(mlp()),
}
OPTIONS = {"PPFConv": {"rotation": {"vectors": ["normal"]}}}
POSITIONS = {"EGNN", "PPFConv", "SchNet"}
NO_DIRECTION = {"GPSConv", "GraphNorm", "SchNet"}


@pytest.fixture(scope="module")
def molecules():
    data = random_molecules(4, 3, sizes=(4, 1, 3))
    data.x_0, data.normal = data.x.flip(1), nn.functional.normalize(data.pos.flip(1), dim=1)
    data.edge_weight = 1.0 + data.edge_attr[:, 0].abs()
    return data


@pytest.mark.parametrize("name", LAYERS)
def test_layers_that_keep_their_promises_pass(name, molecules):
    layer = LAYERS[name]()
    kwargs = {"edge_weight": None} if name == "FAConv" else {}
    report = check_module(layer, molecules, options=OPTIONS.get(name), **kwargs)
    missing = {check for check, outcome in report.items() if outcome != "passed"}
    dense = name.startswith("Dense")
    assert missing == (
        ({"padding"} if not dense else set())
        | ({"rotation"} if name not in POSITIONS else set())
        | ({"direction"} if dense or name in NO_DIRECTION else set())
    )
