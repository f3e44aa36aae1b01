import gzip
import struct

import pyarrow as pa
import pytest

from molattn.data.table import open_table
from molattn.data.table.text import open_lines
from molattn.errors import InputError


def test_a_gzip_bomb_is_refused(tmp_path):
    path = tmp_path / "bomb.csv"
    path.write_bytes(gzip.compress(b"smiles,y\n" + b"C,1\n" * 2_000_000))
    assert path.stat().st_size < 20_000
    with pytest.raises(
        InputError, match=r"bomb\.csv: the gzip file expands to more than 200 times"
    ):
        sum(1 for _ in open_table(path))


@pytest.mark.parametrize("row", [b"0", b"CCO,1\n", b"'0\n"])
def test_a_large_gzip_bomb_is_refused_before_a_row_is_read(tmp_path, row, monkeypatch):
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(b"smiles,y\n" + row * (40_000_000 // len(row))))
    monkeypatch.setattr("molattn.data.table.text.io.TextIOWrapper", None)
    with pytest.raises(InputError, match=r"bomb\.csv\.gz: the gzip file expands to more than 200"):
        open_table(path)


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


def zstandard(content):
    return pa.Codec("zstd").compress(content, asbytes=True)


def read(path):
    with open_lines(path) as lines:
        return [*lines]


def test_zstandard_is_read_under_any_name(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(zstandard(b"a,b\n1") + zstandard(b",2\n"))
    assert read(path) == ["a,b\n", "1,2\n"]


@pytest.mark.parametrize("kind, pack", [("gzip", gzip.compress), ("Zstandard", zstandard)])
def test_compressed_data_that_are_cut_or_expand_without_limit_are_refused(tmp_path, kind, pack):
    path = tmp_path / "t.csv"
    path.write_bytes(pack(b"a" + b"\n0" * 2**22))
    with pytest.raises(InputError, match=f"the {kind} file expands to more than 200 times"):
        read(path)
    whole = pack(bytes(range(33, 127)) * 40 + b"\n")
    for size in (len(whole) - 5, 14, 5):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match=f"the {kind} file is damaged or incomplete"):
            read(path)


@pytest.mark.parametrize("number", [0, 15])
@pytest.mark.parametrize("size", [0, 9, 100_000])
def test_zstandard_may_begin_with_frames_without_content(tmp_path, number, size):
    empty = struct.pack("<II", 0x184D2A50 + number, size) + bytes(size)
    path = tmp_path / "t.csv"
    path.write_bytes(empty + empty + zstandard(b"a,b\n") + empty + zstandard(b"1,2\n"))
    assert read(path) == ["a,b\n", "1,2\n"]
    assert open_table(path).header == ["a", "b"]
    path.write_bytes(empty[:-1])
    with pytest.raises(InputError, match="the Zstandard file is damaged or incomplete"):
        read(path)
