r"""Time and memory of fitting a Gaussian process to many molecules, and of predicting with it.

Molecules are the SMILES of a file, one a line; the label is the octanol-water partition coefficient
of Wildman and Crippen, so that none is needed. Seconds are of the processor, on one thread; memory
is the peak of the process above that after reading::

    python -m scripts.benchmarks.benchmark_gaussian_process molecules.smi \
        --rows 1000 10000 --inducing 2000
"""

import argparse
import gzip
import resource
import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from rdkit.Chem.rdMolDescriptors import CalcCrippenDescriptors

from molattn.chem.fingerprints import HashedCounts
from molattn.chem.parse import parse_smiles
from molattn.errors import SmilesError
from molattn.model.config import MolAttnConfig, substructure_counter
from molattn.model.gaussian_process import GaussianProcessHead
from molattn.model.kernel import KernelInputs, stack_counts
from molattn.task import Task

KERNELS = ("morgan", "atom_pairs")
PREDICTED = 1000


def read(path: Path, count: int) -> tuple[list[HashedCounts], np.ndarray]:
    """Return counts and labels of the first molecules of a file, and log the time of counting."""
    counter = substructure_counter(KERNELS)
    assert counter is not None
    counts, labels, seconds = [], [], 0.0
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        for line in lines:
            try:
                mol = parse_smiles(line.split()[0])
            except (SmilesError, IndexError):
                continue
            start = time.process_time()
            counts.append(counter(mol))
            seconds += time.process_time() - start
            labels.append(CalcCrippenDescriptors(mol)[0])
            if len(counts) == count:
                break
    print(f"counting: {1e3 * seconds / len(counts):.3f} ms a molecule")
    return counts, np.array(labels)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("molecules", type=Path, help="file of SMILES, may be gzipped")
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 10_000], metavar="N")
    parser.add_argument("--inducing", type=int, default=2000, metavar="N", help="inducing points")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    counts, labels = read(given.molecules, max(given.rows) + PREDICTED)
    config = MolAttnConfig(tasks=(Task("logP"),), kernels=KERNELS)
    labels = (labels - labels.mean()) / labels.std()
    unseen = slice(max(given.rows), None)
    test = stack_counts(counts[unseen])
    print(f"{'rows':>8} {'points':>7} {'fit, s':>8} {'predict, ms':>12} {'RMSE':>6} {'MB':>6}")
    for rows in sorted(given.rows):
        some = list(islice(counts, rows))
        inputs = KernelInputs(rows, stack_counts(some), {})
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.process_time()
        head = GaussianProcessHead.fit(
            config, inputs, labels[:rows, None], inducing_points=given.inducing
        )
        middle = time.process_time()
        predicted = head.predict(KernelInputs(test.shape[0], test, {}))[:, 0]
        end = time.process_time()
        memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        error = np.sqrt(np.mean((predicted - labels[unseen]) ** 2))
        print(
            f"{rows:8} {len(head.rows):7} {middle - start:8.1f} "
            f"{1e3 * (end - middle) / test.shape[0]:12.3f} {error:6.3f} {memory:6.0f}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
