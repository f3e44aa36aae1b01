import csv

from molattn.data.table import bundled_dataset


def test_the_bundled_set_is_found_with_its_columns():
    with open(bundled_dataset(), newline="", encoding="utf-8") as file:
        assert next(csv.reader(file)) == ["name", "smiles", "logS", "split"]
