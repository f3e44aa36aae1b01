r"""Test methods of explanation: by masking atoms, and on data whose rule is known.

The tables of docs/explain.md, the molecules tested being those that were held out of training:

    molattn train --output runs/solubility
    python scripts/measure_explanations.py faithfulness runs/solubility
    python scripts/measure_explanations.py plant hydroxyls hydroxyls.csv
    molattn train hydroxyls.csv --target-columns hydroxyls --split-column split \
        --output runs/hydroxyls
    python scripts/measure_explanations.py discovery hydroxyls runs/hydroxyls
"""

import argparse
from itertools import product

import torch

from molattn import MolAttn
from molattn.data.table import bundled_dataset, open_table
from molattn.explain import discovery, plant
from molattn.explain.faithfulness.deletion_insertion import faithfulness


def measure_fidelity(model: str, most: int | None) -> None:
    table = open_table(bundled_dataset())
    smiles, part = table.column("smiles", "smiles"), table.column("split", "split")
    test = [row.cells[smiles] for row in table if row.cells[part] == "test"][:most]
    loaded = MolAttn.from_pretrained(model)
    for measure, masking in product(("support", "distance"), ("remove", "blank")):
        found = faithfulness(loaded, test, measure=measure, masking=masking)
        print(f"\n{found.target}, {found.molecules} molecules, {measure}, masking: {masking}\n")
        print(found.table(), flush=True)


def measure_discovery(rule: str, model: str) -> None:
    planted = plant(rule).only("test")
    rows = discovery(MolAttn.from_pretrained(model), planted)
    print(f"\n{rule} ({planted.smarts}), {rows[0].molecules} molecules\n")
    print("| Method | AUROC |\n| --- | --- |")
    for row in rows:
        print(f"| {row.method} | {row.auroc:.3f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("faithfulness", help="deletion and insertion curves")
    one.add_argument("model")
    two = commands.add_parser("plant", help="write data with a planted rule")
    two.add_argument("rule")
    two.add_argument("output")
    three = commands.add_parser("discovery", help="AUROC for the atoms of a planted rule")
    three.add_argument("rule")
    three.add_argument("model")
    one.add_argument("--molecules", type=int, help="test on the first so many alone")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.command == "faithfulness":
        measure_fidelity(given.model, given.molecules)
    elif given.command == "plant":
        plant(given.rule).save(given.output)
    else:
        measure_discovery(given.rule, given.model)


if __name__ == "__main__":
    main()
