"""A PyG model of attention over all pairs of atoms, trained on the bundled solubility set.

Everything that a network of your own needs is in this file: graphs of SMILES, batches with the
layout of complete graphs, embeddings of atoms and of kinds of pairs, four blocks of attention, and
a readout.
"""

import argparse
from collections.abc import Sequence
from typing import Any

import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader
from torch_geometric.nn import global_add_pool

from molattn import from_smiles
from molattn.chem import Featurizer
from molattn.data.table import bundled_dataset
from molattn.graph import collate_complete
from molattn.nn import LAYERS, CodeEmbedding, Encoder


class Network(nn.Module):
    """Attention over all pairs of atoms, sum over atoms, one number for each molecule."""

    def __init__(self, layer: str, width: int = 64, edge_width: int = 16, layers: int = 4) -> None:
        super().__init__()
        codes = Featurizer.default()
        self.atoms = CodeEmbedding(codes.atom_sizes, width)
        self.pairs = CodeEmbedding(codes.pair_sizes, edge_width)
        make = LAYERS[layer].make
        self.encoder = Encoder(lambda: make(width, width, 8, edge_dim=edge_width), layers, width)
        self.head = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, batch: Any) -> torch.Tensor:
        """Predict, ``[num_graphs]``."""
        x = self.encoder(self.atoms(batch.x), batch.layout, self.pairs(batch.pair_attr))
        x = global_add_pool(x, batch.batch, batch.num_graphs)
        return self.head(x / 16).flatten()  # a molecule has some 16 atoms


def molecules(table: pd.DataFrame) -> Any:
    """Turn SMILES and labels into graphs."""
    graphs = [from_smiles(text) for text in table["smiles"]]
    for graph, label in zip(graphs, table["logS"], strict=True):
        graph.y = torch.tensor([label], dtype=torch.float32)
    return graphs


def train(model: nn.Module, graphs: Any, epochs: int) -> None:
    """Train with AdamW and one cycle of the learning rate."""
    loader = DataLoader(graphs, batch_size=32, shuffle=True, collate_fn=collate_complete)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, epochs * len(loader))
    for epoch in range(1, epochs + 1):
        total = 0.0
        for batch in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(batch), batch.y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total += loss.item() * batch.num_graphs
        print(f"epoch {epoch}: training loss {total / len(graphs):.3f}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    layers = [name for name, layer in LAYERS.items() if not layer.edge_columns]
    parser.add_argument("--layer", default="edge_attention", choices=layers)
    parser.add_argument("--epochs", type=int, default=25, help="epochs (default: %(default)s)")
    parser.add_argument("--rows", type=int, help="use so many rows of each part only")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")
    options = parser.parse_args(arguments)

    torch.manual_seed(options.seed)
    table = pd.read_csv(bundled_dataset())
    is_train = table["split"] == "train"
    model = Network(options.layer)
    train(model, molecules(table[is_train][: options.rows]), options.epochs)

    test = molecules(table[~is_train][: options.rows])
    model.eval()
    with torch.no_grad():
        loader = DataLoader(test, batch_size=64, collate_fn=collate_complete)
        errors = torch.cat([model(batch) - batch.y for batch in loader])
    print(f"test RMSE {float(errors.square().mean().sqrt()):.3f} log mol/L")


if __name__ == "__main__":
    main()
