from dataclasses import replace

import numpy as np
import pytest

from molattn.chem import Featurizer, Split
from molattn.chem.groups import same_cluster
from molattn.config import DataConfig
from molattn.data.auxiliary_rows import select_auxiliary_rows
from molattn.data.check import check_table
from molattn.data.dataset import read_training_table
from molattn.data.splitting import find_leakage, missing_classes, split_rows
from molattn.data.table import bundled_dataset, open_table
from molattn.errors import InputError

from ..conftest import rows_of, saved


def read(tmp_path, text, config):
    return read_training_table(saved(tmp_path, text), config, Featurizer.default())


def test_the_split_column_decides_but_for_training_and_validation_rows_of_weight_0(tmp_path):
    config = DataConfig(target_columns=("y",), split_column="part", weight_column="w")
    rows = [(part, weight) for part in ("Train", " valid", "test") for weight in (0, 1)]
    lines = [f"{'C' * (n + 1)},{n},{part},{weight}" for n, (part, weight) in enumerate(rows)]
    table = read(tmp_path, "\n".join(["smiles,y,part,w", *lines, ""]), config)
    assert [part.tolist() for part in split_rows(table, config, seed=0)] == [[1], [3], [4, 5]]


def test_classes_without_a_training_row_are_told(tmp_path):
    config = DataConfig(target_columns=("y",), split_column="part")
    parts = ["train", "train", "train", "val", "test"]
    lines = [f"{'C' * (n + 1)},{'aabbc'[n]},{part}" for n, part in enumerate(parts)]
    table = read(tmp_path, "\n".join(["smiles,y,part", *lines, ""]), config)
    parts = split_rows(table, config, seed=0)
    assert missing_classes(table, parts) == ["'y': no training row is of class 'c'"]
    assert missing_classes(table, parts._replace(train=np.arange(5))) == []


@pytest.mark.parametrize("method", ["random", "scaffold", "cluster"])
def test_folds_test_every_row_once_and_keep_molecules_whole(tmp_path, method):
    smiles = [row["smiles"] for row in rows_of(bundled_dataset())][::10]
    pairs = "".join(f'"{text}",1\n"{text}",2\n' for text in dict.fromkeys(smiles))
    config = DataConfig(target_columns=("y",), split=method, folds=3, validation_size=0.2)
    table = read(tmp_path, "smiles,y\n" + pairs, config)
    tested = []
    for fold in (1, 2, 3):
        parts = split_rows(table, replace(config, only_fold=fold), seed=1)
        assert sorted(np.concatenate(parts)) == list(range(len(table.rows)))
        for part in parts:
            assert sorted(part) == sorted({row ^ 1 for row in part})
        tested.extend(parts.test)
        again = split_rows(table, replace(config, only_fold=fold), seed=1)
        assert [part.tolist() for part in parts] == [part.tolist() for part in again]
    assert sorted(tested) == list(range(len(table.rows)))


@pytest.mark.parametrize("cutoff", [0.3, 0.8])
def test_the_cutoff_of_clusters_is_an_option(tmp_path, cutoff):
    smiles = dict.fromkeys(row["smiles"] for row in rows_of(bundled_dataset())[::10])
    config = DataConfig(target_columns=("y",), split="cluster", cluster_cutoff=cutoff)
    table = read(tmp_path, "smiles,y\n" + "".join(f'"{text}",1\n' for text in smiles), config)
    sets = [{*rows.tolist()} for rows in split_rows(table, config, seed=1)]
    clusters = same_cluster(table.records, cutoff)
    assert all(any({*cluster} <= rows for rows in sets) for cluster in clusters)
    assert len(clusters) != len(same_cluster(table.records))
    with pytest.raises(InputError) as error:
        DataConfig(cluster_cutoff=cutoff)
    assert error.value.option == "cluster_cutoff"


DATES = {
    "numbers": ["2003", "2001.5", "2001", "1999", "2004", "2000", "2005", "1998"],
    "dates": [f"{day}/03/2019" for day in (7, 14, 5, 3, 28, 4, 29, 2)],  # the day first
    "times": [f"2019-03-0{n}T12:00:00Z" for n in (6, 5, 4, 2, 7, 3, 8, 1)],
}


def by_time(tmp_path, dates, **options):
    """Read eight rows; the second and the last are of one molecule."""
    smiles = ["C", "CC", "CCC", "CCCC", "CN", "CCN", "CO", "C-C"]
    lines = [f"{one},{n},{date}" for n, (one, date) in enumerate(zip(smiles, dates, strict=True))]
    columns = {"target_columns": ("y",), "time_column": "date"}
    config = DataConfig(split="time", **{**columns, **options})
    return read(tmp_path, "\n".join(["smiles,y,date", *lines, ""]), config), config


