"""Whether one model of nine targets earns its place: its errors next to nine models of one each.

Usage: python -m scripts.experiments.several_networks DATA OUTPUT.csv [--molecules 600]

DATA is a folder of training parts, tables with the columns smiles and target. Of each at most
``--molecules`` are drawn; a molecule is in the same scaffold fold for all targets. All options
are defaults; runs that OUTPUT has are not repeated. "separate" is the network of all targets with a
Gaussian process for each that knows the labels of its target alone.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import molattn
from molattn.chem import same_scaffold
from molattn.chem.split import fold_split
from molattn.model.gaussian_process import GaussianProcessHead
from molattn.training.run import TrainingRun

LOGARITHMS = ("vdss_lombardo", "half_life_obach")
TARGETS = ("caco2_wang", "lipophilicity_astrazeneca", "solubility_aqsoldb", "ppbr_az", *LOGARITHMS)
TARGETS += ("clearance_hepatocyte_az", "clearance_microsome_az", "ld50_zhu")
FOLDS, TIMED = 3, 300
FIXED = {"split_column": "split", "device": "cpu", "baselines": False, "bootstrap": 0}


def read(data: Path, most: int) -> pd.DataFrame:
    """Return a table of all targets, a row for each molecule."""
    columns = {}
    for name in TARGETS:
        table = pd.read_csv(data / f"{name}.csv.gz")
        labels = table.sample(min(most, len(table)), random_state=0).groupby("smiles")["target"]
        columns[name] = labels.mean().map(np.log10) if name in LOGARITHMS else labels.mean()
    return pd.concat(columns, axis=1).sort_index().reset_index(names="smiles")


def outputs(run: TrainingRun) -> dict[str, Any]:
    """Return what each part of a model predicts for the test rows, in scaled units."""
    model, head = run.model, run.model.gaussian_process
    assert head is not None
    learned = run.table.molecules(np.concatenate([run.split.train, run.split.val]))
    (network,), inputs = model.networks.predict(run.table.molecules(run.split.test).records)
    process, separate = head.predict(inputs), np.empty_like(network)
    known = model.networks.predict(learned.records)[1]
    labels = model.scaling.scaled_labels(torch.from_numpy(learned.targets)).double().numpy()
    for column, task in enumerate(model.config.tasks):
        rows = np.flatnonzero(~np.isnan(labels[:, column]))
        config = replace(model.config, tasks=(task,), target_transforms=())
        one = GaussianProcessHead.fit(config, known[rows], labels[rows][:, [column]])
        separate[:, [column]] = one.predict(inputs)
    found = {"network": network, "process": process, "both": head.mean(network, process)}
    return found | {"separate": separate, "both_separate": head.mean(network, separate)}


def scores(run: TrainingRun) -> pd.DataFrame:
    """Return the MAE of the test rows, and of the validation rows, by target."""
    model, table, (_, validation, test) = run.model, run.table, run.split
    values = {name: model.scaling.to_transformed(one) for name, one in outputs(run).items()}
    rows = dict.fromkeys(values, test) | {"validation": validation}
    values["validation"] = run.validation_outputs[0]
    found = {
        name: np.nanmean(abs(model.scaling.in_own_units(one) - table.targets[rows[name]]), axis=0)
        for name, one in values.items()
    }
    counts = {"labels": (~np.isnan(table.targets[test])).sum(axis=0)}
    assert model.gaussian_process is not None
    found |= counts | {"share": model.gaussian_process.shares}
    return pd.DataFrame(found, index=[task.name for task in model.config.tasks])


def main() -> None:
    """Train the models of each fold, and write the scores as they come."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--molecules", type=int, default=600)
    given = parser.parse_args()
    most = given.molecules
    table, done = read(given.data, most), pd.DataFrame({"molecules": [], "fold": [], "model": []})
    if given.output.exists():
        done = pd.read_csv(given.output)
    groups = same_scaffold(table["smiles"].tolist())
    for place in range(FOLDS * (1 + len(TARGETS))):
        fold, number = divmod(place, 1 + len(TARGETS))
        name = ("all", *TARGETS)[number]
        same = (done["molecules"] == most) & (done["fold"] == fold + 1) & (done["model"] == name)
        if same.any():
            continue
        split = fold_split(groups, folds=FOLDS, fold=fold + 1, seed=0)
        for part, rows in zip(("train", "val", "test"), split, strict=True):
            table.loc[rows, "split"] = part
        targets = [*TARGETS] if name == "all" else [name]
        start = time.process_time()
        run = molattn.train(table.dropna(subset=targets, how="all"), targets, **FIXED).run
        trained = time.process_time()
        run.model.predict(table["smiles"][:TIMED].tolist())
        seconds = {"training": trained - start, "prediction": time.process_time() - trained}
        one = scores(run).rename_axis("target").reset_index()
        one = one.assign(molecules=most, fold=fold + 1, model=name, **seconds)
        done = pd.concat([done, one]).round(5)
        done.to_csv(given.output, index=False)


if __name__ == "__main__":
    main()
