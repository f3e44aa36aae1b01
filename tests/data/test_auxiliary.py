"""Auxiliary labels: which rows have them, and which of them are learned from."""

from dataclasses import replace

import numpy as np
import pytest

from molattn.chem import Featurizer, Split
from molattn.config import DataConfig
from molattn.data.auxiliary_rows import learned_molecules, select_auxiliary_rows
from molattn.data.check import check_table
from molattn.data.dataset import read_training_table
from molattn.data.splitting import find_leakage, split_rows
from molattn.data.table import open_table
from molattn.errors import InputError
from molattn.evaluation.report.run_files import write_skipped
from molattn.task import Task

from ..conftest import rows_of, saved

NAN = np.nan
CONFIG = DataConfig(target_columns=("y",), auxiliary_columns=("a", "c"))
TEXT = """smiles,y,a,c
C,1,10,hi
CC,2,,
CCC,,>30,lo
OCC,3,40,
CCCC,,,lo
CCCCC,5,,
CCO,,50,hi
CCCCCC,6,,
N,,,
nonsense,,1,hi
"""


def read(tmp_path, text=TEXT, config=CONFIG):
    return read_training_table(saved(tmp_path, text), config, Featurizer.default())


def split(train, val=(), test=()):
    return Split(*(np.array(rows, dtype=np.int64) for rows in (train, val, test)))


def labels(molecules):
    """Return a line for each molecule: its SMILES, and its labels or bounds, - where missing."""
    rows = zip(molecules.records, molecules.labels_or_bounds.tolist(), strict=True)
    found = [f"{record.smiles} {' '.join(f'{one:g}' for one in row)}" for record, row in rows]
    return [line.replace("nan", "-") for line in found]


def test_a_large_salt_is_held_out_as_its_parent(tmp_path):
    acid = f"{'C1CC1' * 12}C(=O)O"
    salt = f"[Na+].{acid[:-1]}[O-]"
    text = f"smiles,y,a,c\nC,1,,\n{acid},2,,\n{salt},,3,\nCC,,4,hi\nN,,,lo\n"
    table = read(tmp_path, text)
    assert select_auxiliary_rows(table, split([0], test=[1])).learned.tolist() == [1, 2]


def test_rows_with_auxiliary_labels_alone_are_beside_those_of_the_table(tmp_path):
    table = read(tmp_path)
    assert [*table.smiles] == ["C", "CC", "OCC", "CCCCC", "CCCCCC"]
    assert [(row.line, row.code) for row in table.skipped] == [(10, "no_label"), (11, "no_label")]
    assert table.tasks == (Task("y"),)
    assert table.targets.tolist() == [[1], [2], [3], [5], [6]]
    assert table.auxiliary.tasks == (Task("a"), Task("c", "binary", ("hi", "lo")))
    assert table.learned_tasks == (*table.tasks, *table.auxiliary.tasks)
    assert [row.code for row in table.auxiliary.skipped] == 4 * ["no_label"] + ["name"]
    assert read(tmp_path, config=replace(CONFIG, auxiliary_columns=())).auxiliary is None


def test_labels_of_one_row_stay_together_and_further_rows_follow(tmp_path):
    training, validation = learned_molecules(read(tmp_path), split([0, 1, 2, 3], [4]))
    assert labels(training) == [
        *("C 1 10 0", "CC 2 - -", "CCO 3 40 -", "CCCCC 5 - -"),
        *("CCC - 30 1", "CCCC - - 1", "CCO - 50 0"),
    ]
    assert training.bounds[0, 4].tolist()[1] == 30
    assert labels(validation) == ["CCCCCC 6 - -"]


