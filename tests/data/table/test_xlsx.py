import itertools
import re
import zipfile
from datetime import date, datetime, time, timedelta

import openpyxl
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from molattn.data.table import open_table, write_table, xlsx
from molattn.errors import InputError

from ...conftest import assert_one_line
from ...strategies import cells


def book_of(path, rows, change=None):
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    if change:
        change(book)
    book.save(path)
    return path


def edited(path, name, change):
    """Change a file within a workbook."""
    with zipfile.ZipFile(path) as archive:
        parts = {entry: archive.read(entry) for entry in archive.namelist()}
    parts[name] = change(parts[name])
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry, content in parts.items():
            archive.writestr(entry, content)
    return path


SHEET = "xl/worksheets/sheet1.xml"


def test_texts_numbers_and_dates_are_read_as_they_are_shown(tmp_path):
    values = ["CCO", 3, 1.5, 0.1, True, date(2024, 1, 5), datetime(2024, 1, 5, 7, 30), time(9, 5)]
    path = book_of(tmp_path / "t.xlsx", [["smiles", *"abcdefg"], values, ["C", "007", "#N/A"]])
    table = open_table(path)
    assert table.header == ["smiles", *"abcdefg"]
    first, second = table
    assert first.cells == [
        "CCO",
        "3",
        "1.5",
        "0.1",
        "TRUE",
        "2024-01-05",
        "2024-01-05 07:30:00",
        "09:05:00",
    ]
    assert second.cells == ["C", "007", "#N/A", "", "", "", "", ""]
    assert (first.line, second.line, table.where(2), table.count()) == (2, 3, "row 2", 2)


@given(rows=st.lists(st.tuples(cells(), cells()), min_size=1))
def test_what_is_written_is_read_again(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("t") / "t.xlsx"
    with write_table(path, ["x", "a", "b"]) as write:
        for row in rows:
            write(["x", *row])
    written = [[_held(text) for text in row] for row in rows]
    assert [row.cells[1:] for row in open_table(path)] == written


def _held(text):
    """Text as Excel can hold it: other bytes than UTF-8 are read as Windows-1252."""
    return "".join(
        one.encode(errors="surrogateescape").decode("cp1252", errors="replace")
        if "\udc80" <= one <= "\udcff"
        else one
        for one in text
    )


def test_values_are_written_with_their_types(tmp_path):
    values = ["1.50", "1.5", "-2", "1e5", "", None, 2.5, date(2024, 1, 5), True, float("nan")]
    values += [2**60, date(1800, 1, 1), "0123", "-0", "1_0", "nan", "\u0663"]
    with write_table(tmp_path / "t.xlsx", [f"c{n}" for n in range(len(values))]) as write:
        write(values)
    sheet = openpyxl.load_workbook(tmp_path / "t.xlsx").active
    found = [cell.value for cell in sheet[2]]
    found[7] = found[7].date()
    expected = ["1.50", 1.5, -2, "1e5", None, None, 2.5, date(2024, 1, 5), True, "nan"]
    expected += [str(2**60), "1800-01-01", "0123", "-0", "1_0", "nan", "\u0663"]
    assert found == expected
    assert [type(value) for value in found] == [type(value) for value in expected]


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "@SUM(1)", "-2+3+cmd", "#N/A", "=HYPERLINK(1)"])
def test_text_is_never_a_formula(tmp_path, text):
    path = tmp_path / "t.xlsx"
    with write_table(path, [text, "b"]) as write:
        write([text, "x"])
    sheet = openpyxl.load_workbook(path).active
    for place in ("A1", "A2"):
        assert (sheet[place].value, sheet[place].data_type) == (text, "s")
        assert sheet[place].quotePrefix == (text[0] in "=+@-")
    assert open_table(path).header == [text, "b"]
    assert [row.cells for row in open_table(path)] == [[text, "x"]]


