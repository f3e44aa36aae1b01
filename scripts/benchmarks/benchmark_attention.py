"""Time attention over all atom pairs against the layers people use, side by side in one process.

Batches are real molecules, drawn from Lipophilicity and ESOL where they lie beside the checkout,
else from the bundled set. Every layer sees the same graphs, with self pairs, and gives nodes of
one width. Printed: speed and memory, growth with the size of a molecule, and one molecule of
1,000 atoms through an encoder. Times are interleaved medians; each timed call follows an untimed
one of the same layer, unless --cold.

    python -m scripts.benchmarks.benchmark_attention
    python -m scripts.benchmarks.benchmark_attention --device cuda --dtype bfloat16
    python -m scripts.benchmarks.benchmark_attention --update-edges

With --update-edges only layers that update edges are timed, against the same without the update:
forward and backward, with gradients of the edges, on a CPU by CPU time of the process.
"""

import argparse
import math
import platform
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import GATv2Conv, GPSConv, TransformerConv
from torch_geometric.utils import to_dense_batch

from molattn.chem import parse_smiles
from molattn.chem.featurizer import Featurizer
from molattn.graph import CodedEdges, CompleteGraphs, collate
from molattn.nn import EdgeAttentionConv
from molattn.nn.encoder import Encoder
from scripts.benchmarks.benchmarking import describe, print_table, read_smiles, with_allocator
from scripts.benchmarks.measuring import interleaved, peak_bytes, saved_bytes

BASELINE = "TransformerConv"
MEGABYTE = 1e6


class Batch(NamedTuple):
    """The same molecules in every form that a layer takes."""

    graph: CompleteGraphs
    x: Tensor  # nodes
    rows: Tensor  # the same as rows of the layout
    edges: Tensor  # features of edges
    pairs: Tensor  # the same as pair rows
    codes: CodedEdges  # the same as codes


class Run(NamedTuple):
    """One layer on one batch."""

    forward: Callable[[], Tensor]
    upstream: Tensor

    def both(self) -> None:
        """Forward and backward."""
        self.forward().backward(self.upstream)

    def infer(self) -> Tensor:
        """Forward without autograd."""
        with torch.no_grad():
            return self.forward()


def make_batch(
    graph: CompleteGraphs, codes: Tensor, num_codes: int, options: argparse.Namespace
) -> Batch:
    """Give nodes and the codes of pairs random features."""
    like = {"device": options.device, "dtype": getattr(torch, options.dtype)}
    graph = graph.to(options.device)
    table = torch.randn(num_codes, options.edge_width, **like)
    coded = CodedEdges(codes.long().to(options.device), table)
    x = torch.randn(graph.num_nodes, options.width, **like)
    pairs = coded.dense()
    edges = graph.pairs_to_edges(pairs)
    rows = graph.nodes_to_rows(x).requires_grad_()
    return Batch(graph, x.requires_grad_(), rows, edges, pairs, coded)


def molecules(name: str, options: argparse.Namespace) -> Batch:
    """A batch of molecules of a dataset, drawn at random."""
    smiles = np.random.default_rng(options.seed).choice(read_smiles(name), options.batch_size)
    featurizer = Featurizer.default()
    batch = collate([featurizer(parse_smiles(str(text))) for text in smiles])
    return make_batch(batch.layout, batch.edge_attr, len(batch.pair_codes), options)


def of_one_size(atoms: int, count: int, options: argparse.Namespace) -> Batch:
    """Molecules of one size with random pair codes."""
    graph = CompleteGraphs([atoms] * count)
    return make_batch(graph, torch.randint(0, 30, (graph.num_pairs,)), 30, options)


