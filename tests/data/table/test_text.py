"""Encodings, compression, and files that are not text."""

import gzip
import os

import pyarrow as pa
import pytest

from molattn.data.table import open_table
from molattn.errors import InputError

from ...conftest import assert_one_line


def zstandard(content):
    return pa.Codec("zstd").compress(content, asbytes=True)


def saved(tmp_path, content, name="t.csv"):
    path = tmp_path / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("name", ["t.csv", "t.smi", "t.sdf"])
@pytest.mark.parametrize("pack", [gzip.compress, zstandard])
def test_a_file_that_expands_without_limit_or_is_damaged_is_refused(tmp_path, name, pack):
    whole = pack(bytes(range(33, 127)) * 400 + b"\n")
    for content in (pack(b"a" + b"\n0" * 2**22), whole[:-5], whole[:14]):
        path = saved(tmp_path, content, name)
        with pytest.raises(InputError) as error:
            open_table(path)
        assert_one_line(error.value)
        assert str(path) in str(error.value)


def test_a_repetitive_table_is_read(tmp_path):
    table = open_table(saved(tmp_path, gzip.compress(b"smiles,y\n" + b"C,1\n" * 100_000)))
    assert table.count() == 100_000


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_utf_16_with_its_mark_is_read_and_reported(tmp_path, encoding, pack):
    text = "\ufeffsmiles,Größe\nC,1\n\nCC,Ω\n"
    table = open_table(saved(tmp_path, pack(text.encode(encoding))))
    assert table.header == ["smiles", "Größe"]
    assert table.remarks == ("read as UTF-16",)
    assert [(row.line, row.cells) for row in table] == [(2, ["C", "1"]), (4, ["CC", "Ω"])]
    cut = saved(tmp_path, "\ufeffsmiles,y\nC,1\nC,12".encode(encoding)[:-1])
    assert [row.cells for row in open_table(cut)] == [["C", "1"], ["C", "1\ufffd"]]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n",
        b"\x1f\x8brest",
        b"PAR1rest",
        b"PK\x03\x04rest",
        b'[{"smiles": "C", "y": 1}]',
        b'\xef\xbb\xbf{"smiles": "C"}\n{"smiles": "CC"}\n',
        "smiles,y\nC,1\n".encode("utf-32"),
        "smiles,y\nC,1\n".encode("utf-16-le"),
        b'smiles,y\nC,1\n"CC,2\nCCC,3\n',
        b"smiles,\0\nC,1\n",
    ],
)
@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_what_is_not_a_table_is_refused(tmp_path, content, suffix):
    path = saved(tmp_path, content, f"t{suffix}")
    with pytest.raises(InputError) as error:
        list(open_table(path))
    assert str(path) in str(error.value)
    assert_one_line(error.value)


def test_what_is_not_a_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    others = ("/dev/null", "name\0.csv", "n" * 300)
    for path in (*(tmp_path / name for name in ("", "pipe", "loop", "absent.csv")), *others):
        with pytest.raises(InputError) as error:
            open_table(path)
        assert_one_line(error.value)
