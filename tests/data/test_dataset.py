from dataclasses import fields, replace

import numpy as np
import openpyxl
import pytest

from molattn.chem import Featurizer
from molattn.chem.fingerprints import SubstructureCounter
from molattn.config import DataConfig
from molattn.data.dataset import describe_tasks, read_training_table
from molattn.data.splitting import split_rows
from molattn.errors import InputError
from molattn.task import Task

from ..conftest import saved

CONFIG = DataConfig(target_columns=("y", "z"))


def read(tmp_path, text, config=CONFIG):
    return read_training_table(saved(tmp_path, text), config, Featurizer.default())


@pytest.mark.parametrize(
    "text, words",
    [
        ("smiles,y,z\nC,1,2\nCC,1,45%\n", ["line 3", "'z'", "'45%'", "a number"]),
        ("smiles,y,z\n", ["no rows"]),
        ("smiles,y,z\n12,1,1\n34,1,1\n", ["2 rows", "line 2"]),
        ("smiles,y\nC,1\n", ["'z'", "target_columns", "'smiles', 'y'"]),
        (
            "smiles,y,z\nmethane,,\nethane,1,2\nbutane,3,4\n",
            ["of 3 rows none has", "reasons: 2 name, 1 no_label; line 3: "],
        ),
        ("smiles,y,z\nC,1,\nCC,2,NA\n", ["'z'", "no usable row has a label"]),
        # Labels come first, so that a long table is not featurized in vain.
        ("smiles,y,z\nnonsense,x,1\nC,1,1\n", ["line 2", "'y'", "'x'"]),
        ("Smile,y,z\nC,1,2\n", ["'smiles'", "smiles_column", "did you mean 'Smile'"]),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_by_place(tmp_path, text, words):
    with pytest.raises(InputError) as error:
        read(tmp_path, text)
    for word in ["in.csv", *words]:
        assert word in str(error.value)


def test_tasks_follow_from_the_labels_and_are_said(tmp_path):
    config = DataConfig(target_columns=("y", "toxic", "phase"), target_units=("mM", "", ""))
    table = read(
        tmp_path,
        "smiles,y,toxic,phase\nC,1.5,yes,gas\nCC,-2,,gas\nCCO,,no,liquid\nO,0,yes,solid\n",
        config,
    )
    assert table.tasks == (
        Task("y", unit="mM"),
        Task("toxic", "binary", ("no", "yes")),
        Task("phase", "multiclass", ("gas", "liquid", "solid")),
    )
    nan = np.nan
    np.testing.assert_array_equal(
        table.targets, [[1.5, 1, 0], [-2, nan, 0], [nan, 0, 1], [0, 1, 2]]
    )
    assert describe_tasks(table, config) == [
        "'y': regression, 3 labels from -2 to 1.5 mM",
        "'toxic': binary, 3 labels: 'yes' (2) is positive, 'no' (1) negative",
        "'phase': multiclass, 4 labels in 3 classes: 'gas' (2), 'liquid' (1), 'solid' (1)",
    ]


def test_features_and_weights_are_read_and_a_row_without_a_feature_skipped(tmp_path):
    config = DataConfig(target_columns=("y",), feature_columns=("pH", "T"), weight_column="w")
    table = read(tmp_path, "T,smiles,y,w,pH\n300,C,1,0.5,7\n,CC,2,1,7\n310,CCC,3,0,2\n", config)
    np.testing.assert_array_equal(table.features, [[7, 300], [2, 310]])
    np.testing.assert_array_equal(table.weights, [0.5, 0.0])
    assert [(row.line, row.code) for row in table.skipped] == [(3, "missing_feature")]
    assert "'T'" in table.skipped[0].reason
    some = table.molecules(np.array([1]))
    assert (some.features.tolist(), some.weights.tolist()) == ([[2.0, 310.0]], [0.0])
    assert table.molecules(np.array([0, 1])).weights.tolist() == [2.0, 0.0]
    assert (some.targets.tolist(), some.records[0].num_atoms) == ([[3.0]], 3)


@pytest.mark.parametrize(
    "labels, options, word",
    [
        (["low", "high"] * 3, {}, "--positive-class"),
        (["low", "high"] * 3, {"positive_class": ("low",)}, None),
        (["yes", "no"] * 3, {}, None),
        (["1", "2"] * 3, {}, "--task classification"),
        (["1", "2", "5"] * 3, {}, "--task classification"),
        (["1", "2"] * 3, {"task": ("regression",)}, None),
        (["1", "2"], {}, None),
        (["1", "2.5"] * 3, {}, None),
        ([str(n) for n in range(6)] * 9, {}, None),
    ],
)
def test_an_option_for_what_the_labels_do_not_tell_is_named(tmp_path, labels, options, word):
    rows = "".join(f"{'C' * (n + 1)},{label}\n" for n, label in enumerate(labels))
    config = DataConfig(target_columns=("y",), **options)
    (line,) = describe_tasks(read(tmp_path, f"smiles,y\n{rows}", config), config)
    assert word in line if word else "--" not in line


def test_censored_labels_are_kept_as_bounds_and_said(tmp_path):
    text = "smiles,y,z\nC,1,2\nCC,>2,1\nCCC,<= 0.5,\nCCCC,,3\nCCCCC,>x,4\nCCCCCC,~7,5\n"
    table = read(tmp_path, text, DataConfig(target_columns=("y", "z")))
    nan = np.nan
    assert [(row.line, row.code) for row in table.unreadable] == [(6, "invalid_label")]
    np.testing.assert_array_equal(
        table.targets, [[1.0, 2.0], [nan, 1.0], [nan, nan], [nan, 3.0], [nan, 4.0], [7.0, 5.0]]
    )
    np.testing.assert_array_equal(table.bounds[0, :, 0], [nan, 2.0, nan, nan, nan, nan])
    np.testing.assert_array_equal(table.bounds[1, :, 0], [nan, nan, 0.5, nan, nan, nan])
    assert np.isnan(table.bounds[:, :, 1]).all()
    np.testing.assert_array_equal(table.labels_or_bounds[:, 0], [1.0, 2.0, 0.5, nan, nan, 7.0])
    assert describe_tasks(table, CONFIG)[:2] == [
        "'y': regression, 2 labels from 1 to 7; 1 lower and 1 upper bounds",
        "'z': regression, 5 labels from 1 to 5",
    ]
    some = table.molecules(np.array([1, 0]))
    np.testing.assert_array_equal(some.bounds, table.bounds[:, [1, 0]])
    np.testing.assert_array_equal(some.labels_or_bounds, [[2.0, 1.0], [1.0, 2.0]])


def test_an_unreadable_label_is_missing_and_its_row_keeps_the_others(tmp_path):
    text = (
        "smiles,y,z\nC,1,2\nCC,n.d.,1\nCCC,4,see note\nCCCC,12 ± 1,3\nCCCCC,x,\nCCCCCC,7+/-.5,5\n"
        "CC(,n.d.,1\nO,>8 ± 2,?\n"
    )
    table = read(tmp_path, text)
    nan = np.nan
    expected = [[1, 2], [nan, 1], [4, nan], [12, 3], [7, 5], [nan, nan]]
    np.testing.assert_array_equal(table.targets, expected)
    assert table.bounds[0, -1, 0] == 8.0
    assert [(row.line, row.code) for row in table.skipped] == [
        (6, "invalid_label"),
        (8, "parenthesis"),
    ]
    cells = [(row.line, row.smiles, row.code, row.reason[:10]) for row in table.unreadable]
    assert cells == [
        (3, "CC", "invalid_label", "column 'y'"),
        (4, "CCC", "invalid_label", "column 'z'"),
        (9, "O", "invalid_label", "column 'z'"),
    ]
    *_, line = describe_tasks(table, CONFIG)
    assert line.startswith("3 labels")
    assert "line 3: column 'y'" in line
    assert any(one.startswith("3 labels of column 'y'") for one in table.remarks)


def test_formulas_without_a_value_are_missing_labels_or_inputs(tmp_path):
    book = openpyxl.Workbook()
    for row in (
        ["smiles", "y", "z", "pH"],
        ["C", 1, 2, 7],
        ["CC", "=B2", 3, 7],
        ["CCC", "=B2", None, 7],
        ['="CC"', 1, 2, 7],
        ["CCCC", 5, 6, "=D2"],
        ["CCCCC", 7, 8, 7],
    ):
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    config = replace(CONFIG, feature_columns=("pH",))
    table = read_training_table(tmp_path / "t.xlsx", config, Featurizer.default())
    assert [(row.line, row.code) for row in table.skipped] == [
        (n, "uncalculated") for n in (4, 5, 6)
    ]
    assert [(row.line, row.code) for row in table.unreadable] == [(3, "uncalculated")]
    np.testing.assert_array_equal(table.targets, [[1, 2], [np.nan, 3], [7, 8]])


@pytest.mark.parametrize(
    "options, cells",
    [
        ({"relation_columns": ("more",)}, [None, ">", '=">"', ">"]),
        ({"split_column": "more"}, ["train", "test", "=A2", "val"]),
        ({"split": "time", "time_column": "more"}, ["2019-01", "2019-02", "=A2", "2019-03"]),
    ],
)
def test_formulas_without_a_value_are_not_empty_cells_of_other_columns(tmp_path, options, cells):
    book = openpyxl.Workbook()
    book.active.append(["smiles", "y", "z", "more"])
    for size, cell in enumerate(cells, start=1):
        book.active.append(["C" * size, size, None, cell])
    book.save(tmp_path / "t.xlsx")
    config = DataConfig(target_columns=("y",), **options)
    table = read_training_table(tmp_path / "t.xlsx", config, Featurizer.default())
    assert [(row.line, row.code) for row in table.skipped] == [(4, "uncalculated")]
    assert [*table.smiles] == ["C", "CC", "CCCC"]
    if "relation_columns" in options:
        np.testing.assert_array_equal(table.bounds[0], [[np.nan], [2], [4]])


LIMITS = DataConfig(target_columns=("y",), interval_columns=("low", "high"), std_columns=("se",))
LIMITED = """smiles,y,low,high,se
C,1,,,0.5
CC,2,1,4,
CCC,,2,3,0
CCCC,,,7,1
CCCCC,9,8,,1
CCCCCC,5,5,5,1
O,3,4,2,1
CO,,,,1
CCO,1,2,3,1
"""


def test_limits_and_standard_errors_are_read_beside_the_labels(tmp_path):
    table = read(tmp_path, LIMITED, LIMITS)
    nan = np.nan
    np.testing.assert_array_equal(table.targets[:, 0], [1, 2, 2.5, nan, nan, 5])
    np.testing.assert_array_equal(table.bounds[0, :, 0], [nan, 1, 2, nan, 8, nan])
    np.testing.assert_array_equal(table.bounds[1, :, 0], [nan, 4, 3, 7, nan, nan])
    np.testing.assert_array_equal(table.stds[:, 0], [0.5, nan, 0, 1, 1, 1])
    np.testing.assert_array_equal(table.labels_or_bounds[:, 0], [1, 2, 2.5, 7, 8, 5])
    np.testing.assert_array_equal(table.molecules(np.array([1])).stds, [[nan]])
    codes = [(row.line, row.code) for row in table.skipped]
    assert codes == [(8, "invalid_label"), (9, "no_label"), (10, "invalid_label")]
    assert table.skipped[0].reason == (
        "column 'y': got '3 from 4 to 2', expected limits in ascending order, with the value "
        "between them"
    )
    (line,) = describe_tasks(table, LIMITS)
    assert line == (
        "'y': regression, 4 labels from 1 to 5; 1 lower and 1 upper bounds; 2 intervals"
    )


@pytest.mark.parametrize(
    "text, options, word",
    [
        (LIMITED.replace("low", "y_predicted"), {"interval_columns": ("y_predicted",)}, "LOW HIGH"),
        (LIMITED, {"interval_columns": ("high", "low")}, "limits in ascending order"),
        (LIMITED, {"interval_columns": ("low", "low")}, "each once"),
        (LIMITED.replace("0.5", "-1"), {}, "standard error of at least 0"),
        (LIMITED, {"task": ("classification",)}, "classification, expected a regression"),
        ("smiles,y,s\nC,a,1\nCC,b,1\n", {"std_columns": ("s",)}, "classes of 'y', expected a regr"),
        (LIMITED.replace("CC,2,1", "CC,2,0"), {"target_transform": ("log",)}, ""),
        (
            "smiles,y,y_low,y_high,y_predicted\nC,1,0,2,1\n",
            {},
            "not predictions of molattn .'y_predicted'",
        ),
        (
            "smiles,y,Y_STD,y_predicted\nC,1,0,1\n",
            {"std_columns": ("y_std",)},
            "not predictions of molattn",
        ),
        (
            "smiles,y,Y_predicted,y_expected_error\nC,1,1,1\n",
            {"std_columns": ("y_expected_error",)},
            "not predictions of molattn .'Y_predicted'",
        ),
        (
            "smiles,y,y_predicted\nC,1,1\n",
            {"target_columns": ("Y_predicted",)},
            "got 'y_predicted', expected",
        ),
        ("smiles,y_predicted\nC,1\n", {"target_columns": ()}, "got 'y_predicted', expected"),
        (
            "smiles,y_predicted,y_probability_a\nC,a,1\n",
            {"target_columns": ("y_probability_a",)},
            "not predictions of molattn .'y_predicted'",
        ),
        (
            "smiles,shift_predicted\nC,[1]\n",
            {"target_columns": (), "atom_target_columns": ("shift_predicted",)},
            "got 'shift_predicted', expected",
        ),
        (
            "smiles,y,y_low,y_probability\nC,1,0,2\n",
            {"target_columns": ("y_probability",), "interval_columns": ()},
            "",
        ),
        ("smiles,y,low,low_predicted,high\nC,1,0,2,1\n", {"interval_columns": ("low", "high")}, ""),
    ],
)
def test_limits_that_do_not_fit_and_predictions_are_refused(tmp_path, text, options, word):
    columns = {} if "se" in text.split("\n")[0] else {"interval_columns": (), "std_columns": ()}
    if "y_low" in text:
        columns["interval_columns"] = ("y_low", "y_high")
    config = replace(
        LIMITS, **columns | {key: x for key, x in options.items() if word != "LOW HIGH"}
    )
    if not word:
        assert len(read(tmp_path, text, config).rows)
        return
    with pytest.raises(InputError, match=word):
        read(tmp_path, text, replace(config, **options))


def test_labels_of_one_value_vary_by_their_bounds(tmp_path):
    table = read(tmp_path, "smiles,y,z\nC,5,5\nCC,5,5\nCCC,>10,>5\n")
    assert ["do not vary" in line for line in describe_tasks(table, CONFIG)] == [False, True]


@pytest.mark.parametrize("option", [f"{name}_column" for name in ("smiles", "split", "weight")])
def test_an_empty_name_is_no_column(tmp_path, option):
    with pytest.raises(InputError, match=rf"no column '' \({option}\)"):
        read(tmp_path, "smiles,y,z\nC,5,5\n", replace(CONFIG, **{option: ""}))


CHEMBL = "smiles,standard_value,Standard_Relation\n"


def test_relations_are_read_from_their_column(tmp_path):
    config = DataConfig(target_columns=("standard_value",), relation_columns=("standard_relation",))
    text = CHEMBL + "C,10,'>'\nCC,1,'='\nCCC,2,\nCCCC,3,'?'\nCCCCC,<4,\nCCCCCC,>5,<\nO,'',?\n"
    table = read(tmp_path, text.replace("O,''", "O,"), config)
    nan = np.nan
    np.testing.assert_array_equal(table.targets[:, 0], [nan, 1.0, 2.0, nan])
    np.testing.assert_array_equal(table.bounds[:, :, 0], [[10, nan, nan, nan], [nan, nan, nan, 4]])
    assert [(row.line, row.code) for row in table.skipped] == [
        (5, "invalid_label"),
        (7, "invalid_label"),
        (8, "no_label"),
    ]
    assert table.skipped[0].reason.startswith("column 'Standard_Relation': got \"'?'\", expected")
    assert table.skipped[1].reason == (
        "column 'standard_value': got '>5', expected the relation '<' as in the relation column, "
        "or none"
    )


def test_standardized_rows_are_counted_and_baselines_calculated_from_their_forms(tmp_path):
    config = DataConfig(target_columns=("y",), standardize=True)
    text = "smiles,y\nCC(=O)[O-].[Na+],1.5\nOCC,2.5\nC(,3.5\nOc1ccccn1,4.5\nCC(=O)O,5\n"
    table = read(tmp_path, text, config)
    forms = ["CC(=O)O", "CCO", "O=c1cccc[nH]1", "CC(=O)O"]
    assert [record.smiles for record in table.records] == forms
    assert [row.line for row in table.skipped] == [4]
    assert table.standardized == 2
    assert read(tmp_path, text, DataConfig(target_columns=("y",))).standardized is None
    path, featurizer = tmp_path / "in.csv", Featurizer.default()
    numbers = read_training_table(path, config, featurizer, baseline=True).baseline_numbers
    np.testing.assert_array_equal(numbers[0], numbers[3])
    assert table.baseline_numbers is None


@pytest.mark.parametrize("way", ["worker processes", "temporary files"])
def test_a_table_is_the_same_however_it_is_read(tmp_path, monkeypatch, way):
    solvents = ["O", "CCO", "nonsense"]
    lines = [
        f"{'C' * (n % 30 + 1)}{'[O-].[Na+]' if n % 7 == 0 else '[NH3+]'},{n},{solvents[n % 3]}"
        for n in range(80)
    ]
    lines[30:32] = ["C1CC,1,O", "c1ccccc1O,2,O"]
    path = saved(tmp_path, "\n".join(["smiles,y,solvent", *lines, lines[0], ""]))
    columns = {"target_columns": ("y",), "partner_column": "solvent"}
    config = DataConfig(**columns, split="scaffold", standardize=True)
    options = {"baseline": True, "counter": SubstructureCounter(("morgan",))}
    one = read_training_table(path, config, Featurizer.default(), **options)
    assert one.records[-1].atoms is one.records[0].atoms  # read once
    if way == "temporary files":
        monkeypatch.setattr("molattn.data.dataset._MOST_IN_MEMORY", 4)
    else:
        config = replace(config, num_workers=2)
    other = read_training_table(path, config, Featurizer.default(), **options)
    assert len(one.skipped) > 20
    for name in ("rows", "smiles", "partners", "skipped"):
        assert [*getattr(other, name)] == [*getattr(one, name)]
    np.testing.assert_array_equal(other.targets, one.targets)
    chosen = np.array([27, 0, *range(len(one.rows)), 5])
    pairs = [*zip(*(table.molecules(chosen).records for table in (one, other)), strict=True)]
    pairs += [(record.partner, twin.partner) for record, twin in pairs]
    for record, twin in pairs:
        for field in fields(record):
            if field.name != "partner":
                values = getattr(record, field.name), getattr(twin, field.name)
                np.testing.assert_equal(*values)
    random = replace(config, split="random")
    assert split_rows(other, random, 0).train.tolist() == split_rows(one, random, 0).train.tolist()
