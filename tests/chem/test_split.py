"""Splits: every row once, no molecule or scaffold on two sides, the same for the same seed."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rdkit import Chem

from molattn.chem import Split, fold_split, group_split, same_molecule, same_scaffold
from molattn.data.table import bundled_dataset
from molattn.errors import InputError

from ..conftest import rows_of


def random_split(molecules, **options) -> Split:
    return group_split(same_molecule(molecules), balanced=False, **options)


def scaffold_split(molecules, **options) -> Split:
    return group_split(same_scaffold(molecules), balanced=True, **options)


BOTH = pytest.mark.parametrize("splitter", [random_split, scaffold_split])

SMILES = [row["smiles"] for row in rows_of(bundled_dataset())]
SOME = [Chem.MolFromSmiles(text) for text in SMILES[::80]]


def keys_on_two_sides(split: Split, keys: list[str]) -> set[str]:
    train, val, test = ({keys[row] for row in rows} for rows in split)
    return (train & val) | (train & test) | (val & test)


@BOTH
@pytest.mark.parametrize("sizes", [(0.8, 0.1, 0.1), (0.5, 0.25, 0.25), (0.9, 0.0, 0.1), (1, 0, 0)])
def test_a_split_has_every_row_once_and_is_close_to_the_sizes(splitter, sizes):
    split = splitter(SMILES, sizes=sizes, seed=0)
    assert all(rows.dtype == np.int64 for rows in split)
    np.testing.assert_array_equal(np.sort(np.concatenate(split)), np.arange(len(SMILES)))
    for rows, size in zip(split, sizes, strict=True):
        assert abs(len(rows) - size * len(SMILES)) < 0.02 * len(SMILES)
        assert (np.diff(rows) > 0).all()


@BOTH
def test_the_seed_decides_the_split(splitter):
    one, same, other = (splitter(SMILES, seed=seed) for seed in (1, 1, 2))
    for a, b in zip(one, same, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(one.test, other.test)


@BOTH
@given(seed=st.integers(0, 2**32), repeats=st.integers(2, 4))
def test_duplicates_stay_together(splitter, seed, repeats):
    some = [mol for mol in SOME for _ in range(repeats)]
    spelled = [Chem.MolToSmiles(mol, doRandom=True) for mol in some]
    split = splitter(spelled, sizes=(0.6, 0.2, 0.2), seed=seed)
    assert keys_on_two_sides(split, [Chem.MolToSmiles(mol) for mol in some]) == set()


@BOTH
@pytest.mark.parametrize(
    "sizes", [(0.8, 0.1), (0.8, 0.1, 0.2), (1.1, -0.1, 0), (0, 0.5, 0.5), (float("nan"), 0.5, 0.5)]
)
def test_bad_sizes_are_refused(splitter, sizes):
    with pytest.raises(InputError, match="three fractions"):
        splitter(SMILES[:20], sizes=sizes, seed=0)


@BOTH
def test_sets_that_would_be_empty_are_refused(splitter):
    for smiles in (["C", "CC"], ["C", "CC", "CCC", "CCCC"], ["CCO"] * 10):
        with pytest.raises(InputError, match=r"^split: .*too few"):
            splitter(smiles, seed=0)


groupings = st.lists(st.integers(1, 4), min_size=8, max_size=30).map(
    lambda sizes: [list(range(sum(sizes[:n]), sum(sizes[: n + 1]))) for n in range(len(sizes))]
)


@given(groups=groupings, folds=st.integers(2, 5), seed=st.integers(0, 2**32 - 1))
@example(
    groups=[[0], [1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11], [12, 13, 14, 15]], folds=2, seed=1
)
def test_folds_are_even_and_test_whole_groups_and_every_row_once(groups, folds, seed):
    of_row = {row: n for n, group in enumerate(groups) for row in group}
    splits = [
        fold_split(groups, folds=folds, fold=fold, validation_size=0.2, seed=seed)
        for fold in range(1, folds + 1)
    ]
    tested = np.concatenate([split.test for split in splits])
    np.testing.assert_array_equal(np.sort(tested), np.arange(len(of_row)))
    sizes = [len(split.test) for split in splits]
    assert max(sizes) - min(sizes) <= max(map(len, groups))
    for split in splits:
        np.testing.assert_array_equal(np.sort(np.concatenate(split)), np.arange(len(of_row)))
        assert keys_on_two_sides(split, [str(of_row[row]) for row in range(len(of_row))]) == set()


def test_where_all_groups_are_large_the_smallest_is_held_out() -> None:
    groups = [[0, 1], [2, 3], [4, 5, 6, 7]]
    for seed in range(20):
        split = group_split(groups, sizes=(0.6, 0.4, 0.0), seed=seed, balanced=True)
        assert split.val.tolist() in ([0, 1], [2, 3])
        np.testing.assert_array_equal(np.sort(np.concatenate(split)), np.arange(8))
    split = group_split(groups, sizes=(0.9, 0.1, 0.0), seed=2, balanced=True)
    assert split.val.tolist() in ([0, 1], [2, 3])
    with pytest.raises(InputError, match="too few groups"):  # training would have under a half
        group_split([[0, 1, 2], [3, 4]], sizes=(0.6, 0.2, 0.2), seed=2, balanced=True)
