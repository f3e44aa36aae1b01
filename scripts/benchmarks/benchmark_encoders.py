r"""Compare encoders with the same inputs, norms, depths and number of parameters: errors, time.

Ten encoders get embeddings of atoms and bonds, random walks of 16 steps at the atoms, the sum over
atoms and a head. The width of the feed-forward networks brings each to 100,000 parameters. Norm and
depth of each are chosen by the validation error of the first fold of Lipophilicity.

    python -m scripts.benchmarks.benchmark_encoders --data lipo --folds 0 --norms layer batch \
        --results runs/encoders.jsonl
    python -m scripts.benchmarks.benchmark_encoders --data esol lipo --folds 0 1 2 \
        --results runs/encoders.jsonl
    python -m scripts.benchmarks.benchmark_encoders --results runs/encoders.jsonl --table

Runs in the results are skipped, so a command that was stopped goes on where it was. Without
--norms, each encoder has the norm and depth that were best so far. Five folds test each molecule
once. ZINC: see benchmark_layers.py; its folds are seeds.
"""

import argparse
import copy
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.data import Batch, Data
from torch_geometric.nn import MessagePassing, global_add_pool
from torch_geometric.transforms import AddRandomWalkPE
from torch_geometric.utils import scatter

from molattn import from_smiles
from molattn.chem import Featurizer
from molattn.data.table import bundled_dataset
from molattn.graph import collate_complete
from molattn.nn import LAYERS, CodeEmbedding, Encoder, GraphTransformerBlock
from scripts.benchmarks.benchmark_layers import parameters, read_zinc
from scripts.benchmarks.benchmarking import SHARED, print_table

LABELS = {"solubility": "logS", "esol": "logS", "lipo": "logD"}
HEADS, EDGE_WIDTH, WALK_LENGTH, BATCH, FOLDS = 8, 16, 16, 64, 5
DEFAULT_SHAPE = ("layer", 4)  # norm and depth before a choice
CLASSIC_DROPOUT = 0.05
EPOCHS_OF_BATCHES = 5  # molecules are put into other batches every so many epochs

Norm = Callable[[int], nn.Module]
NORMS: dict[str, Norm] = {"layer": nn.LayerNorm, "batch": nn.BatchNorm1d}


@dataclass(frozen=True)
class Shape:
    """Width, depth and norm of an encoder, and the hidden width of its feed-forward networks."""

    width: int
    hidden: int
    depth: int
    norm: str

    def feed_forward(self) -> nn.Sequential:
        """Make a feed-forward network."""
        first = nn.Linear(self.width, self.hidden)
        return nn.Sequential(first, nn.SiLU(), nn.Linear(self.hidden, self.width))

    def make_norm(self) -> nn.Module:
        """Make a norm of atoms."""
        return NORMS[self.norm](self.width)


@dataclass(frozen=True)
class Subject:
    """An encoder, and the graphs that it reads.

    Args:
        make: Returns the encoder of a shape.
        pairs: Whether it reads all pairs of atoms; otherwise bonds.
        slopes: Whether its layers read the number of bonds between two atoms.
        wide_edges: Whether edges are as wide as atoms.
    """

    make: Callable[[Shape], nn.Module]
    pairs: bool = False
    slopes: bool = False
    wide_edges: bool = False


def blocks_of(make: Callable[..., nn.Module], shape: Shape, updates: bool = False) -> Encoder:
    """Stack pre-norm blocks around a layer of a width, or blocks."""
    make_last = partial(make, shape.width, update_edges=False) if updates else None
    make_conv = (
        partial(make, shape.width, update_edges=True) if updates else partial(make, shape.width)
    )
    encoder = Encoder(make_conv, shape.depth, shape.width, norm=shape.norm, make_last=make_last)
    block: Any
    for block in encoder.blocks:
        block.ff = shape.feed_forward()
    return encoder


def _registered(width: int, name: str, **options: Any) -> nn.Module:
    options |= {"edge_dim": EDGE_WIDTH, "root_weight": False}
    return LAYERS[name].make(width, width, HEADS, **options)


def registered(name: str, pairs: bool = True, updates: bool = False, **options: Any) -> Subject:
    """Describe an encoder of a registered layer of molattn."""
    make = partial(_registered, name=name, **options)
    slopes = options.get("attn_bias") == "slopes"
    return Subject(lambda shape: blocks_of(make, shape, updates), pairs, slopes)