def test_unreadable_auxiliary_labels_are_listed_with_their_table(tmp_path):
    second = tmp_path / "second.csv"
    second.write_text("smiles,a,c\nCCN,3,lo\nCCO,n.d.,hi\n")
    config = replace(CONFIG, auxiliary_data=str(second))
    text = TEXT.replace("C,1,10", "C,1,?").replace("CCC,,", "CCC,?,")
    table = read(tmp_path, text, config)
    assert [row.line for row in table.all_unreadable] == [2, 3]
    assert [str(second) in row.reason for row in table.all_unreadable] == [False, True]
    write_skipped(table, tmp_path)
    assert [row["line"] for row in rows_of(tmp_path / "unreadable.csv")] == ["2", "3"]
    problems = check_table(open_table(tmp_path / "in.csv"), config).problems
    assert [one.line for one in problems if one.problem == "label"] == [2, 3]


def test_auxiliary_labels_of_molecules_that_are_held_out_are_not_learned(tmp_path):
    table = read(tmp_path)
    parts = split([1, 3, 4], val=[0], test=[2])
    training, validation = learned_molecules(table, parts)
    assert labels(training) == [
        "CC 2 - -",
        "CCCCC 5 - -",
        "CCCCCC 6 - -",
        "CCC - 30 1",
        "CCCC - - 1",
    ]
    assert labels(validation) == ["C 1 - -"]
    found = find_leakage(table, parts)
    assert (found.auxiliary_test, found.test_molecules) == (1, 1)
    assert "auxiliary labels of 1 of 1 test molecules were left out" in "\n".join(found.lines())
    # Rows that are in no split, such as the newest of rolling folds, are not learned either.
    assert select_auxiliary_rows(table, split([1, 3])).learned.tolist() == [1, 3]
    assert labels(learned_molecules(table, split([1, 3]))[0])[2:] == labels(training)[3:]
    assert find_leakage(table, split([0, 1, 2, 3], [], [4])).auxiliary_test == 0


@pytest.mark.parametrize(
    "options, learned, future, final",
    [
        # The day comes first, and a row without a date is left out.
        ({"split": "time", "time_column": "when"}, ["CCCC"], 3, 4),
        ({"split": "time"}, ["CCCC", "CCO", "CCN"], 2, 5),  # in the order of the rows
        ({"split_column": "part"}, ["CCCC", "CCO"], 3, 2),
    ],
)
def test_rows_of_the_future_and_of_held_out_cells_are_not_learned(
    tmp_path, options, learned, future, final
):
    lines = ["C,1,,5/3/2019,train", "CC,2,,6/3/2019,val", "CCCC,,7,5/3/2019,"]
    lines += ["CCC,3,,20/3/2019,test", "O,,8,20/3/2019,test", "N,,9,2/4/2019,Valid"]
    second = tmp_path / "second.csv"
    second.write_text("smiles,a,when,part\nCCO,4,,\nCCN,5,4/5/2019,holdout\n")
    sizes = {} if "split_column" in options else {"test_size": 0.3}
    config = DataConfig(target_columns=("y",), validation_size=0.3, **options, **sizes)
    config = replace(config, auxiliary_columns=("a",), auxiliary_data=str(second))
    table = read(tmp_path, "\n".join(["smiles,y,a,when,part", *lines, ""]), config)
    parts = split_rows(table, config, seed=0)
    assert [part.tolist() for part in parts] == [[0], [1], [2]]
    training, _ = learned_molecules(table, parts)
    assert [one.smiles for one in training.records] == ["C", *learned]
    found = find_leakage(table, parts)
    assert found.auxiliary_future == future
    assert f"{future} rows were left out: by date" in "\n".join(found.lines())
    assert found.auxiliary_undated == ("time_column" in options)
    training, _ = learned_molecules(
        table, split([0, 1, 2])
    )  # without test rows nothing is in the future
    assert len(training.records) == 3 + final


