"""The model of all rows that follows a cross-validation."""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from molattn.config import TrainConfig
from molattn.data.dataset import TrainingTable
from molattn.data.splitting import undivided
from molattn.evaluation.metrics import fold_note, format_mean, metrics_of
from molattn.evaluation.plots import PNG, learning_curve
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.training.fine_tuning import PretrainedWeights
from molattn.training.history import write_history
from molattn.training.out_of_fold import (
    OutOfFold,
    calibrate_out_of_fold,
    out_of_fold_coverage,
)
from molattn.training.run import train_model, training_molecules
from molattn.training.run_folder import member_folders

__all__ = ["train_final"]


def train_final(
    config: TrainConfig,
    table: TrainingTable,
    pretrained: PretrainedWeights | None,
    folds: Sequence[OutOfFold],
    summary: Mapping[str, Any],
    folder: Path,
    console: Console | None = None,
    *,
    make_model: Callable[[MolAttnConfig], MolAttn] = MolAttn,
) -> dict[str, Any]:
    """Train a model on all rows, calibrate it by the models of the folds, and write it.

    Writes ``model/``, ``history.csv`` and ``learning_curve.png``. The model has no score of its
    own, as no row is left to test it; its model card has those of the cross-validation.

    Args:
        config: Of the cross-validation.
        table: The usable rows.
        pretrained: The model that training starts from, if any.
        folds: Predictions of each fold, of one repetition.
        summary: Scores of the cross-validation, as in its ``metrics.json``.
        folder: The folder of the cross-validation; training resumes from a checkpoint in it.
        console: Where to log.
        make_model: See :func:`molattn.train`.

    Returns:
        ``rows_train``, ``seconds``, ``members`` and ``uncertainty``: by regression the ``coverage``
        of :func:`molattn.training.out_of_fold.out_of_fold_coverage` at ``interval_level``.
    """
    start = time.perf_counter()
    parts = undivided(table)
    model, histories, _ = train_model(
        config, table, parts, pretrained, console, folder=folder, make_model=make_model
    )
    known = training_molecules(config, table, parts)
    calibrate_out_of_fold(model, config, table, folds, known, console)
    seconds = max(time.perf_counter() - start, sum(history.seconds for history in histories))
    card = {"scores": _card_scores(table, summary)}
    model.save_pretrained(folder / "model", model_card_kwargs=card)
    members = member_folders(folder, len(histories))
    for member, history in zip(members, histories, strict=True):
        member.mkdir(exist_ok=True)
        write_history(member, history.epochs)
    if histories:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            learning_curve(histories).savefig(folder / "learning_curve.png", **PNG)
    return {
        "rows_train": len(parts.train),
        "members": [
            {
                "seed": config.training.seed + index,
                "epochs": len(history.epochs),
                "kept_epoch": history.best,
                "frozen_weights": history.frozen_weights,
                "seconds": round(history.seconds, 3),
            }
            for index, history in enumerate(histories)
        ],
        "interval_level": config.report.interval,
        "uncertainty": out_of_fold_coverage(model, table, folds, config.report.interval),
        "seconds": round(seconds, 3),
    }


def _card_scores(table: TrainingTable, summary: Mapping[str, Any]) -> dict[str, str]:
    card = {}
    for task in table.tasks:
        found = summary["test"][task.name]
        folds = len(summary["folds"])
        values = [
            f"{metric.heading} {format_mean(of)}" + (f" ({note})" if note else "")
            for name, metric in metrics_of(task.kind, with_heading=True).items()
            if (of := found.get(name))
            for note in [fold_note(of, folds)]
        ]
        card[task.name] = (
            f"{', '.join(values)}: mean and standard deviation over {folds} folds of "
            "a cross-validation; this model, of all rows, was not tested itself"
        )
    return card
