"""What the benchmark scripts share: a steady allocator, interleaved medians, memory and tables."""

import csv
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from molattn.table import bundled_dataset

# glibc gives large blocks back to the system at once and pays for fresh pages at every
# allocation; these settings keep them, which favours whoever allocates most: the baselines.
STEADY_ALLOCATOR = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "4000000000",
    "MALLOC_TOP_PAD_": "268435456",
}
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


def with_allocator(name: str) -> str:
    """Start this script again under the allocator asked for; return what to call it."""
    if name == "default":
        return "glibc defaults"
    if any(os.environ.get(key) != value for key, value in STEADY_ALLOCATOR.items()):
        quiet = {"KINETO_LOG_LEVEL": "5"}
        os.execve(
            sys.executable, [sys.executable, *sys.argv], os.environ | STEADY_ALLOCATOR | quiet
        )
    return "glibc, " + " ".join(f"{key}={value}" for key, value in STEADY_ALLOCATOR.items())


def read_smiles(name: str) -> list[str]:
    """SMILES of a data set: ``lipo``, ``esol``, ... beside the checkout, or the bundled set."""
    path = SHARED / f"{name}.csv"
    if not path.is_file():
        path = bundled_dataset()
    with path.open(newline="") as file:
        return [row["smiles"] for row in csv.DictReader(file)]


def describe(name: str) -> str:
    """Say which data a name stands for on this machine."""
    return name if (SHARED / f"{name}.csv").is_file() else f"bundled solubility (no {name} here)"


def interleaved(
    runs: Mapping[str, Callable[[], object]],
    repeats: int,
    device: torch.device,
    warmup: int = 3,
    *,
    cold: bool = False,
) -> dict[str, float]:
    """Median milliseconds of each run; in every round each is timed once, so that drift is shared.

    Before it is timed a run is made once untimed, as layers follow layers of their kind in a model;
    ``cold`` leaves this out, and each finds the caches full of what another left.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    for round_ in range(warmup + repeats):
        for name, run in runs.items():
            if not cold:
                run()
            _wait(device)
            start = time.perf_counter()
            run()
            _wait(device)
            if round_ >= warmup:
                times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in times.items()}


def saved_bytes(forward: Callable[[], object]) -> int:
    """Bytes of distinct storages that autograd keeps for the backward pass."""
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = forward()
    del out
    return sum(kept.values())


def peak_bytes(run: Callable[[], object], device: torch.device) -> int:
    """Largest number of bytes allocated at once during a run, over what was there before."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        run()
    results = recorded.profiler.kineto_results if recorded.profiler else None
    events = results.events() if results else []
    changes = sorted(
        (e.start_ns(), e.nbytes())  # pyright: ignore[reportAttributeAccessIssue]
        for e in events
        if e.name() == "[memory]"
    )
    now = most = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table with aligned columns."""
    table = [list(header), *map(list, rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    for i, row in enumerate(table):
        print("| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |")
        if i == 0:
            print("|" + "|".join("-" * (w + 2) for w in widths) + "|")


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
