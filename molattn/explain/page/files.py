"""Explanations as files: scores of atoms and bonds, attention weights, and drawings."""

import json
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from molattn.data.table import write_table
from molattn.explain.explanation import Explanation

__all__ = ["CONTENTS", "PAGE_FILE", "ExplanationFiles"]

PAGE_FILE = "index.html"
_PICTURES, _JSON, _WEIGHTS = "molecules", "explanations.json", "attention.npz"
_TABLES = {
    "atoms.csv": ("row", "atom", "symbol", "smiles"),
    "bonds.csv": ("row", "atom_1", "atom_2", "smiles"),
    "other_inputs.csv": ("row", "input"),
}
CONTENTS = (PAGE_FILE, _PICTURES, _JSON, *_TABLES, _WEIGHTS)
"""Contents of a folder of explanations."""
_ARRAYS = ("attention", "gates")


class ExplanationFiles:
    """The files of explanations in a folder, written row by row.

    ``atoms.csv``, ``bonds.csv`` and ``other_inputs.csv`` (a row for each feature group of the whole
    molecule) have a column for each method; atoms are in the order of the input and have its
    numbers, from 0; ``explanations.json`` holds all numbers except attention and gates, which are
    in ``attention.npz`` as ``attention_ROW`` ``[layers, heads, n receivers, n senders]`` and
    ``gates_ROW`` ``[layers, heads, n]``; ``molecules`` holds the drawings.

    Args:
        folder: The folder.
        methods: The methods.
        stack: Closes the files.
    """

    def __init__(self, folder: Path, methods: Sequence[str], stack: ExitStack) -> None:
        self._pictures = folder / _PICTURES
        self._pictures.mkdir()
        self._no_scores = [""] * len(methods)
        self._atoms, self._bonds, self._others = (
            stack.enter_context(write_table(folder / name, (*columns, *methods, "error")))
            for name, columns in _TABLES.items()
        )
        self._json = stack.enter_context((folder / _JSON).open("w", encoding="utf-8"))
        self._separator = '{"rows": [\n'
        archive = zipfile.ZipFile(folder / _WEIGHTS, "w", zipfile.ZIP_DEFLATED)
        self._weights = stack.enter_context(archive)

    def add(self, row: int, explanations: Sequence[Explanation]) -> None:
        """Write the explanations of a row (counted from 1), one for each method, in their order."""
        first = explanations[0]
        numbers = first.atom_numbers
        atoms = [[_text(score) for score in one.atom_scores] for one in explanations]
        for number, symbol, *scores in zip(numbers, first.symbols, *atoms, strict=True):
            self._atoms([row, number, symbol, first.smiles, *scores, ""])
        bonds = [[_text(score) for score in one.bond_scores] for one in explanations]
        for (begin, end), *scores in zip(first.bonds, *bonds, strict=True):
            self._bonds([row, numbers[begin], numbers[end], first.smiles, *scores, ""])
        for name in dict.fromkeys(name for one in explanations for name in one.other_scores):
            scores = (one.other_scores.get(name) for one in explanations)
            texts = ("" if score is None else _text(score) for score in scores)
            self._others([row, name, *texts, ""])
        entries = [one.to_dict() for one in explanations]
        for entry in entries:
            for name in _ARRAYS:
                del entry[name]
        self._write_row(row, first.smiles, "", entries)
        for name in _ARRAYS:
            if (array := getattr(first, name)) is not None:
                self._write_array(f"{name}_{row}.npy", array)
        for one in explanations:
            for ending in ("svg", "png"):
                one.save(self._pictures / f"{row}_{one.method}.{ending}")

    def add_error(self, row: int, smiles: str, code: str) -> None:
        """Write a row that has no explanation, with its reason code."""
        for write in (self._atoms, self._bonds):
            write([row, "", "", "", *self._no_scores, code])
        self._others([row, "", *self._no_scores, code])
        self._write_row(row, smiles, code, [])

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Write further entries of ``explanations.json``."""
        start = self._separator if self._separator.startswith("{") else "\n"
        self._json.write(f"{start}],\n{json.dumps(dict(facts), allow_nan=False)[1:]}\n")

    def _write_row(self, row: int, smiles: str, code: str, entries: Sequence[Any]) -> None:
        values = {"row": row, "smiles": smiles, "error": code, "explanations": entries}
        self._json.write(self._separator + json.dumps(values, allow_nan=False))
        self._separator = ",\n"

    def _write_array(self, name: str, array: NDArray[np.float32]) -> None:
        entry = zipfile.ZipInfo(name)  # a fixed date: equal numbers give equal bytes
        entry.compress_type = zipfile.ZIP_DEFLATED
        with self._weights.open(entry, "w") as file:
            np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)


def _text(score: float) -> str:
    return f"{score:.7g}"
