r"""Compare attention layers of molattn and layers of PyG: error, time and parameters.

All networks have the same encoder (pre-norm blocks with a feed-forward network), the number of
parameters nearest to a budget, the same inputs, schedule and seeds. Layers of molattn read all
pairs of atoms, with the bond and the number of bonds between them; layers of PyG, edge set
attention and "edge_attention, bonds" read bonds.

    python -m scripts.benchmarks.benchmark_layers --data esol lipo --epochs 50 \
        --results runs/layers.csv
    python -m scripts.benchmarks.benchmark_layers --zinc data/zinc --data zinc \
        --results runs/layers.csv
    python -m scripts.benchmarks.benchmark_layers --results runs/layers.csv --table \
        --plot layers.png

The folder of ZINC has test.txt and valid.txt of wengong-jin/icml18-jtnn (data/zinc), and test.index
and val.index of graphdeeplearning/benchmarking-gnns (data/molecules). The official 1,000 molecules
are the test; 10,000 others of valid.txt are for training, because the official ones are not to be
had. Labels are logP - SA - cycles, each standardized as for the official ones.
"""

import argparse
import csv
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torch_geometric import nn as pyg
from torch_geometric.data import Batch, Data
from torch_geometric.nn import global_add_pool

from molattn import from_smiles
from molattn.chem import Featurizer
from molattn.data.table import bundled_dataset
from molattn.graph import collate_complete
from molattn.model.network import pair_walks
from molattn.nn import (
    LAYERS,
    PMA,
    CodeEmbedding,
    EdgeSetAttention,
    Encoder,
    GraphTransformerBlock,
    TripletAggregate,
)
from scripts.benchmarks.benchmarking import SHARED, print_table

HEADS, DEPTH, EDGE_WIDTH, BATCH = 8, 4, 16, 64
COLUMNS = ("data", "layer", "seed", "parameters", "width", "test_mae", "val_mae", "epoch", "cpu_s")
# Means and standard deviations of logP, of minus the SA score, and of minus the excess of the
# largest ring over six atoms, in the 250,000 molecules of ZINC (You et al. 2018).
ZINC_SCALES = ((2.4570953, 1.4341), (-3.0525811, 0.8335), (-0.0485696, 0.2860))


@dataclass(frozen=True)
class Subject:
    """A layer, and the graphs that it reads."""

    make: Callable[[int], nn.Module]  # of the width: a layer or block of the encoder
    pairs: bool = True
    whole: bool = False  # makes all that is between embeddings and head
    degree: bool = False  # reads the number of bonds of each atom
    fixed: bool = False  # reads distance and bond of each pair, without embedding them
    walk_length: int = 0  # of the random walks of pairs and atoms


def attention(name: str, pairs: bool = True, walk_length: int = 0, **options: Any) -> Subject:
    """A registered layer of molattn."""
    layer = LAYERS[name]
    edge_dim = len(layer.edge_columns) or EDGE_WIDTH
    make = partial(layer.make, heads=HEADS, edge_dim=edge_dim, **options)
    return Subject(
        lambda w: make(w, w),
        pairs=pairs,
        degree=layer.reads_degree,
        fixed=bool(layer.edge_columns),
        walk_length=walk_length,
    )


