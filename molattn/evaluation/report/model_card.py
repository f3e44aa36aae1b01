"""The README.md of a trained model: what it predicts, how it was trained, and what it is for."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from molattn.config import TrainConfig
from molattn.evaluation.report.headline import make_headline
from molattn.evaluation.report.tables import score_cell, scored_rows, split_text, tasks_of
from molattn.evaluation.scores.metrics import metrics_of
from molattn.model.artefact import MODEL_FILES
from molattn.model.model import MolAttn
from molattn.utils.files import write_file

_FACTS = """
Data: {table} (SHA-256 {data_sha256}), {rows_used:,} rows used, {rows_skipped:,} skipped; rows for
training {rows_train:,}, validation {rows_validation:,}, test {rows_test:,}; split: {split}.
Trained on {date:%Y-%m-%d} with molattn {versions[molattn]}, by:

    {command}

## Domain and intended use

The model is for molecules like those that it was trained on: `molattn predict` returns the
similarity to the nearest of them, a confidence and an expected error. {conclusion}
It ranks and filters candidates for experiments; it does not replace a measurement, and is not for
decisions on the treatment of patients.

## License

License: not stated. It depends on the license of the data.

## Files

{files}
"""


def save_with_card(
    model: MolAttn, config: TrainConfig, metrics: Mapping[str, Any], folder: Path
) -> None:
    """Save a model in ``model/`` of a folder, with a card of the scores in its ``metrics.json``."""
    scored = scored_rows(metrics)
    tasks = tasks_of(metrics)
    facts = metrics
    rows = f" on {{count}} {scored} molecules{' (there was no test)' * (scored != 'test')}"
    if "folds" in metrics:
        facts = {**metrics["folds"][0], "rows_train": metrics["folds"][0]["rows_used"]}
        facts |= {"rows_validation": 0, "rows_test": 0}
        rows = (
            f": mean and standard deviation over {len(metrics['folds'])} folds of a "
            "cross-validation; this model, of all rows, was not tested itself"
        )
    scores = {}
    for task in tasks:
        task_scores = metrics[scored][task.name]
        headed_metrics = metrics_of(task.kind, with_heading=True).items()
        values = [
            f"{metric.heading} {score_cell(task_scores, key)}"
            for key, metric in headed_metrics
            if key in task_scores
        ]
        scores[task.name] = f"{', '.join(values)}{rows.format(count=task_scores.get('count'))}"
    model.save_pretrained(folder / "model", scores=scores)
    files = [f"- `{name}`" for name in MODEL_FILES if (folder / "model" / name).exists()]
    text = _FACTS.format(
        **facts,
        table=Path(config.file).name or "a DataFrame",
        split=split_text(config.data),
        date=datetime.now(UTC),
        command=config.command_line("train"),
        conclusion=make_headline(tasks, metrics, folder).conclusion,
        files="\n".join(files),
    )
    write_file(folder / "model" / "README.md", (model.card(scores) + text).encode())