@pytest.mark.parametrize("kind", DATES)
def test_a_split_by_time_tests_the_newest_molecules(tmp_path, kind):
    table, config = by_time(tmp_path, DATES[kind], validation_size=0.25, test_size=0.25)
    parts = [part.tolist() for part in split_rows(table, config, seed=3)]
    assert parts == [[1, 3, 5, 7], [0, 2], [4, 6]]  # row 1 is of the molecule of row 7, the oldest


def test_a_split_by_time_without_a_column_is_in_the_order_of_the_rows(tmp_path):
    options = {"time_column": None, "validation_size": 0.25, "test_size": 0.125}
    table, config = by_time(tmp_path, DATES["numbers"], **options)
    parts = split_rows(table, config, seed=0)
    # The last row is as new as the test row, and its molecule is of a training row.
    assert [part.tolist() for part in parts] == [[0, 1, 2, 3], [4, 5], [6]]
    assert find_leakage(table, parts).measured_again == 1


def test_rows_without_a_date_are_left_out_and_counted(tmp_path):
    sizes = {"validation_size": 0.2, "test_size": 0.2}
    dates = ["07.03.2019", "14.03.2019", "", "n.d.", "28.03.2019", "04.03.2019"]
    table, config = by_time(tmp_path, [*dates, "29.03.2019", "NA"], **sizes)
    assert [(row.line, row.code) for row in table.skipped] == [(n, "no_date") for n in (4, 5, 9)]
    remark = "'date': DD.MM.YYYY from 2019-03-04 to 2019-03-29; 3 rows without a date left out"
    assert remark in table.remarks
    parts = split_rows(table, config, seed=0)
    assert [table.rows[row].line for row in parts.test] == [8]
    found = find_leakage(table, parts)
    assert found.first_test_date == "2019-03-29"
    assert any("2019-03-29" in line for line in found.lines())


def test_dates_are_read_before_any_molecule(tmp_path, monkeypatch):
    monkeypatch.delattr("molattn.data.dataset.MoleculeReader")
    with pytest.raises(InputError) as error:
        by_time(tmp_path, [f"{n:02}/02/2020" for n in range(1, 9)])
    assert error.value.option == "time_column"
    assert "line 2" in str(error.value)


@pytest.mark.parametrize("folds", [None, 3])
def test_rows_of_a_date_are_in_one_set_and_every_set_has_rows(tmp_path, folds):
    years = [2015] * 2 + [2016, 2017] * 8 + [2018] * 9 + [2019] * 3
    lines = [f"{'C' * (n + 1)},{n},{year}" for n, year in enumerate(years)]
    columns = {"target_columns": ("y",), "time_column": "year"}
    table_text = "\n".join(["smiles,y,year", *lines, ""])
    config = DataConfig(split="time", folds=folds, only_fold=folds, **columns)
    parts = split_rows(read(tmp_path, table_text, config), config, seed=0)
    train, validation, test = ({years[row] for row in part} for part in parts)
    assert (train, validation, test) == ({2015, 2016, 2017}, {2018}, {2019})


def test_labels_of_the_test_period_of_molecules_measured_before_are_left_out(tmp_path):
    smiles = ["C", "CC", "CCC", "CCCC", "CN", "CCN", "CO", "C", "CCCC"]
    lines = [f"{text},{n},2019-01-0{n + 1}" for n, text in enumerate(smiles)]
    config = DataConfig(
        **{"target_columns": ("y",), "auxiliary_columns": ("a",), "split": "time"},
        **{"time_column": "date", "validation_size": 0.2, "test_size": 0.2},
    )
    lines = [f"{line},{n % 3 or ''}" for n, line in enumerate(lines)]
    table = read(tmp_path, "\n".join(["smiles,y,date,a", *lines, ""]), config)
    parts = split_rows(table, config, seed=0)
    assert parts.test.tolist() == [5, 6]
    assert sorted(np.concatenate(parts)) == [0, 1, 2, 3, 4, 5, 6]
    learned, future = select_auxiliary_rows(table, parts, with_validation=True)
    # Older auxiliary labels of the molecules are learned, those of the test period are not.
    assert [table.auxiliary.rows[row].line for row in learned] == [3, 4, 6]
    assert [table.auxiliary.rows[row].line for row in future] == [9, 10]
    found = find_leakage(table, parts)
    assert (found.measured_again, found.auxiliary_future) == (2, 2)
    assert "labels of 2 rows of the test period were left out" in "\n".join(found.lines())


