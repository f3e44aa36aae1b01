import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from molattn.chem import Featurizer
from molattn.config import DataConfig
from molattn.dataset import parse_target, part_rows, read_training_table, target_scaling
from molattn.errors import InputError
from molattn.task import Task

CONFIG = DataConfig(target_columns=("y", "z"))


def read(tmp_path, text, config=CONFIG):
    path = tmp_path / "t.csv"
    path.write_text(text)
    return read_training_table(path, config, Featurizer.default())


@given(st.floats(-1e30, 1e30))
def test_a_number_is_read_as_python_reads_it(value):
    assert parse_target(f" {value!r}\t") == value


@pytest.mark.parametrize("text", ["", "  ", "NA", "nan", "NaN", "N/A", "null", "None", "#N/A"])
def test_a_missing_label_is_nan(text):
    assert np.isnan(parse_target(text))


@pytest.mark.parametrize(
    "text", ["45%", ">5", "1,5", "inf", "-inf", "1e31", "1e999", "1_000", "٣", "0x1", "1.5 mM", "-"]
)
def test_what_is_no_number_is_refused(text):
    with pytest.raises(ValueError, match="number"):
        parse_target(text)


def test_rows_without_molecule_or_label_are_skipped_and_cost_no_other_row(tmp_path):
    table = read(tmp_path, "smiles,y,z\nC,1,\nnonsense,2,2\nCC,,NA\nCCO,3\nCCC, 4 ,5\n")
    assert table.smiles == ["C", "CCC"]
    assert [record.num_atoms for record in table.records] == [1, 3]
    np.testing.assert_array_equal(table.targets, [[1.0, np.nan], [4.0, 5.0]])
    assert [(row.line, row.code) for row in table.skipped[1:]] == [(4, "no_label"), (5, "ragged")]
    assert (table.skipped[0].line, table.skipped[0].smiles) == (3, "nonsense")
    assert table.skipped[0].reason
    assert table.rows_in == 5


@pytest.mark.parametrize(
    "text, words",
    [
        ("smiles,y,z\nC,1,2\nCC,1,45%\n", ["line 3", "'z'", "'45%'", "a number"]),
        ("smiles,y,z\n", ["0 rows"]),
        ("smiles,y,z\n12,1,1\n34,1,1\n", ["2 rows", "line 2"]),
        ("smiles,y\nC,1\n", ["'z'", "--target-columns", "'smiles', 'y'"]),
        ("Smiles,y,z\nC,1\n", ["'smiles'", "--smiles-column", "did you mean 'Smiles'"]),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_by_place(tmp_path, text, words):
    with pytest.raises(InputError) as error:
        read(tmp_path, text)
    for word in ["t.csv", *words]:
        assert word in str(error.value)


def test_no_target_is_refused_with_the_columns_to_choose_from(tmp_path):
    with pytest.raises(InputError, match=r"--target-columns.*'smiles', 'y'"):
        read(tmp_path, "smiles,y\nC,1\n", DataConfig())


def numbered(parts):
    rows = "".join(f"{'C' * (n + 1)},{n},{part}\n" for n, part in enumerate(parts))
    return f"smiles,y,part\n{rows}"


def test_the_split_column_decides(tmp_path):
    config = DataConfig(target_columns=("y",), split_column="part")
    table = read(tmp_path, numbered(["test", "Train", " valid", "train", "training"]), config)
    train, validation, test = part_rows(table, config, seed=0)
    assert (train.tolist(), validation.tolist(), test.tolist()) == ([1, 3, 4], [2], [0])


@pytest.mark.parametrize("split", ["random", "scaffold"])
def test_validation_rows_are_set_aside_from_the_training_rows_alone(tmp_path, split):
    config = DataConfig(target_columns=("y",), split_column="part", split=split)
    rings = "".join(f"{'C' * n}C1{'C' * (n + 1)}1,{n},train\n" for n in range(1, 20))
    table = read(tmp_path, f"smiles,y,part\nCCO,0,test\n{rings}", config)
    train, validation, test = part_rows(table, config, seed=3)
    assert test.tolist() == [0]
    assert len(validation) == 2
    assert sorted([*train, *validation]) == list(range(1, 20))
    again = part_rows(table, config, seed=3)
    assert validation.tolist() == again.val.tolist()


def test_duplicates_of_a_molecule_stay_on_one_side(tmp_path):
    config = DataConfig(target_columns=("y",), validation_size=0.3, test_size=0.3)
    pairs = "".join(f"{'C' * n}O,1\nO{'C' * n},2\n" for n in range(1, 11))
    table = read(tmp_path, "smiles,y\n" + pairs, config)
    for part in part_rows(table, config, seed=0):
        assert sorted(part) == sorted({row ^ 1 for row in part})


@pytest.mark.parametrize(
    "parts, words",
    [
        (["train", "tset"], ["line 3", "'part'", "'tset'", "test"]),
        (["train", "train"], ["'part'", "test"]),
        (["test", "test"], ["'part'", "train"]),
        (["train", "test"], ["1 rows", "val"]),
    ],
)
def test_a_split_column_that_makes_no_three_parts_is_refused(tmp_path, parts, words):
    config = DataConfig(target_columns=("y",), split_column="part")
    table = read(tmp_path, numbered(parts), config)
    with pytest.raises(InputError) as error:
        part_rows(table, config, seed=0)
    for word in ["t.csv", *words]:
        assert word in str(error.value)


def test_scaling_is_that_of_the_labels_there_are():
    targets = np.array([[1.0, 7.1, 0.1], [3.0, np.nan, 0.1], [np.nan, 7.1, 0.1]])
    mean, scale = target_scaling(targets, [Task("a"), Task("b"), Task("c")])
    np.testing.assert_allclose(mean, [2.0, 7.1, 0.1])
    np.testing.assert_allclose(scale, [1.0, 1.0, 1.0])


@given(st.floats(-1e20, 1e20), st.integers(1, 50))
def test_a_target_that_does_not_vary_gets_the_scale_one(value, rows):
    assert target_scaling(np.full((rows, 1), value), [Task("a")])[1].tolist() == [1.0]
