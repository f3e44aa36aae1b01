"""What a faithfulness test found, in the words of the page."""

from collections.abc import Sequence
from typing import NamedTuple

from molattn.explain.faithfulness.bootstrap import Estimate
from molattn.explain.faithfulness.deletion_insertion import Faithfulness

__all__ = ["Verdicts", "verdicts"]


_ORDERS = ("uniform", "random")


class Verdicts(NamedTuple):
    """Whether each method finds what a model rests on, as the page tells it.

    Args:
        sentence: The upshot.
        headings: Of the columns of numbers.
        rows: Method, cells (a value and its interval, both texts), verdict, whether it is good, or
            None of an order that is no method.
        note: How it was measured.
    """

    sentence: str
    headings: Sequence[str]
    rows: Sequence[tuple[str, Sequence[tuple[str, str]], str, bool | None]]
    note: str


def verdicts(found: Faithfulness) -> Verdicts:
    """Tell what a faithfulness test found.

    Args:
        found: Its result.
    """
    unit = f", {found.unit}" if found.unit else ""
    headings = [
        f"Deletion area{unit}",
        "more than random",
        f"Insertion area{unit}",
        "less than random",
    ]
    rows = []
    for row in found.rows:
        gains = [row.deletion_gain, row.insertion_gain]
        areas = [row.deletion_area, row.insertion_area]
        is_random = row.method == "random"
        cells = [
            cell
            for area, gain in zip(areas, gains, strict=True)
            for cell in (_cell(area), ("-", "") if is_random else _cell(gain))
        ]
        verdict = "-" if is_random else row.verdict
        good = None if row.method in _ORDERS else row.beats_random
        rows.append((_title(row.method), cells, verdict, good))
    return Verdicts(_sentence(found), headings, rows, _note(found))


def _sentence(found: Faithfulness) -> str:
    tested = [row for row in found.rows if row.method not in _ORDERS]
    good = [_title(row.method) for row in tested if row.beats_random]
    other = [f"{_title(row.method)} ({row.verdict})" for row in tested if not row.beats_random]
    count = f"{found.molecules:,} molecule{'s' * (found.molecules != 1)}"
    parts = []
    if good:
        parts.append(
            f"The atoms marked by {_listed(good)} matter to this model more than atoms taken at "
            f"random: measured on {count}, in both tests."
        )
    if other:
        parts.append(
            f"On {count} this was not shown for {_listed(other)}: look at those colours as at a "
            "guess."
        )
    return " ".join(parts)


_MASKED = {
    "remove": "A masked atom is taken out of the graph",
    "blank": "A masked atom becomes the average atom",
}
_LOSS = {
    "support": "goes back to what it is without any atom",
    "distance": "moves, whatever the direction",
}
_FEW = 30  # molecules, below which bootstrap intervals are too narrow


def _note(found: Faithfulness) -> str:
    single = f" {found.skipped:,} of a single atom were left out." if found.skipped else ""
    classes = few = ""
    if len(found.outputs) > 1:
        counts = ", ".join(f"{name} ({count:,})" for name, count in sorted(found.outputs.items()))
        classes = f" Each molecule was tested on its likeliest class: {counts}."
    if found.molecules < _FEW:
        few = f" {found.molecules} molecules are few: on {_FEW} and more this means more."
    return (
        "Deletion masks atoms in the order of their scores and averages how far the prediction "
        f"{_LOSS[found.measure]} (more is better); insertion masks all but the first atoms (less "
        f"is better). {_MASKED[found.masking]}. Random is the mean over {found.random_orders} "
        "random orders of each molecule, uniform the order of the SMILES. Below each number: its "
        "95 % bootstrap interval over molecules; a method beats random where those of both gains "
        f"lie above 0.{few}{single}{classes}"
    )


def _cell(estimate: Estimate) -> tuple[str, str]:
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
