"""Train, validation and test sets that no molecule straddles."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem.Scaffolds import MurckoScaffold

from molattn.chem.parse import parse_smiles
from molattn.errors import InputError

__all__ = ["Split", "random_split", "scaffold_split"]

_NAMES = ("train", "val", "test")


class Split(NamedTuple):
    """Row numbers of the three sets, sorted, ``int64``; together they are all rows, each once."""

    train: NDArray[np.int64]
    val: NDArray[np.int64]
    test: NDArray[np.int64]


def random_split(
    molecules: Sequence[str | Chem.Mol],
    *,
    sizes: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int,
) -> Split:
    """Split at random; rows that are the same molecule (canonical SMILES) stay together.

    Args:
        molecules: SMILES or molecules, one per row.
        sizes: Fractions of train, validation and test; they sum to 1.
        seed: Seed of the random order. The same seed gives the same split.

    Raises:
        InputError: The sizes or the seed are not valid, or a set would be empty.
        SmilesError: A SMILES is not a molecule.
    """
    wanted = _counts(len(molecules), sizes)
    groups = _groups(map(Chem.MolToSmiles, _read(molecules)))
    return _fill(_shuffled(groups, seed), wanted)


def scaffold_split(
    molecules: Sequence[str | Chem.Mol],
    *,
    sizes: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int,
) -> Split:
    """Split by Bemis-Murcko scaffold, balanced: test molecules have scaffolds train has not.

    Scaffolds with more rows than half of the validation or the test set go to train first; the
    others are dealt in random order. Molecules without rings share the empty scaffold, and
    chirality does not tell scaffolds apart.

    Args:
        molecules: SMILES or molecules, one per row.
        sizes: Fractions of train, validation and test; they sum to 1.
        seed: Seed of the random order. The same seed gives the same split.

    Raises:
        InputError: The sizes or the seed are not valid, or a set would be empty.
        SmilesError: A SMILES is not a molecule.

    Source: Bemis and Murcko, J. Med. Chem. 1996, 39, 2887; balanced as in Yang et al., J. Chem.
    Inf. Model. 2019, 59, 3370.
    """
    wanted = _counts(len(molecules), sizes)
    groups = _shuffled(_groups(map(_scaffold, _read(molecules))), seed)
    held_out = [count for count in wanted[1:] if count]
    limit = min(held_out) / 2 if held_out else math.inf
    # The sort is stable: within each half the random order stays.
    groups.sort(key=lambda group: len(group) <= limit)
    return _fill(groups, wanted)


def _read(molecules: Iterable[str | Chem.Mol]) -> Iterable[Chem.Mol]:
    return (parse_smiles(m) if isinstance(m, str) else m for m in molecules)


def _scaffold(mol: Chem.Mol) -> str:
    return MurckoScaffold.MurckoScaffoldSmiles(mol=mol, includeChirality=False)


def _groups(keys: Iterable[str]) -> list[list[int]]:
    groups: dict[str, list[int]] = {}
    for row, key in enumerate(keys):
        groups.setdefault(key, []).append(row)
    return list(groups.values())


def _shuffled(groups: list[list[int]], seed: int) -> list[list[int]]:
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise InputError(f"seed: expected a whole number from 0, got {seed!r}")
    return [groups[i] for i in np.random.default_rng(int(seed)).permutation(len(groups))]


def _counts(rows: int, sizes: Sequence[float]) -> tuple[int, int, int]:
    valid = len(sizes) == 3 and all(math.isfinite(size) and size >= 0 for size in sizes)
    if not valid or not math.isclose(sum(sizes), 1, abs_tol=1e-6) or sizes[0] == 0:
        raise InputError(
            "split sizes: expected three fractions (train, val, test) that sum to 1, "
            f"train above 0, got {tuple(sizes)}"
        )
    val, test = (round(rows * size) for size in sizes[1:])
    for name, size, count in zip(_NAMES, sizes, (rows - val - test, val, test), strict=True):
        if size > 0 and count <= 0:
            raise InputError(f"split sizes: {rows} rows leave none for {name} ({size:g})")
    return rows - val - test, val, test


def _fill(groups: list[list[int]], wanted: tuple[int, int, int]) -> Split:
    """Deal whole groups: to validation or test while they have room for it, else to train."""
    sets: tuple[list[int], list[int], list[int]] = ([], [], [])
    for group in groups:
        for place in (0, 1, 2):
            if len(sets[place]) + len(group) <= wanted[place]:
                sets[place].extend(group)
                break
        else:
            sets[0].extend(group)
    for name, rows, count in zip(_NAMES, sets, wanted, strict=True):
        if count and not rows:
            raise InputError(
                f"split: no group of molecules is small enough for {name} ({count} rows wanted); "
                "use a larger fraction or a random split"
            )
    return Split(*(np.array(sorted(rows), dtype=np.int64) for rows in sets))
