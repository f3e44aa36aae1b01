"""What the peers share that train from Python: their table, their options, their predictions.

A peer is a script with its own environment, which need not have molattn:

    python NAME_model.py TABLE OUTPUT --kind regression|binary --seed 0 [options]

TABLE has the columns ``smiles``, ``y`` and ``split`` (train, val or test). OUTPUT gets a row for
each of its rows, in order, with the column ``y_predicted``: a number, or class 1's probability.
"""

import argparse
import csv
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Table(NamedTuple):
    """SMILES, their labels and their parts, row by row."""

    smiles: list[str]
    y: NDArray[np.float64]
    split: NDArray[np.str_]

    def rows(self, part: str) -> NDArray[np.intp]:
        """Return the row numbers of a part."""
        return np.flatnonzero(self.split == part)


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser of what every peer is told."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("table", metavar="TABLE", help="CSV file: smiles, y, split")
    parser.add_argument("output", metavar="OUTPUT", help="CSV file to write: y_predicted")
    parser.add_argument("--kind", choices=["regression", "binary"], required=True)
    parser.add_argument("--seed", type=int, default=0, help="(default: %(default)s)")
    return parser


def read_table(path: str) -> Table:
    """Read the table of a run."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return Table(
        [row["smiles"] for row in rows],
        np.array([float(row["y"]) for row in rows]),
        np.array([row["split"] for row in rows]),
    )


def write_predictions(path: str, values: Iterable[float]) -> None:
    """Write a prediction for each row of the table."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["y_predicted"], *([repr(float(value))] for value in values)])
