"""The average atom and the average pair of atoms, which stand where an atom is masked."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from molattn.chem import Featurizer
from molattn.chem.bulk import MoleculeReader
from molattn.errors import InputError
from molattn.record import MoleculeRecord
from molattn.table import bundled_dataset, open_table

__all__ = ["Average", "amounts", "average_of", "bundled_average"]


class Average(NamedTuple):
    """How often each code occurs.

    Args:
        atom: Among atoms, ``float64 [sum(atom_sizes)]``; each column's add up to 1.
        pair: Among pairs of two different atoms of a molecule, ``float64 [sum(pair_sizes)]``.
    """

    atom: NDArray[np.float64]
    pair: NDArray[np.float64]


def amounts(codes: NDArray[np.uint8], sizes: Sequence[int]) -> NDArray[np.float32]:
    """Return 1 at each of a row's codes, column after column, and 0 elsewhere.

    Args:
        codes: ``[..., len(sizes)]``.
        sizes: Number of codes of each column.

    Returns:
        ``[..., sum(sizes)]``.

    Example:
        >>> amounts(np.array([[1, 0]], dtype=np.uint8), [3, 2]).tolist()
        [[0.0, 1.0, 0.0, 1.0, 0.0]]
    """
    starts = np.cumsum([0, *sizes])[:-1]
    found = np.zeros((*codes.shape[:-1], sum(sizes)), dtype=np.float32)
    np.put_along_axis(found, codes.astype(np.int64) + starts, 1.0, axis=-1)
    return found


def average_of(records: Iterable[MoleculeRecord], featurizer: Featurizer) -> Average:
    """Count codes.

    Args:
        records: Molecules; some must have two atoms or more.
        featurizer: What made them.

    Raises:
        InputError: There is no pair of atoms.
    """
    atom_columns = len(featurizer.atom_sizes)
    counts = np.zeros((atom_columns, 256))
    pairs = np.zeros(256)
    for record in records:
        for column in range(atom_columns):
            counts[column] += np.bincount(record.atoms[:, column], minlength=256)
        distinct = record.pairs[~np.eye(record.num_atoms, dtype=bool)]
        pairs += np.bincount(distinct, minlength=256)
    if not pairs.any():
        raise InputError("background: got no molecule of two atoms or more, expected some")
    atoms = [row[:size] for row, size in zip(counts, featurizer.atom_sizes, strict=True)]
    kinds = amounts(featurizer.pair_table, featurizer.pair_sizes).astype(np.float64)
    total = counts[0].sum()
    return Average(np.concatenate(atoms) / total, pairs[: len(kinds)] @ kinds / pairs.sum())


@lru_cache(maxsize=8)
def bundled_average(featurizer: Featurizer) -> Average:
    """Count codes among the molecules of the bundled solubility set."""
    table = open_table(bundled_dataset())
    place = table.column("smiles", "smiles")
    texts = [row.cells[place] for row in table]
    records = MoleculeReader(featurizer)(texts)
    return average_of((r for r in records if isinstance(r, MoleculeRecord)), featurizer)
