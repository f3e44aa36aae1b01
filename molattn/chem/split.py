"""Training, validation and test sets that keep groups of rows together.

Groups (by molecule, scaffold or cluster) are of :mod:`molattn.chem.groups`.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from molattn.errors import InputError

_NAMES = ("training", "validation", "test")


class Split(NamedTuple):
    """Row indices of the three sets, sorted, ``int64``; no row twice."""

    train: NDArray[np.int64]
    val: NDArray[np.int64]
    test: NDArray[np.int64]


def group_split(
    groups: Sequence[Sequence[int]],
    *,
    sizes: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int,
    balanced: bool,
) -> Split:
    """Assign whole groups of rows to the sets, in random order.

    Balanced groups by scaffold make a scaffold split (Yang et al., J. Chem. Inf. Model. 2019, 59,
    3370). A set left empty gets the smallest group if that leaves half of the rows for training.

    Args:
        groups: Rows that stay together; all rows, each once.
        sizes: Fractions of train, validation and test; they sum to 1.
        seed: Seed of the random order. The same seed gives the same split.
        balanced: Whether groups larger than half of the validation or the test set go to train.

    Raises:
        InputError: The sizes are not valid, or a set would be empty.

    Example:
        >>> from molattn.chem import same_molecule
        >>> molecules = ["CCO", "OCC", "CC", "CCC", "CCN"]
        >>> split = group_split(
        ...     same_molecule(molecules), sizes=(0.6, 0.2, 0.2), seed=0, balanced=False
        ... )
        >>> [len(rows) for rows in split]
        [3, 1, 1]
    """
    rows = sum(map(len, groups))
    wanted = _counts(rows, sizes)
    shuffled = _shuffled(groups, seed)
    if balanced:
        limit = min((count for count in wanted[1:] if count), default=math.inf) / 2
        # The sort is stable: each half keeps its random order.
        shuffled.sort(key=lambda group: len(group) <= limit)
    sets: tuple[list[Sequence[int]], ...] = ([], [], [])
    free = list(wanted)
    for group in shuffled:
        index = next((n for n in (0, 1, 2) if len(group) <= free[n]), 0)
        sets[index].append(group)
        free[index] -= len(group)
    for index in (1, 2):  # if all groups are large, the smallest is nearest to what is wanted
        if wanted[index] and not sets[index] and len(sets[0]) > 1:
            smallest = min(sets[0], key=len)
            if 2 * (sum(map(len, sets[0])) - len(smallest)) >= rows:
                sets[0].remove(smallest)
                sets[index].append(smallest)
    return _split([[row for group in members for row in group] for members in sets], wanted)


def fold_split(
    groups: Sequence[Sequence[int]],
    *,
    folds: int,
    fold: int,
    validation_size: float = 0.1,
    seed: int,
    balanced: bool = True,
) -> Split:
    """Split for one round of a cross-validation.

    The test sets of all rounds of a seed are of sizes as similar as whole groups allow; each row is
    in one. Other arguments and errors are those of :func:`group_split`.

    Args:
        groups: Rows that stay together; all rows, each once.
        folds: Number of rounds, at least 2.
        fold: The round, counted from 1.
        validation_size: Fraction of all rows for validation.
        seed: Seed of the random order.
        balanced: Whether groups larger than half of the validation set are kept out of it.
    """
    test_sets = _folds(groups, folds, seed)
    if not 1 <= fold <= folds:
        raise InputError(f"fold: got {fold}, expected 1 to {folds}")
    test = test_sets.pop(fold - 1)
    others = [group for test_set in test_sets for group in test_set]
    fraction = min(1.0, validation_size * sum(map(len, groups)) / sum(map(len, others)))
    sizes = (1.0 - fraction, fraction, 0.0)
    inner = group_split(others, sizes=sizes, seed=seed + fold, balanced=balanced)
    return Split(inner.train, inner.val, _rows(test))


def time_split(
    groups: Sequence[Sequence[int]], *, sizes: Sequence[float] = (0.8, 0.1, 0.1)
) -> Split:
    """Assign whole groups of rows, oldest first, to the sets: the newest are test rows.

    Sheridan, J. Chem. Inf. Model. 2013, 53, 783. Errors are those of :func:`group_split`.

    Example:
        >>> [rows.tolist() for rows in time_split([[3], [0, 1], [2]], sizes=(0.25, 0.5, 0.25))]
        [[3], [0, 1], [2]]
    """
    wanted = _counts(sum(map(len, groups)), sizes)
    blocks = iter(_blocks(groups, np.cumsum([*filter(None, wanted)])[:-1]))
    sets = [next(blocks) if count else [] for count in wanted]
    return _split([[row for group in block for row in group] for block in sets], wanted)


def rolling_split(
    groups: Sequence[Sequence[int]], *, folds: int, fold: int, validation_size: float = 0.1
) -> Split:
    """Split for one round of a cross-validation in order of time (rolling origin).

    Groups of rows, oldest first, are in ``folds`` + 1 blocks. Round k, from 1, tests block k + 1
    with the k blocks before it, whose newest fraction ``validation_size`` is for validation.
    """
    rows = sum(map(len, groups))
    ends = rows * np.linspace(0.0, 1.0, min(folds, rows) + 2)[1:-1]
    blocks = _blocks(groups, ends)
    if folds >= len(groups) or not all(blocks):
        raise InputError(f"folds: got {folds}, too many for {len(groups)} groups of rows")
    earlier = [group for block in blocks[:fold] for group in block]
    inner = time_split(earlier, sizes=(1.0 - validation_size, validation_size, 0.0))
    return Split(inner.train, inner.val, _rows(blocks[fold]))


def _blocks(groups: Sequence[Sequence[int]], ends: NDArray[Any]) -> list[Sequence[Sequence[int]]]:
    """Cut groups in order where the number of rows is nearest to each of ``ends``.

    Each block has a group, unless there are fewer groups than blocks.
    """
    sizes = np.array([len(group) for group in groups])
    steps = np.arange(len(ends))
    cuts = np.searchsorted(np.cumsum(sizes) - sizes / 2, ends, side="right")
    cuts = np.maximum.accumulate(np.maximum(cuts, 1) - steps) + steps
    cuts = np.minimum(cuts, len(groups) - len(ends) + steps).clip(0).tolist()
    return [groups[first:last] for first, last in pairwise([0, *cuts, len(groups)])]


def _folds(groups: Sequence[Sequence[int]], folds: int, seed: int) -> list[list[Sequence[int]]]:
    if len(groups) < 2:
        raise InputError("folds: expected several groups of rows that stay together, got one")
    if not 2 <= folds <= len(groups):
        raise InputError(
            f"folds: got {folds}, expected 2 to {len(groups)}, the number of groups of rows that "
            "stay together"
        )
    test_sets: list[list[Sequence[int]]] = [[] for _ in range(folds)]
    sizes = [0] * folds
    # Large groups first, so that small ones even out the sizes; the sort is stable.
    for group in sorted(_shuffled(groups, seed), key=len, reverse=True):
        smallest = sizes.index(min(sizes))
        test_sets[smallest].append(group)
        sizes[smallest] += len(group)
    return test_sets


def _rows(groups: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    return np.array(sorted(row for group in groups for row in group), dtype=np.int64)


def _shuffled(groups: Sequence[Sequence[int]], seed: int) -> list[Sequence[int]]:
    return [groups[i] for i in np.random.default_rng(seed).permutation(len(groups))]


def _counts(rows: int, sizes: Sequence[float]) -> tuple[int, int, int]:
    fits = len(sizes) == 3 and min(sizes) >= 0 and sizes[0] > 0
    if not fits or not math.isclose(sum(sizes), 1, abs_tol=1e-6):
        raise InputError(
            "split sizes: expected three fractions (training, validation, test) that sum to 1, "
            f"the first above 0, got {tuple(sizes)}"
        )
    val, test = (round(rows * size) for size in sizes[1:])
    counts = rows - val - test, val, test
    for name, size, count in zip(_NAMES, sizes, counts, strict=True):
        if size > 0 and count <= 0:
            raise InputError(
                f"split: too few rows ({rows}) for a {name} set of {size:.0%}; use other values of "
                "--validation-size and --test-size"
            )
    return counts


def _split(sets: Sequence[Sequence[int]], wanted: Sequence[int]) -> Split:
    for name, rows, count in zip(_NAMES, sets, wanted, strict=True):
        if count and not rows:
            raise InputError(
                "split: the rows are in too few groups of equal or similar molecules, or of equal "
                f"dates, for a {name} set; use a random split or a split column"
            )
    return Split(*(np.array(sorted(rows), dtype=np.int64) for rows in sets))