@pytest.mark.parametrize(
    "cell", ["", "n.d.", "01.2020", "Jan 2020", "01/31/2020", "2020", "20200131", "43861"]
)
def test_auxiliary_rows_of_which_the_date_cannot_be_read_are_left_out_and_counted(tmp_path, cell):
    lines = [f"{'C' * n},{n},2020-0{n}-15" for n in range(1, 9)]
    second = tmp_path / "second.csv"
    second.write_text(f"smiles,a,when\nCCN,1,{cell}\nCCO,2,31.01.2020 08:30\nN,3,2020-08-15\n")
    options = {"split": "time", "time_column": "when", "auxiliary_columns": ("a",)}
    config = DataConfig(target_columns=("y",), auxiliary_data=str(second), **options)
    table = read(tmp_path, "\n".join(["smiles,y,when", *lines, ""]), config)
    parts = split_rows(table, config, seed=0)
    training, _ = learned_molecules(table, parts)
    assert [record.smiles for record in training.records][len(parts.train) :] == ["CCO"]
    found = find_leakage(table, parts)
    assert (found.auxiliary_undated, found.auxiliary_future) == (1, 1)
    assert "no date that can be read" in "\n".join(found.lines())


def test_what_is_read_from_the_second_table_is_in_the_report_of_check(tmp_path):
    second = tmp_path / "second.csv"
    second.write_text("Structure;a\nCCCN;1\nCCCO;2\n")
    path = saved(tmp_path, "smiles,y\nC,1\nCC,2\nCCO,3\n")
    columns = {"target_columns": ("y",), "auxiliary_columns": ("a",)}
    config = DataConfig(auxiliary_data=str(second), **columns)
    lines = "\n".join(check_table(open_table(path), config).lines)
    for words in ("auxiliary cells are separated by", "'Structure'"):
        assert words in lines


def test_auxiliary_dates_with_day_and_month_in_another_order_are_refused(tmp_path):
    lines = [f"{'C' * n},{n},{20 + n}/01/2020" for n in range(1, 9)]
    second = tmp_path / "second.csv"
    second.write_text("smiles,a,when\nCCN,1,01/02/2020\nCCO,2,01/31/2020\n")
    options = {"split": "time", "time_column": "when", "auxiliary_columns": ("a",)}
    config = DataConfig(target_columns=("y",), auxiliary_data=str(second), **options)
    with pytest.raises(InputError) as error:
        read(tmp_path, "\n".join(["smiles,y,when", *lines, ""]), config)
    assert error.value.option == "time_column"
    assert "line 3" in str(error.value)


def test_auxiliary_labels_of_salts_of_test_molecules_are_left_out_and_counted(tmp_path):
    text = "smiles,y,a\nCCO,1,\nCCCO,2,\nCCC(=O)O,3,\nC[NH3+].[Cl-],4,\n"
    text += "CCC(=O)[O-].[Na+],,1\nCN,,2\nCCC(=O)O,,3\nOCCC.Cl,,4\nCCO.Cl,,5\nO.[Na+].[Cl-],,6\n"
    config = DataConfig(target_columns=("y",), auxiliary_columns=("a",))
    table, parts = read(tmp_path, text, config), split([0], [1], [2, 3])
    training, _ = learned_molecules(table, parts)
    assert [labels[1] for labels in training.targets.tolist()][1:] == [5, 6]
    found = find_leakage(table, parts)
    assert (found.auxiliary_test, found.auxiliary_salts) == (2, 2)
    assert "salts or parents of test molecules" in "\n".join(found.lines())
    learned = select_auxiliary_rows(table, parts, with_validation=True).learned
    assert table.auxiliary.targets[learned].ravel().tolist() == [4, 5, 6]


@pytest.mark.parametrize("folds", [None, 2])
def test_splits_are_those_of_a_table_without_auxiliary_columns(tmp_path, folds):
    lines = [f"{'C' * n},{n if n % 2 else ''},{n},x{n % 2}" for n in range(1, 40)]
    text = "\n".join(["smiles,y,a,c", *lines, ""])
    config = replace(CONFIG, folds=folds)
    plain = replace(config, auxiliary_columns=())
    found, expected = (
        split_rows(read(tmp_path, text, one), one, seed=0) for one in (config, plain)
    )
    assert [rows.tolist() for rows in found] == [rows.tolist() for rows in expected]


