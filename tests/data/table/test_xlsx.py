import itertools
import re
import zipfile
from datetime import date, datetime, time

import openpyxl
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from molattn.config import DataConfig
from molattn.data.table import open_table, write_table
from molattn.data.table.base import valid_text
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


def test_a_date_is_written_without_the_midnight_that_excel_reads_with_it(tmp_path):
    with write_table(tmp_path / "t.xlsx", ["x", "day", "time"]) as write:
        write(["C", datetime(2024, 1, 5), datetime(2024, 1, 5, 7, 30)])
    sheet = openpyxl.load_workbook(tmp_path / "t.xlsx")["Sheet1"]
    assert ["h:mm" in cell.number_format for cell in sheet[2]] == [False, False, True]


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
    text = re.sub("[\x00-\x08\x0b-\x1f\ufffe\uffff]", "\ufffd", valid_text(text))
    return text.replace("_x000D_", "\r")  # as which Excel writes it


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


def test_blank_rows_and_cells_beyond_the_header(tmp_path):
    rows = [[], ["smiles", "y"], ["C", 1], [], ["CC", 2, "more"], [None, None, None]]
    found = list(open_table(book_of(tmp_path / "t.xlsx", rows)))
    assert [(row.line, row.cells, row.code) for row in found] == [
        (3, ["C", "1"], ""),
        (5, ["CC", "2,more"], "ragged"),
    ]


def bomb(path):
    book_of(path, [["smiles"], ["C"]])
    edited(path, SHEET, lambda content: content + b" " * 2**26)


def entities(path):
    book_of(path, [["smiles"], ["C"]])
    names = "abcdefghij"
    declared = '<!ENTITY a "lol">' + "".join(
        f'<!ENTITY {one} "{f"&{before};" * 10}">' for before, one in itertools.pairwise(names)
    )
    doctype = f"<!DOCTYPE worksheet [{declared}]>".encode()
    edited(path, SHEET, lambda content: doctype + content.replace(b"<v>0</v>", b"<v>&j;</v>"))


def cut(path):
    book_of(path, [["smiles"], ["C"]])
    path.write_bytes(path.read_bytes()[:-40])


@pytest.mark.parametrize(
    "make",
    [
        bomb,
        entities,
        cut,
        lambda path: book_of(path, []),
        lambda path: path.write_bytes(b"\xd0\xcf\x11\xe0" + bytes(99)),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"smiles\nC\n"),
    ],
)
def test_a_hostile_workbook_is_one_line(tmp_path, make):
    path = tmp_path / "t.xlsx"
    make(path)
    with pytest.raises(InputError) as error:
        list(open_table(path))
    assert str(error.value).startswith(str(path))
    assert_one_line(error.value)


def test_a_formula_has_its_stored_value_or_none(tmp_path):
    path = book_of(tmp_path / "t.csv", [["smiles", "y"], ["C", "=1+1"], ["CC", "=2"]])
    edited(path, SHEET, lambda content: content.replace(b"<f>1+1</f>", b"<f>1+1</f><v>2</v>"))
    assert [row.cells for row in open_table(path)] == [["C", "2"], ["CC", ""]]


def test_the_first_visible_sheet_is_read_and_reported(tmp_path):
    def change(book):
        book.active.merge_cells("A2:A3")
        book.create_sheet("other").append(["note"])
        hidden = book.create_sheet("hidden", 0)
        hidden.append(["wrong"])
        hidden.sheet_state = "hidden"

    rows = [["series", "smiles"], ["a", "C"], [None, "CC"]]
    path = book_of(tmp_path / "t.xlsx", rows, change)
    edited(
        path,
        "xl/worksheets/sheet2.xml",
        lambda text: re.sub(b'ref="A1[^"]*"', b'ref="A1"', text, count=1),
    )
    table = open_table(path, options=DataConfig())
    assert [row.cells for row in table] == [["a", "C"], ["", "CC"]]
    assert len(table.remarks) == 1
    assert "'Sheet' of 'Sheet', 'other'" in table.remarks[0]


FORMATS = {
    "General": "0.57",
    "0.0%": "57",
    "0%;[Red]-0%": "57",
    '0.0"%"': "0.57",
    "0.0\\%": "0.57",
    "[>1]0.00": "0.57",
}


def test_a_percentage_is_the_number_shown_before_the_sign(tmp_path):
    def change(book):
        for cell, number_format in zip(book.active[2][1:], FORMATS, strict=True):
            cell.number_format = number_format

    header = ["smiles", *"abcdef"]
    path = book_of(tmp_path / "t.xlsx", [header, ["C", *[0.57] * 6]], change)
    table = open_table(path, options=DataConfig())
    (row,) = table
    assert row.cells[1:] == [*FORMATS.values()]
    assert row.values == ("C", *(float(text) for text in row.cells[1:]))
    assert ["'b'" in table.remarks[0], "'c'" in table.remarks[1]] == [True, True]
    assert len(table.remarks) == 2