def test_what_excel_cannot_hold_is_refused_or_replaced(tmp_path, monkeypatch):
    path = tmp_path / "t.xlsx"
    with write_table(path, ["a"]) as write:
        write(["caf\udce9 \x01 \r _x0041_ _x005F_"])
        with pytest.raises(InputError, match=r"t\.xlsx: row 3: got a text of 32,768 characters"):
            write(["x" * 32_768])
        write(["x" * 32_767])
    first, second = open_table(path)
    assert first.cells == ["caf\xe9 \x01 \r _x0041_ _x005F_"]
    assert len(second.cells[0]) == 32_767
    with pytest.raises(InputError, match="16,385 columns"), write_table(path, ["a"] * 16_385):
        pass
    monkeypatch.setattr(xlsx, "_MOST_ROWS", 2)
    with pytest.raises(InputError, match="more than 2 rows"), write_table(path, ["a"]) as write:
        write([1]) or write([2])
    assert next(row.cells for row in open_table(path)) == first.cells


def test_a_formula_has_its_stored_value(tmp_path):
    path = book_of(tmp_path / "t.xlsx", [["smiles", "y"], ["C", "=1+1"], ["CC", '=""']])
    words = f"{path}, sheet 'Sheet', cell B2: the formula has no stored value"
    with pytest.raises(InputError) as error:  # as openpyxl writes it, with an empty value
        open_table(path)
    assert str(error.value).startswith(words)
    edited(path, SHEET, lambda content: re.sub(rb"<v ?/>|<v></v>", b"", content))
    with pytest.raises(InputError) as error:
        open_table(path)
    assert str(error.value).startswith(words)
    edited(path, SHEET, lambda content: content.replace(b'r="B2"', b'r="B2" t="str"'))
    with pytest.raises(InputError) as error:
        open_table(path)
    assert str(error.value).startswith(words)
    edited(path, SHEET, lambda content: content.replace(b'r="B2" t="str"', b'r="B2"'))

    edited(
        path,
        SHEET,
        lambda content: content.replace(b"<f>1+1</f>", b"<f>1+1</f><v>2</v>").replace(
            b'<c r="B3"><f>""</f>', b'<c r="B3" t="str"><f>""</f><v></v>'
        ),
    )
    assert [row.cells for row in open_table(path)] == [["C", "2"], ["CC", ""]]


def test_merged_cells_and_other_sheets_are_told(tmp_path):
    def change(book):
        book.active.merge_cells("A2:A3")
        hidden = book.create_sheet("hidden", 0)
        hidden.append(["wrong"])
        hidden.sheet_state = "hidden"
        book.create_sheet("last")

    rows = [["series", "smiles"], ["a", "C"], [None, "CC"]]
    table = open_table(book_of(tmp_path / "t.xlsx", rows, change))
    assert [row.cells for row in table] == [["a", "C"], ["", "CC"]]
    assert table.remarks == (
        "has merged cells; only the first of them has their value",
        "read the sheet 'Sheet', one of 3",
    )
    place = "sheet 'Sheet' (the first visible one of 3: 'hidden', 'Sheet', 'last')"
    words = f"t.xlsx, {place}: no column 'logS' (--x); the columns are 'series', 'smiles'"
    with pytest.raises(InputError, match=re.escape(words)):
        table.column("logS", "--x")


def test_the_empty_first_of_several_sheets_is_named(tmp_path):
    path = book_of(tmp_path / "t.xlsx", [], lambda book: book.create_sheet("Data").append(["C"]))
    words = "sheet 'Sheet' (the first of 2: 'Sheet', 'Data'): the sheet is empty"
    with pytest.raises(InputError, match=re.escape(words)):
        open_table(path)


def test_blank_rows_and_cells_beyond_the_header(tmp_path):
    rows = [[], ["smiles", "y"], ["C", 1], [], ["CC", 2, "more"], [None, None, None]]
    found = list(open_table(book_of(tmp_path / "t.xlsx", rows)))
    assert [(row.line, row.cells, row.code) for row in found] == [
        (3, ["C", "1"], ""),
        (5, ["CC", "2,more"], "ragged"),
    ]
    one = open_table(book_of(tmp_path / "u.xlsx", [["smiles"], ["C"], [], ["CC"]]))
    assert [(row.line, *row.cells) for row in one] == [(2, "C"), (3, ""), (4, "CC")]


