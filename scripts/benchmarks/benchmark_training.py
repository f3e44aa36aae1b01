"""Time an epoch of training, collation included, against the same model built from PyG's layer.

Both models embed the same codes of atoms and pairs, stack the same layers and average atoms; one
has molattn's layer on its own batches, the other ``TransformerConv`` on PyG batches of stored
complete graphs. They train on the same molecules in turn, nine batches at a time: alternating at
each batch would empty the caches of both. A plain stack has a normalization and a residual beside
each layer; molattn's blocks have a feed-forward network too,
which costs both models the same.

    python -m scripts.benchmarks.benchmark_training
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Batch, Data
from torch_geometric.nn import TransformerConv, global_mean_pool

from molattn import from_smiles
from molattn.chem import parse_smiles
from molattn.chem.featurizer import Featurizer
from molattn.graph import CodedEdges, MoleculeBatch, collate
from molattn.nn import EdgeAttentionConv
from molattn.nn.embedding import CodeEmbedding, PairEmbedding
from molattn.nn.encoder import Encoder
from scripts.benchmarks.benchmarking import describe, print_table, read_smiles, with_allocator


class Stack(nn.Module):
    """Attention layers as PyG models stack them: layer, normalization, activation, residual.

    Args:
        layer: Makes an attention layer.
        layers: Number of layers.
        channels: Width of nodes.
    """

    def __init__(self, layer: Callable[[], nn.Module], layers: int, channels: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(layer() for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(layers))

    def forward(self, x: Tensor, edge_index: object, edge_attr: object) -> Tensor:
        """Encode nodes ``[N, channels]``."""
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + functional.silu(norm(conv(x, edge_index, edge_attr)))
        return x


class Model(nn.Module):
    """Codes to one number for each molecule.

    Args:
        layer: Makes an attention layer.
        body: ``Stack`` or molattn's ``Encoder``, whose blocks have a feed-forward network too.
        options: Width, number of layers and width of pairs.
    """

    def __init__(
        self, layer: Callable[[], nn.Module], body: Callable, options: argparse.Namespace
    ) -> None:
        super().__init__()
        seen = Featurizer.default()
        self.atoms = CodeEmbedding(seen.atom_sizes, options.width)
        table = torch.tensor(seen.pair_table)
        self.pairs = PairEmbedding(table, seen.pair_sizes, options.edge_width)
        self.encoder = body(layer, options.layers, options.width)
        self.head = nn.Linear(options.width, 1)

    def forward(self, batch: MoleculeBatch | Data) -> Tensor:
        """Predict ``[num_graphs, 1]``."""
        x = self.atoms(batch.x)
        if isinstance(batch, MoleculeBatch):
            graph = batch.layout
            edges = CodedEdges(batch.edge_attr.long(), self.pairs(batch.pair_codes))
            x, index = graph.rows_to_nodes(self.encoder(x, graph, edges)), graph.batch
        else:
            x = self.encoder(x, batch.edge_index, self.pairs(batch.edge_attr))
            index = batch.batch
        return self.head(global_mean_pool(x, index))


class Trainer:
    """A model, how it gets its batches, and the seconds that both have cost.

    Args:
        model: The model.
        collate: Makes the batch of the molecules of the given indices.
    """

    def __init__(self, model: nn.Module, collate: Callable[[Sequence[int]], object]) -> None:
        self.model = model
        self.collate = collate
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        self.seconds = {"collation": 0.0, "training": 0.0}

    def step(self, indices: Sequence[int]) -> None:
        """Train on one batch, towards zero."""
        start = time.perf_counter()
        batch = self.collate(indices)
        collated = time.perf_counter()
        self.optimizer.zero_grad()
        self.model(batch).square().mean().backward()
        self.optimizer.step()
        self.seconds["collation"] += collated - start
        self.seconds["training"] += time.perf_counter() - collated


_TURN = 9
BODIES = {Stack: "plain stack", Encoder: "molattn's blocks"}


def epoch(data: str, body: Callable, options: argparse.Namespace) -> list[list[str]]:
    """Rows of the table: seconds an epoch by each model, and how many times as fast ours is."""
    smiles = read_smiles(data)[: options.molecules]
    featurizer = Featurizer.default()
    records = [featurizer(parse_smiles(text)) for text in smiles]
    graphs = [from_smiles(text, self_loops=True) for text in smiles]
    width, heads, edge_width = options.width, options.heads, options.edge_width
    trainers = {
        "TransformerConv": Trainer(
            Model(
                lambda: TransformerConv(width, width // heads, heads, edge_dim=edge_width),
                body,
                options,
            ),
            lambda indices: Batch.from_data_list([graphs[i] for i in indices]),
        ),
        "molattn": Trainer(
            Model(
                lambda: EdgeAttentionConv(
                    width, width, heads, edge_dim=edge_width, combine="concat"
                ),
                body,
                options,
            ),
            lambda indices: collate([records[i] for i in indices]),
        ),
    }
    order = np.random.default_rng(options.seed)
    spent: dict[str, list[dict[str, float]]] = {name: [] for name in trainers}
    for _ in range(options.epochs):
        batches = np.array_split(order.permutation(len(smiles)), -(-len(smiles) // 64))
        for turn in range(0, len(batches), _TURN):
            for trainer in trainers.values():
                for indices in batches[turn : turn + _TURN]:
                    trainer.step(indices.tolist())
        for name, trainer in trainers.items():
            spent[name].append(trainer.seconds)
            trainer.seconds = dict.fromkeys(trainer.seconds, 0.0)
    total = {n: statistics.median(sum(s.values()) for s in e) for n, e in spent.items()}
    made = {n: statistics.median(s["collation"] for s in e) for n, e in spent.items()}
    return [
        [
            f"{describe(data)}, {len(smiles)} molecules",
            BODIES[body],
            name,
            f"{total[name]:.2f}",
            f"{made[name]:.2f}",
            f"{total['TransformerConv'] / total[name]:.2f}",
        ]
        for name in trainers
    ]


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=["lipo", "esol"], help="datasets")
    parser.add_argument("--molecules", type=int, help="at most so many molecules of each")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--edge-width", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=3, help="epochs behind each median")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--allocator", choices=["steady", "default"], default="steady")
    options = parser.parse_args()
    allocator = with_allocator(options.allocator)
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    print(
        f"torch {torch.__version__}, {options.threads} thread(s); allocator: {allocator}\n"
        f"{options.layers} layers of width {options.width}, {options.heads} heads, "
        f"batches of 64; medians of {options.epochs} epochs\n"
    )
    rows = [row for data in options.sets for body in BODIES for row in epoch(data, body, options)]
    header = ["data", "model", "layer", "epoch, s", "of it collation, s", "x"]
    print_table(header, rows)


if __name__ == "__main__":
    main()
