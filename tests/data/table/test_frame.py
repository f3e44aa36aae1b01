import numpy as np
import pandas as pd
import pytest
from rdkit import Chem

from molattn.chem.featurizer import Featurizer
from molattn.config import DataConfig
from molattn.data.dataset import read_training_table
from molattn.data.table import open_table
from molattn.errors import InputError


def test_cells_are_texts_that_mean_the_values():
    frame = pd.DataFrame(
        {
            "smiles": ["C", None],
            "n": pd.array([1, None], "Int64"),
            "x": [0.1, float("nan")],
            "whole": [3.0, -2.0],
            "single": np.array([0.1, 2.5], np.float32),
            "yes": [True, pd.NA],
            "when": [pd.Timestamp("2024-03-31"), pd.NaT],
            7: ["a", "b"],
        },
        index=["first", "second"],
    )
    table = open_table(frame)
    assert table.header == ["smiles", "n", "x", "whole", "single", "yes", "when", "7"]
    assert [(row.line, row.cells) for row in table] == [
        (1, ["C", "1", "0.1", "3", "0.1", "True", "2024-03-31", "a"]),
        (2, ["", "", "", "-2", "2.5", "", "", "b"]),
    ]


@pytest.mark.parametrize("frame", [pd.DataFrame(), [["C", 1]], pd.Series(["C"])])
def test_what_is_no_table_is_refused(frame):
    with pytest.raises(InputError, match="DataFrame"):
        open_table(frame)


@pytest.mark.parametrize("gap", [None, float("nan"), pd.NA])
def test_a_missing_molecule_is_a_fault_of_its_row_and_a_missing_label_is_none(gap):
    frame = pd.DataFrame(
        {"smiles": ["C", gap, "CC", "", "O"], "y": [*"ab", gap, *"ab"], "z": [*"abbab"]}
    )
    config = DataConfig(target_columns=("y", "z"), task=("classification",))
    table = read_training_table(frame, config, Featurizer.default())
    assert [(row.line, row.smiles, row.code) for row in table.skipped] == [
        (2, "", "empty"),
        (4, "", "empty"),
    ]
    assert [row.cells for row in table.rows] == [["C", "a", "a"], ["CC", "", "b"], ["O", "b", "b"]]


def test_an_rdkit_molecule_is_its_smiles_and_one_that_cannot_be_used_a_fault_of_its_row():
    mols = [Chem.AddHs(Chem.MolFromSmiles("OCC")), None, Chem.Mol()]
    rows = list(open_table(pd.DataFrame({"ROMol": mols, "y": [1, 2, 3]})))
    assert [row.cells for row in rows] == [["CCO", "1"], ["", "2"], ["", "3"]]
    assert [row.code for row in rows] == ["", "", "empty"]
    assert rows[2].reason == "the molecule has no atoms"


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_lists_of_numpy_numbers_are_lists_of_numbers(kind):
    frame = pd.DataFrame({"smiles": ["CC"], "y": [kind([np.float64(0.1234567890123), np.nan])]})
    (row,) = open_table(frame)
    assert row.cells[1] == "[0.1234567890123, nan]"
