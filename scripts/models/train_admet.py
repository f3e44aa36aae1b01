"""Train the packaged model ``admet`` on the 22 tasks of TDC's ADMET group, and package it.

    python -m scripts.models.train_admet FOLDER --output runs/admet

FOLDER has a file ``TASK.csv`` or ``TASK.csv.gz`` for each task with the columns ``smiles`` and
``target``: the training part of the benchmark (``train_val.csv`` of the package pytdc, where they
are named ``Drug`` and ``Y``). They are joined to one table of molecules. Repeated labels are
averaged; of classes the majority counts, and a tie is no label. The folds of a cross-validation by
scaffold calibrate the model of all rows. An interrupted run goes on when the command is given
again.
"""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import TypeAdapter
from rdkit import Chem, rdBase
from rich.console import Console

from molattn import MolAttn
from molattn.config import TrainConfig
from molattn.evaluation.cross_validation import cross_validate
from molattn.evaluation.report.tables import score_cell
from molattn.evaluation.scores.metrics import metrics_of
from molattn.evaluation.scores.run_metrics import CrossValidationMetrics
from molattn.model.artefact import PACKAGED
from molattn.model.training_set import Endpoint

ENDPOINTS = Path(__file__).parents[2] / "datasets" / "admet" / "endpoints.json"
OPTIONS = {
    "folds": 3,
    "split": "scaffold",
    "final": True,
    "validation_size": 0.0,
    "epochs": 14,
    "ensemble": 2,
    "batch_size": 64,
    "learning_rate": 0.0014,
    "precision": "bf16",
    "inducing_points": 4500,  # twice as many, as properties have different molecules
    "descriptors": "none",
    "init_from": "base-minimol",  # base learned from a teacher that has seen these labels
    "keep_training_molecules": True,
    "baselines": False,
    "device": "cpu",
}


def read_task(path: Path) -> pd.Series:
    """Return the mean label of each molecule, by canonical SMILES."""
    table = pd.read_csv(path).rename(columns={"Drug": "smiles", "Y": "target"})
    with rdBase.BlockLogs():
        table["smiles"] = [Chem.CanonSmiles(text) for text in table["smiles"]]
    labels = table.groupby("smiles", sort=False)["target"].mean()
    if set(table["target"]) <= {0.0, 1.0}:
        labels = labels[labels != 0.5].round()
    return labels


def read_tasks(folder: Path, names: list[str]) -> pd.DataFrame:
    """Join the tasks to a table with a row for each molecule."""
    columns = {}
    for name in names:
        found = [path for path in sorted(folder.glob(f"{name}.csv*")) if path.is_file()]
        if not found:
            sys.exit(f"{folder}: no {name}.csv and no {name}.csv.gz")
        columns[name] = read_task(found[0])
    return pd.DataFrame(columns).rename_axis("smiles").reset_index()


def options(table: pd.DataFrame, endpoints: Mapping[str, Endpoint]) -> dict[str, Any]:
    """Return the options of the training: tasks weigh as the square root of their labels."""
    counts = table.drop(columns="smiles").count()
    is_class = [set(table[name].dropna()) <= {0.0, 1.0} for name in counts.index]
    return {
        **OPTIONS,
        "target_columns": (*counts.index,),
        "target_units": tuple(
            "" if binary else endpoints[name].unit
            for name, binary in zip(counts.index, is_class, strict=True)
        ),
        "task": tuple("binary" if binary else "regression" for binary in is_class),
        "task_weights": tuple(np.sqrt(counts.mean() / counts).round(3).tolist()),
    }


def with_results(
    endpoints: Mapping[str, Endpoint], model: MolAttn, metrics: CrossValidationMetrics
) -> dict[str, Endpoint]:
    """Add the number of labels, the scores and the coverage of the cross-validation."""
    if model.training_set is None:
        raise ValueError("the model has no training set")
    uncertainty = metrics.final.uncertainty if metrics.final else {}
    found = {}
    for task, labels in zip(model.config.tasks, model.training_set.labels, strict=True):
        own = metrics.scores["test"].tasks[task.name]
        scores = [
            f"{metric.heading} {score_cell(own, key)}"
            for key, metric in metrics_of(task.kind, with_heading=True).items()
            if key in own
        ]
        found[task.name] = replace(
            endpoints[task.name],
            rows=labels.count,
            scores=", ".join(scores),
            coverage=uncertainty.get(task.name, {}).get("coverage"),
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="with TASK.csv or TASK.csv.gz for each task")
    parser.add_argument("--output", type=Path, default=Path("runs/admet"), help="folder of the run")
    parser.add_argument(
        "--package", type=Path, default=PACKAGED / "admet", help="folder of the packaged model"
    )
    args = parser.parse_args()
    endpoints = TypeAdapter(dict[str, Endpoint]).validate_json(ENDPOINTS.read_bytes())
    args.output.mkdir(parents=True, exist_ok=True)
    path = args.output / "admet.csv"
    table = read_tasks(args.folder, [*endpoints])
    table.to_csv(path, index=False)
    config = TrainConfig.from_options(str(path), options(table, endpoints))
    metrics = cross_validate(config, args.output, Console(stderr=True))
    assert metrics is not None  # None only in processes beside the first
    model = MolAttn.from_pretrained(args.output / "model")
    model.config = replace(model.config, standardize="parent")
    model.endpoints = with_results(endpoints, model, metrics)
    scores = {name: endpoint.scores for name, endpoint in model.endpoints.items()}
    model.save_pretrained(args.package, scores=scores)
    print(f"packaged in {args.package}")


if __name__ == "__main__":
    main()
