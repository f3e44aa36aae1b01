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


class Scale(NamedTuple):
    """Labels of a regression to mean 0 and standard deviation 1: ``z = (f(y) - mean) / sd``.

    ``f`` is the natural logarithm if ``log``, otherwise the label itself.
    """

    mean: float
    sd: float
    log: bool

    @classmethod
    def fit(cls, y: NDArray[np.float64]) -> "Scale":
        """Return the scale of training labels, of their logarithms if positive and skewed.

        Skewed is a third standardized moment above 1 that the logarithm brings nearer to 0.
        """
        log = bool((y > 0).all()) and _skewness(y) > max(1.0, abs(_skewness(np.log(y))))
        y = np.log(y) if log else y
        mean, sd = float(y.mean()), float(y.std())
        # Equal labels leave rounding noise, not zero.
        return cls(mean, sd if sd > 1e-12 * abs(mean) else 1.0, log)

    def apply(self, y: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return scaled labels."""
        return ((np.log(y) if self.log else y) - self.mean) / self.sd

    def invert(self, z: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return labels of scaled ones."""
        y = z * self.sd + self.mean
        return np.exp(y) if self.log else y


def _skewness(y: NDArray[np.float64]) -> float:
    centered = y - y.mean()
    return float((centered**3).mean() / ((centered**2).mean() ** 1.5 or 1.0))


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
