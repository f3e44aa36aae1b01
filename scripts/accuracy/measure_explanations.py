r"""Test explanation methods: by masking atoms, and on synthetic data with known atoms.

Makes the tables of docs/explain.md, on molecules that were not in the training set:

    make train
    python -m scripts.accuracy.measure_explanations faithfulness runs/solubility
    python -m scripts.accuracy.measure_explanations synthetic hydroxyls hydroxyls.csv
    molattn train hydroxyls.csv --target-columns hydroxyls --split-column split \
        --output runs/hydroxyls
    python -m scripts.accuracy.measure_explanations ground-truth hydroxyls runs/hydroxyls
"""

import argparse

import torch

from molattn import MolAttn
from molattn.data.table import bundled_dataset, open_table
from molattn.explain import measure_faithfulness
from scripts.accuracy.ground_truth import ground_truth_auroc, synthetic_dataset


def print_faithfulness(model: str, most: int | None) -> None:
    table = open_table(bundled_dataset())
    smiles, split = table.column("smiles", "smiles"), table.column("split", "split")
    test = [row.cells[smiles] for row in table if row.cells[split] == "test"][:most]
    loaded = MolAttn.from_pretrained(model)
    result = measure_faithfulness(loaded, test)
    print(f"\n{result.target}, {result.molecules} molecules\n")
    print(result.table(), flush=True)


def print_ground_truth(group: str, model: str) -> None:
    dataset = synthetic_dataset(group).subset("test")
    rows = ground_truth_auroc(MolAttn.from_pretrained(model), dataset)
    print(f"\n{group} ({dataset.smarts}), {rows[0].molecules} molecules\n")
    print("| Method | AUROC |\n| --- | --- |")
    for row in rows:
        print(f"| {row.method} | {row.auroc:.3f} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    faithfulness = commands.add_parser("faithfulness", help="deletion and insertion curves")
    faithfulness.add_argument("model")
    faithfulness.add_argument("--molecules", type=int, help="test on the first N molecules only")
    synthetic = commands.add_parser("synthetic", help="write a dataset that counts a group")
    synthetic.add_argument("group")
    synthetic.add_argument("output")
    ground_truth = commands.add_parser("ground-truth", help="AUROC for the atoms of the group")
    ground_truth.add_argument("group")
    ground_truth.add_argument("model")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.command == "faithfulness":
        print_faithfulness(given.model, given.molecules)
    elif given.command == "synthetic":
        synthetic_dataset(given.group).to_csv(given.output)
    else:
        print_ground_truth(given.group, given.model)


if __name__ == "__main__":
    main()
