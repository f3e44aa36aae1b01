r"""What each family of RDKit's descriptors costs, and what it is worth to the Gaussian process.

Cost: milliseconds of the processor for each molecule of all tables, on one thread, the best of
three rounds. Worth: the change of the root mean squared error in five-fold cross-validation when a
Gaussian kernel of the family joins those of the default (counts of Morgan environments and atom
pairs, embedding of `base`, frozen); for classes, of the error of 0 and 1. A standard error is that
over the folds of all tables, paired::

    python -m scripts.benchmarks.benchmark_descriptors esol.csv:logS freesolv.csv:y \
        --log half_life.csv:hours

Tables have a column of SMILES named ``smiles``, and may be gzipped.
"""

import argparse
import time
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from molattn import MolAttn
from molattn.chem import parse_smiles
from molattn.chem.descriptors import DESCRIPTOR_SETS, DESCRIPTORS, DescriptorCalculator
from molattn.model.config import MolAttnConfig, substructure_counter
from molattn.model.gaussian_process import GaussianProcessHead
from molattn.model.kernel import KernelInputs, stack_counts
from molattn.task import Task
from scripts.benchmarks.benchmarking import print_table

KERNELS = ("morgan", "atom_pairs")
FOLDS = 5
PREFIXES = {
    "fragments": ("fr_",),
    "counts of atoms, bonds and rings": ("Num", "Heavy", "NHOH", "NO", "Ring", "FractionCSP3"),
    "logP, molar refractivity, TPSA, weights, area": ("Mol", "Exact", "TPSA", "Labute"),
    "surface area by logP, MR and charge": ("SlogP_VSA", "SMR_VSA", "PEOE_VSA"),
    "surface area by E-state": ("EState_VSA", "VSA_EState"),
    "E-state": ("MaxEState", "MinEState", "MaxAbsEState", "MinAbsEState"),
    "partial charges": ("MaxPartial", "MinPartial", "MaxAbsPartial", "MinAbsPartial"),
    "BCUT2D": ("BCUT2D",),
    "connectivity and shape": ("Chi", "Kappa", "HallKier", "Phi", "BalabanJ", "BertzCT"),
    "fingerprint density": ("FpDensity",),
    "qed": ("qed",),
    "SPS": ("SPS",),
}
LIPINSKI, ALL = "lipinski", "all"


def families() -> dict[str, tuple[str, ...]]:
    """Return the descriptors of each family, then the sets of ``--descriptors``.

    The families together are ``DESCRIPTORS``.
    """
    found = {
        family: tuple(name for name in DESCRIPTORS if name.startswith(prefixes))
        for family, prefixes in PREFIXES.items()
    }
    named = sorted(name for names in found.values() for name in names)
    if named != sorted(DESCRIPTORS):
        raise SystemExit(f"in no family or two: {set(DESCRIPTORS).symmetric_difference(named)}")
    return {**found, LIPINSKI: DESCRIPTOR_SETS[LIPINSKI], ALL: DESCRIPTORS}


def costs(smiles: Sequence[str], groups: Mapping[str, tuple[str, ...]]) -> dict[str, float]:
    """Return the milliseconds of each family, for molecules that are parsed anew."""
    best = dict.fromkeys(groups, np.inf)
    for _ in range(3):
        for family, names in groups.items():
            calculator = DescriptorCalculator(names)
            mols = [parse_smiles(text) for text in smiles]
            start = time.process_time()
            for mol in mols:
                calculator(mol)
            took = 1e3 * (time.process_time() - start) / len(mols)
            best[family] = min(best[family], took)
    return best


def errors(inputs: KernelInputs, labels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the error of each fold."""
    config = MolAttnConfig(tasks=(Task("y"),), kernels=KERNELS)
    fold = np.random.default_rng(0).permutation(len(labels)) % FOLDS
    found = []
    for number in range(FOLDS):
        rows, held_out = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        head = GaussianProcessHead.fit(config, inputs[rows], labels[rows, None])
        predicted = head.predict(inputs[held_out])[:, 0]
        found.append(np.sqrt(np.mean((predicted - labels[held_out]) ** 2)))
    return np.array(found)


def worth(
    path: str, column: str, groups: Mapping[str, tuple[str, ...]], *, log: bool
) -> list[NDArray[np.float64]]:
    """Return the change of the error of each fold by each family, in percent."""
    table = pd.read_csv(path)[["smiles", column]].dropna()
    labels = table[column].to_numpy(np.float64)
    labels = np.log(labels) if log else labels
    labels = (labels - labels.mean()) / labels.std()
    smiles = table["smiles"].tolist()
    mols = [parse_smiles(text) for text in smiles]
    counter = substructure_counter(KERNELS)
    assert counter is not None
    counts = stack_counts([counter(mol) for mol in mols])
    embedding = MolAttn.from_pretrained("base-small").embed(smiles)
    calculator = DescriptorCalculator(DESCRIPTORS)
    values = pd.DataFrame([calculator(mol) for mol in mols], columns=[*DESCRIPTORS])
    numbers = {"embedding": np.asarray(embedding, dtype=np.float32)}
    without = errors(KernelInputs(len(mols), counts, numbers), labels)
    changes = []
    for names in groups.values():
        given = {**numbers, "family": values[[*names]].to_numpy(np.float32)}
        changes.append(100 * (errors(KernelInputs(len(mols), counts, given), labels) / without - 1))
    return changes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", metavar="FILE:COLUMN")
    parser.add_argument("--log", nargs="+", default=[], metavar="FILE:COLUMN", help="log labels")
    parser.add_argument("--families", nargs="+", default=[*families()], choices=[*families()])
    parser.add_argument("--molecules", type=int, default=1000, help="timed; default 1000")
    args = parser.parse_args()
    torch.set_num_threads(1)
    groups = {name: families()[name] for name in args.families}
    smiles, changes = [], []
    for place, given in enumerate([*args.tables, *args.log]):
        path, _, column = given.rpartition(":")
        changes.append(worth(path, column, groups, log=place >= len(args.tables)))
        smiles += pd.read_csv(path)["smiles"].tolist()
    chosen = np.random.default_rng(0).choice(smiles, min(args.molecules, len(smiles)), False)
    took = costs(chosen.tolist(), groups)
    folds = np.array(changes)  # [tables, families, folds]
    rows = []
    for place, (family, names) in enumerate(groups.items()):
        flat = folds[:, place].ravel()
        mean, error = flat.mean(), flat.std(ddof=1) / np.sqrt(len(flat))
        each = (f"{one:+.1f}" for one in folds[:, place].mean(axis=-1))
        rows.append(
            [family, str(len(names)), f"{took[family]:.2f}", f"{mean:+.2f} ± {error:.2f}", *each]
        )
    names = (given.rpartition("/")[2].partition(".")[0] for given in [*args.tables, *args.log])
    print_table(["Family", "Number", "ms", "Error, %", *names], rows)


if __name__ == "__main__":
    main()
