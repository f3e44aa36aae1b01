import pytest

from molattn.data.table import open_table
from molattn.errors import InputError


def saved(tmp_path, content, name="t.csv"):
    path = tmp_path / name
    path.write_text(content, newline="")
    return path


def test_cells_stay_the_text_they_were(tmp_path):
    path = saved(tmp_path, "smiles,y\nNA,1.10\nnan, 007\nNone,1e5\n")
    rows = [["NA", "1.10"], ["nan", " 007"], ["None", "1e5"]]
    assert [row.cells for row in open_table(path)] == rows


def test_rows_know_the_line_they_begin_on(tmp_path):
    path = saved(tmp_path, 'smiles,note\nC,"two\nlines"\n\nCC,\r\nCCC,x\rCCCC,y\n')
    lines = [(2, "C"), (5, "CC"), (6, "CCC"), (7, "CCCC")]
    assert [(row.line, row.cells[0]) for row in open_table(path)] == lines


def test_blank_lines_within_a_single_column_are_empty_cells(tmp_path):
    path = saved(tmp_path, "\nsmiles\n\nC\n\n\r\nCC\n  \nCCC\n\n\n")
    rows = [(3, ""), (4, "C"), (5, ""), (6, ""), (7, "CC"), (8, "  "), (9, "CCC")]
    assert [(row.line, *row.cells) for row in open_table(path)] == rows


def test_ragged_rows_are_marked_and_whole(tmp_path):
    rows = list(open_table(saved(tmp_path, "a,b,c\n1\n1,2,3\n1,2,3,,\n1,2,3,4,5\n")))
    assert [row.cells for row in rows] == [["1", "", ""], *[["1", "2", "3"]] * 2, [*"12", "3,4,5"]]
    assert [row.code for row in rows] == ["ragged", "", "", "ragged"]
    assert [row.reason == "" for row in rows] == [False, True, True, False]


def test_an_unclosed_quote_is_refused_in_bounded_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("molattn.data.table.text.MOST_CHARACTERS", 50)
    with pytest.raises(InputError, match="line 2: "):
        list(open_table(saved(tmp_path, 'a\n"' + "C\n" * 60)))


def test_columns_are_found_or_the_nearest_name_is_suggested(tmp_path):
    table = open_table(saved(tmp_path, "SMILES,pH,ph,Ph,Y,Y\nC,1,2,3,4,5\n"))
    assert [table.column(name, "--x") for name in ("smiles", "pH", "ph", "Ph")] == [0, 1, 2, 3]
    for name, words in (("smile", "'SMILES'"), ("PH", "'ph', 'Ph'"), ("Y", "2 "), ("y", "2 ")):
        with pytest.raises(InputError, match=rf"x\).*{words}|{words}.*x\)"):
            table.column(name, "--x")
    with pytest.raises(InputError, match="columns are 'SMILES', 'pH'") as error:
        table.column("zzz", "--x")
    assert "did you mean" not in str(error.value)


@pytest.mark.parametrize(
    "name, content, header, found",
    [
        ("t.csv", "smiles;y\nC;1\n", ["smiles", "y"], "semicolons"),
        ("t.csv", "smiles\ty\nC\t1\n", ["smiles", "y"], "tabs"),
        ("t.tsv", "smiles,y\nC,1\n", ["smiles", "y"], "commas"),
        ("t.csv", "smiles,y\nC,1,5\n", ["smiles", "y"], None),
        ("t.csv", "smiles,a;b\nC,1\nCC,2\n", ["smiles", "a;b"], None),
        ("t.csv", 'smiles,"a;b"\nC,1;2\nCC,2\n', ["smiles", "a;b"], None),
        ("t.csv", "smiles;y (of, 3)\nC;1\nCC;2,5\n", ["smiles", "y (of, 3)"], "semicolons"),
        ("t.csv", "smiles\nC\n", ["smiles"], None),
        ("t.csv", "smiles;a,b\n", ["smiles;a", "b"], None),  # the name of the file decides
    ],
)
def test_the_delimiter_is_found_and_reported(tmp_path, name, content, header, found):
    table = open_table(saved(tmp_path, content, name))
    assert table.header == header
    assert [remark.split()[-1] for remark in table.remarks] == ([found] if found else [])
    assert all(row.cells[0].startswith("C") for row in table)
