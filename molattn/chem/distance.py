"""Codes of all atom pairs of many molecules at once: bonds, and topological distances."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from molattn.record import MoleculeRecord

_WORD = np.dtype("<u8")
_BLOCK_MOLECULES = 64
_BLOCK_CELLS = 1 << 18


def blocks(num_atoms: Sequence[int]) -> Iterator[slice]:
    """Yield slices of at most 64 molecules, fewer if one is large, that fit into the CPU cache."""
    start = rows = width = 0
    for molecule, atoms in enumerate(num_atoms):
        rows += atoms
        width = max(width, atoms)
        full = molecule - start == _BLOCK_MOLECULES
        if full or (rows * width > _BLOCK_CELLS and molecule > start):
            yield slice(start, molecule)
            start = molecule
            rows = width = atoms
    if start < len(num_atoms):
        yield slice(start, len(num_atoms))


def row_starts(num_atoms: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the row of each molecule's first atom; rows are the atoms of all molecules."""
    return np.cumsum(num_atoms) - num_atoms


def split_rows(
    num_atoms: NDArray[np.intp], atoms: NDArray[np.uint8], pairs: NDArray[np.uint8]
) -> list[MoleculeRecord]:
    """Return a record for each molecule, with its own copy of the codes."""
    return [
        MoleculeRecord(atoms[start : start + n].copy(), pairs[start : start + n, :n].copy())
        for start, n in zip(row_starts(num_atoms).tolist(), num_atoms.tolist(), strict=True)
    ]


def pair_codes(
    num_atoms: NDArray[np.intp], bonds: NDArray[np.intp], codes: NDArray[np.uint8], limit: int
) -> NDArray[np.uint8]:
    """Return :func:`pair_distances`, with the joint code of each bond ``[B]`` for its two pairs."""
    pairs = pair_distances(num_atoms, bonds, limit)
    columns = bonds - np.repeat(row_starts(num_atoms), num_atoms)[bonds]
    pairs[bonds[0], columns[1]] = codes
    pairs[bonds[1], columns[0]] = codes
    return pairs


def pair_distances(
    num_atoms: NDArray[np.intp], bonds: NDArray[np.intp], limit: int
) -> NDArray[np.uint8]:
    """Return the distances in bonds from each atom (row) to the atoms of its molecule (columns).

    Of ``M`` molecules with ``num_atoms`` ``[M]``; ``bonds`` are pairs of rows ``[2, B]``. Longer
    distances than ``limit``, 1 to 254, are clipped to it, and ``limit + 1`` stands for atoms of
    different fragments: ``uint8 [rows, width]``, undefined past a molecule's last atom.
    """
    rows = int(num_atoms.sum())
    width = int(num_atoms.max())
    if not rows:
        return np.zeros((0, 0), dtype=np.uint8)
    neighbors = _neighbors(rows, bonds)
    starts = np.repeat(row_starts(num_atoms), num_atoms)
    distances = _clipped(np.arange(rows) - starts, neighbors, width, limit)
    fragments = _fragments(neighbors, rows)
    for start in np.unique(starts[fragments != starts]):
        here = fragments[starts == start]
        block = distances[start : start + len(here), : len(here)]
        block[here[:, None] != here] = limit + 1
    return distances


def _neighbors(rows: int, bonds: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Return the first neighbor of each atom, the second, and so on; the atom itself for none."""
    receivers = bonds.ravel()
    senders = bonds[::-1].ravel()
    order = np.argsort(receivers, kind="stable")
    receivers = receivers[order]
    senders = senders[order]
    degrees = np.bincount(receivers, minlength=rows)
    rank = np.arange(len(receivers)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    table = np.tile(np.arange(rows), (int(degrees.max()), 1))
    table[rank, receivers] = senders
    return [*table]


def _clipped(
    columns: NDArray[np.intp], neighbors: list[NDArray[np.intp]], width: int, limit: int
) -> NDArray[np.uint8]:
    """Return the distance of each pair: the step, up to ``limit``, that reaches the pair.

    A set of atoms is a row of bits. The atoms within ``k + 1`` bonds are the union of those within
    ``k`` bonds of the neighbors. So is a digit of the distances, as binary numbers.
    """
    rows = len(columns)
    reached = np.zeros((-(-width // 64), rows), dtype=_WORD)
    reached[columns // 64, np.arange(rows)] = _WORD.type(1) << (columns % 64).astype(_WORD)
    digits = np.zeros((limit.bit_length(), *reached.shape), dtype=_WORD)

    def write(number: int, pairs: NDArray[Any]) -> None:
        for bit, digit in enumerate(digits):
            if number >> bit & 1:
                digit |= pairs

    for step in range(1, limit):
        further = reached.copy()
        for neighbor in neighbors:
            further |= reached.take(neighbor, axis=1)
        new = further ^ reached
        if not new.any():
            break
        write(step, new)
        reached = further
    write(limit, ~reached)
    sets = np.ascontiguousarray(digits.transpose(0, 2, 1)).view(np.uint8)
    bits = np.unpackbits(sets[:, :, : -(-width // 8)], axis=2, count=width, bitorder="little")
    distances = bits[0]
    for bit in range(1, len(bits)):
        distances += bits[bit] << np.uint8(bit)
    return distances


def _fragments(neighbors: list[NDArray[np.intp]], rows: int) -> NDArray[np.intp]:
    """Return, for each row, the first row of its fragment."""
    fragments = np.arange(rows)
    while True:
        lower = fragments.copy()
        for neighbor in neighbors:  # in half of the time of a minimum of all at once
            np.minimum(lower, fragments[neighbor], out=lower)
        lower = lower[lower]  # pointer jumping: few iterations even for a long chain
        if np.array_equal(lower, fragments):
            return fragments
        fragments = lower
