"""Which scores are shown, and their headings."""

from molattn.task import Task

__all__ = ["HEADINGS", "MODELS", "main_score"]


HEADINGS = {
    "regression": {"rmse": "RMSE", "mae": "MAE", "r2": "R²", "spearman": "Spearman"},
    "classification": {
        "roc_auc": "ROC-AUC",
        "pr_auc": "PR-AUC",
        "mcc": "MCC",
        "nll": "NLL",
        "brier": "Brier",
        "ece": "ECE",
    },
}
"""Scores that are shown of each kind of task, the first of them the one that sums it up."""

MODELS = {
    "test": "molattn",
    "member": "one member",
    "random_forest": "random forest",
    "baseline": "constant",
}
"""Who is scored on the test rows, by the name in ``metrics.json``."""


def main_score(task: Task) -> tuple[str, str]:
    """Return the score that sums up a task: its name in ``metrics.json``, and its heading."""
    kind = "regression" if task.kind == "regression" else "classification"
    return next(iter(HEADINGS[kind].items()))
