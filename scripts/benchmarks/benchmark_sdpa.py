"""Fused attention of molattn beside torch's scaled_dot_product_attention, forward and backward.

Graphs of one size, so that both compute the same numbers. Edge features enter the keys only: SDPA
has no place for those of values.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from molattn.graph import CompleteGraphs
from molattn.nn.dense.fused import fused_attention
from molattn.nn.dense.plain import PairInputs
from scripts.benchmarks.benchmarking import print_table


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=int, default=64)
    parser.add_argument("--nodes", type=int, default=28)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--channels", type=int, default=16, help="of a head")
    parser.add_argument("--codes", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    count, nodes, heads, channels = (
        getattr(options, name) for name in ("graphs", "nodes", "heads", "channels")
    )
    graphs = CompleteGraphs([nodes] * count)
    query, key, value = (
        torch.randn(graphs.num_rows, heads, channels, requires_grad=True) for _ in range(3)
    )
    codes = torch.randint(0, options.codes, (graphs.num_pairs,))
    table = torch.randn(options.codes + 1, heads, channels)
    table[-1] = 0
    table.requires_grad_()
    scale = channels**-0.5

    def in_heads(x: Tensor) -> Tensor:
        return x.unflatten(0, (count, nodes)).transpose(1, 2)

    def fused(with_edges: bool) -> Tensor:
        edges = (codes, table) if with_edges else (None, None)
        return fused_attention(graphs, PairInputs(query, key, value, *edges), scale).nodes

    def sdpa(with_edges: bool) -> Tensor:
        q, k, v = map(in_heads, (query, key, value))
        bias = None
        if with_edges:
            scores = torch.einsum("bhnc,mhc->bhnm", q * scale, table)
            index = codes.view(count, 1, nodes, nodes).expand(-1, heads, -1, -1)
            bias = scores.gather(3, index)
        out = scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)
        return out.transpose(1, 2).flatten(0, 1)

    def milliseconds(attend: Callable[[bool], Tensor], with_edges: bool) -> str:
        spent = []
        for _ in range(options.repeats):
            start = time.process_time()
            attend(with_edges).square().sum().backward()
            spent.append(1000 * (time.process_time() - start))
        return f"{statistics.median(spent):.1f}"

    rows = []
    for with_edges in (False, True):
        torch.testing.assert_close(fused(with_edges), sdpa(with_edges), rtol=1e-4, atol=1e-4)
        cells = [milliseconds(attend, with_edges) for attend in (fused, sdpa)]
        rows.append(["in keys" if with_edges else "none", *cells])
    print_table(["edge features", "fused attention, CPU ms", "SDPA, CPU ms"], rows)


if __name__ == "__main__":
    main()
