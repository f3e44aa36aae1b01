"""Time SMILES to complete molecular graphs beside the featurizers people use, on one core.

molattn records ten codes for each atom, four for each bond and the shortest path between all
pairs; PyG's ``from_smiles`` and Chemprop's featurizer (where it is installed) record atoms and
bonds only. Molecules are featurized in chunks, each tool in turn, so that all meet the same load
of the machine; times are those of this process on the processor (CPU) and of the clock.

    python -m scripts.benchmarks.benchmark_featurize
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from rdkit import Chem, RDLogger
from torch_geometric.utils import from_smiles

from molattn.chem import Featurizer, MoleculeReader, PackedMolecules, parse_smiles
from molattn.record import MoleculeRecord
from scripts.benchmarks.benchmarking import describe, print_table, read_smiles

CHUNK = 64
BASELINE = "PyG from_smiles"
FEATURIZER = Featurizer.default()
READER = MoleculeReader(FEATURIZER)


def tools() -> dict[str, Callable[[Sequence[str]], object]]:
    """What each tool does with a chunk of SMILES."""

    def pyg(chunk: Sequence[str]) -> object:
        return [from_smiles(text) for text in chunk]

    def many(chunk: Sequence[str]) -> object:
        return list(READER(chunk))

    def one(chunk: Sequence[str]) -> object:
        return [FEATURIZER(parse_smiles(text)) for text in chunk]

    def parse(chunk: Sequence[str]) -> object:
        return [Chem.MolFromSmiles(text) for text in chunk]

    def distances(chunk: Sequence[str]) -> object:
        return [Chem.GetDistanceMatrix(Chem.MolFromSmiles(text)) for text in chunk]

    known = {
        BASELINE: pyg,
        "molattn": many,
        "molattn, one at a time": one,
        "RDKit parse alone": parse,
        "RDKit parse and distances": distances,
    }
    try:
        from chemprop.featurizers import (  # pyright: ignore[reportMissingImports]
            SimpleMoleculeMolGraphFeaturizer,
        )
    except ImportError:
        return known
    chemprop = SimpleMoleculeMolGraphFeaturizer()

    def message_graph(chunk: Sequence[str]) -> object:
        return [chemprop(Chem.MolFromSmiles(text)) for text in chunk]

    return known | {"Chemprop": message_graph}


def seconds_each(
    smiles: Sequence[str], runs: dict[str, Callable[[Sequence[str]], object]]
) -> dict[str, tuple[float, float]]:
    """CPU and clock seconds for all molecules by each tool, the tools in turn on every chunk."""
    spent = dict.fromkeys(runs, (0.0, 0.0))
    for start in range(0, len(smiles), CHUNK):
        chunk = smiles[start : start + CHUNK]
        for name, run in runs.items():
            before = time.process_time(), time.perf_counter()
            run(chunk)
            cpu, clock = time.process_time() - before[0], time.perf_counter() - before[1]
            spent[name] = spent[name][0] + cpu, spent[name][1] + clock
    return spent


def row(name: str, passes: Sequence[dict[str, tuple[float, float]]], count: int) -> list[str]:
    """Molecules a second, and the median of each pass's ratio to the baseline."""
    cells = [name]
    for kind in (0, 1):
        seconds = statistics.median(each[name][kind] for each in passes)
        ratio = statistics.median(each[BASELINE][kind] / each[name][kind] for each in passes)
        cells += [f"{count / seconds:,.0f}", f"{ratio:.2f}"]
    return cells


def packing(smiles: Sequence[str]) -> str:
    """What storage costs."""
    records = [r for r in READER(smiles) if isinstance(r, MoleculeRecord)]
    start = time.process_time()
    packed = PackedMolecules.pack(records, FEATURIZER)
    middle = time.process_time()
    packed.unpack(range(len(packed)))
    end = time.process_time()
    arrays = (packed.atom_starts, packed.bond_starts, packed.atoms, packed.ends, packed.codes)
    size = sum(array.nbytes for array in arrays) / len(records)
    return (
        f"Packed for storage: {size:.0f} bytes a molecule; "
        f"{len(records) / (middle - start):,.0f} packed a CPU second, "
        f"{len(records) / (end - middle):,.0f} unpacked"
    )


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=["lipo", "esol"], help="datasets")
    parser.add_argument("--repeats", type=int, default=3, help="passes behind each median")
    options = parser.parse_args()
    torch.set_num_threads(1)
    RDLogger.DisableLog("rdApp.*")  # pyright: ignore[reportAttributeAccessIssue]
    runs = tools()
    for data in options.sets:
        smiles = read_smiles(data)
        seconds_each(smiles[:CHUNK], runs)  # warm up
        passes = [seconds_each(smiles, runs) for _ in range(options.repeats)]
        print(f"\n## {describe(data)}: {len(smiles)} molecules\n")
        header = ["tool", "molecules a CPU second", "x", "a clock second", "x"]
        print_table(header, [row(name, passes, len(smiles)) for name in runs])
        print(f"\n{packing(smiles)}")


if __name__ == "__main__":
    main()
