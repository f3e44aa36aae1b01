"""Time SMILES to complete molecular graphs beside the featurizers people use, on one core.

molattn records ten codes for each atom, four for each bond and the shortest path between all
pairs; PyG's ``from_smiles`` and Chemprop's featurizer (where it is installed) record atoms and
bonds only. Molecules are featurized in chunks, each tool in turn.

    python scripts/benchmark_featurize.py
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from benchmarking import describe, print_table, read_smiles
from rdkit import Chem, RDLogger
from torch_geometric.utils import from_smiles

from molattn.chem import parse_smiles
from molattn.molecules import default_featurizer

CHUNK = 64


def tools() -> dict[str, Callable[[Sequence[str]], object]]:
    """What each tool does with a chunk of SMILES."""
    featurizer = default_featurizer()

    def ours(chunk: Sequence[str]) -> object:
        return [featurizer(parse_smiles(text)) for text in chunk]

    def parse(chunk: Sequence[str]) -> object:
        return [Chem.MolFromSmiles(text) for text in chunk]

    def distances(chunk: Sequence[str]) -> object:
        return [Chem.GetDistanceMatrix(Chem.MolFromSmiles(text)) for text in chunk]

    def pyg(chunk: Sequence[str]) -> object:
        return [from_smiles(text) for text in chunk]

    known = {
        "PyG from_smiles": pyg,
        "molattn": ours,
        "RDKit parse alone": parse,
        "RDKit parse and distances": distances,
    }
    try:
        from chemprop.featurizers import SimpleMoleculeMolGraphFeaturizer
    except ImportError:
        return known
    chemprop = SimpleMoleculeMolGraphFeaturizer()

    def message_graph(chunk: Sequence[str]) -> object:
        return [chemprop(Chem.MolFromSmiles(text)) for text in chunk]

    return known | {"Chemprop": message_graph}


def seconds_each(smiles: Sequence[str]) -> dict[str, float]:
    """Seconds for all molecules by each tool, the tools in turn on every chunk."""
    spent = dict.fromkeys(runs := tools(), 0.0)
    for start in range(0, len(smiles), CHUNK):
        chunk = smiles[start : start + CHUNK]
        for name, run in runs.items():
            before = time.perf_counter()
            run(chunk)
            spent[name] += time.perf_counter() - before
    return spent


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=["lipo", "esol"], help="data sets")
    parser.add_argument("--repeats", type=int, default=3, help="passes behind each median")
    options = parser.parse_args()
    torch.set_num_threads(1)
    RDLogger.DisableLog("rdApp.*")  # pyright: ignore[reportAttributeAccessIssue]
    for data in options.sets:
        smiles = read_smiles(data)
        passes = [seconds_each(smiles) for _ in range(options.repeats)]
        median = {name: statistics.median(p[name] for p in passes) for name in passes[0]}
        baseline = median["PyG from_smiles"]
        featurizer = default_featurizer()
        records = [featurizer(parse_smiles(text)) for text in smiles]
        packed = sum(len(record.pack()) for record in records) / len(records)
        print(f"\n## {describe(data)}: {len(smiles)} molecules\n")
        rows = [
            [name, f"{len(smiles) / time_:,.0f}", f"{baseline / time_:.2f}"]
            for name, time_ in median.items()
        ]
        print_table(["tool", "molecules a second", "x"], rows)
        print(f"\nPacked for storage: {packed:.0f} bytes a molecule")


if __name__ == "__main__":
    main()
