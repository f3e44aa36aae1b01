"""What the benchmark scripts share: where data lie, a steady allocator, and tables."""

import csv
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from molattn.data.table import bundled_dataset

# glibc gives large blocks back to the system at once and pays for fresh pages at every
# allocation; these settings keep them, which favors whoever allocates most: the baselines.
STEADY_ALLOCATOR = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "4000000000",
    "MALLOC_TOP_PAD_": "268435456",
}
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


def with_allocator(name: str) -> str:
    """Start this script again under the allocator asked for; return what to call it."""
    if name == "default":
        return "glibc defaults"
    if any(os.environ.get(key) != value for key, value in STEADY_ALLOCATOR.items()):
        quiet = {"KINETO_LOG_LEVEL": "5"}
        words = [sys.executable, *sys.orig_argv[1:]]
        os.execve(sys.executable, words, os.environ | STEADY_ALLOCATOR | quiet)
    return "glibc, " + " ".join(f"{key}={value}" for key, value in STEADY_ALLOCATOR.items())


def read_smiles(name: str) -> list[str]:
    """SMILES of a dataset: ``lipo``, ``esol``, ... beside the checkout, or the bundled set."""
    path = SHARED / f"{name}.csv"
    if not path.is_file():
        path = bundled_dataset()
    with path.open(newline="") as file:
        return [row["smiles"] for row in csv.DictReader(file)]


def describe(name: str) -> str:
    """Say which data a name stands for on this machine."""
    return name if (SHARED / f"{name}.csv").is_file() else f"bundled solubility (no {name} here)"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with aligned columns."""
    table = [list(header), *map(list, rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    lines = [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |"
        for row in table
    ]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table with aligned columns."""
    print(markdown_table(header, rows))
