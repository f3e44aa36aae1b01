import gzip

import pytest

from molattn.data.table import open_table
from molattn.errors import InputError


def test_a_gzip_bomb_is_refused(tmp_path):
    path = tmp_path / "bomb.csv"
    path.write_bytes(gzip.compress(b"smiles,y\n" + b"C,1\n" * 2_000_000))
    assert path.stat().st_size < 20_000
    with pytest.raises(
        InputError, match=r"bomb\.csv: the gzip file expands to more than 200 times"
    ):
        sum(1 for _ in open_table(path))


def test_a_repetitive_table_is_read_from_gzip(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"smiles,y\n" + b"C,1\n" * 100_000))
    assert sum(1 for _ in open_table(path)) == 100_000


@pytest.mark.parametrize("name", ["t.csv", "t.smi", "t.csv.gz"])
def test_a_file_of_blank_lines_is_refused_in_time(tmp_path, name, monkeypatch):
    monkeypatch.setattr("molattn.data.table.text._MOST_BLANK_LINES", 1000)
    text = b"\n" * 100_000
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    with pytest.raises(InputError, match=f"{name}, line 1001: got more than 1,000 blank lines"):
        list(open_table(tmp_path / name))


def test_some_blank_lines_are_skipped(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"smiles,y\n" + b"\n" * 5000 + b"C,1\n")
    assert [row.line for row in open_table(tmp_path / "t.csv")] == [5002]
