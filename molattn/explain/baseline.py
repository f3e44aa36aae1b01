"""The baseline of attributions: the average atom, as one-hot features."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Optional

import numpy as np
from numpy.typing import NDArray

from molattn.chem import Featurizer
from molattn.chem.parse import Molecule
from molattn.chem.reader import MoleculeReader
from molattn.data.table import bundled_dataset, open_table
from molattn.errors import InputError
from molattn.record import MoleculeRecord

__all__ = ["average_atom", "baseline_atom", "one_hot"]


def one_hot(codes: NDArray[np.uint8], sizes: Sequence[int]) -> NDArray[np.float32]:
    """Encode codes ``[..., columns]`` as one-hot vectors, concatenated: ``[..., sum(sizes)]``.

    Example:
        >>> one_hot(np.array([[1, 0]], dtype=np.uint8), [3, 2]).tolist()
        [[0.0, 1.0, 0.0, 1.0, 0.0]]
    """
    starts = np.cumsum([0, *sizes])[:-1]
    encoded = np.zeros((*codes.shape[:-1], sum(sizes)), dtype=np.float32)
    np.put_along_axis(encoded, codes.astype(np.int64) + starts, 1.0, axis=-1)
    return encoded


def average_atom(records: Iterable[MoleculeRecord], featurizer: Featurizer) -> NDArray[np.float64]:
    """Return the mean of the one-hot features of all atoms ``[sum(atom_sizes)]``.

    These are relative frequencies of the codes of each atom feature; those of a feature sum to 1.

    Raises:
        InputError: There is no molecule.
    """
    sizes = featurizer.atom_sizes
    counts = [np.zeros(size) for size in sizes]
    for record in records:
        for count, size, codes in zip(counts, sizes, record.atoms.T, strict=True):
            count += np.bincount(codes, minlength=size)
    if not counts[0].any():
        raise InputError("background: got no molecules, expected at least one")
    return np.concatenate(counts) / counts[0].sum()


def baseline_atom(
    featurizer: Featurizer, background: Optional[Sequence[Molecule]] = None
) -> NDArray[np.float64]:
    """Return the average atom of a background set; None = the bundled solubility set."""
    if background is None:
        return _bundled_average(featurizer)
    return average_atom(MoleculeReader(featurizer).all(background), featurizer)


@lru_cache(maxsize=8)
def _bundled_average(featurizer: Featurizer) -> NDArray[np.float64]:
    table = open_table(bundled_dataset())
    column = table.column("smiles", "smiles")
    records = MoleculeReader(featurizer)([row.cells[column] for row in table])
    return average_atom((r for r in records if isinstance(r, MoleculeRecord)), featurizer)
