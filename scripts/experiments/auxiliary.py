"""Whether auxiliary assays help: scores of scaffold folds of a model with and without them.

Usage: python -m scripts.experiments.auxiliary DATA OUTPUT.csv [--init-from none] [--epochs 28]
       [--variants alone 1]

DATA is a folder of training parts, admet/ and potency/, tables with the columns smiles and target.
Of each assay at most 1,000 molecules are used, of CYP inhibition 3,000. Auxiliary rows add steps to
an epoch; the variant "longer" has no auxiliary column and about as many steps. From random weights
the network is small. A teacher of base saw labels of hepatocyte clearance and CYP inhibition.
"""

import argparse
from itertools import product
from pathlib import Path

import pandas as pd
from sklearn.metrics import roc_auc_score

import molattn
from molattn.training.run import TrainingRun

PAIRS = (
    ("admet/clearance_microsome_az", "admet/clearance_hepatocyte_az"),
    ("potency/CHEMBL262_Ki", "potency/CHEMBL2971_Ki"),
    ("admet/ppbr_az", "admet/lipophilicity_astrazeneca"),
    ("admet/caco2_wang", "admet/lipophilicity_astrazeneca"),
    ("admet/clearance_hepatocyte_az", "admet/clearance_microsome_az"),
    ("admet/cyp2c9_veith", "admet/cyp2d6_veith"),
    ("admet/cyp2d6_veith", "admet/cyp2c9_veith"),
)
VARIANTS = ("alone", "longer", "0.3", "1")  # the numbers are weights of the auxiliary column
FOLDS = 3
FIXED = {"split": "scaffold", "folds": FOLDS, "device": "cpu", "baselines": False, "bootstrap": 0}
SMALL = {"width": 64, "heads": 4, "layers": 2}


def joined(data: Path, target: str, auxiliary: str) -> pd.DataFrame:
    """Return a table with both assays in columns of their own, a row for each molecule."""
    tables = [
        pd.read_csv(data / f"{name}.csv.gz", nrows=3000 if "cyp" in name else 1000)
        .groupby("smiles")[["target"]]
        .mean()
        for name in (target, auxiliary)
    ]
    return pd.concat(tables, axis=1, keys=["y", "auxiliary"]).droplevel(1, axis=1).reset_index()


def scores(run: TrainingRun) -> dict[str, float]:
    """Return the scores of network, Gaussian process and both for the test rows."""
    model, test = run.model, run.table.molecules(run.split.test)
    network, inputs = model.networks.predict(test.records)
    outputs, found = {"network": network}, {}
    if model.gaussian_process is not None:
        outputs["gaussian_process"] = model.gaussian_process.predict(inputs)[None]
        outputs["both"] = model.gaussian_process.combine(network, inputs)
    labels = pd.Series(test.targets[:, 0])
    for name, output in outputs.items():
        values = model.scaling.in_own_units(model.scaling.to_transformed(output)).mean(axis=0)[:, 0]
        found[f"{name}_mae"] = float((labels - values).abs().mean())
        found[f"{name}_spearman"] = labels.corr(pd.Series(values), method="spearman")
        if model.config.tasks[0].kind == "binary":
            found[f"{name}_roc_auc"] = roc_auc_score(labels, values)
    return found


def main() -> None:
    """Train each fold of each pair with each variant, and write the scores as they come."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--init-from", default="base-minimol")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    parser.add_argument("--targets", nargs="+", default=[target for target, _ in PAIRS])
    given, rows = parser.parse_args(), []
    network = {"init_from": given.init_from, **(SMALL if given.init_from == "none" else {})}
    for target, auxiliary in (pair for pair in PAIRS if pair[0] in given.targets):
        table = joined(given.data, target, auxiliary)
        for fold, variant in product(range(1, FOLDS + 1), given.variants):
            options = {**FIXED, **network, "only_fold": fold, "epochs": given.epochs}
            if variant == "longer":
                options["epochs"] = round((given.epochs or 30) * len(table) / table["y"].count())
            elif variant != "alone":
                options |= {"auxiliary_columns": "auxiliary", "auxiliary_weight": float(variant)}
            run = molattn.train(table, "y", **options).run
            row = {"target": target, "fold": fold, "variant": variant, **scores(run)}
            epochs = len(run.histories[0].curve)
            rows.append({**row, "epochs": epochs, "init_from": given.init_from})
            pd.DataFrame(rows).to_csv(given.output, index=False)


if __name__ == "__main__":
    main()
