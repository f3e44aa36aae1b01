import pytest

from molattn.data.table import open_table, with_found_structures, write_table
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


PASTED = {
    "aspirin\tCC(=O)Oc1ccccc1C(=O)O\t3.5\nphenol\tOc1ccccc1\t2,1\n": ["name", "smiles", "column 3"],
    "CCO,ethanol, p.a.\nCCCO,propanol, dry\n": ["smiles", "name", "column 3"],
    "ID;Compound\n7;CCO\n\n8;CCN\n": ["ID", "Compound"],
    "x\tCCCO\n": ["name", "smiles"],
    "a\tCCO\nb\tnot a molecule\n" + "c\tCCCO\n" * 18: ["name", "smiles"],
}


@pytest.mark.parametrize("text", PASTED)
def test_cells_in_place_of_lines_of_smiles_are_a_table(tmp_path, text):
    table = with_found_structures(read(tmp_path, text))
    assert table.header == PASTED[text]
    column = table.column("smiles", "--smiles-column")
    rows = [row.cells for row in table]
    lines = [line for line in text.splitlines() if line]
    assert len(rows) == len(lines) - ("ID" in table.header)
    assert rows[0][column].startswith("C")
    assert not any(row.code for row in table)


@pytest.mark.parametrize(
    "text",
    [
        "CCO\nCCN\n",
        "CCO ethanol, a drug\nC methane, pure\n",
        "C[C@H](O)Cl |&1:1,3| a\nCC |$;x$| b,c\n",
        "SMILES\tid\nCCO\ta\n",
        "word,other\nword,other\n",
        'CCO "a\n',
    ],
)
def test_lines_of_smiles_stay_lines_of_smiles(tmp_path, text):
    table = read(tmp_path, text)
    assert with_found_structures(table) is table
