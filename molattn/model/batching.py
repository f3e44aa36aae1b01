"""Molecules in batches that fit into memory."""

from collections.abc import Callable, Iterable, Iterator
from typing import Optional, TypeVar

from molattn.record import MoleculeRecord

__all__ = ["MOST_PAIRS", "batches"]

MOST_PAIRS = 2**20
"""Atom pairs in a batch; a molecule of 1,000 atoms has nearly as many."""

T = TypeVar("T")


def batches(
    items: Iterable[T], size: int, record: Callable[[T], Optional[MoleculeRecord]]
) -> Iterator[list[T]]:
    """Group molecules, in order, by number and by atom pairs.

    A batch ends after ``size`` items, or earlier where one more molecule would bring it above
    ``MOST_PAIRS``. A molecule that exceeds this by itself is a batch of its own. ``record`` returns
    the molecule of an item, if it has one.
    """
    if size < 1:
        raise ValueError(f"batch_size: got {size}, expected a whole number of at least 1")
    batch: list[T] = []
    pairs = first = second = 0
    for item in items:
        molecule = record(item)
        atoms = molecule.num_atoms if molecule else 0
        others = molecule.partner.num_atoms if molecule and molecule.partner else 0
        more = atoms**2 + others**2
        # Two molecules that attend to each other are padded to the largest of the batch.
        across = (len(batch) + 1) * max(first, atoms) * max(second, others)
        if batch and (len(batch) >= size or max(pairs + more, across) > MOST_PAIRS):
            yield batch
            batch, pairs, first, second = [], 0, 0, 0
        batch.append(item)
        pairs, first, second = pairs + more, max(first, atoms), max(second, others)
    if batch:
        yield batch