def _transformer(w: int) -> nn.Module:
    return pyg.TransformerConv(w, w // HEADS, HEADS, edge_dim=EDGE_WIDTH)


def _gatv2(w: int) -> nn.Module:
    return pyg.GATv2Conv(w, w // HEADS, HEADS, edge_dim=EDGE_WIDTH)


def _gine(w: int) -> nn.Module:
    mlp = nn.Sequential(nn.Linear(w, w), nn.SiLU(), nn.Linear(w, w))
    return pyg.GINEConv(mlp, edge_dim=EDGE_WIDTH)


def _pna(w: int) -> nn.Module:
    degrees = torch.tensor([0, 25, 40, 25, 10])  # of 100 atoms
    scalers = ["identity", "amplification", "attenuation"]
    return pyg.PNAConv(w, w, ["mean", "max", "min", "std"], scalers, degrees, EDGE_WIDTH)


class _GPS(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        make: Any = _gine
        blocks = (pyg.GPSConv(width, make(width), HEADS, norm="layer_norm") for _ in range(DEPTH))
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor, edge_index: Tensor, e: Tensor, batch: Tensor) -> Tensor:
        block: Any
        for block in self.blocks:
            x = block(x, edge_index, batch, edge_attr=e)
        return global_add_pool(x, batch) / 20


class _EdgeSet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.encode: Any = EdgeSetAttention(width, width, HEADS, edge_dim=EDGE_WIDTH, blocks="MMS")
        self.pool = PMA(width, HEADS, num_seeds=16)

    def forward(self, x: Tensor, edge_index: Tensor, e: Tensor, batch: Tensor) -> Tensor:
        edges = self.encode(x, edge_index, e, batch)
        return self.pool(edges, batch[edge_index[0]], dim_size=int(batch[-1]) + 1)


def _tgt(w: int) -> nn.Module:
    conv = LAYERS["egt"].make(w, w, HEADS, edge_dim=EDGE_WIDTH, update_edges=True)
    return GraphTransformerBlock(conv, w, EDGE_WIDTH, triplet=TripletAggregate(EDGE_WIDTH, 4))


SUBJECTS = {
    "edge_attention": attention("edge_attention"),
    "edge_attention, bonds": attention("edge_attention", pairs=False),
    "edge_attention, updates": attention("edge_attention", update_edges=True),
    "gaan": attention("gaan"),
    "mat": attention("mat"),
    "graph_network": attention("graph_network", update_edges=True),
    "egt": attention("egt", update_edges=True),
    "grit": attention("grit", update_edges=True),
    "grit, walks": attention("grit", walk_length=16, update_edges=True),
    "egt, triplets": Subject(_tgt),
    "edge set": Subject(_EdgeSet, pairs=False, whole=True),
    "TransformerConv": Subject(_transformer, pairs=False),
    "GATv2Conv": Subject(_gatv2, pairs=False),
    "GINEConv": Subject(_gine, pairs=False),
    "PNAConv": Subject(_pna, pairs=False),
    "GPSConv": Subject(_GPS, pairs=False, whole=True),
}


def distance_and_bond(codes: Tensor) -> Tensor:
    """Distances of pairs in bonds, and 1 for bonded atoms and an atom with itself, ``[P, 2]``."""
    distance = codes[:, -1]  # the first code is the kind of bond, 0 = none
    return torch.stack([distance, (codes[:, 0] > 0) | (distance == 0)], dim=1).float()


class Network(nn.Module):
    """Embeddings, four blocks, the sum over atoms, and a head."""

    def __init__(self, subject: Subject, width: int) -> None:
        super().__init__()
        codes = Featurizer.default()
        self.subject = subject
        self.atoms = CodeEmbedding(codes.atom_sizes, width)
        self.edges: Any = distance_and_bond
        if not subject.fixed:
            self.edges = CodeEmbedding(codes.pair_sizes, EDGE_WIDTH)
        maps = (nn.Linear(subject.walk_length, w) for w in (width, EDGE_WIDTH))
        self.walks = nn.ModuleList(maps if subject.walk_length else ())
        make = partial(subject.make, width)
        self.encoder: Any = make() if subject.whole else Encoder(make, DEPTH, width)
        self.head = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, batch: Any) -> Tensor:
        """Predict standardized labels, ``[num_graphs]``."""
        x = self.atoms(batch.x)
        if self.subject.pairs:
            graph, pairs = batch.layout, batch.pair_attr
            edges: Any = replace(pairs, table=self.edges(pairs.table))
            rows, options = graph.nodes_to_rows(x), {}
            # The first code of a bonded pair is its kind, that of others 0.
            bonds = replace(pairs, table=(pairs.table[:, :1] > 0).float()).dense()[:, 0]
            if self.subject.degree:
                options["degree"] = graph.pairs_to_receivers(bonds)
            if self.subject.walk_length:
                walks = pair_walks(graph, bonds, self.subject.walk_length)
                rows = rows + self.walks[0](graph.pairs_to_receivers(walks * walks[:, :1]))
                edges = edges.dense() + self.walks[1](walks)
            x = graph.rows_to_nodes(self.encoder(rows, graph, edges, **options))
        else:
            inputs = x, batch.edge_index, self.edges(batch.edge_attr)
            if self.subject.whole:
                return self.head(self.encoder(*inputs, batch.batch)).flatten()
            x = self.encoder(*inputs)
        return self.head(global_add_pool(x, batch.batch, batch.num_graphs) / 20).flatten()


def parameters(model: nn.Module) -> int:
    """Number of trained parameters."""
    return sum(p.numel() for p in model.parameters())


def width_within(subject: Subject, budget: int) -> int:
    """The width, a multiple of the heads, whose network has most parameters within the budget."""
    widths = range(HEADS, 512, HEADS)
    within = [w for w in widths if parameters(Network(subject, w)) <= budget]
    return max(within, default=HEADS)


# Data.


def zinc_label(smiles: str) -> float:
    """The penalized logP of the benchmark."""
    from rdkit import Chem
    from rdkit.Chem.Crippen import MolLogP  # pyright: ignore[reportAttributeAccessIssue]
    from rdkit.Contrib.SA_Score import sascorer  # pyright: ignore[reportMissingImports]

    mol = Chem.MolFromSmiles(smiles)
    rings = [len(ring) for ring in mol.GetRingInfo().AtomRings()]
    values = (
        MolLogP(mol),
        -sascorer.calculateScore(mol),
        -max(0, max(rings, default=0) - 6),
    )
    return sum((v - mean) / std for v, (mean, std) in zip(values, ZINC_SCALES, strict=True))


def read_zinc(folder: Path, rows: int) -> Iterator[tuple[list[str], list[float]]]:
    """Training, validation and test molecules of ZINC."""
    pools = {name: (folder / f"{name}.txt").read_text().split() for name in ("test", "valid")}
    chosen = {
        name: [int(i) for i in (folder / f"{name}.index").read_text().split(",")]
        for name in ("test", "val")
    }
    rest = sorted({*range(len(pools["valid"]))} - {*chosen["val"]})
    train = np.random.default_rng(0).permutation(rest)[:10_000]
    for pool, index in (("valid", train), ("valid", chosen["val"]), ("test", chosen["test"])):
        smiles = [pools[pool][i] for i in index[:rows]]
        yield smiles, [zinc_label(text) for text in smiles]


def read_csv(name: str, rows: int) -> Iterator[tuple[list[str], list[float]]]:
    """Parts of a data set beside the checkout (its first random split), or of the bundled set."""
    path, splits = SHARED / f"{name}.csv", SHARED / "splits" / f"{name}.json"
    if path.is_file():
        table = pd.read_csv(path)
        split = json.loads(splits.read_text())["random"][0]
        parts = [split["train"], split["val"], split["test"]]
    else:
        table = pd.read_csv(bundled_dataset())[["smiles", "logS"]]
        order = np.random.default_rng(0).permutation(len(table))
        parts = np.split(order, [int(0.8 * len(order)), int(0.9 * len(order))])
    label = next(column for column in table if column != "smiles")
    for part in parts:
        chosen = table.iloc[part[:rows]]
        yield chosen["smiles"].tolist(), chosen[label].tolist()


@cache
def load(name: str, zinc: Path | None, rows: int, pairs: bool) -> tuple[list[Data], ...]:
    """Graphs of the three parts."""
    read = read_csv(name, rows) if name != "zinc" or zinc is None else read_zinc(zinc, rows)
    parts = []
    for smiles, labels in read:
        graphs = [from_smiles(text, pairs="all" if pairs else "bonds") for text in smiles]
        for graph, label in zip(graphs, labels, strict=True):
            graph.y = torch.tensor([label], dtype=torch.float32)
        parts.append(graphs)
    return tuple(parts)


# Training.


def loader(graphs: Any, subject: Subject, shuffle: bool) -> DataLoader:
    """Batches with what the layer reads."""
    collate: Any = collate_complete if subject.pairs else Batch.from_data_list
    return DataLoader(graphs, BATCH if shuffle else 256, shuffle=shuffle, collate_fn=collate)


def measure(model: nn.Module, batches: DataLoader, mean: float, std: float) -> float:
    """Mean absolute error in the unit of the labels."""
    model.eval()
    with torch.no_grad():
        errors = [(model(batch) * std + mean - batch.y).abs() for batch in batches]
    model.train()
    return float(torch.cat(errors).mean())


def train(subject: Subject, width: int, parts: Any, seed: int, epochs: int) -> dict[str, Any]:
    """Train once; scores of the epoch with the least validation error."""
    torch.manual_seed(seed)
    model = Network(subject, width)
    fit, val, test = (loader(part, subject, number == 0) for number, part in enumerate(parts))
    labels = torch.cat([graph.y for graph in parts[0]])
    mean, std = float(labels.mean()), float(labels.std())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-5)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, epochs * len(fit))
    best, begun = {"val_mae": math.inf}, time.process_time()
    for epoch in range(1, epochs + 1):
        for batch in fit:
            optimizer.zero_grad()
            nn.functional.l1_loss(model(batch), (batch.y - mean) / std).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        error = measure(model, val, mean, std)
        if error < best["val_mae"]:
            best = {"val_mae": error, "epoch": epoch, "test_mae": measure(model, test, mean, std)}
    seconds = round(time.process_time() - begun, 1)
    return {**best, "parameters": parameters(model), "width": width, "cpu_s": seconds}


