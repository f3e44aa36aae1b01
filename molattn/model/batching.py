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
    ``MOST_PAIRS``. A molecule that exceeds this by itself is a batch of its own.

    Args:
        items: Molecules, or anything that holds one.
        size: The largest number of items in a batch.
        record: Returns the molecule of an item; None = it has none.
    """
    batch: list[T] = []
    pairs = first = second = 0
    for item in items:
        molecule = record(item)
        atoms = 0 if molecule is None else molecule.num_atoms
        partner = None if molecule is None else molecule.partner
        others = 0 if partner is None else partner.num_atoms
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
