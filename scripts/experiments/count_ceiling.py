"""How much of hashed Morgan counts a network can predict that knows only frequent environments.

Some molecules are set aside. Of the others, all environments to radius 3 are counted, before they
are hashed to 4,096 positions. For several frequencies, the R² (of ``log(1 + count)``, over all
positions together, as ``molattn pretrain`` reports it) of an oracle: it counts exactly those
environments of a molecule set aside that so many of the others have, and predicts the mean of what
is left::

    python -m scripts.experiments.count_ceiling unlabelled.smi.gz unlabelled_chembl30.smi.gz
"""

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from rdkit.Chem import rdFingerprintGenerator

from molattn.chem import parse_smiles
from molattn.data.table import open_table
from molattn.errors import SmilesError
from scripts.benchmarks.benchmarking import print_table

LEAST = (1, 3, 10, 30, 100, 300, 1000, 3000, 10000)
SIZE, RADIUS = 4096, 3

Counts = Mapping[int, int]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", help="tables with a column of SMILES named smiles")
    parser.add_argument("--held-out", type=int, default=2000, help="molecules that are set aside")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    args = parser.parse_args()
    molecules = [environments(text) for file in args.files for text in smiles_of(file)]
    known = [one for one in molecules if one is not None]
    order = np.random.default_rng(args.seed).permutation(len(known))
    held_out = [known[place] for place in order[: args.held_out]]
    frequency = Counter[int]()
    for place in order[args.held_out :]:
        frequency.update(known[place].keys())
    print(f"{len(order) - len(held_out):,} molecules, {len(frequency):,} environments")
    print_table(
        ("molecules that have it, at least", "environments", "R² of the oracle"),
        [
            [str(least), f"{sum(n >= least for n in frequency.values()):,}", f"{r2:.3f}"]
            for least, r2 in ceilings(held_out, frequency, LEAST).items()
        ],
    )


def smiles_of(file: str) -> list[str]:
    """Return the SMILES of a table."""
    table = open_table(file)
    place = table.column("smiles", "files")
    return [row.cells[place] for row in table]


def environments(text: str) -> Counts | None:
    """Return the count of each Morgan environment; None for what is not a molecule."""
    try:
        mol = parse_smiles(text)
    except SmilesError:
        return None
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=RADIUS)
    return generator.GetSparseCountFingerprint(mol).GetNonzeroElements()


def ceilings(
    molecules: Sequence[Counts], frequency: Mapping[int, int], least: Sequence[int]
) -> dict[int, float]:
    """Return the R² of the oracle of each least frequency."""
    whole = hashed(molecules, frequency, 0)
    spread = ((whole - whole.mean(axis=0)) ** 2).sum()
    found = {}
    for number in least:
        left = whole - hashed(molecules, frequency, number)
        found[number] = 1.0 - float(((left - left.mean(axis=0)) ** 2).sum() / spread)
    return found


def hashed(
    molecules: Sequence[Counts], frequency: Mapping[int, int], least: int
) -> NDArray[np.float64]:
    """Return ``log(1 + count)`` at each position, of environments of at least this frequency."""
    counts = np.zeros((len(molecules), SIZE))
    for row, molecule in zip(counts, molecules, strict=True):
        for environment, count in molecule.items():
            if frequency.get(environment, 0) >= least:
                row[environment % SIZE] += count
    return np.log1p(counts)


if __name__ == "__main__":
    main()