def test_a_second_table_adds_rows_and_has_the_classes_of_both(tmp_path):
    second = tmp_path / "second.csv"
    second.write_text("name,SMILES,c\nx,CCC,mid\ny,CCCN,lo\nz,C,hi\n")
    table = read(tmp_path, config=replace(CONFIG, auxiliary_data=str(second)))
    assert table.auxiliary.tasks[1].classes == ("hi", "lo", "mid")
    assert [*table.auxiliary.smiles][-3:] == ["CCC", "CCCN", "C"]
    training, _ = learned_molecules(table, split([0, 1], [2], [3, 4]))
    assert labels(training)[-4:] == ["CCCC - - 1", "CCC - - 2", "CCCN - - 1", "C - - 0"]
    # The table of the targets need not have the columns.
    config = DataConfig(target_columns=("y",), auxiliary_columns=("c",), auxiliary_data=str(second))
    table = read(tmp_path, "smiles,y\nC,1\nCC,2\n", config)
    assert [*table.auxiliary.smiles] == ["CCC", "CCCN", "C"]
    assert [len(one.records) for one in learned_molecules(table, split([0, 1]))] == [5, 0]


def test_relations_weights_and_features_are_those_of_the_rows(tmp_path):
    config = DataConfig(
        **{"target_columns": ("y",), "auxiliary_columns": ("a",), "relation_columns": ("ry", "ra")},
        **{"weight_column": "w", "feature_columns": ("f",)},
    )
    text = "smiles,y,ry,a,ra,w,f\nC,1,=,5,<,1,7\nCC,2,>,,,2,8\nCCC,3,=,,,1,8\nN,,,6,>,3,9\n"
    training, _ = learned_molecules(
        read(tmp_path, text + "O,,,6,=,0,9\n", config), split([0, 1, 2])
    )
    np.testing.assert_array_equal(training.weights, np.array([1, 2, 1, 3]) / 1.75)
    assert training.features.tolist() == [[7], [8], [8], [9]]
    low, high = training.bounds.transpose(0, 2, 1)
    np.testing.assert_array_equal(low, [[NAN, 2, NAN, NAN], [NAN, NAN, NAN, 6]])
    np.testing.assert_array_equal(high, [[NAN] * 4, [5, NAN, NAN, NAN]])


def test_a_column_of_held_out_molecules_alone_is_refused(tmp_path):
    text = "smiles,y,a,part\nC,1,,train\nCC,2,,val\nCCC,3,7,test\n"
    config = DataConfig(target_columns=("y",), auxiliary_columns=("a",), split_column="part")
    with pytest.raises(InputError, match="column 'a'"):
        split_rows(read(tmp_path, text, config), config, seed=0)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"auxiliary_columns": ("y",)}, ["auxiliary_columns", "'y'"]),
        ({"auxiliary_columns": ("b",)}, ["in.csv", "auxiliary_columns", "'b'"]),
        ({"auxiliary_columns": (), "auxiliary_weight": 2}, ["auxiliary_weight"]),
        ({"auxiliary_data": "none.csv"}, ["none.csv", "no such file"]),
        ({"auxiliary_data": "WRONG"}, ["line 2 of ", "second.csv", "column 'a'", "'x'"]),
        ({"relation_columns": ("y",) * 4}, ["relation_columns", "got 4"]),
    ],
)
def test_wrong_options_and_cells_are_refused_by_place(tmp_path, options, words):
    if options.get("auxiliary_data") == "WRONG":
        options["auxiliary_data"] = str(tmp_path / "second.csv")
        (tmp_path / "second.csv").write_text("smiles,a\n" + "".join(f"C,{x}\n" for x in "xyzuvw"))
        options["task"] = ("regression", "regression", "binary")
    with pytest.raises(InputError) as error:
        read(tmp_path, config=replace(CONFIG, **options))
    for word in words:
        assert word in str(error.value)
