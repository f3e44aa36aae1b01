"""Memory and time of a training step by the number of atoms: all pairs, and pairs within a radius.

One molecule of polyalanine, the default network. Each case runs in a process of its own; memory is
the largest resident memory above that before the step, and includes the record of the molecule.
"""

import argparse
import os
import resource
import time

import torch

from molattn.chem.reader import MoleculeReader
from molattn.config import MoleculeLimits, NetworkConfig
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.task import Task
from scripts.benchmarks.benchmarking import print_table

_UNIT = "N[C@@H](C)C(=O)"  # five atoms


def step(atoms: int, radius: int | None) -> tuple[float, float, int]:
    """Return CPU seconds and MB of a forward and backward pass, and the number of pairs."""
    network = NetworkConfig(radius=radius, graphs=("pairs",), norm="layer")  # as base is
    model = MolAttn(MolAttnConfig((Task("y"),), network))
    limits = MoleculeLimits(max_atoms=10**6, max_length=10**7, max_seconds=600.0)
    reader = MoleculeReader(model.config.featurizer, limits=limits, radius=radius)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    record = reader.all([_UNIT * ((atoms - 1) // 5) + "O"])[0]
    start = time.process_time()
    model(model.collate([record])).sum().backward()
    seconds = time.process_time() - start
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return seconds, memory, record.pairs.size


def in_own_process(atoms: int, radius: int | None) -> list[str]:
    """Return the cells of a case; dashes if it runs out of memory."""
    read, write = os.pipe()
    if not (child := os.fork()):
        seconds, memory, pairs = step(atoms, radius)
        os.write(write, f"{pairs} {memory:.0f} {seconds:.2f}".encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as answer:
        return answer.read().split() or ["-"] * 3


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--atoms", type=int, nargs="+", default=[250, 500, 1000, 2000, 3000, 5000])
    parser.add_argument("--radius", type=int, default=8)
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = ("pairs", "memory, MB", "CPU s")
    header = ["atoms", *names, *(f"radius {options.radius}: {name}" for name in names)]
    rows = [
        [str(atoms), *in_own_process(atoms, None), *in_own_process(atoms, options.radius)]
        for atoms in options.atoms
    ]
    print_table(header, rows)


if __name__ == "__main__":
    main()
