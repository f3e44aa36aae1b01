"""Time a layer of PyG, and what stands in its place, on molecules in the form of MoleculeNet.

Each row embeds the edges and runs one layer, forward and backward, on bonds or on all pairs. Times
are medians of interleaved rounds in one process on one thread, by CPU time.

    python -m scripts.benchmarks.benchmark_pyg
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch
from torch_geometric.nn import GATv2Conv, GINEConv, GPSConv, TransformerConv
from torch_geometric.utils import from_smiles
from torch_geometric.utils.smiles import e_map

from molattn.graph import CompleteGraph, collate_complete
from molattn.nn import CodeEmbedding, DistanceSlopes, EdgeAttentionConv, PairGPSConv
from scripts.benchmarks.benchmarking import describe, print_table, read_smiles
from scripts.benchmarks.measuring import interleaved

MAX_DISTANCE = 8
NO_PATH = MAX_DISTANCE + 1
BOND_SIZES = [len(values) for values in e_map.values()]
PAIR_SIZES = [*BOND_SIZES, 2, NO_PATH + 1]


def molecules(name: str, count: int, seed: int) -> list[Any]:
    """Graphs of bonds of molecules drawn from a dataset, as PyG's ``MoleculeNet`` has them."""
    smiles = np.random.default_rng(seed).choice(read_smiles(name), count)
    return [from_smiles(str(text)) for text in smiles]


def layers_on(graphs: list[Any], options: argparse.Namespace) -> dict[str, Callable[[], None]]:
    """Each layer, ready to run forward and backward."""
    width = options.width
    heads = options.heads
    edge_width = options.edge_width
    complete = CompleteGraph(max_distance=MAX_DISTANCE, no_path=NO_PATH, keep_bonds=True)
    batch: Any = collate_complete([complete(graph) for graph in graphs])
    listed: Any = Batch.from_data_list([complete(graph) for graph in graphs])
    of_bonds = CodeEmbedding(BOND_SIZES, edge_width)
    of_pairs = CodeEmbedding(PAIR_SIZES, edge_width)
    of_messages = CodeEmbedding(BOND_SIZES, width)
    x = torch.randn(batch.num_nodes, width, requires_grad=True)
    rows = batch.layout.nodes_to_rows(x.detach()).requires_grad_()
    bonds = (batch.edge_index, batch.edge_attr)
    pairs = (listed.pair_index, listed.pair_attr)
    codes = (batch.layout, batch.pair_attr)
    kind: Any = {"heads": heads, "edge_dim": edge_width}
    transformer = TransformerConv(width, width // heads, **kind)
    gat = GATv2Conv(width, width // heads, **kind, add_self_loops=False)
    attention = EdgeAttentionConv(width, width, **kind)
    additive = EdgeAttentionConv(width, width, **kind, score="gatv2", edge_value=False)
    slopes = DistanceSlopes(heads, NO_PATH)
    local = GINEConv(nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)))
    gps = GPSConv(width, local, heads)
    of_gps = EdgeAttentionConv(width, width, heads=heads, attn_bias=slopes)
    pair_gps = PairGPSConv(width, local, of_gps)

    def layer(conv: nn.Module, graph: tuple, nodes: Tensor = x) -> Callable[[], None]:
        embedding = of_bonds if graph is bonds else of_pairs
        return lambda: conv(nodes, graph[0], embedding(graph[1])).sum().backward()

    def block(conv: nn.Module, **edges: Any) -> Callable[[], None]:
        def run() -> None:
            of_local = of_messages(batch.edge_attr)
            conv(x, batch.edge_index, batch.batch, edge_attr=of_local, **edges).sum().backward()

        return run

    return {
        "`TransformerConv`, bonds": layer(transformer, bonds),
        "`EdgeAttentionConv`, bonds": layer(attention, bonds),
        "`TransformerConv`, all pairs as a list": layer(transformer, pairs),
        "`EdgeAttentionConv`, all pairs as a list": layer(attention, pairs),
        "`EdgeAttentionConv`, layout": layer(attention, codes),
        "`EdgeAttentionConv`, layout, in rows": layer(attention, codes, rows),
        "`GATv2Conv`, bonds": layer(gat, bonds),
        "`GATv2Conv`, all pairs as a list": layer(gat, pairs),
        "`EdgeAttentionConv` as GATv2, layout": layer(additive, codes),
        "`GPSConv`, no pair features": block(gps),
        "`PairGPSConv`, slopes, list": block(pair_gps, pair_index=pairs[0], pair_attr=pairs[1]),
        "`PairGPSConv`, slopes, layout": block(pair_gps, pair_index=codes[0], pair_attr=codes[1]),
    }


def batches_of(graphs: list[Any]) -> dict[str, Callable[[], object]]:
    """The transform and each way to make a batch, ready to run."""
    complete = CompleteGraph(max_distance=MAX_DISTANCE, no_path=NO_PATH)
    paired = [complete(graph) for graph in graphs]
    return {
        "transform `CompleteGraph`": lambda: [complete(graph) for graph in graphs],
        "batch, bonds": lambda: Batch.from_data_list(graphs),
        "batch, all pairs as a list": lambda: Batch.from_data_list(paired),
        "batch, layout (`collate_complete`)": lambda: collate_complete(paired),
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=["esol", "lipo"], help="datasets")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--edge-width", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=30, help="rounds behind each median")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    for name in options.sets:
        columns = []
        for count in options.batch_sizes:
            graphs = molecules(name, count, options.seed)
            runs = layers_on(graphs, options) | batches_of(graphs)
            cpu = torch.device("cpu")
            times = interleaved(runs, options.repeats, cpu, clock=time.process_time)
            columns.append(times)
        atoms = sum(graph.num_nodes or 0 for graph in graphs) / len(graphs)
        print(f"\n## {describe(name)}: {atoms:.1f} atoms per molecule; CPU ms\n")
        header = ["", *(f"batch of {count}" for count in options.batch_sizes)]
        print_table(header, [[run, *(f"{c[run]:.2f}" for c in columns)] for run in columns[0]])


if __name__ == "__main__":
    main()
