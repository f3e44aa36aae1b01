import pytest

from molattn.data.table import open_table, write_table
from molattn.errors import InputError


def read(tmp_path, text):
    path = tmp_path / "t.smi"
    path.write_text(text)
    return open_table(path)


def test_a_line_is_a_smiles_and_a_name(tmp_path):
    table = read(tmp_path, "CCO ethanol, a drug\n\nC\tmethane\n  CC  \nCCC |$;;x$| named\n")
    assert table.header == ["smiles", "name"]
    assert [(row.line, row.cells) for row in table] == [
        (1, ["CCO", "ethanol, a drug"]),
        (3, ["C", "methane"]),
        (4, ["CC", ""]),
        (5, ["CCC |$;;x$|", "named"]),
    ]


def test_a_header_names_more_columns(tmp_path):
    table = read(tmp_path, "SMILES y id\nCCO 1.5 a\nC 2\nCC 3 b c\n")
    assert table.header == ["SMILES", "y", "id"]
    assert [(row.cells, row.code) for row in table] == [
        (["CCO", "1.5", "a"], ""),
        (["C", "2", ""], "ragged"),
        (["CC", "3", "b c"], "ragged"),
    ]
    tabs = read(tmp_path, "smiles\tnote\ty\nC\ta b\t\n\n\t\t1\n")
    assert [(row.line, row.cells) for row in tabs] == [(2, ["C", "a b", ""]), (4, ["", "", "1"])]


@pytest.mark.parametrize("text", ["", "\n \n", "smiles name \0\nCCCCCCCCCC 1 2\n"])
def test_nothing_is_refused(tmp_path, text):
    with pytest.raises(InputError, match=r"t\.smi: "):
        read(tmp_path, text)


def test_what_is_written_is_read_again(tmp_path):
    header = ["id", "SMILES", "a name", "error"]
    rows = [["1", "CCO", "two\twords\n", ""], ["2", "", "", "empty"], ["3", "C C", None, "name"]]
    for name in ("t.smi", "t.smi.gz"):
        with write_table(tmp_path / name, header) as write:
            for row in rows:
                write(row)
        table = open_table(tmp_path / name)
        assert table.header == ["SMILES", "id", "a name", "error"]
        assert [row.cells for row in table] == [
            ["CCO", "1", "two words ", ""],
            ["", "2", "", "empty"],
            ["C C", "3", "", "name"],
        ]
