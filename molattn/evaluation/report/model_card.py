"""The README.md of a trained model: what it predicts, how it was trained, and what it is for."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from molattn.config import TrainConfig
from molattn.evaluation.report.headline import make_headline
from molattn.evaluation.report.tables import score_cell, scored_rows, split_text
from molattn.evaluation.scores.metrics import ScoredKind, metrics_of, scored_kind
from molattn.evaluation.scores.run_metrics import CrossValidationMetrics, Metrics
from molattn.model.artefact import MODEL_FILES, model_card
from molattn.model.model import MolAttn
from molattn.utils.files import write_file

_FACTS = """
Data: {table} (SHA-256 {run.data_sha256}), {run.rows_used:,} rows used, {run.rows_skipped:,}
skipped; rows for training {run.rows_train:,}, validation {run.rows_validation:,}, test
{run.rows_test:,}; split: {split}.
Trained on {date:%Y-%m-%d} with molattn {run.versions[molattn]}, by:

    {command}

## Domain and intended use

The model is for molecules like those that it was trained on: `molattn predict` returns {returned}.
{conclusion}
It ranks and filters candidates for experiments; it does not replace a measurement, and is not for
decisions on the treatment of patients.

## License

License: not stated. It depends on the license of the data.

## Files

{files}
"""

_SIMILARITY = "the\nsimilarity to the nearest of them, a confidence and an expected error"


def save_with_card(model: MolAttn, config: TrainConfig, metrics: Metrics, folder: Path) -> None:
    """Save a model in ``model/`` of a folder, with a card of its scores."""
    scored = scored_rows(metrics.scores)
    run = metrics.runs[0]
    tasks = run.tasks
    rows = f" on {{count}} {scored} molecules{' (there was no test)' * (scored != 'test')}"
    if isinstance(metrics, CrossValidationMetrics):
        run = replace(run, rows_train=run.rows_used, rows_validation=0, rows_test=0)
        rows = (
            f": mean and standard deviation over {len(metrics.folds)} folds of a "
            "cross-validation; this model, of all rows, was not tested itself"
        )
    scores = {}
    for task in tasks:
        task_scores = metrics.scores[scored].tasks[task.name]
        kinds: list[ScoredKind] = [scored_kind(task, task_scores), "fold"]
        headed_metrics = metrics_of(*kinds, with_heading=True).items()
        values = [
            f"{metric.heading} {score_cell(task_scores, key)}"
            for key, metric in headed_metrics
            if key in task_scores
        ]
        count = str(task_scores.get("count"))
        if "molecules" in task_scores:  # of atoms or bonds
            count += f" labels of {task_scores['molecules']}"
        scores[task.name] = f"{', '.join(values)}{rows.format(count=count)}"
    model.save_pretrained(folder / "model", scores=scores)
    files = [f"- `{name}`" for name in MODEL_FILES if (folder / "model" / name).exists()]
    text = _FACTS.format(
        run=run,
        table=Path(config.file).name or "a DataFrame",
        split=split_text(config.data),
        date=datetime.now(UTC),
        command=config.command_line("train"),
        returned=_SIMILARITY if model.config.tasks else "intervals and expected errors of numbers",
        conclusion=make_headline(tasks, metrics, folder).conclusion,
        files="\n".join(files),
    )
    card = model_card(model.config.tasks_by_method, scores) + text
    write_file(folder / "model" / "README.md", card.encode())
