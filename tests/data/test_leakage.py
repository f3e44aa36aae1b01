import json

import numpy as np
import pytest

from molattn.chem import Featurizer, Split
from molattn.chem.fingerprint_index import FingerprintIndex, read_fingerprints
from molattn.config import DataConfig
from molattn.data.dataset import read_training_table
from molattn.data.leakage import find_leakage


def read(tmp_path, rows):
    path = tmp_path / "t.csv"
    path.write_text("smiles,y,z\n" + "\n".join(rows) + "\n")
    return read_training_table(path, DataConfig(target_columns=("y", "z")), Featurizer.default())


def split(*parts):
    return Split(*(np.array(part, dtype=np.int64) for part in parts))


def test_duplicates_conflicts_and_shared_molecules_are_counted(tmp_path):
    rows = ["CCO,1.0,", "CC,3.5,", "OCC,1.0,", "C,5.5,1.5", "C,5.5,2", "[CH4],,2", "CCCN,9.5,1"]
    table = read(tmp_path, rows)
    found = find_leakage(table, split([0, 1, 3], [4], [2, 5, 6]))
    assert (found.duplicates, found.conflicts) == (2, 1)
    assert found.first_conflict == "lines 5 and 6"
    assert (found.shared_test, found.test_molecules) == (2, 3)
    assert found.compared == (3, 3)
    assert found.near_share == pytest.approx(2 / 3)
    assert found.median_similarity == 1.0
    text = "\n".join(found.lines())
    for words in (
        "duplicates: 2 molecules occur in more than one row, 1 with conflicting labels",
        "lines 5 and 6",
        "2 of 3 test molecules",
        "at least 0.9 for 67%",
    ):
        assert words in text
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize("unit", [1.0, 1e-9])
def test_conflicts_do_not_depend_on_the_unit(tmp_path, unit):
    rows = [("C", 1.0), ("CC", 2.0), ("C", 1.0 + 1e-12), ("CC", 2.1)]
    table = read(tmp_path, [f"{smiles},{value * unit!r}," for smiles, value in rows] + ["CCO,,1"])
    assert find_leakage(table, split([0, 1, 4], [2], [3])).conflicts == 1


def test_what_the_first_model_has_seen_of_the_test_is_told(tmp_path):
    table = read(tmp_path, ["C,1.5,1", "CCO,2,2", "CCN,3,3", "OCC,2,2", "CCS,4,4"])
    parts = split([0], [1], [2, 3, 4])
    seen = FingerprintIndex.from_fingerprints(read_fingerprints(["CCO", "SCC", "CCCl"]))
    found = find_leakage(table, parts, pretrained=seen)
    assert (found.pretrained_test, found.test_molecules) == (2, 3)
    assert found.to_dict()["pretrained_test"] == 2
    assert any("2 of 3 test molecules have" in line for line in found.lines())
    for none, count in (
        (None, None),
        (FingerprintIndex.from_fingerprints(read_fingerprints(["BrBr"])), 0),
    ):
        found = find_leakage(table, parts, pretrained=none)
        assert found.pretrained_test == count
        assert not any("--init-from" in line for line in found.lines())


def test_rounding_is_no_conflict_and_another_class_is(tmp_path):
    rows = ["C,1.50000001,a", "C,1.5,a", "CC,1.5,a", "CC,1.5,b", "CCC,2.5,b", "CCCC,3.5,a"]
    assert find_leakage(read(tmp_path, rows), split([0, 1, 2, 3], [4], [5])).conflicts == 1
