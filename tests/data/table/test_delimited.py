import gzip
import hashlib
import io
import os
import zipfile

import pytest

from molattn.cli import main
from molattn.data.table import base as rows
from molattn.data.table import open_table
from molattn.errors import InputError


def saved(tmp_path, content, name="t.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_cells_stay_the_text_they_were(tmp_path):
    path = saved(tmp_path, "smiles,y\nNA,1.10\nnan, 007\nNone,1e5\n")
    assert [row.cells for row in open_table(path)] == [
        ["NA", "1.10"],
        ["nan", " 007"],
        ["None", "1e5"],
    ]


def test_byte_order_mark_is_no_part_of_the_first_column(tmp_path):
    assert open_table(saved(tmp_path, b"\xef\xbb\xbfsmiles,y\nC,1\n")).header == ["smiles", "y"]


def test_rows_know_the_line_they_begin_on(tmp_path):
    path = saved(tmp_path, 'smiles,note\nC,"two\nlines"\n\nCC,\r\nCCC,x\n')
    assert [(row.line, row.cells[0]) for row in open_table(path)] == [
        (2, "C"),
        (5, "CC"),
        (6, "CCC"),
    ]


def test_of_a_single_column_blank_lines_before_the_last_row_are_empty_cells(tmp_path):
    text = "\nsmiles\n\nC\n\n\r\nCC\n  \nCCC\n\n\n"
    rows = [(3, ""), (4, "C"), (5, ""), (6, ""), (7, "CC"), (8, "  "), (9, "CCC")]
    wide = saved(tmp_path, text.encode("utf-16"), "wide.tsv")
    packed = saved(tmp_path, gzip.compress(text.encode()), "packed.csv.gz")
    for path in (saved(tmp_path, text), wide, packed):
        assert [(row.line, *row.cells) for row in open_table(path)] == rows
        assert not any(row.fault for row in open_table(path))


def test_lines_with_two_carriage_returns_are_no_rows_of_their_own(tmp_path):
    path = saved(tmp_path, "smiles\r\r\nC\r\r\nCC\r\r\n")
    assert [row.cells for row in open_table(path)] == [["C"], ["CC"]]


def test_ragged_rows_come_out_marked_and_whole(tmp_path):
    rows = list(open_table(saved(tmp_path, "a,b,c\n1,2\n1,2,3\n1,2,3,4,5\n")))
    assert [row.cells for row in rows] == [["1", "2", ""], ["1", "2", "3"], ["1", "2", "3,4,5"]]
    assert [row.fault for row in rows] == [
        "the row has 2 cells, the header has 3",
        None,
        "the row has 5 cells, the header has 3",
    ]
    assert [row.code for row in rows] == ["ragged", "", "ragged"]


def zipped(name, text):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, text)
    return file.getvalue()


