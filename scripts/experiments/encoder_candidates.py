"""Candidates for attention over all pairs with slopes, in the comparison of encoders.

Each is what the first row of ``scripts.benchmarks.benchmark_encoders`` is, but for one change, with
the parameters that it has::

    python -m scripts.experiments.encoder_candidates --data lipo --folds 0 --norms batch \
        --results runs/candidates.jsonl
    python -m scripts.experiments.encoder_candidates --results runs/candidates.jsonl --table

- *updated edges*: each layer updates edges, which are as wide as before.
- *EGT*: blocks of EGT with slopes, which update edges and have gates.
- *bonded sum*: a layer adds a linear map of the sum over bonded atoms, since the mean of attention
  does not count; its weights begin at 0.
- *in turn*: the first and third block read bonds alone.
- *dropout*: .1 of the outputs of attention and feed-forward networks.
- *source dropout*: .1 of the senders.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.utils import scatter

from molattn.model.network import listed_edges
from molattn.nn import Encoder
from molattn.nn.graph_inputs import edge_features
from scripts.benchmarks import benchmark_encoders
from scripts.benchmarks.benchmark_encoders import (
    SUBJECTS,
    Shape,
    Subject,
    _egt_block,
    _registered,
    blocks_of,
)

make_layer = partial(_registered, name="edge_attention", attn_bias="slopes")
with_slopes = partial(Subject, pairs=True, slopes=True)


def bonds_of(graph: Any, bias_attr: Any) -> Tensor:
    """Return which edges of the layout are bonds, by the distance."""
    return graph.pairs_to_edges(edge_features(bias_attr))[:, -1] == 1


class BondedSum(nn.Module):
    """Attention, and a linear map of the sum over bonded atoms."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = make_layer(width)
        self.attn_bias = self.attention.attn_bias
        self.lin = nn.Linear(width, width, bias=False)
        nn.init.zeros_(self.lin.weight)

    def forward(self, x: Tensor, graph: Any, edge_attr: Any, bias_attr: Any) -> Tensor:
        """Update atoms in rows."""
        senders, receivers = graph.edge_index[:, bonds_of(graph, bias_attr)]
        nodes = graph.rows_to_nodes(self.lin(x))
        total = scatter(nodes[senders], receivers, 0, len(nodes))
        attended = self.attention(x, graph, edge_attr, bias_attr=bias_attr)
        return attended + graph.nodes_to_rows(total)


class InTurn(nn.Module):
    """Blocks that read bonds and all pairs in turn."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        layers: dict[str, Callable[[], nn.Module]] = {
            "bonds": partial(_registered, shape.width, name="edge_attention"),
            "pairs": partial(make_layer, shape.width),
        }
        self.encoder = Encoder(layers, shape.depth, shape.width, norm=shape.norm)
        block: Any
        for block in self.encoder.blocks:
            block.ff = shape.feed_forward()

    def forward(self, x: Tensor, graph: Any, edge_attr: Any, bias_attr: Any) -> Tensor:
        """Update atoms in rows."""
        bonds, of_bonds = listed_edges(graph, edge_attr, edge_features(bias_attr)[:, -1] == 1)
        graphs = {"bonds": bonds, "pairs": graph}
        edges = {"bonds": of_bonds, "pairs": edge_attr}
        nodes = graph.rows_to_nodes(x)
        return graph.nodes_to_rows(
            self.encoder(nodes, graphs, edges, bias_attr={"pairs": bias_attr})
        )


def with_dropout(shape: Shape, dropout: float = 0.0, source_dropout: float = 0.0) -> Encoder:
    """Return the encoder with slopes, with dropout in its blocks."""
    encoder = blocks_of(make_layer, shape)
    block: Any
    for block in encoder.blocks:
        block.dropout.p = dropout
        block.source_dropout = source_dropout
    return encoder


def egt(shape: Shape) -> Encoder:
    """Return blocks of EGT with slopes."""
    make = partial(_egt_block, norm=shape.norm, attn_bias="slopes")
    return blocks_of(make, shape, updates=True)


CANDIDATES = {
    "TransformerConv": SUBJECTS["TransformerConv"],  # to time both
    "slopes": SUBJECTS["edge_attention, slopes"],
    "updated edges": with_slopes(partial(blocks_of, make_layer, updates=True)),
    "EGT": with_slopes(egt),
    "bonded sum": with_slopes(partial(blocks_of, BondedSum)),
    "in turn": with_slopes(InTurn),
    "dropout": with_slopes(partial(with_dropout, dropout=0.1)),
    "source dropout": with_slopes(partial(with_dropout, source_dropout=0.1)),
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    SUBJECTS.clear()
    SUBJECTS.update(CANDIDATES)
    benchmark_encoders.main()
