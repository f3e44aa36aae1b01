"""The scores of predictions of a table that has labels."""

from rich.console import Console

from molattn.errors import quoted
from molattn.evaluation.metrics import score_tasks
from molattn.evaluation.tables import print_tables, score_tables
from molattn.inference.predict import DOMAIN_SIMILARITY, PredictedTable
from molattn.utils.console import counted, print_line

_RESAMPLES = 1000  # of the bootstrap


def print_label_scores(table: PredictedTable, console: Console) -> None:
    """Print the molecules beyond the domain of a model, and the scores if there are labels."""
    tally, tasks, target = table.tally, table.tasks, table.target
    if outside := tally.get("outside"):
        print_line(
            console,
            f"{counted(outside, 'molecule')} beyond the domain of the model "
            f"(training_similarity below {DOMAIN_SIMILARITY})",
        )
    for kind, text in (("unusable", "cannot be read"), ("censored", "censored, not scored")):
        for name, count in tally.get(kind, {}).items():
            if count:
                print_line(console, f"{quoted(name)}: {counted(count, 'label')} {text}")
    if len(target):
        line = f"{counted(len(target), 'row')} with labels"
        if trained := tally["trained"]:
            line += (
                f"; {trained:,} with the fingerprint of a training molecule, whose errors are "
                "smaller than those of new molecules"
            )
        print_line(console, f"{line}:")
        scores = score_tasks(table.prediction, target, tasks, resamples=_RESAMPLES)
        known = [task for task in tasks if scores.tasks[task.name]["count"]]
        metrics = {"test": scores.tasks, "test_mean": scores.mean}
        print_tables(score_tables(known, metrics), console)
