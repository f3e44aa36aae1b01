"""The result of a faithfulness test in words, for the page and the terminal."""

from collections.abc import Sequence
from typing import NamedTuple

from molattn.explain.faithfulness.deletion_insertion import Estimate, Faithfulness

__all__ = ["FaithfulnessSummary", "summarize"]

_CONTROLS = ("uniform", "random")
_FEW = 30  # molecules, below which bootstrap intervals are too narrow
_MASKED = {
    "remove": "A masked atom is removed from the graph",
    "blank": "A masked atom is replaced by the average atom",
}
_LOSS = {
    "support": "moves towards the prediction without any atom",
    "distance": "moves in either direction",
}


class FaithfulnessSummary(NamedTuple):
    """Whether the atoms that each method ranks highest matter to the model.

    Args:
        sentence: The conclusion.
        headings: Headings of the columns of numbers.
        rows: Method, cells (a value and its interval, both as text), verdict, and whether it beats
            random (None for ``uniform`` and ``random``).
        note: How it was measured.
    """

    sentence: str
    headings: Sequence[str]
    rows: Sequence[tuple[str, Sequence[tuple[str, str]], str, bool | None]]
    note: str


def summarize(result: Faithfulness) -> FaithfulnessSummary:
    """Summarize the result of a faithfulness test in words."""
    rows = []
    for row in result.rows:
        estimates, verdict = row.cells
        good = None if row.method in _CONTROLS else row.beats_random
        rows.append((_title(row.method), [*map(_cell, estimates)], verdict, good))
    return FaithfulnessSummary(_sentence(result), result.headings, rows, _note(result))


def _sentence(result: Faithfulness) -> str:
    tested = [row for row in result.rows if row.method not in _CONTROLS]
    good = [_title(row.method) for row in tested if row.beats_random]
    other = [f"{_title(row.method)} ({row.verdict})" for row in tested if not row.beats_random]
    count = f"{result.molecules:,} molecule{'s' * (result.molecules != 1)}"
    parts = []
    if good:
        parts.append(
            f"The atoms highlighted by {_listed(good)} matter more to this model than random "
            f"atoms, in both tests on {count}."
        )
    if other:
        parts.append(
            f"On {count} this was not shown for {_listed(other)}: do not rely on those colors."
        )
    return " ".join(parts)


def _note(result: Faithfulness) -> str:
    single = f" {result.skipped:,} with a single atom were left out." if result.skipped else ""
    classes = few = ""
    if len(result.outputs) > 1:
        counts = ", ".join(f"{name} ({count:,})" for name, count in sorted(result.outputs.items()))
        classes = f" Each molecule was tested on its most probable class: {counts}."
    if result.molecules < _FEW:
        few = f" {result.molecules} molecules are few: {_FEW} or more give more reliable intervals."
    return (
        "Deletion masks the highest-ranked atoms first and averages how far the prediction "
        f"{_LOSS[result.measure]} (more is better); insertion masks all but the highest-ranked "
        f"atoms (less is better). {_MASKED[result.masking]}. Random is the mean over "
        f"{result.random_orders} random orders of each molecule; uniform is the order of the "
        "SMILES. Below each number is its 95 % bootstrap interval over molecules; a method beats "
        f"random where the intervals of both gains lie above 0.{few}{single}{classes}"
    )


def _cell(estimate: Estimate | None) -> tuple[str, str]:
    if estimate is None:
        return "-", ""
    mean, low, high = (
        f"{number:.3f}".replace("-", "\N{MINUS SIGN}")
        for number in (estimate.mean, estimate.low, estimate.high)
    )
    return mean, f"{low} to {high}"


def _title(method: str) -> str:
    return method.replace("_", " ")


def _listed(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
