"""Registered formats, and any file at all."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from molattn.data.table import (
    FORMATS,
    FileFormat,
    Row,
    Table,
    TableWriter,
    name_column,
    open_table,
    output_format,
    write_table,
)
from molattn.errors import REASONS, InputError

from ...conftest import assert_one_line
from ...strategies import table_files


class JsonLines(Table):
    """A format of a user's own: a JSON object a line."""

    def __init__(self, source):
        super().__init__(source)
        with source.open() as file:
            self.lines = file.readlines()
        self.header = list(json.loads(self.lines[0]))

    def __iter__(self):
        for line, text in enumerate(self.lines, start=1):
            yield Row(line, [str(value) for value in json.loads(text).values()])


class JsonLinesWriter(TableWriter):
    def __init__(self, file, header, types):
        self.file, self.header = file, header

    def write(self, cells, structure=""):
        row = dict(zip(self.header, map(str, cells), strict=True))
        self.file.write(f"{json.dumps(row)}\n".encode())


@pytest.fixture
def json_lines(monkeypatch):
    monkeypatch.setattr(FORMATS, "data", dict(FORMATS))
    FORMATS.register("jsonl")(
        FileFormat("JSON Lines", (".jsonl",), JsonLines, JsonLinesWriter, is_text=False)
    )


def test_a_registered_format_is_read_and_written_by_its_suffix(json_lines, tmp_path):
    path = tmp_path / "t.JSONL"
    output_format(path)
    with write_table(path, ["smiles", "y"]) as write:
        write(["CCO", 1.5])
        write(["PK\x03\x04", "\0"])
    table = open_table(path)
    assert isinstance(table, JsonLines)
    assert table.header == ["smiles", "y"]
    assert [row.cells for row in table] == [["CCO", "1.5"], ["PK\x03\x04", "\0"]]
    path.rename(tmp_path / "t.csv")
    with pytest.raises(InputError, match="got JSON"):
        open_table(tmp_path / "t.csv")


def test_a_format_that_is_only_read_is_refused_as_output(json_lines, tmp_path):
    FORMATS.register("xyz")(FileFormat("XYZ", (".xyz",), JsonLines, signature=b"XYZ"))
    with pytest.raises(InputError, match=r"\.xyz.*\.jsonl"):
        output_format(tmp_path / "t.xyz")
    (tmp_path / "t.xyz").write_text("abc")
    with pytest.raises(InputError, match="XYZ"):
        open_table(tmp_path / "t.xyz")
    with pytest.raises(ValueError, match="registered already"):
        FORMATS.register("xyz")(FORMATS["csv"])


@given(
    content=table_files() | st.binary(max_size=99),
    suffix=st.sampled_from(".csv .tsv .smi .sdf .parquet .xlsx .txt .csv.gz".split()),
)
def test_any_file_has_rows_that_fit_its_header_or_one_error(tmp_path_factory, content, suffix):
    path = tmp_path_factory.getbasetemp() / f"any{suffix}"
    path.write_bytes(content)
    try:
        table = open_table(path)
        rows = list(table)
    except InputError as error:
        assert_one_line(error)
        return
    assert all(len(row.cells) == len(table.header) for row in rows)
    assert all(row.code in REASONS for row in rows if row.code or row.reason)
    assert [row.cells for row in table] == [row.cells for row in rows]
    copy = path.with_name("copy.csv")
    header = ["line", *table.header]
    with write_table(copy, header) as write:
        for row in rows:
            write([row.line, *row.cells])
    assert open_table(copy).header == header
    assert [row.cells for row in open_table(copy)] == [[str(r.line), *r.cells] for r in rows]


def test_the_column_of_names_is_found_however_it_is_spelled():
    assert name_column(["smiles", "Compound ID"]) == 1
    assert name_column(["id", "Compound_Name"]) == 1
    assert name_column(["smiles", "y"]) is None


@pytest.mark.parametrize(
    "header, rows, found",
    [
        ("Compound ID,Structure,y", ["A-1,CCO,1", "A-2,c1ccccc1O,2"], "Structure"),
        ("id,canonical_smiles,parent", ["1,CCO.Cl,CCO", "2,CCN.Cl,CCN"], "canonical_smiles"),
        ("code,what", ["a,CCO", "b,CCN", "c,C"], "what"),
        ("y,InChI", ['1,"InChI=1S/C2H6O/c1-2-3/h3H,2H2,1H3"'] * 2, "InChI"),
        ("InChI,what", ["InChI=1S/C2H6/c1-2/h1-2H3,CC", "InChI=1S/H2O/h1H2,CCO"], "what"),
        ("a,b", ["CCO,CCN", "CCC,CCO"], None),  # two, of which no name tells
        ("phase,Structure", ["N,see page 4", "C,see page 5"], None),
        ("what,y", ["CCO,1", "CCN,2", "a line,3"], None),  # a third are not
        ("Structure,y", ["CCO,1", "CCN,2", "a line,3"], "Structure"),
    ],
)
def test_structures_are_found_where_no_column_is_named_smiles(tmp_path, header, rows, found):
    (tmp_path / "in.csv").write_text("\n".join([header, *rows]))
    table = open_table(tmp_path / "in.csv")
    if found is None:
        with pytest.raises(InputError, match="no column 'smiles'"):
            table.column("smiles", "--smiles-column")
    else:
        assert table.header[table.column("smiles", "--smiles-column")] == found
        assert [found in remark for remark in table.remarks] == [True]
    with pytest.raises(InputError, match="no column 'absent'"):
        table.column("absent", "--smiles-column")
