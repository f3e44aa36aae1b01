"""Shortest-path distances of all atom pairs at once, from the list of bonds."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["clipped_distances"]

# Walk counts of so many steps and atoms stay finite in float32, and the table stays in the cache.
_MAX_DENSE_ATOMS = 128
_MAX_DENSE_STEPS = 16


def clipped_distances(num_atoms: int, bonds: NDArray[np.intp], limit: int) -> NDArray[np.uint8]:
    """Return the number of bonds between each pair of atoms, at most ``limit``.

    Args:
        num_atoms: Number of atoms ``n``.
        bonds: ``begin * n + end`` of each bond, in both directions, ``[2 * bonds]``.
        limit: Value of all longer distances and of pairs without a path; from 1 to 255.

    Returns:
        Distances ``uint8 [n, n]``.
    """
    if num_atoms <= _MAX_DENSE_ATOMS and limit <= _MAX_DENSE_STEPS:
        distance = _by_walks(num_atoms, bonds, limit)
    else:
        distance = _by_neighbours(num_atoms, bonds, limit)
    distance.reshape(-1)[:: num_atoms + 1] = 0
    return distance


def _by_walks(num_atoms: int, bonds: NDArray[np.intp], limit: int) -> NDArray[np.uint8]:
    """Count the powers of the adjacency matrix (with self loops) that miss a pair.

    The powers are doubled, ``A^(k+1) ... A^(2k) = (A^1 ... A^k) A^k``, one matrix product each.
    """
    steps = limit - 1
    powers = np.empty((max(steps, 1), num_atoms, num_atoms), dtype=np.float32)
    step = powers[0]
    step[:] = 0
    cells = step.reshape(-1)
    cells[:: num_atoms + 1] = 1
    cells[bonds] = 1
    rows = powers.reshape(-1, num_atoms)
    done = 1
    while done < steps:
        more = min(done, steps - done)
        np.matmul(
            rows[: more * num_atoms],
            powers[done - 1],
            out=rows[done * num_atoms : (done + more) * num_atoms],
        )
        done += more
    missed = np.add.reduce(powers[:steps] == 0, axis=0, dtype=np.uint8)
    missed += 1
    return missed


def _by_neighbours(num_atoms: int, bonds: NDArray[np.intp], limit: int) -> NDArray[np.uint8]:
    """Spread the set of reached atoms over the bonds, one step at a time."""
    begin, end = np.divmod(bonds, num_atoms)
    order = np.argsort(begin, kind="stable")
    degree = np.bincount(begin, minlength=num_atoms)
    # Column c lists the c-th neighbour of each atom, or the atom itself when it has fewer.
    width = int(degree.max(initial=0))
    neighbours = np.repeat(np.arange(num_atoms)[:, None], width, axis=1)
    starts = np.cumsum(degree) - degree
    rank = np.arange(len(begin)) - np.repeat(starts, degree)
    neighbours[begin[order], rank] = end[order]
    reached = np.eye(num_atoms, dtype=bool)
    distance = np.ones((num_atoms, num_atoms), dtype=np.uint8)
    for _ in range(limit - 1):
        before = reached
        reached = before.copy()
        for column in neighbours.T:
            reached |= before[column]
        if np.array_equal(reached, before):
            distance[~reached] = limit
            break
        distance += ~reached
    return distance