def _egt_block(width: int, norm: str, update_edges: bool, **options: Any) -> nn.Module:
    conv = _registered(width, "egt", update_edges=update_edges, **options)
    return GraphTransformerBlock(conv, width, EDGE_WIDTH, update_edges=update_edges, norm=norm)


def _egt(shape: Shape) -> Encoder:
    return blocks_of(partial(_egt_block, norm=shape.norm), shape, updates=True)


def _transformer(width: int) -> nn.Module:
    return pyg.TransformerConv(width, width // HEADS, HEADS, edge_dim=EDGE_WIDTH)


def _gatv2(width: int) -> nn.Module:
    return pyg.GATv2Conv(width, width // HEADS, HEADS, edge_dim=EDGE_WIDTH)


def _gine(width: int, edge_dim: int = EDGE_WIDTH) -> Any:
    mlp = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
    return pyg.GINEConv(mlp, edge_dim=edge_dim)


class GPS(nn.Module):
    """Blocks of PyG's GPSConv, with GINE over bonds beside attention over all atoms."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        norm = f"{shape.norm}_norm"
        options = {"norm": norm, "norm_kwargs": {"mode": "node"} if norm == "layer_norm" else None}
        makers = (
            pyg.GPSConv(shape.width, _gine(shape.width), HEADS, **options)
            for _ in range(shape.depth)
        )
        self.blocks = nn.ModuleList(makers)
        for block in self.blocks:
            block.mlp = shape.feed_forward()

    def forward(self, x: Tensor, edge_index: Tensor, e: Tensor, batch: Tensor) -> Tensor:
        """Encode atoms ``[N, width]``."""
        for block in self.blocks:
            x = block(x, edge_index, batch, edge_attr=e)
        return x


class GatedGCN(MessagePassing):
    """The gated graph convolution with updated edges (Bresson and Laurent 2018)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.lin_nodes = nn.Linear(width, 4 * width)
        self.lin_edges = nn.Linear(width, width)

    def forward(self, x: Tensor, edge_index: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
        """Update atoms and edges, without residual connections."""
        root, message, receiver, sender = self.lin_nodes(x).chunk(4, dim=1)
        senders, receivers = edge_index
        edges = receiver[receivers] + sender[senders] + self.lin_edges(e)
        gates = edges.sigmoid()
        total = scatter(gates * message[senders], receivers, 0, len(x))
        return root + total / (scatter(gates, receivers, 0, len(x)) + 1e-6), edges


class ClassicBlock(nn.Module):
    """Convolution, norm, activation, dropout, residual connection, and a feed-forward network.

    In the order of Luo et al. 2025, "Can Classic GNNs Be Strong Baselines for Graph-level Tasks?".
    """

    def __init__(self, conv: nn.Module, shape: Shape) -> None:
        super().__init__()
        self.conv = conv
        self.norm = shape.make_norm()
        self.norm_edges = shape.make_norm() if isinstance(conv, GatedGCN) else None
        self.norm_before = shape.make_norm()
        self.norm_after = shape.make_norm()
        self.ff = shape.feed_forward()
        self.dropout = nn.Dropout(CLASSIC_DROPOUT)

    def forward(self, x: Tensor, edge_index: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
        """Update atoms, and edges where the convolution does."""
        update = self.conv(x, edge_index, e)
        if self.norm_edges is not None:
            update, edges = update
            e = e + self.dropout(self.norm_edges(edges).relu())
        x = self.norm_before(x + self.dropout(self.norm(update).relu()))
        return self.norm_after(x + self.dropout(self.ff(x))), e


class Classic(nn.Module):
    """Classic blocks over bonds."""

    def __init__(self, make: Callable[[int], nn.Module], shape: Shape) -> None:
        super().__init__()
        blocks = (ClassicBlock(make(shape.width), shape) for _ in range(shape.depth))
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor, edge_index: Tensor, e: Tensor) -> Tensor:
        """Encode atoms ``[N, width]``."""
        for block in self.blocks:
            x, e = block(x, edge_index, e)
        return x


SUBJECTS = {
    "edge_attention, slopes": registered("edge_attention", attn_bias="slopes"),
    "edge_attention": registered("edge_attention"),
    "edge_attention, bonds": registered("edge_attention", pairs=False),
    "TransformerConv": Subject(partial(blocks_of, _transformer)),
    "GATv2Conv": Subject(partial(blocks_of, _gatv2)),
    "GINE, classic": Subject(partial(Classic, _gine)),
    "GatedGCN, classic": Subject(partial(Classic, GatedGCN), wide_edges=True),
    "GPSConv": Subject(GPS),
    "graph_network": registered("graph_network", updates=True),
    "egt": Subject(_egt, pairs=True),
}


class Network(nn.Module):
    """Embeddings, an encoder, the sum over atoms, and a head."""

    def __init__(self, subject: Subject, shape: Shape) -> None:
        super().__init__()
        featurizer = Featurizer.default()
        self.subject = subject
        self.atoms = CodeEmbedding(featurizer.atom_sizes, shape.width)
        self.walks = nn.Linear(WALK_LENGTH, shape.width)
        edge_width = shape.width if subject.wide_edges else EDGE_WIDTH
        self.edges = CodeEmbedding(featurizer.pair_sizes, edge_width)
        self.encoder: Any = subject.make(shape)
        self.head = nn.Sequential(
            nn.Linear(shape.width, shape.width), nn.SiLU(), nn.Linear(shape.width, 1)
        )

    def forward(self, batch: Any) -> Tensor:
        """Predict standardized labels, ``[num_graphs]``."""
        x = self.atoms(batch.x) + self.walks(batch.walks)
        if self.subject.pairs:
            graph = batch.layout
            pairs = batch.pair_attr
            edges: Any = replace(pairs, table=self.edges(pairs.table))
            options = {}
            if self.subject.slopes:  # the last code is the number of bonds
                options["bias_attr"] = replace(pairs, table=pairs.table[:, -1:].float())
            x = graph.rows_to_nodes(self.encoder(graph.nodes_to_rows(x), graph, edges, **options))
        else:
            more = (batch.batch,) if isinstance(self.encoder, GPS) else ()
            x = self.encoder(x, batch.edge_index, self.edges(batch.edge_attr), *more)
        return self.head(global_add_pool(x, batch.batch, batch.num_graphs) / 20).flatten()


def shape_within(subject: Subject, budget: int, depth: int, norm: str) -> Shape:
    """Return the shape with the parameters nearest to a budget.

    The width is the multiple of the heads at which the feed-forward networks are nearest to twice
    as wide.
    """
    shapes = []
    for width in range(2 * HEADS, 128, HEADS):
        narrow = Shape(width, 1, depth, norm)
        fixed = parameters(Network(subject, narrow))
        of_one = parameters(Network(subject, replace(narrow, hidden=2))) - fixed
        hidden = 1 + round((budget - fixed) / of_one)
        if hidden > 0:
            shapes.append(replace(narrow, hidden=hidden))
    return min(shapes, key=lambda shape: abs(math.log(shape.hidden / shape.width / 2)))


# Data.


def read_folds(name: str, fold: int, rows: int) -> Iterator[tuple[list[str], list[float]]]:
    """Yield training, validation and test molecules of a fold: 70, 10 and 20% of a table."""
    path = bundled_dataset() if name == "solubility" else SHARED / f"{name}.csv"
    table = pd.read_csv(path)[["smiles", LABELS[name]]]
    order = np.random.default_rng(0).permutation(len(table))[:rows]
    parts = np.array_split(order, 2 * FOLDS)
    parts = [*parts[2 * fold :], *parts[: 2 * fold]]  # test, validation, training
    for index in (np.concatenate(parts[3:]), parts[2], np.concatenate(parts[:2])):
        molecules = table.iloc[index]
        yield molecules["smiles"].tolist(), molecules[LABELS[name]].tolist()


@cache
def load(name: str, zinc: Path | None, fold: int, rows: int, pairs: bool) -> tuple[list[Data], ...]:
    """Return the graphs of the three parts."""
    read = read_zinc(zinc, rows) if name == "zinc" and zinc else read_folds(name, fold, rows)
    walks = AddRandomWalkPE(WALK_LENGTH, "walks")
    parts = []
    for smiles, labels in read:
        graphs = []
        for text, label in zip(smiles, labels, strict=True):
            graph: Any = from_smiles(text, pairs="all" if pairs else "bonds")
            bonds = graph if not pairs else from_smiles(text, pairs="bonds")
            graph.walks = walks(Data(edge_index=bonds.edge_index, num_nodes=bonds.num_nodes)).walks
            graph.y = torch.tensor([label], dtype=torch.float32)
            graphs.append(graph)
        parts.append(graphs)
    return tuple(parts)


# Training.


def batches_of(graphs: Sequence[Data], subject: Subject, size: int) -> list[Any]:
    """Put graphs into batches in a random order."""
    collate: Any = collate_complete if subject.pairs else Batch.from_data_list
    order = torch.randperm(len(graphs)).tolist()
    starts = range(0, len(order), size)
    return [collate([graphs[i] for i in order[start : start + size]]) for start in starts]


def predict(model: nn.Module, batches: Sequence[Any], mean: float, std: float) -> Tensor:
    """Return absolute errors in the unit of the labels."""
    model.eval()
    with torch.no_grad():
        errors = [(model(batch) * std + mean - batch.y).abs() for batch in batches]
    model.train()
    return torch.cat(errors)


def test_batches(graphs: Sequence[Data], subject: Subject) -> list[Any]:
    """Put graphs into batches in their order."""
    collate: Any = collate_complete if subject.pairs else Batch.from_data_list
    return [collate(graphs[start : start + 256]) for start in range(0, len(graphs), 256)]


def train(subject: Subject, shape: Shape, parts: Any, seed: int, epochs: int) -> dict[str, Any]:
    """Train once; return the errors of the epoch with the least validation error."""
    torch.manual_seed(seed)
    model = Network(subject, shape)
    validation = test_batches(parts[1], subject)
    labels = torch.cat([graph.y for graph in parts[0]])
    mean = float(labels.mean())
    std = float(labels.std())
    steps = epochs * math.ceil(len(parts[0]) / BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-5)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, steps)
    least = math.inf
    best: dict[str, Any] = {}
    begun = time.process_time()
    batches: list[Any] = []
    for epoch in range(epochs):
        if epoch % EPOCHS_OF_BATCHES == 0:
            batches = batches_of(parts[0], subject, BATCH)
        for index in torch.randperm(len(batches)).tolist():
            batch = batches[index]
            optimizer.zero_grad()
            nn.functional.l1_loss(model(batch), (batch.y - mean) / std).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        error = float(predict(model, validation, mean, std).mean())
        if error < least:
            least = error
            best = {"epoch": epoch + 1, "state": copy.deepcopy(model.state_dict())}
    seconds = round(time.process_time() - begun, 1)
    model.load_state_dict(best.pop("state"))
    errors = predict(model, test_batches(parts[2], subject), mean, std)
    slopes = [
        [round(value, 3) for value in values.tolist()]
        for name, values in model.named_parameters()
        if name.endswith("attn_bias.slope")
    ]
    rounded = [round(value, 4) for value in errors.tolist()]
    scores = {"val_mae": round(least, 4), "test_mae": round(float(errors.mean()), 4), **best}
    sizes = {"parameters": parameters(model), "width": shape.width, "hidden": shape.hidden}
    return scores | sizes | {"cpu_s": seconds, "slopes": slopes, "errors": rounded}


def time_steps(names: Sequence[str], shapes: Any, load_parts: Any, budget: int) -> None:
    """Print CPU milliseconds of a training step of each encoder, in turn; medians of 7."""
    networks: list[tuple[str, nn.Module, list[Any]]] = []
    for name in names:
        subject = SUBJECTS[name]
        norm, depth = shapes.get(name, DEFAULT_SHAPE)
        network = Network(subject, shape_within(subject, budget, depth, norm))
        graphs = load_parts(pairs=subject.pairs)[0][: 5 * BATCH]
        torch.manual_seed(0)
        networks.append((name, network, batches_of(graphs, subject, BATCH)))
    times: dict[str, list[float]] = {name: [] for name in names}
    for name, network, batches in networks * 7:
        begun = time.process_time()
        for batch in batches:
            network(batch).square().mean().backward()
        times[name].append((time.process_time() - begun) / len(batches))
    rows = [[name, f"{1000 * float(np.median(seconds)):.1f}"] for name, seconds in times.items()]
    print_table(["Encoder", "ms"], rows)


# Results.


def read_runs(path: Path) -> pd.DataFrame:
    """Read the runs of a file, one JSON object a line."""
    lines = path.read_text().splitlines() if path.is_file() else []
    columns = ["data", "encoder", "norm", "depth", "fold"]
    return pd.DataFrame([json.loads(line) for line in lines], columns=None if lines else columns)


def chosen_shapes(runs: pd.DataFrame) -> dict[str, tuple[str, int]]:
    """Return norm and depth of each encoder with the least validation error of the first fold."""
    first = runs[(runs["data"] == "lipo") & (runs["fold"] == 0)]
    best = first.loc[first.groupby("encoder")["val_mae"].idxmin()] if len(first) else first
    return {row["encoder"]: (row["norm"], row["depth"]) for row in best.to_dict("records")}


def show(runs: pd.DataFrame) -> None:
    """Print a table for each data set, with differences paired by molecule."""
    shapes = chosen_shapes(runs)
    at = [
        shapes.get(run["encoder"], DEFAULT_SHAPE) == (run["norm"], run["depth"])
        for run in runs.to_dict("records")
    ]
    first = runs[(runs["data"] == "lipo") & (runs["fold"] == 0)]
    if len(first):
        print("\nValidation MAE on the first fold of Lipophilicity\n")
        table = first.pivot_table("val_mae", "encoder", ["norm", "depth"], sort=False)
        names = [f"{norm}, {depth} blocks" for norm, depth in table.columns]
        numbers = table.map("{:.3f}".format).replace("nan", "")
        rows = [[str(row[0]), *row[1:]] for row in numbers.itertuples()]
        print_table(["Encoder", *names], rows)
    for data, of_data in runs[at].groupby("data", sort=False):
        count = of_data.groupby("encoder")["fold"].nunique().max()
        print(f"\n{data}: test MAE, mean of {count} folds or seeds\n")
        errors = {
            str(name): pd.Series(
                {
                    (run["fold"], molecule): error
                    for run in group.to_dict("records")
                    for molecule, error in enumerate(run["errors"])
                }
            )
            for name, group in of_data.groupby("encoder", sort=False)
            if group["fold"].nunique() == count
        }
        first_name = min(errors, key=lambda name: errors[name].mean())
        rows = []
        for name in sorted(errors, key=lambda name: errors[name].mean()):
            group = of_data[of_data["encoder"] == name]
            difference = errors[name] - errors[first_name]
            if data == "zinc":  # each seed tests the same molecules
                difference = difference.groupby(level=1).mean()
            spread = difference.std() / math.sqrt(len(difference))
            behind = "" if name == first_name else f"{difference.mean():.3f} ± {spread:.3f}"
            norm, depth = shapes.get(name, DEFAULT_SHAPE)
            numbers = [f"{group['parameters'].mean():,.0f}", f"{group['cpu_s'].mean():,.0f}"]
            rows.append([name, f"{norm}, {depth}", f"{errors[name].mean():.3f}", behind, *numbers])
        columns = ["Encoder", "Norm, depth", "Test MAE", "Behind the first", "Parameters", "CPU s"]
        print_table(columns, rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=[], help="zinc, esol, lipo, solubility")
    parser.add_argument("--zinc", type=Path, help="folder of ZINC")
    parser.add_argument("--encoders", nargs="+", choices=SUBJECTS, default=[*SUBJECTS])
    parser.add_argument("--folds", nargs="+", type=int, default=[0])
    parser.add_argument("--norms", nargs="+", choices=NORMS, help="default: the best so far")
    parser.add_argument("--depths", nargs="+", type=int, default=[4], help="with --norms")
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--budget", type=int, default=100_000, help="parameters")
    parser.add_argument("--rows", type=int, default=20_000, help="of a table, at most")
    parser.add_argument("--results", type=Path, required=True, help="a file of JSON lines")
    parser.add_argument("--table", action="store_true", help="print the results")
    parser.add_argument("--time", action="store_true", help="time steps instead of trainings")
    options = parser.parse_args(arguments)

    torch.set_num_threads(1)
    if options.time:
        parts = partial(load, options.data[0], options.zinc, options.folds[0], options.rows)
        shapes = chosen_shapes(read_runs(options.results))
        time_steps(options.encoders, shapes, parts, options.budget)
        return
    for data, fold, name in product(options.data, options.folds, options.encoders):
        subject = SUBJECTS[name]
        runs = read_runs(options.results)
        if options.norms:
            shapes = [*product(options.norms, options.depths)]
        else:
            shapes = [chosen_shapes(runs).get(name, DEFAULT_SHAPE)]
        for norm, depth in shapes:
            key = {"data": data, "encoder": name, "norm": norm, "depth": depth, "fold": fold}
            if len(runs) and (runs[[*key]] == pd.Series(key)).all(axis=1).any():
                continue
            parts = load(data, options.zinc, fold, options.rows, subject.pairs)
            shape = shape_within(subject, options.budget, depth, norm)
            run = key | train(subject, shape, parts, fold, options.epochs)
            with options.results.open("a") as file:
                file.write(json.dumps(run) + "\n")
            print(*key.values(), f"test MAE {run['test_mae']:.3f}", flush=True)
    if options.table:
        show(read_runs(options.results))


if __name__ == "__main__":
    main()