def runs_on(batch: Batch, options: argparse.Namespace, names: list[str]) -> dict[str, Run]:
    """Each layer by name, ready to run."""
    width, heads, edge_width = options.width, options.heads, options.edge_width
    like = {"device": options.device, "dtype": batch.x.dtype}
    graph = batch.graph
    ours = EdgeAttentionConv(width, width, heads, edge_dim=edge_width, combine="concat").to(**like)
    transformer = TransformerConv(width, width // heads, heads, edge_dim=edge_width).to(**like)
    gat = GATv2Conv(width, width // heads, heads, edge_dim=edge_width, add_self_loops=False).to(
        **like
    )
    mha = nn.MultiheadAttention(width, heads, batch_first=True).to(**like)
    # GPSConv's attention alone: no local layer, and the smallest feed-forward network it has.
    gps = GPSConv(width, None, heads, norm=None).to(**like)

    def multihead() -> Tensor:
        dense, mask = to_dense_batch(batch.x, graph.batch)
        return mha(dense, dense, dense, key_padding_mask=~mask, need_weights=False)[0][mask]

    def bare() -> Tensor:
        return matrix_products(batch, options)

    node = torch.randn_like(batch.x)
    row = graph.nodes_to_rows(node)
    edge_index = graph.edge_index
    known = {
        BASELINE: Run(lambda: transformer(batch.x, edge_index, batch.edges), node),
        "TransformerConv, compiled": Run(
            _compiled(transformer, (batch.x, edge_index, batch.edges)), node
        ),
        "GATv2Conv": Run(lambda: gat(batch.x, edge_index, batch.edges), node),
        "GPSConv, no edges": Run(lambda: gps(batch.x, edge_index, graph.batch), node),
        "nn.MultiheadAttention, no edges": Run(multihead, node),
        "molattn, edge list": Run(lambda: ours(batch.x, edge_index, batch.edges), node),
        "molattn, dense pair features": Run(lambda: ours(batch.rows, graph, batch.pairs), row),
        "molattn, pair lookup table": Run(lambda: ours(batch.rows, graph, batch.codes), row),
        "matrix products only": Run(bare, row),
    }
    return {name: known[name] for name in names}


LAYERS = [
    BASELINE,
    "TransformerConv, compiled",
    "GATv2Conv",
    "GPSConv, no edges",
    "nn.MultiheadAttention, no edges",
    "molattn, edge list",
    "molattn, dense pair features",
    "molattn, pair lookup table",
    "matrix products only",
]


def _compiled(layer: nn.Module, inputs: tuple[Tensor, ...]) -> Callable[[], Tensor]:
    compiled = torch.compile(layer, dynamic=True)
    return lambda: compiled(*inputs)


def matrix_products(batch: Batch, options: argparse.Namespace) -> Tensor:
    """The products that attention with edges cannot do without, and nothing else."""
    width, heads, codes = options.width, options.heads, batch.codes.table.size(0)
    weight, basis = _constants(width, heads, codes, batch.rows)
    projected = batch.rows @ weight  # queries, keys, values and the root
    q, k, v, root = projected.split(width, dim=-1)
    per_code = q.unflatten(-1, (heads, -1)).transpose(0, 1) @ basis
    outs = []
    for block in batch.graph.blocks:
        shape = (block.graphs, block.nodes, heads, width // heads)
        a, b, c = (block.rows(t).reshape(shape).transpose(1, 2) for t in (q, k, v))
        outs.append(((a @ b.mT) @ c).transpose(1, 2).reshape(-1, width))
    summed = (per_code @ basis.mT).transpose(0, 1).reshape(-1, width)
    return batch.graph.join_rows(outs, batch.rows) + summed + root


_CONSTANTS: dict[tuple[int, int, int], tuple[Tensor, Tensor]] = {}


def _constants(width: int, heads: int, codes: int, like: Tensor) -> tuple[Tensor, Tensor]:
    key = (width, heads, codes)
    if key not in _CONSTANTS:
        weight = torch.randn(width, 4 * width, device=like.device, dtype=like.dtype) / width
        basis = torch.randn(heads, width // heads, codes, device=like.device, dtype=like.dtype)
        _CONSTANTS[key] = (weight.requires_grad_(), basis)
    return _CONSTANTS[key]


def timed(
    runs: Mapping[str, Callable[[], object]], options: argparse.Namespace
) -> dict[str, float]:
    """Median milliseconds of each run."""
    device = torch.device(options.device)
    busy = options.update_edges and device.type == "cpu"
    clock = time.process_time if busy else time.perf_counter
    return interleaved(runs, options.repeats, device, cold=options.cold, clock=clock)


def speed_table(name: str, options: argparse.Namespace) -> None:
    """Times and memory of every layer on a batch of a dataset."""
    batch = molecules(name, options)
    names = [n for n in LAYERS if options.compile or "compiled" not in n]
    runs = runs_on(batch, options, names)
    device = torch.device(options.device)
    forward = timed({n: r.infer for n, r in runs.items()}, options)
    both = timed({n: r.both for n, r in runs.items()}, options)
    saved = {n: saved_bytes(r.forward) for n, r in runs.items()}
    peak = {n: peak_bytes(r.both, device) for n, r in runs.items()}
    graph = batch.graph
    print(
        f"\n## {describe(name)}: {graph.num_graphs} molecules, {graph.num_nodes} atoms, "
        f"{graph.num_edges} pairs ({graph.num_pairs / graph.num_edges:.2f}x with padding, "
        f"{len(graph.blocks)} blocks), {batch.codes.table.size(0)} codes of pairs\n"
    )
    rows = [
        [
            n,
            f"{forward[n]:.2f}",
            f"{forward[BASELINE] / forward[n]:.2f}",
            f"{both[n]:.2f}",
            f"{both[BASELINE] / both[n]:.2f}",
            f"{saved[n] / MEGABYTE:.1f}",
            f"{peak[n] / MEGABYTE:.1f}",
        ]
        for n in names
    ]
    header = ["layer", "forward, ms", "x", "forward + backward, ms", "x", "saved, MB", "peak, MB"]
    print_table(header, rows)


def update_table(name: str, options: argparse.Namespace) -> None:
    """Times and memory of a layer that updates edges, relative to one that does not."""
    rows = []
    for width in (16, 32, 64):
        options.edge_width = width
        batch = molecules(name, options)
        runs = _updates(batch, options)
        times, saved = timed(runs, options), {n: saved_bytes(run) for n, run in runs.items()}
        for updated in ("update", "update, edge_value=False"):
            row = [str(width), updated]
            for kind in ("features", "codes"):
                plain, mine = f"{kind}, none", f"{kind}, {updated}"
                row += [f"{times[mine]:.1f}", f"{times[mine] / times[plain]:.2f}"]
                row += [f"{saved[mine] / MEGABYTE:.1f}"]
            rows.append([*row, f"{times[BASELINE] / times[f'features, {updated}']:.2f}"])
    of_kind = ["ms", "of no update", "saved, MB"]
    header = ["width", "layer", *(f"{k}: {n}" for k in ("features", "codes") for n in of_kind)]
    print(f"\n## {describe(name)}: updated edges, forward + backward\n")
    print_table([*header, f"features: x {BASELINE}"], rows)


def _updates(batch: Batch, options: argparse.Namespace) -> dict[str, Callable[[], object]]:
    width, heads, edge_width = options.width, options.heads, options.edge_width
    like = {"device": options.device, "dtype": batch.x.dtype}
    pairs, edges = (t.clone().requires_grad_() for t in (batch.pairs, batch.edges))
    codes = CodedEdges(batch.codes.codes, batch.codes.table.clone().requires_grad_())
    transformer = TransformerConv(width, width // heads, heads, edge_dim=edge_width).to(**like)
    kinds = {
        "none": {},
        "update": {"update_edges": True},
        "update, edge_value=False": {"update_edges": True, "edge_value": False},
    }
    upstream = torch.randn_like(batch.rows), torch.randn_like(batch.pairs)
    flat = torch.randn_like(batch.x)

    def run(conv: nn.Module, attr: Tensor | CodedEdges) -> None:
        out = conv(batch.rows, batch.graph, attr)
        out = out if isinstance(out, tuple) else (out,)
        torch.autograd.backward(out, upstream[: len(out)])

    def run_transformer() -> None:
        transformer(batch.x, batch.graph.edge_index, edges).backward(flat)

    runs: dict[str, Callable[[], object]] = {BASELINE: run_transformer}
    for name, more in kinds.items():
        shape = {"edge_dim": edge_width, "combine": "concat"}
        conv = EdgeAttentionConv(width, width, heads, **shape, **more).to(**like)
        for kind, attr in {"features": pairs, "codes": codes}.items():
            runs[f"{kind}, {name}"] = partial(run, conv, attr)
    return runs


def growth_table(options: argparse.Namespace) -> None:
    """How forward and backward grow with the number of atoms of a molecule."""
    names = [BASELINE, "molattn, pair lookup table"]
    sizes = [10, 20, 30, 50, 100, 200]
    times: list[Mapping[str, float]] = []
    for size in sizes:
        runs = runs_on(of_one_size(size, 8, options), options, names)
        times.append(timed({n: r.both for n, r in runs.items()}, options))
    print("\n## Growth: 8 molecules of one size, forward + backward, ms\n")
    rows = [[n, *(f"{t[n]:.2f}" for t in times), *(_exponents(sizes, times, n))] for n in names]
    ratio = [f"{t[names[0]] / t[names[1]]:.2f}" for t in times]
    header = ["atoms", *map(str, sizes), "exponent 10 to 30", "50 to 200"]
    print_table(header, [*rows, ["ratio", *ratio, "", ""]])


def _exponents(sizes: list[int], times: list[Mapping[str, float]], name: str) -> list[str]:
    def slope(a: int, b: int) -> str:
        first, last = sizes.index(a), sizes.index(b)
        return f"{math.log(times[last][name] / times[first][name]) / math.log(b / a):.2f}"

    return [slope(10, 30), slope(50, 200)]


def large_molecule(options: argparse.Namespace) -> None:
    """Memory of one molecule of 1,000 atoms through four residual blocks."""
    batch = of_one_size(1000, 1, options)
    encoder = Encoder(
        lambda: EdgeAttentionConv(
            options.width, options.width, options.heads, edge_dim=options.edge_width
        ),
        4,
        options.width,
    ).to(device=options.device, dtype=batch.x.dtype)
    device = torch.device(options.device)

    def predict() -> None:
        with torch.no_grad():
            encoder(batch.rows, batch.graph, batch.codes)

    def train() -> None:
        encoder(batch.rows, batch.graph, batch.codes).sum().backward()

    predict()
    peaks = [peak_bytes(run, device) / MEGABYTE for run in (predict, train)]
    print(
        f"\n## One molecule of 1,000 atoms, 4 blocks of width {options.width}: "
        f"{peaks[0]:.0f} MB to predict, {peaks[1]:.0f} MB to train"
    )


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=["lipo", "esol"], help="datasets")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--edge-width", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=30, help="rounds behind each median")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--allocator", choices=["steady", "default"], default="steady")
    parser.add_argument("--cold", action="store_true", help="no untimed call before each timed one")
    parser.add_argument("--update-edges", action="store_true", help="time updates of edges instead")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    options = parser.parse_args()
    allocator = with_allocator(options.allocator)
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    name = torch.cuda.get_device_name() if options.device == "cuda" else platform.processor()
    print(
        f"torch {torch.__version__}, {options.device} {name}, {options.threads} thread(s), "
        f"{options.dtype}; allocator: {allocator}\n"
        f"width {options.width}, {options.heads} heads, {options.edge_width} edge features; "
        f"medians of {options.repeats} interleaved rounds"
        f"{', cold' if options.cold else ''}; x = times as fast as {BASELINE}"
    )
    if options.update_edges:
        for data in options.sets:
            update_table(data, options)
        return
    for data in options.sets:
        speed_table(data, options)
    growth_table(options)
    large_molecule(options)


if __name__ == "__main__":
    main()
