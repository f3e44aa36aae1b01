"""The result of deletion and insertion tests in words, for the page and the terminal."""

from collections.abc import Sequence
from typing import NamedTuple

from molattn.explain.faithfulness.deletion_insertion import Estimate, Faithfulness

__all__ = ["FaithfulnessSummary", "summarize"]

_CONTROLS = ("uniform", "random")
_FEW = 30  # molecules, below which bootstrap intervals are too narrow for a verdict
_MASKED = {
    "remove": "A masked atom is removed from the graph",
    "blank": "A masked atom is replaced by the average atom",
}
_LOSS = {
    "support": "moves toward the prediction for the empty graph",
    "distance": "moves in either direction",
}


class FaithfulnessSummary(NamedTuple):
    """The result of deletion and insertion tests.

    Args:
        sentence: The methods that passed and those that failed.
        headings: Headings of the columns of numbers.
        rows: Method, cells (a value and its confidence interval, as text), verdict, and whether it
            beats random (None for ``uniform`` and ``random``, and with too few molecules).
        note: How the tests were made.
    """

    sentence: str
    headings: Sequence[str]
    rows: Sequence[tuple[str, Sequence[tuple[str, str]], str, bool | None]]
    note: str


def summarize(result: Faithfulness) -> FaithfulnessSummary:
    """Summarize the result of deletion and insertion tests in words."""
    rows = []
    for row in result.rows:
        estimates, verdict = row.cells
        good = None if row.method in _CONTROLS else row.beats_random
        if result.molecules < _FEW:
            good, verdict = None, "-"
        rows.append((_title(row.method), [*map(_cell, estimates)], verdict, good))
    return FaithfulnessSummary(_sentence(result), result.headings, rows, _note(result))


def _sentence(result: Faithfulness) -> str:
    tested = [row for row in result.rows if row.method not in _CONTROLS]
    good = [_title(row.method) for row in tested if row.beats_random]
    other = [f"{_title(row.method)} ({row.verdict})" for row in tested if not row.beats_random]
    count = f"{result.molecules:,} molecule{'s' * (result.molecules != 1)}"
    if result.molecules < _FEW:
        return (
            f"Deletion and insertion tests on {count}: too few for a verdict (at least {_FEW} "
            "needed)."
        )
    parts = [f"Deletion and insertion tests on {count}."]
    if good:
        parts.append(f"Passed (beats random in both tests): {', '.join(good)}.")
    if other:
        failed = f"Not passed: {', '.join(other)}."
        parts += [failed, "Do not rely on the scores of a method that did not pass."]
    return " ".join(parts)


def _note(result: Faithfulness) -> str:
    single = (
        f" Molecules with a single atom, skipped: {result.skipped:,}." if result.skipped else ""
    )
    classes = few = ""
    if len(result.outputs) > 1:
        counts = ", ".join(f"{name} ({count:,})" for name, count in sorted(result.outputs.items()))
        classes = f" Each molecule was tested on its most probable class: {counts}."
    if result.molecules < _FEW:
        few = f" With fewer than {_FEW} molecules, these intervals are unreliable."
    return (
        "Deletion masks the highest-ranked atoms first and averages how far the prediction "
        f"{_LOSS[result.measure]} (larger is better). Insertion masks all but the highest-ranked "
        f"atoms (smaller is better). {_MASKED[result.masking]}. random: mean over "
        f"{result.random_orders} random rankings of each molecule; uniform: atoms in the order of "
        "the SMILES. Below each number is its 95% bootstrap confidence interval over molecules; a "
        "method beats random if the intervals of both gains are above 0."
        f"{few}{single}{classes}"
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