def test_folds_by_time_test_what_is_newer_than_all_training_rows(tmp_path):
    lines = [f"{'C' * n},{n},{2000 + n * 7 % 31}" for n in range(1, 31)]
    columns = {"target_columns": ("y",), "time_column": "year"}
    config = DataConfig(split="time", folds=5, validation_size=0.2, **columns)
    table = read(tmp_path, "\n".join(["smiles,y,year", *lines, ""]), config)
    years, tested = table.dates.values, []
    for fold in range(1, 6):
        parts = split_rows(table, replace(config, only_fold=fold), seed=fold)
        assert [len(part) for part in parts] == [4 * fold, fold, 5]
        train, validation, test = (years[part] for part in parts)
        assert train.max() < validation.min()
        assert validation.max() < test.min()
        tested += test.tolist()
    assert sorted(tested) == sorted(years)[5:]
    with pytest.raises(InputError, match="folds: got 30"):
        split_rows(table, replace(config, folds=30), seed=0)


def labeled(tmp_path, rows):
    text = "smiles,y,z\n" + "\n".join(rows) + "\n"
    return read(tmp_path, text, DataConfig(target_columns=("y", "z")))


def split(*parts):
    return Split(*(np.array(part, dtype=np.int64) for part in parts))


def test_duplicates_conflicts_and_shared_molecules_are_counted(tmp_path):
    rows = ["CCO,1.0,", "CC,3.5,", "OCC,1.0,", "C,5.5,1.5", "C,5.5,2", "[CH4],,2", "CCCN,9.5,1"]
    table = labeled(tmp_path, rows)
    found = find_leakage(table, split([0, 1, 3], [4], [2, 5, 6]))
    assert (found.duplicates, found.conflicts) == (2, 1)
    assert found.first_conflict == "lines 5 and 6"
    assert (found.shared_test, found.test_molecules) == (2, 3)
    assert found.near_share == pytest.approx(2 / 3)
    assert found.median_similarity == 1.0
    text = "\n".join(found.lines())
    for words in (
        "duplicates: 2 molecules in more than one row, 1 with conflicting labels",
        "lines 5 and 6",
        "2 of 3 test molecules",
        "at least 0.9 for 67%",
    ):
        assert words in text


@pytest.mark.parametrize("unit", [1.0, 1e-9])
def test_conflicts_do_not_depend_on_the_unit(tmp_path, unit):
    rows = [("C", 1.0), ("CC", 2.0), ("C", 1.0 + 1e-12), ("CC", 2.1)]
    table = labeled(
        tmp_path, [f"{smiles},{value * unit!r}," for smiles, value in rows] + ["CCO,,1"]
    )
    assert find_leakage(table, split([0, 1, 4], [2], [3])).conflicts == 1


def test_rounding_is_no_conflict_and_another_class_is(tmp_path):
    rows = ["C,1.50000001,a", "C,1.5,a", "CC,1.5,a", "CC,1.5,b", "CCC,2.5,b", "CCCC,3.5,a"]
    assert find_leakage(labeled(tmp_path, rows), split([0, 1, 2, 3], [4], [5])).conflicts == 1


def test_a_check_of_a_table_says_the_format_and_the_first_and_last_date(tmp_path):
    lines = [f"{'C' * n},{n},{n:02}.03.2019" for n in range(1, 15)]
    path = saved(tmp_path, "\n".join(["smiles,y,date", *lines, "N,3,", ""]))
    config = DataConfig(target_columns=("y",), split="time", time_column="date")
    (line,) = (line for line in check_table(open_table(path), config).lines if "DD.MM.YYYY" in line)
    for words in ("2019-03-01", "2019-03-14", "1 row without a date"):
        assert words in line


@pytest.mark.parametrize(
    "options, folds, sizes",
    [
        ({}, 5, (0.0, 0.1)),
        ({"test_size": 0.2, "split": "scaffold"}, 5, (0.0, 0.1)),
        ({"split": "time", "validation_size": 0.2}, 5, (0.2, 0.1)),
        ({"folds": 3}, 3, (0.1, 0.1)),
        ({"split_column": "part"}, None, (0.1, 0.1)),
    ],
)
def test_a_check_of_few_rows_proposes_folds(tmp_path, options, folds, sizes):
    table = saved(tmp_path, "smiles,y,part\nC,1,train\nCC.O,2,val\nCCC,3,test\n")
    config = check_table(table, DataConfig(target_columns=("y",), **options)).config
    assert (config.folds, config.validation_size, config.test_size) == (folds, *sizes)
    assert config.standardize


def test_a_check_of_labels_of_atoms_proposes_neither_folds_nor_standardized_mixtures(tmp_path):
    table = saved(tmp_path, 'smiles,shift\nC,[1]\nCC.O,"[2, 3, 4]"\n')
    config = DataConfig(atom_target_columns=("shift",))
    assert check_table(table, config).config == config


def test_a_check_of_many_rows_proposes_one_split(tmp_path):
    rows = "".join(f"{'C' * (number % 60 + 1)},{number}\n" for number in range(300))
    config = DataConfig(target_columns=("y",))
    assert check_table(saved(tmp_path, f"smiles,y\n{rows}"), config).config == config
