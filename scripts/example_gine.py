"""A stock PyG GINE on the bundled solubility set gains attention over all atom pairs in 6 lines.

The lines marked ``# +`` are all that the stock model lacks: without them the file is a plain GINE.
Both models train for a short while from the same seed; the test errors are printed.
"""

import argparse
from collections.abc import Sequence
from typing import Any

import pandas as pd
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINEConv, global_add_pool
from torch_geometric.utils import from_smiles

from molattn.data.table import bundled_dataset
from molattn.graph import CompleteGraphs  # +
from molattn.nn import EdgeAttentionConv  # +


class GINE(nn.Module):
    """GINE over bonds, sum over atoms, one number for each molecule."""

    def __init__(self, attention: bool, width: int = 64, layers: int = 3) -> None:
        super().__init__()
        self.atoms = nn.ModuleList(nn.Embedding(128, width) for _ in range(9))
        self.bonds = nn.ModuleList(nn.Embedding(32, width) for _ in range(3))
        self.convs = nn.ModuleList(
            GINEConv(nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)))
            for _ in range(layers)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        self.attention = EdgeAttentionConv(width, width, heads=4) if attention else None  # +

    def forward(self, data: Any) -> torch.Tensor:
        """Predict, ``[num_graphs]``."""
        x = embed(self.atoms, data.x)
        e = embed(self.bonds, data.edge_attr)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + norm(conv(x, data.edge_index, e)).relu()
        if self.attention is not None:  # +
            pairs = CompleteGraphs(data.ptr.diff().tolist())  # +
            x = x + pairs.rows_to_nodes(self.attention(pairs.nodes_to_rows(x), pairs))  # +
        return self.head(global_add_pool(x, data.batch, data.num_graphs)).flatten()


def embed(tables: nn.ModuleList, codes: torch.Tensor) -> torch.Tensor:
    """Add up the embeddings of each column of codes."""
    parts = [table(code) for table, code in zip(tables, codes.t(), strict=True)]
    return torch.stack(parts).sum(dim=0)


def molecules(smiles: Sequence[str], labels: Sequence[float]) -> list[Data]:
    """Turn SMILES and labels into PyG's graphs."""
    graphs = [from_smiles(text) for text in smiles]
    for graph, label in zip(graphs, labels, strict=True):
        graph.y = torch.tensor([label])
    return graphs


def train(model: nn.Module, train: list[Data], test: list[Data], epochs: int) -> float:
    """Train, and return the root mean squared error of the test molecules."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    loader = DataLoader(train, batch_size=32, shuffle=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, epochs * len(loader))
    for _ in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(batch), batch.y).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    model.eval()
    with torch.no_grad():
        errors = torch.cat([model(batch) - batch.y for batch in DataLoader(test, batch_size=64)])
    return float(errors.square().mean().sqrt())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=25, help="epochs (default: %(default)s)")
    parser.add_argument("--rows", type=int, help="use so many rows of each part only")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")
    options = parser.parse_args(arguments)

    torch.set_num_threads(1)
    table = pd.read_csv(bundled_dataset())
    is_train = table["split"] == "train"
    fit, test = (
        molecules(part["smiles"].tolist(), part["logS"].tolist())
        for part in (table[is_train][: options.rows], table[~is_train][: options.rows])
    )
    for attention in (False, True):
        torch.manual_seed(options.seed)
        error = train(GINE(attention), fit, test, options.epochs)
        name = "GINE with attention" if attention else "GINE"
        print(f"{name}: test RMSE {error:.3f} log mol/L")


if __name__ == "__main__":
    main()
