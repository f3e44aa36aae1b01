"""What a prediction of a table shows: molecules beyond the domain, and scores if it has labels."""

from collections import Counter

from rich.console import Console

from molattn.errors import quoted
from molattn.evaluation.metrics import score_tasks
from molattn.evaluation.tables import rich_table, score_tables
from molattn.inference.predict import DOMAIN_SIMILARITY, Screening
from molattn.utils.console import counted, print_line

__all__ = ["print_label_scores"]

_RESAMPLES = 1000  # of the bootstrap
_MOST_TARGETS = 5  # whose molecules beyond the domain are listed


def print_label_scores(screening: Screening, console: Console) -> None:
    """Print the molecules beyond the domain of a model, and the scores if there are labels."""
    tally = screening.tally
    if outside := tally.number("outside"):
        print_line(
            console,
            f"{counted(outside, 'molecule')} beyond the domain of the model "
            f"(training_similarity below {DOMAIN_SIMILARITY})",
        )
    if by_task := Counter(tally.counts.get("outside_by_task", {})):
        counts = [f"{name} {count:,}" for name, count in by_task.most_common(_MOST_TARGETS)]
        if (others := len(by_task) - _MOST_TARGETS) > 0:
            counts.append(f"and {counted(others, 'more target')}")
        print_line(
            console,
            f"of {counted(screening.counts.done, 'molecule')}, beyond the domain of a target "
            f"(NAME_training_similarity below {DOMAIN_SIMILARITY}): {', '.join(counts)}",
        )
    for name, count in tally.counts.get("unusable", {}).items():
        first = f"{counted(count, 'label')} cannot be read (first: {tally.examples[name]})"
        print_line(console, f"{quoted(name)}: {first}")
    for name, count in tally.counts.get("censored", {}).items():
        print_line(console, f"{quoted(name)}: {counted(count, 'censored label')} not scored")
    if len(screening.target):
        _print_scores(screening, console)


def _print_scores(screening: Screening, console: Console) -> None:
    tasks, target = screening.tasks, screening.target
    scores = score_tasks(screening.prediction, target, tasks, resamples=_RESAMPLES)
    line = f"{counted(len(target), 'row')} with labels"
    if trained := screening.tally.number("trained"):
        line += (
            f"; {trained:,} with the fingerprint of a training molecule, whose errors are smaller "
            "than those of new molecules"
        )
    print_line(console, f"{line}:")
    known = [task for task in tasks if scores.tasks[task.name]["count"]]
    for table in score_tables(known, {"test": scores.tasks, "test_mean": scores.mean}):
        console.print(rich_table(table), markup=False)
