"""Train the packaged model ``admet`` on the 22 tasks of TDC's ADMET group, and package it.

    python -m scripts.models.train_admet FOLDER --output runs/admet

FOLDER has a file ``TASK.csv`` or ``TASK.csv.gz`` for each task with the columns ``smiles`` and
``target``: the training part of the benchmark (``train_val.csv`` of the package pytdc, where they
are named ``Drug`` and ``Y``). They are joined to one table of molecules, each property by the form
of ``endpoints.json``: labels of salts and ions are of their parent, or of the molecule as it is
written, uncharged where hydrogen atoms can move (``scripts/experiments/forms.py`` compares the
two). Repeated labels are averaged; of
classes the majority counts, and a tie is no label. The folds of a cross-validation by scaffold
calibrate the model of all rows. An interrupted run goes on when the command is given again.
"""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import TypeAdapter
from rdkit import Chem, rdBase
from rich.console import Console

from molattn import MolAttn
from molattn.chem.limits import read_molecule
from molattn.config import MoleculeLimits, TrainConfig
from molattn.errors import SmilesError
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
    "inducing_points": 4500,  # twice as many, as properties have different molecules
    "descriptors": "none",
    "init_from": "base-minimol",  # base learned from a teacher that has seen these labels
    "keep_training_molecules": True,
    "baselines": False,
    "device": "cpu",
}


@cache
def form_smiles(smiles: str, form: str) -> str | None:
    """Return the canonical SMILES of a molecule's parent, or as written; None if it has no parent.

    A molecule as written is uncharged, see :func:`molattn.chem.parents.uncharged`.
    """
    standardize = "parent" if form == "parent" else "uncharged"
    try:
        options: Any = {"standardize": standardize, "unify": False}
        return Chem.MolToSmiles(read_molecule(smiles, MoleculeLimits(), bool, **options)[0])
    except SmilesError:
        return None


def merged_labels(labels: pd.Series) -> pd.Series:
    """Return the mean of the labels of each molecule; of classes the majority, without ties."""
    merged = labels.groupby(level=0, sort=False).mean()
    if set(labels) <= {0.0, 1.0}:
        merged = merged[merged != 0.5].round()
    return merged


def read_task(path: Path, *, form: str | None = None) -> pd.Series:
    """Return the label of each molecule, by the canonical SMILES of a form; None = as drawn.

    Molecules without a parent are as drawn.
    """
    table = pd.read_csv(path).rename(columns={"Drug": "smiles", "Y": "target"})
    with rdBase.BlockLogs():
        smiles = [Chem.CanonSmiles(text) for text in table["smiles"]]
        if form is not None:
            smiles = [form_smiles(text, form) or text for text in smiles]
    return merged_labels(pd.Series(table["target"].to_numpy(float), smiles))


def read_tasks(folder: Path, forms: Mapping[str, str]) -> pd.DataFrame:
    """Join tasks, each with labels of a form of molecules, to a table with a row for each."""
    columns = {}
    for name, form in forms.items():
        found = [path for path in sorted(folder.glob(f"{name}.csv*")) if path.is_file()]
        if not found:
            sys.exit(f"{folder}: no {name}.csv and no {name}.csv.gz")
        columns[name] = read_task(found[0], form=form)
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
    table = read_tasks(args.folder, {name: card.form for name, card in endpoints.items()})
    table.to_csv(path, index=False)
    config = TrainConfig.from_options(str(path), options(table, endpoints))
    metrics = cross_validate(config, args.output, Console(stderr=True))
    assert metrics is not None  # None only in processes beside the first
    model = MolAttn.from_pretrained(args.output / "model")
    written = tuple(name for name, card in endpoints.items() if card.form == "written")
    model.config = replace(model.config, standardize="parent", written_tasks=written)
    model.endpoints = with_results(endpoints, model, metrics)
    scores = {name: endpoint.scores for name, endpoint in model.endpoints.items()}
    model.save_pretrained(args.package, scores=scores)
    print(f"packaged in {args.package}")


if __name__ == "__main__":
    main()