@pytest.mark.parametrize("name", ["t.csv.zip", "t.zip", "t.json", "t.jsonl"])
def test_a_file_of_another_kind_is_told_by_the_command(tmp_path, capsys, name):
    text = '{"smiles": "CCO"}\n'
    content = text.encode() if "json" in name else zipped("t.csv", "smiles\nCCO\n")
    path = saved(tmp_path, content, name)
    assert main(["predict", "solubility", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert ("JSON" if "json" in name else "ZIP") in line
    assert all(word in line for word in ("CSV", "Parquet", "Excel", "SDF"))


@pytest.mark.parametrize(
    "content, words",
    [
        (b"", ["empty", "header"]),
        (b"\n\n", ["empty"]),
        (zipped("t.csv", "smiles,y\nC,1\n"), ["ZIP", "CSV"]),
        (b'[{"smiles": "C", "y": 1}]', ["JSON", "CSV"]),
        (b'\n{\n "smiles": ["C"]}', ["JSON", "CSV"]),
        (b'\xef\xbb\xbf{"smiles": "C"}\n{"smiles": "CC"}\n', ["JSON", "CSV"]),
        (b"<!DOCTYPE html><html>", ["HTML", "CSV"]),
        (b"\x1f\x8brest", ["gzip", "damaged"]),
        (b"PAR1rest", ["Parquet"]),
        (b"BZh91AY", ["bzip2"]),
        (b"%PDF-1.4", ["PDF"]),
        ("smiles,y\nC,1\n".encode("utf-32"), ["UTF-32"]),
        ("smiles,y\nC,1\n".encode("utf-16-le"), ["binary"]),
        (b'smiles,y\nC,1\n"CC,2\nCCC,3\n', ["line 3", "cells separated by commas"]),
    ],
)
def test_a_file_that_is_no_csv_is_refused_by_name(tmp_path, content, words):
    path = saved(tmp_path, content)
    with pytest.raises(InputError) as error:
        list(open_table(path))
    for word in [str(path), *words]:
        assert word in str(error.value)


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path, word in (
        (tmp_path, "a folder"),
        (tmp_path / "pipe", "a pipe"),
        ("/dev/null", "a pipe or a device"),
        (tmp_path / "loop", "[Tt]oo many levels of symbolic links"),
        (tmp_path / "absent.csv", "no such file"),
        ("name\0.csv", "null"),
    ):
        with pytest.raises(InputError, match=word):
            open_table(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_refused(tmp_path):
    path = saved(tmp_path, "smiles\nC\n")
    path.chmod(0)
    with pytest.raises(InputError, match=r"t\.csv: Permission denied"):
        open_table(path)


def test_gzip_is_read_under_any_name(tmp_path):
    text = b"smiles,y\nC,1\n"
    for name in ("t.csv.gz", "t.csv", "t"):
        table = open_table(saved(tmp_path, gzip.compress(text), name))
        assert [row.cells for row in table] == [["C", "1"]]


@pytest.mark.parametrize("part", [0.3, 0.9, 0.999])
def test_gzip_that_is_cut_short_is_never_half_a_table(tmp_path, part):
    lines = "".join(f"{'C' * (n % 50 + 1)},{n * 7919}\n" for n in range(5000))
    data = gzip.compress(f"smiles,y\n{lines}".encode())
    path = saved(tmp_path, data[: int(part * len(data))], "t.csv.gz")
    with pytest.raises(InputError, match=r"t\.csv\.gz: the gzip file is damaged or incomplete"):
        list(open_table(path))


def test_tabs_separate_in_a_tsv(tmp_path):
    table = open_table(saved(tmp_path, 'smiles\tnote\nC\ta, b\nCC\t"c\td"\n', "t.tsv"))
    assert [row.cells for row in table] == [["C", "a, b"], ["CC", "c\td"]]


def test_lines_end_with_carriage_returns_too(tmp_path):
    for end in ("\r", "\r\n"):
        path = saved(tmp_path, end.join(["smiles,y", "C,1", "", "CC,2", ""]))
        assert [(row.line, row.cells) for row in open_table(path)] == [
            (2, ["C", "1"]),
            (4, ["CC", "2"]),
        ]


def test_empty_surplus_cells_are_dropped(tmp_path):
    table = open_table(saved(tmp_path, "smiles,y\nC,1,,\nCC,2,\nCCC,3\n"))
    assert [(row.cells, row.fault) for row in table] == [
        (["C", "1"], None),
        (["CC", "2"], None),
        (["CCC", "3"], None),
    ]


@pytest.mark.parametrize(
    "text, words", [("smiles\nC\n" + "C" * 99, "line 3"), ('a\n"' + "C\n" * 60, "unclosed quote")]
)
def test_a_line_or_cell_without_end_is_refused_in_bounded_memory(
    tmp_path, monkeypatch, text, words
):
    monkeypatch.setattr("molattn.data.table.text.MOST_CHARACTERS", 50)
    monkeypatch.setattr("molattn.data.table.delimited.MOST_CHARACTERS", 50)
    with pytest.raises(InputError, match=words):
        list(open_table(saved(tmp_path, text)))
    assert rows.MOST_CHARACTERS > 2**20


def test_columns_are_found_or_the_nearest_name_is_suggested(tmp_path):
    table = open_table(saved(tmp_path, "id,Smiles,y,y\n1,C,1,2\n"))
    assert table.column("id", "--x") == 0
    with pytest.raises(InputError, match=r"'smile' \(--x\); did you mean 'Smiles'\?.*'id'"):
        table.column("smile", "--x")
    with pytest.raises(InputError, match="2 columns are named 'y'"):
        table.column("y", "--x")
    with pytest.raises(InputError, match=r"'zzz'.*the columns are 'id', 'Smiles'") as error:
        table.column("zzz", "--x")
    assert "did you mean" not in str(error.value)


def test_case_is_ignored_if_that_leaves_one_column(tmp_path):
    table = open_table(saved(tmp_path, "SMILES,pH,ph,Ph,Y,Y\nC,1,2,3,4,5\n"))
    assert table.column("smiles", "--x") == 0
    assert [table.column(name, "--x") for name in ("pH", "ph", "Ph")] == [1, 2, 3]
    with pytest.raises(InputError, match=r"no column 'PH' \(--x\); did you mean"):
        table.column("PH", "--x")
    with pytest.raises(InputError, match="2 columns are named 'Y'"):
        table.column("y", "--x")


def test_another_separator_is_named(tmp_path):
    table = open_table(saved(tmp_path, "smiles|y\nC|1\n"))
    with pytest.raises(InputError, match=r"separated by '\|', expected commas, semicolons or tabs"):
        table.column("smiles", "--smiles-column")


def test_the_digest_is_that_of_the_bytes(tmp_path):
    text = b"smiles,y\nC,1\n"
    assert open_table(saved(tmp_path, text)).digest() == hashlib.sha256(text).hexdigest()


@pytest.mark.parametrize(
    "name, content, header, remarks",
    [
        ("t.csv", "smiles;y\nC;1\n", ["smiles", "y"], ("cells are separated by semicolons",)),
        ("t.csv", "smiles\ty\nC\t1\n", ["smiles", "y"], ("cells are separated by tabs",)),
        ("t.tsv", "smiles,y\nC,1\n", ["smiles", "y"], ("cells are separated by commas",)),
        ("t.csv", "smiles,y\nC,1,5\n", ["smiles", "y"], ()),
        ("t.csv", "smiles,a;b\nC,1\nCC,2\n", ["smiles", "a;b"], ()),
        ("t.csv", 'smiles,"a;b"\nC,1;2\nCC,2\n', ["smiles", "a;b"], ()),
        (
            "t.csv",
            "smiles;y (mean, of 3)\nC;1\nCC;2,5\n",
            ["smiles", "y (mean, of 3)"],
            ("cells are separated by semicolons",),
        ),
        ("t.csv", "smiles\nC\n", ["smiles"], ()),
        ("t.csv", "smiles;a,b\n", ["smiles;a", "b"], ()),  # nothing tells: what the name promises
    ],
)
def test_what_separates_cells_is_found_and_said(tmp_path, name, content, header, remarks):
    table = open_table(saved(tmp_path, content, name))
    assert (table.header, table.remarks) == (header, remarks)
    assert all(row.cells[0].startswith("C") for row in table)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_utf_16_with_its_mark_is_read_and_said(tmp_path, encoding, pack):
    text = "\ufeffsmiles,Größe\nC,1\n\nCC,Ω\n"
    table = open_table(saved(tmp_path, pack(text.encode(encoding))))
    assert table.header == ["smiles", "Größe"]
    assert table.remarks == ("read as UTF-16",)
    assert [(row.line, row.cells) for row in table] == [(2, ["C", "1"]), (4, ["CC", "Ω"])]


def test_utf_16_that_ends_within_a_character_costs_the_last_row_alone(tmp_path):
    table = open_table(saved(tmp_path, "\ufeffsmiles,y\nC,1\nC,12".encode("utf-16-le")[:-1]))
    assert [row.cells for row in table] == [["C", "1"], ["C", "1\ufffd"]]


@pytest.mark.parametrize("name", ["t.smi", "t.smi.gz"])
def test_other_texts_are_read_in_utf_16_too(tmp_path, name):
    data = "\ufeffCCO ethanol\n".encode("utf-16-le")
    path = saved(tmp_path, gzip.compress(data) if name.endswith("gz") else data, name)
    assert [row.cells for row in open_table(path)] == [["CCO", "ethanol"]]
