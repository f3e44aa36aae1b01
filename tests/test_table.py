import csv
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from molattn.errors import InputError
from molattn.table import Table, bundled_dataset, write_table


def saved(tmp_path, content, name="t.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_cells_stay_the_text_they_were(tmp_path):
    path = saved(tmp_path, "smiles,y\nNA,1.10\nnan, 007\nNone,1e5\n")
    assert [row.cells for row in Table(path)] == [["NA", "1.10"], ["nan", " 007"], ["None", "1e5"]]


def test_byte_order_mark_is_no_part_of_the_first_column(tmp_path):
    assert Table(saved(tmp_path, b"\xef\xbb\xbfsmiles,y\nC,1\n")).header == ["smiles", "y"]


def test_rows_know_the_line_they_begin_on(tmp_path):
    path = saved(tmp_path, 'smiles,note\nC,"two\nlines"\n\nCC,\r\nCCC,x\n')
    assert [(row.line, row.cells[0]) for row in Table(path)] == [(2, "C"), (5, "CC"), (6, "CCC")]


def test_ragged_rows_come_out_marked_and_whole(tmp_path):
    rows = list(Table(saved(tmp_path, "a,b,c\n1,2\n1,2,3\n1,2,3,4,5\n")))
    assert [row.cells for row in rows] == [["1", "2", ""], ["1", "2", "3"], ["1", "2", "3,4,5"]]
    assert [row.fault for row in rows] == [
        "2 cells where the header has 3",
        None,
        "5 cells where the header has 3",
    ]


@pytest.mark.parametrize(
    "content, words",
    [
        (b"", ["empty", "header"]),
        (b"\n\n", ["empty"]),
        (b"PK\x03\x04rest", ["Excel"]),
        (b"\x1f\x8brest", ["gzip"]),
        (b"PAR1rest", ["Parquet"]),
        ("smiles,y\nC,1\n".encode("utf-16"), ["UTF-16"]),
        ("smiles,y\nC,1\n".encode("utf-16-le"), ["binary"]),
        (b'smiles,y\nC,1\n"CC,2\nCCC,3\n', ["line 3", "not CSV"]),
    ],
)
def test_a_file_that_is_no_csv_is_refused_by_name(tmp_path, content, words):
    path = saved(tmp_path, content)
    with pytest.raises(InputError) as error:
        list(Table(path))
    for word in [str(path), *words]:
        assert word in str(error.value)


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path, word in (
        (tmp_path, "not a file"),
        (tmp_path / "pipe", "not a file"),
        (tmp_path / "loop", "no such file"),
        (tmp_path / "absent.csv", "no such file"),
    ):
        with pytest.raises(InputError, match=word):
            Table(path)


def test_columns_are_found_or_the_nearest_name_is_suggested(tmp_path):
    table = Table(saved(tmp_path, "id,Smiles,y,y\n1,C,1,2\n"))
    assert table.column("id", "--x") == 0
    with pytest.raises(InputError, match=r"'smiles' \(--x\), did you mean 'Smiles'\?.*'id'"):
        table.column("smiles", "--x")
    with pytest.raises(InputError, match="2 columns are named 'y'"):
        table.column("y", "--x")
    with pytest.raises(InputError, match=r"'zzz'.*the columns are 'id', 'Smiles'") as error:
        table.column("zzz", "--x")
    assert "did you mean" not in str(error.value)


def test_another_separator_is_named(tmp_path):
    table = Table(saved(tmp_path, "smiles;y\nC;1\n"))
    with pytest.raises(InputError, match="separated by ';', expected commas"):
        table.column("smiles", "--smiles-column")


def decoded(text):
    return text.encode(errors="surrogateescape").decode(errors="surrogateescape")


# Lone surrogates are what bytes that are not UTF-8 decode to.
cells = st.text(
    st.characters(exclude_categories=["Cs"])
    | st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF),
    max_size=8,
).filter(lambda text: text == decoded(text))


@given(st.lists(st.tuples(cells, cells), min_size=1))
def test_what_is_written_is_read_again(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("t") / "t.csv"
    with write_table(path, ["a", "b"]) as write:
        for row in rows:
            write(row)
    again = Table(path)
    assert again.header == ["a", "b"]
    expected = [list(row) for row in rows]
    assert [row.cells for row in again] == expected


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = saved(tmp_path, "old\n")
    with pytest.raises(ZeroDivisionError), write_table(path, ["new"]) as write:
        write([1 / 0])
    assert path.read_text() == "old\n"
    assert os.listdir(tmp_path) == ["t.csv"]


def test_a_written_file_replaces_the_old_one_and_has_ordinary_permissions(tmp_path):
    path = saved(tmp_path, "old\n")
    with write_table(path, ["a"]) as write:
        write([1.5])
        assert path.read_text() == "old\n"
    assert path.read_text() == "a\n1.5\n"
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()
    assert os.listdir(tmp_path) == ["t.csv"]


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "absent" / "t.csv", "/dev/null"):
        with pytest.raises(InputError), write_table(path, ["a"]):
            pass
    assert os.path.exists("/dev/null")


def test_the_bundled_set_is_found_with_its_columns():
    with open(bundled_dataset(), newline="", encoding="utf-8") as file:
        assert next(csv.reader(file)) == ["name", "smiles", "logS", "split"]


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask
