"""Molecules in batches that fit into memory."""

from collections.abc import Callable, Iterable, Iterator
from typing import Optional, TypeVar

from molattn.record import MoleculeRecord

__all__ = ["MOST_PAIRS", "batches"]

MOST_PAIRS = 2**20
"""Largest number of atom pairs in a batch: about those of a molecule of 1,000 atoms."""

_LISTED = 8  # times the memory of a pair of complete graphs is that of a listed one

T = TypeVar("T")


def batches(
    items: Iterable[T], size: int, record: Callable[[T], Optional[MoleculeRecord]]
) -> Iterator[list[T]]:
    """Group molecules, in order, by number and by atom pairs.

    A batch has at most ``size`` items and, unless it is one molecule, at most ``MOST_PAIRS`` atom
    pairs; a listed pair, of a model with ``radius``, counts eight times. ``record`` returns the
    molecule of an item, if it has one.
    """
    if size < 1:
        raise ValueError(f"batch_size: got {size}, expected an integer of at least 1")
    batch: list[T] = []
    pairs = first = second = 0
    for item in items:
        molecule = record(item)
        atoms = molecule.num_atoms if molecule else 0
        others = molecule.partner.num_atoms if molecule and molecule.partner else 0
        more = _cost(molecule) + _cost(molecule and molecule.partner)
        # In cross attention molecules are padded to the largest of the batch.
        across = (len(batch) + 1) * max(first, atoms) * max(second, others)
        if batch and (len(batch) >= size or max(pairs + more, across) > MOST_PAIRS):
            yield batch
            batch, pairs, first, second = [], 0, 0, 0
        batch.append(item)
        pairs, first, second = pairs + more, max(first, atoms), max(second, others)
    if batch:
        yield batch


def _cost(molecule: Optional[MoleculeRecord]) -> int:
    if molecule is None:
        return 0
    return molecule.num_atoms**2 if molecule.edge_index is None else _LISTED * len(molecule.pairs)
