import os
from datetime import date

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from molattn.data.table import (
    escape_formula,
    open_table,
    output_format,
    output_schema,
    output_stream,
    write_table,
)
from molattn.errors import InputError

from ...strategies import cells


@given(rows=st.lists(st.tuples(cells(), cells()), min_size=1))
@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.csv.zst", "t.tsv"])
def test_what_is_written_is_read_again(tmp_path_factory, name, rows):
    header = ["a" * 500, "b"]  # more than the zero bytes that make a file binary
    path = tmp_path_factory.mktemp("t") / name
    with write_table(path, header) as write:
        for row in rows:
            write(row)
    again = open_table(path)
    assert again.header == header
    assert [row.cells for row in again] == [list(row) for row in rows]


def test_parquet_keeps_types_and_rows_beyond_a_row_group(tmp_path, monkeypatch):
    monkeypatch.setattr("molattn.data.table.typed._ROWS_AT_ONCE", 10)
    source = tmp_path / "in.parquet"
    given = pa.table(
        {"smiles": ["C", None] * 12, "n": list(range(24)), "when": [date.today()] * 24}
    )
    pq.write_table(given, source)
    table = open_table(source)
    types = {"y": "float64", "error": "string"}
    header = [*table.header, *types]
    path = tmp_path / "out.parquet"
    with write_table(path, header, output_schema(path, table, types)) as write:
        for row in table:
            write([*row.values, 0.5 if row.cells[0] else None, ""])
    written = pq.read_table(path)
    assert written.select(given.column_names).equals(given)
    assert written.schema.field("y").type == pa.float64()
    assert written["y"].to_pylist() == [0.5, None] * 12


def test_parquet_takes_bytes_that_are_not_utf_8_as_windows_1252(tmp_path):
    with write_table(tmp_path / "t.parquet", ["a"]) as write:
        write(["caf\udce9"])
        write(["\udc81 \u03bc"])  # which Windows-1252 does not have
    assert pq.read_table(tmp_path / "t.parquet")["a"].to_pylist() == ["caf\xe9", "\ufffd \u03bc"]
    twice = write_table(tmp_path / "u.parquet", ["a", "a"])
    with pytest.raises(InputError), twice:
        pass
    assert os.listdir(tmp_path) == ["t.parquet"]


@pytest.mark.parametrize(
    "text, written",
    [
        ("=1+1", "'=1+1"),
        ("-2+cmd", "'-2+cmd"),
        ("\t=1", "'\t=1"),
        ("\uff1d1+1", "'\uff1d1+1"),
        ("-1.2.3", "'-1.2.3"),
        ("-1,234,567.8", "-1,234,567.8"),
        ("-5.2", "-5.2"),
        ("-1\n", "'-1\n"),
        ("-", "-"),
        ("", ""),
    ],
)
def test_a_formula_is_escaped_and_a_number_is_not(text, written):
    assert escape_formula(text) == written


@pytest.mark.parametrize("name", ["p.xlsm", "p.csv.bz2", "p.json", "p.docx", "p.xslx"])
def test_an_ending_that_promises_another_kind_of_file_is_refused(tmp_path, name):
    with pytest.raises(
        InputError, match=r"expected \.csv, \.tsv, \.parquet, \.xlsx, \.sdf, \.smi, \.txt or none"
    ):
        output_format(tmp_path / name)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_a_stream_goes_to_the_file_behind_a_link(tmp_path, name):
    link = tmp_path / name
    target = tmp_path / "other" / "real.csv"
    target.parent.mkdir()
    link.symlink_to(target)
    with output_stream(link) as stream:
        stream.write(b"smiles\nC\n")
    assert link.is_symlink()
    assert [row.cells for row in open_table(link)] == [["C"]]