@pytest.mark.parametrize(
    "values, texts",
    [
        (["5,0", 6.25, ">12,5", None], ["5.0", "6.25", ">12.5", ""]),
        (["1,234", "5,0", "n.d.", "7"], ["1.234", "5.0", "n.d.", "7"]),
        (["12,5 ± 0,5", "3 ± 1,5", 1, 2], ["12.5 ± 0.5", "3 ± 1.5", "1", "2"]),
        (["1,234", "12,345", 6.5, 7], ["1,234", "12,345", "6.5", "7"]),  # or thousands
        (["5,0", "6.25", 7, 8], ["5,0", "6.25", "7", "8"]),
        (["5,0", "1.234,5", 7, 8], ["5,0", "1.234,5", "7", "8"]),
    ],
)
def test_texts_with_a_decimal_comma_are_numbers_where_all_have_this_form(tmp_path, values, texts):
    path = book_of(tmp_path / "t.xlsx", [["smiles", "y"], *(["C", value] for value in values)])
    table = open_table(path, options=DataConfig())
    assert [row.numeral(1) for row in table] == texts
    assert len(table.remarks) == (texts[0] != values[0])
    table = open_table(path, options=DataConfig(decimal=","))
    assert [*table][1].numeral(1) in (texts[1], "12.345", "6.25 (--decimal ,)", "1.234,5")


def report_book(tmp_path):
    """A workbook of a cover, a sheet with a title above the header, and a sheet of molecules."""

    def change(book):
        book.active.title = "Cover"
        data = book.create_sheet("Data")
        for row in (["Report", None, "2024"], [], ["ID", "Structure", "pIC50"]):
            data.append(row)
        for number in range(4):
            data.append([f"m{number}", "C" * (3 + number) + "O", 5 + number])
        more = book.create_sheet("More")
        for row in (["SMILES", "pH"], ["CCO", 7]):
            more.append(row)

    return book_of(tmp_path / "t.xlsx", [["Report of 2024"], ["by", "us"]], change)


@pytest.mark.parametrize(
    "options, sheet, row, first",
    [
        ({"target_columns": ("pic50",)}, "Data", 3, 4),
        ({"smiles_column": "Structure"}, "Data", 3, 4),
        ({"feature_columns": ("pH",)}, "More", 1, 2),
        ({}, "More", 1, 2),
        ({"sheet": "Data"}, "Data", 3, 4),
        ({"sheet": "Data", "header_row": 1}, "Data", 1, 3),
        ({"header_row": 3}, "Data", 3, 4),
        ({"sheet": "Cover"}, "Cover", 1, 2),
    ],
)
def test_sheet_and_header_are_the_first_with_the_columns(tmp_path, options, sheet, row, first):
    table = open_table(report_book(tmp_path), options=DataConfig(**options))
    assert table.remarks[0] == f"sheet {sheet!r} of 'Cover', 'Data', 'More', header in row {row}"
    assert next(iter(table)).line == first
    assert table.count() == len([*table])


def test_a_list_of_columns_is_not_taken_for_the_table(tmp_path):
    def change(book):
        data = book.create_sheet("Data")
        for row in (["name", "smiles", "y"], ["a", "C", 1]):
            data.append(row)

    rows = [["smiles", "structure of the compound"], ["y", "label"]]
    path = book_of(tmp_path / "t.xlsx", rows, change)
    table = open_table(path, options=DataConfig())
    assert [row.cells for row in table] == [["a", "C", "1"]]


@pytest.mark.parametrize("options", [{"sheet": "Data"}, {"header_row": 2}])
def test_other_files_have_no_sheets(tmp_path, options):
    (tmp_path / "t.csv").write_text("smiles,y\nC,1\n")
    for source in (tmp_path / "t.csv", pd.DataFrame({"smiles": ["C"]})):
        with pytest.raises(InputError) as error:
            open_table(source, options=DataConfig(**options))
        assert [error.value.option] == [*options]
    with pytest.raises(InputError) as error:
        open_table(report_book(tmp_path), options=DataConfig(**dict.fromkeys(options, "9")))
    assert [error.value.option] == [*options]


def test_a_row_of_formulas_without_stored_values_is_no_blank_row(tmp_path):
    rows = [["smiles", "y"], ["C", 1], ['=A2&"C"', "=B2+1"], [None, None], ['=""', None], ["CC", 2]]
    path = book_of(tmp_path / "t.xlsx", rows)
    edited(path, SHEET, lambda xml: re.sub(rb'(<c r="A5") ?([^>]*>)', rb'\1 t="str" \2', xml))
    table = open_table(path, options=DataConfig())
    assert [row.line for row in table] == [2, 3, 6]
    assert [row.checked([0]).code for row in table] == ["", "uncalculated", ""]
    assert table.count() == 3


def test_a_formula_without_a_stored_value_is_told_from_an_empty_cell(tmp_path):
    def change(book):
        for cell in book.active["D"]:
            cell.font = openpyxl.styles.Font(bold=True)

    rows = [["smiles", "y", "z", "note"], ["C", "=1+1", "=2", None], ["CC", None, '=""', None]]
    path = book_of(tmp_path / "t.xlsx", rows, change)
    edited(path, SHEET, lambda content: content.replace(b"<f>1+1</f>", b"<f>1+1</f><v>2</v>"))
    edited(path, SHEET, lambda xml: re.sub(rb'(<c r="C3") ?([^>]*>)', rb'\1 t="str" \2', xml))
    table = open_table(path, options=DataConfig())
    assert [row.cells for row in table] == [["C", "2", "", ""], ["CC", "", "", ""]]
    assert [[row.checked([k]).code for k in range(4)] for row in table] == [
        ["", "", "uncalculated", ""],
        ["", "", "", ""],
    ]
