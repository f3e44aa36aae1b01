"""Explanations as files: scores of atoms and bonds, attention weights, and drawings."""

import json
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from molattn.data.table import write_table
from molattn.explain.explanation import Explanation

__all__ = ["CONTENTS", "PAGE_FILE", "ExplanationFiles", "explanation_files"]

PAGE_FILE = "index.html"
_PICTURES = "molecules"
_JSON, _WEIGHTS = "explanations.json", "attention.npz"
_ATOMS, _BONDS, _OTHERS = "atoms.csv", "bonds.csv", "other_inputs.csv"
CONTENTS = (PAGE_FILE, _PICTURES, _JSON, _ATOMS, _BONDS, _OTHERS, _WEIGHTS)
"""Contents of a folder of explanations."""
_ARRAYS = ("attention", "gates")

RowWriter = Callable[[Any], object]


@dataclass(frozen=True)
class ExplanationFiles:
    """The files, written row by row; opened by :func:`explanation_files`."""

    _methods: Sequence[str]
    _pictures: Path
    _atoms: RowWriter
    _bonds: RowWriter
    _others: RowWriter
    _rows: RowWriter
    _weights: zipfile.ZipFile

    def add(self, row: int, explanations: Sequence[Explanation]) -> None:
        """Write the explanations of a row (counted from 1), one for each method, in their order."""
        first = explanations[0]
        scores = np.stack([one.atom_scores for one in explanations], axis=1)
        numbers, smiles = first.atom_numbers, first.smiles
        for atom, symbol, cells in zip(numbers, first.symbols, scores.tolist(), strict=True):
            self._atoms([row, atom, symbol, smiles, *map(_text, cells), ""])
        scores = np.stack([one.bond_scores for one in explanations], axis=1)
        for (begin, end), cells in zip(first.bonds, scores.tolist(), strict=True):
            ends = numbers[begin], numbers[end]
            self._bonds([row, *ends, smiles, *map(_text, cells), ""])
        for name in dict.fromkeys(name for one in explanations for name in one.other_scores):
            found = (one.other_scores.get(name) for one in explanations)
            cells = ("" if score is None else _text(score) for score in found)
            self._others([row, name, *cells, ""])
        self._rows(
            {
                "row": row,
                "smiles": first.smiles,
                "error": "",
                "explanations": [_without_arrays(one) for one in explanations],
            }
        )
        for name in _ARRAYS:
            if (array := getattr(first, name)) is not None:
                _write_array(self._weights, f"{name}_{row}", array)
        for one in explanations:
            for ending in ("svg", "png"):
                one.save(self._pictures / f"{row}_{one.method}.{ending}")

    def add_error(self, row: int, smiles: str, code: str) -> None:
        """Write a row that has no explanation, with its reason code."""
        empty = [""] * (3 + len(self._methods))
        self._atoms([row, *empty, code])
        self._bonds([row, *empty, code])
        self._others([row, *empty[2:], code])
        self._rows({"row": row, "smiles": smiles, "error": code, "explanations": []})


@contextmanager
def explanation_files(
    folder: Path, methods: Sequence[str], facts: Mapping[str, Any]
) -> Iterator[ExplanationFiles]:
    """Write the files of explanations into a folder.

    ``atoms.csv``, ``bonds.csv`` and ``other_inputs.csv`` (a row for each feature group of the whole
    molecule) have a column for each method; atoms are in the order of the input and have its
    numbers, from 0; ``explanations.json`` holds all
    numbers except attention and gates, which are in ``attention.npz`` as ``attention_ROW``
    ``[layers, heads, n receivers, n senders]`` and ``gates_ROW`` ``[layers, heads, n]``;
    ``molecules`` holds the drawings. ``facts`` are further entries of ``explanations.json``, read
    when the block ends.
    """
    pictures = folder / _PICTURES
    pictures.mkdir()
    atoms = ("row", "atom", "symbol", "smiles", *methods, "error")
    bonds = ("row", "atom_1", "atom_2", "smiles", *methods, "error")
    others = ("row", "input", *methods, "error")
    with (
        write_table(folder / _ATOMS, atoms) as write_atom,
        write_table(folder / _BONDS, bonds) as write_bond,
        write_table(folder / _OTHERS, others) as write_other,
        _json_rows(folder / _JSON, facts) as write_row,
        zipfile.ZipFile(folder / _WEIGHTS, "w", zipfile.ZIP_DEFLATED) as weights,
    ):
        writers = write_atom, write_bond, write_other, write_row
        yield ExplanationFiles(methods, pictures, *writers, weights)


@contextmanager
def _json_rows(path: Path, facts: Mapping[str, Any]) -> Iterator[RowWriter]:
    """Write a JSON object whose entry ``rows`` is written row by row, before the other entries."""
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"rows": [')
        separators = chain(["\n"], repeat(",\n"))
        yield lambda row: file.write(next(separators) + json.dumps(row, allow_nan=False))
        file.write(f"\n],\n{json.dumps(dict(facts), allow_nan=False)[1:]}\n")


def _without_arrays(explanation: Explanation) -> dict[str, Any]:
    values = explanation.to_dict()
    return {name: value for name, value in values.items() if name not in _ARRAYS}


def _write_array(archive: zipfile.ZipFile, name: str, array: NDArray[np.float32]) -> None:
    entry = zipfile.ZipInfo(f"{name}.npy")  # a fixed date: equal numbers give equal bytes
    entry.compress_type = zipfile.ZIP_DEFLATED
    with archive.open(entry, "w") as file:
        np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)


def _text(score: float) -> str:
    return f"{score:.7g}"
