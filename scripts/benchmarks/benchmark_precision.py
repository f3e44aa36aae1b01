"""Time a training step of the network in single precision and in bfloat16.

Embeddings, encoder, readout and head of molattn's model, forward and backward, on the same batches
in turn: one batch in single precision, then the same one in mixed precision (autocast, weights and
gradients in single precision). Time of the CPU, not of the clock.

    python -m scripts.benchmarks.benchmark_precision --width 256 --layers 4
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace

import torch

from molattn import MolAttn, MolAttnConfig
from molattn.config import NetworkConfig
from molattn.task import Task
from scripts.benchmarks.benchmarking import describe, print_table, read_smiles, with_allocator


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--width", type=int, nargs="+", default=[128, 256, 512])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--data", default="lipo")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--allocator", choices=["default", "steady"], default="default")
    args = parser.parse_args(arguments)
    allocator = with_allocator(args.allocator)
    torch.set_num_threads(1)
    smiles = read_smiles(args.data)
    smiles = smiles[:: max(1, len(smiles) // (args.batches * args.batch_size))]
    print(
        f"{describe(args.data)}, {args.layers} layers, batches of {args.batch_size}, 1 thread, "
        f"AMX {'available' if torch.cpu.get_capabilities()['amx_tile'] else 'not available'}, "
        f"allocator: {allocator}\n"
    )
    rows = []
    for width in args.width:
        torch.manual_seed(0)
        network = NetworkConfig(width=width, layers=args.layers, dropout=0.0)
        network = replace(network, graphs=("pairs",), norm="layer")  # as base is
        model = MolAttn(MolAttnConfig((Task("y"),), network))
        records = [model.featurize(one) for one in smiles]
        size = args.batch_size
        batches = [model.collate(records[i * size : (i + 1) * size]) for i in range(args.batches)]
        times: dict[bool, list[float]] = {False: [], True: []}
        for repeat in range(args.repeats + 1):
            for batch in batches:
                for half, measured in times.items():
                    start = time.process_time()
                    with torch.autocast("cpu", torch.bfloat16, enabled=half):
                        out = model.nets[0](batch)
                    out.float().square().mean().backward()
                    if repeat:  # the first round compiles and fills caches
                        measured.append(time.process_time() - start)
                    model.zero_grad()
        single, half = (size / statistics.median(measured) for measured in times.values())
        count = sum(weight.numel() for weight in model.parameters())
        rows.append(
            [
                f"{width}",
                f"{count / 1e6:.1f}",
                f"{single:.0f}",
                f"{half:.0f}",
                f"{half / single:.2f}",
            ]
        )
    header = ["width", "million parameters", "fp32, molecules/s", "bf16, molecules/s", "ratio"]
    print_table(header, rows)


if __name__ == "__main__":
    main()
