"""The average atom, and amounts of codes of which it is made."""

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from molattn.chem import Featurizer
from molattn.chem.reader import MoleculeReader
from molattn.data.table import bundled_dataset, open_table
from molattn.errors import InputError
from molattn.record import MoleculeRecord

__all__ = ["amounts", "average_atom", "bundled_average"]


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


def average_atom(records: Iterable[MoleculeRecord], featurizer: Featurizer) -> NDArray[np.float64]:
    """Return how often each atom code occurs, ``[sum(atom_sizes)]``; each column adds up to 1.

    Args:
        records: Molecules.
        featurizer: What made them.

    Raises:
        InputError: There is no molecule.
    """
    atom_columns = len(featurizer.atom_sizes)
    counts = np.zeros((atom_columns, 256))
    for record in records:
        for column in range(atom_columns):
            counts[column] += np.bincount(record.atoms[:, column], minlength=256)
    if not counts.any():
        raise InputError("background: got no molecule, expected some")
    atoms = [row[:size] for row, size in zip(counts, featurizer.atom_sizes, strict=True)]
    return np.concatenate(atoms) / counts[0].sum()


@lru_cache(maxsize=8)
def bundled_average(featurizer: Featurizer) -> NDArray[np.float64]:
    """Return how often each atom code occurs among the molecules of the bundled solubility set."""
    table = open_table(bundled_dataset())
    place = table.column("smiles", "smiles")
    texts = [row.cells[place] for row in table]
    records = MoleculeReader(featurizer)(texts)
    return average_atom((r for r in records if isinstance(r, MoleculeRecord)), featurizer)