def test_an_untrue_size_and_a_date_out_of_range_do_no_harm(tmp_path):
    path = book_of(tmp_path / "t.xlsx", [["smiles", "when"], ["C", timedelta(days=1)]])
    edited(path, SHEET, lambda text: re.sub(rb'ref="[^"]*"', b'ref="A1:XFD1048576"', text, count=1))
    assert open_table(path).header == ["smiles", "when"]
    book_of(path, [["smiles", "when"], ["C", date(2024, 1, 5)]])
    edited(path, SHEET, lambda content: content.replace(b"<v>45296</v>", b"<v>-45296</v>"))
    (row,) = open_table(path)
    assert row.cells[0] == "C"


def bomb(path):
    book_of(path, [["smiles"], ["C"]])
    edited(path, SHEET, lambda content: content + b" " * 2**26)


def far_row(path):
    book_of(path, [["smiles"], ["C"]])
    edited(path, SHEET, lambda content: content.replace(b'<row r="2"', b'<row r="99999999999"'))


def entities(path):
    book_of(path, [["smiles"], ["C"]])
    names = "abcdefghij"
    declared = '<!ENTITY a "lol">' + "".join(
        f'<!ENTITY {one} "{f"&{before};" * 10}">' for before, one in itertools.pairwise(names)
    )
    doctype = f"<!DOCTYPE worksheet [{declared}]>".encode()
    edited(path, SHEET, lambda content: doctype + content.replace(b"<v>0</v>", b"<v>&j;</v>"))


def without_sheets(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "text")


def cut(path):
    book_of(path, [["smiles"], ["C"]])
    path.write_bytes(path.read_bytes()[:-40])


def broken(path):
    book_of(path, [["smiles"], ["C"]])
    edited(path, SHEET, lambda content: content[:-30])


def empty(path):
    book_of(path, [])


@pytest.mark.parametrize(
    "make, words",
    [
        (bomb, "expands to more than 200 times its size"),
        (far_row, "Excel"),
        (entities, "not a readable Excel workbook"),
        (without_sheets, "not a readable Excel workbook"),
        (cut, "not a readable Excel workbook"),
        (broken, "not a readable Excel workbook"),
        (empty, "the sheet is empty"),
        (lambda path: path.write_bytes(b"\xd0\xcf\x11\xe0" + bytes(99)), "encrypted"),
        (lambda path: path.write_bytes(b""), "got an empty file"),
        (lambda path: path.write_bytes(b"smiles\nC\n"), "expected a file in Excel format"),
    ],
)
def test_a_hostile_workbook_is_one_line(tmp_path, make, words):
    path = tmp_path / "t.xlsx"
    make(path)
    with pytest.raises(InputError) as error:
        list(open_table(path))
    assert words in str(error.value)
    assert str(error.value).startswith(str(path))
    assert_one_line(error.value)


def test_a_workbook_under_another_name_is_recognized(tmp_path):
    path = book_of(tmp_path / "t.csv", [["smiles"], ["C"]])
    assert [row.cells for row in open_table(path)] == [["C"]]


def test_without_openpyxl_its_extra_is_named(tmp_path, monkeypatch):
    path = book_of(tmp_path / "t.xlsx", [["smiles"], ["C"]])
    monkeypatch.setattr(xlsx, "openpyxl", None)
    for act in (lambda: open_table(path), lambda: write_table(path, ["a"]).__enter__()):
        with pytest.raises(InputError, match=r'pip install "molattn\[excel\]"'):
            act()


def test_parquet_of_a_workbook_is_text(tmp_path):
    table = open_table(book_of(tmp_path / "t.xlsx", [["smiles", "y"], ["C", 1.5]]))
    with write_table(tmp_path / "t.parquet", table.header) as write:
        for row in table:
            write(row.values)
    assert pq.read_table(tmp_path / "t.parquet").to_pylist() == [{"smiles": "C", "y": "1.5"}]


def test_escaped_halves_of_a_character_are_joined_or_replaced(tmp_path):
    texts = {
        "_xD83D__xDE00_": "\U0001f600",
        "a_xDE00_b": "a\ufffdb",
        "_xD83D_C_x0041_": "\ufffdCA",
        "_x005F_x0041_": "_x0041_",
        "_xFEFF_a": "\ufeffa",
    }
    path = book_of(tmp_path / "t.xlsx", [["smiles", "note"], *(["C", text] for text in texts)])
    assert [row.cells[1] for row in open_table(path)] == [*texts.values()]