# Results.


def show(results: pd.DataFrame, plot: Path | None) -> None:
    """Print a table for each data set, and draw errors against time and parameters."""
    for data, of_data in results.groupby("data", sort=False):
        print(f"\n{data}: test MAE, mean of seeds\n")
        rows = []
        for layer, runs in of_data.groupby("layer", sort=False):
            spread = f" ± {runs['test_mae'].std():.3f}" if len(runs) > 1 else ""
            numbers = (f"{runs[name].mean():,.0f}" for name in ("parameters", "cpu_s"))
            rows.append([str(layer), f"{runs['test_mae'].mean():.3f}{spread}", *numbers])
        print_table(["Layer", "Test MAE", "Parameters", "CPU s"], rows)
    if plot is not None:
        draw(results, plot)


def draw(results: pd.DataFrame, plot: Path) -> None:
    """Draw errors against time and parameters."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    names = sorted(results["data"].unique())
    labels = {"cpu_s": "CPU seconds of training", "parameters": "parameters"}
    size = (5 * len(names), 7)
    figure, axes = plt.subplots(2, len(names), figsize=size, layout="constrained", squeeze=False)
    for place, name in enumerate(names):
        means = results[results["data"] == name].groupby("layer").mean(numeric_only=True)
        for axis, (column, label) in zip(axes[:, place], labels.items(), strict=True):
            for layer, run in means.iterrows():
                own = "Conv" not in str(layer)
                at = run[column], run["test_mae"]
                axis.scatter(*at, color="tab:blue" if own else "tab:gray")
                offset = {"xytext": (3, 3), "textcoords": "offset points"}
                axis.annotate(str(layer), at, fontsize=7, **offset)
            axis.margins(x=0.35)
            axis.set(xlabel=label, ylabel="test MAE", title=name.upper())
        axes[1, place].xaxis.set_major_locator(MaxNLocator(5))
        axes[0, place].set_xscale("log")
        axes[0, place].xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes[0, place].xaxis.set_major_formatter("{x:.0f}")
        axes[0, place].xaxis.set_minor_formatter(NullFormatter())
    figure.savefig(plot, dpi=110)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=[], help="zinc, esol, lipo, ...")
    parser.add_argument("--zinc", type=Path, help="folder of ZINC")
    parser.add_argument("--layers", nargs="+", choices=SUBJECTS, default=[*SUBJECTS])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--budget", type=int, default=100_000, help="parameters")
    parser.add_argument("--rows", type=int, default=10_000, help="of each part, at most")
    parser.add_argument("--results", type=Path, required=True, help="CSV; runs in it are skipped")
    parser.add_argument("--table", action="store_true", help="print the results")
    parser.add_argument("--plot", type=Path, help="draw the results")
    options = parser.parse_args(arguments)

    torch.set_num_threads(1)
    if not options.results.is_file():
        options.results.write_text(",".join(COLUMNS) + "\n")
    done = pd.read_csv(options.results)
    known = {*zip(done["data"], done["layer"], done["seed"], strict=True)}
    for data in options.data:
        for name in options.layers:
            subject = SUBJECTS[name]
            for seed in options.seeds:
                if (data, name, seed) in known:
                    continue
                parts = load(data, options.zinc, options.rows, subject.pairs)
                width = width_within(subject, options.budget)
                run = train(subject, width, parts, seed, options.epochs)
                row = {"data": data, "layer": name, "seed": seed, **run}
                with options.results.open("a", newline="") as file:
                    csv.writer(file).writerow([row[name] for name in COLUMNS])
                print(f"{data} {name} seed {seed}: test MAE {run['test_mae']:.3f}", flush=True)
    if options.table or options.plot:
        show(pd.read_csv(options.results), options.plot)


if __name__ == "__main__":
    main()
