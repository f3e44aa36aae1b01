"""Whether auxiliary assays help: scores of scaffold folds of a model with and without them.

Usage: python -m scripts.experiments.auxiliary DATA OUTPUT.csv [--init-from none] [--epochs 28]
       [--variants alone 1] [--targets esol] [--labels 200 --molecules 600] [--folds 1 2 3]

DATA is a folder of tables with the columns smiles and target: esol.csv, lipo.csv, and the training
parts admet/ and potency/. Of each assay at most 1,000 molecules are used, of CYP inhibition 3,000;
--labels draws labels of the target's training rows, --molecules those of the auxiliary assay. The
variant "longer" has no auxiliary column and about as many steps. From random weights the network is
small. A teacher of base saw labels of hepatocyte clearance and CYP inhibition.

Solubility beside esol and lipo is of molecules that are in neither and resemble none of them
(largest similarity of Morgan counts below 0.4). Errors are in standard deviations of the test
labels; bias is the mean of prediction minus label.
"""

import argparse
import time
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from molattn.chem import same_scaffold
from molattn.chem.fingerprint_index import FingerprintIndex
from molattn.chem.fingerprints import morgan_fingerprint
from molattn.chem.parse import parse_smiles
from molattn.chem.split import fold_split
from molattn.config import TrainConfig
from molattn.training.run import TrainingRun, train

SOLUBILITY = "admet/solubility_aqsoldb.csv.gz"
PAIRS = (
    ("admet/clearance_microsome_az.csv.gz", "admet/clearance_hepatocyte_az.csv.gz"),
    ("potency/CHEMBL262_Ki.csv.gz", "potency/CHEMBL2971_Ki.csv.gz"),
    ("admet/ppbr_az.csv.gz", "admet/lipophilicity_astrazeneca.csv.gz"),
    ("admet/caco2_wang.csv.gz", "admet/lipophilicity_astrazeneca.csv.gz"),
    ("admet/clearance_hepatocyte_az.csv.gz", "admet/clearance_microsome_az.csv.gz"),
    ("admet/cyp2c9_veith.csv.gz", "admet/cyp2d6_veith.csv.gz"),
    ("admet/cyp2d6_veith.csv.gz", "admet/cyp2c9_veith.csv.gz"),
    ("esol.csv", SOLUBILITY),
    ("lipo.csv", SOLUBILITY),
)
VARIANTS = ("alone", "longer", "0.3", "1")  # the numbers are weights of the auxiliary column
FOLDS = 3
FIXED = {"target_columns": "y", "split": "scaffold", "split_column": "part", "device": "cpu"}
QUIET = {"baselines": False, "bootstrap": 0}
SMALL = {"width": 64, "heads": 4, "layers": 2, "graphs": ("pairs",), "norm": "layer"}
MOST_SIMILAR = 0.4


def name_of(pair: tuple[str, str]) -> str:
    """Return the name of the target of a pair."""
    return Path(pair[0]).name.partition(".")[0]


def read(data: Path, name: str) -> pd.Series:
    """Return mean labels by SMILES."""
    table = pd.read_csv(data / name, nrows=3000 if "cyp" in name else 1000)
    return table.set_axis(["smiles", "label"], axis=1).groupby("smiles")["label"].mean()


def read_far(data: Path, name: str, labels: pd.Series) -> pd.Series:
    """Return labels of 2,000 other molecules that resemble none of these."""
    table = pd.read_csv(data / name).sample(2000, random_state=0)
    others = table[table["smiles"].str.len() < 100].groupby("smiles")["target"].mean()
    index = FingerprintIndex([morgan_fingerprint(parse_smiles(text)) for text in labels.index])
    prints = [morgan_fingerprint(parse_smiles(text)) for text in others.index]
    return others[index.similarity(prints) < MOST_SIMILAR]


def joined(data: Path, pair: tuple[str, str], given: argparse.Namespace, fold: int) -> pd.DataFrame:
    """Return a table with both assays in columns of their own, a row for each molecule."""
    labels = read(data, pair[0])
    auxiliary = read_far(data, pair[1], labels) if pair[1] == SOLUBILITY else read(data, pair[1])
    groups = same_scaffold([*labels.index])
    split = fold_split(groups, folds=FOLDS, fold=fold, validation_size=0, seed=0)
    training = np.random.default_rng(fold).permutation(split.train)[: given.labels]
    labels = labels.iloc[np.concatenate([training, split.test])]
    auxiliary = auxiliary.sample(min(given.molecules, len(auxiliary)), random_state=fold)
    table = pd.concat([labels.rename("y"), auxiliary.rename("auxiliary")], axis=1)
    table["part"] = ""
    table.loc[labels.index, "part"] = np.repeat(["train", "test"], [len(training), len(split.test)])
    return table.rename_axis("smiles").reset_index()


def scores(run: TrainingRun) -> dict[str, float]:
    """Return the scores of network, Gaussian process and both for the test rows."""
    model = run.model
    test = run.table.molecules(run.split.test)
    network, inputs = model.networks.predict(test.records)
    outputs = {"network": network}
    if model.gaussian_process is not None:
        outputs["gaussian_process"] = model.gaussian_process.predict(inputs)[None]
        outputs["both"] = model.gaussian_process.combine(network, inputs)
    labels = pd.Series(test.targets[:, 0])
    measured = {}
    for name, output in outputs.items():
        values = model.scaling.in_own_units(model.scaling.to_transformed(output)).mean(axis=0)[:, 0]
        measured[f"{name}_mae"] = float((values - labels).abs().mean() / labels.std())
        measured[f"{name}_bias"] = float((values - labels).mean() / labels.std())
        measured[f"{name}_spearman"] = labels.corr(pd.Series(values), method="spearman")
        if model.config.tasks[0].kind == "binary":
            measured[f"{name}_roc_auc"] = roc_auc_score(labels, values)
    return measured


def main() -> None:
    """Train each fold of each pair with each variant, and write the scores as they come."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--init-from", default="base-minimol")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--labels", type=int)
    parser.add_argument("--molecules", type=int, default=3000)
    parser.add_argument("--folds", type=int, nargs="+", default=[*range(1, FOLDS + 1)])
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    parser.add_argument("--targets", nargs="+", default=[name_of(pair) for pair in PAIRS])
    given = parser.parse_args()
    rows = []
    network = {"init_from": given.init_from, **(SMALL if given.init_from == "none" else {})}
    pairs = [pair for pair in PAIRS if name_of(pair) in given.targets]
    for fold, pair in product(given.folds, pairs):
        table = joined(given.data, pair, given, fold)
        for variant in given.variants:
            options = {**FIXED, **QUIET, **network, "epochs": given.epochs}
            if variant == "longer":
                options["epochs"] = round((given.epochs or 30) * len(table) / table["y"].count())
            elif variant != "alone":
                options |= {"auxiliary_columns": "auxiliary", "auxiliary_weight": float(variant)}
            start = time.process_time()
            run = train(TrainConfig.from_options("", options), frame=table)
            seconds = round(time.process_time() - start, 1)
            labels = len(run.split.train)
            row = {"target": name_of(pair), "fold": fold, "variant": variant, "labels": labels}
            rows.append({**row, "seconds": seconds, **scores(run), "init_from": given.init_from})
            pd.DataFrame(rows).round(4).to_csv(given.output, index=False)


if __name__ == "__main__":
    main()
