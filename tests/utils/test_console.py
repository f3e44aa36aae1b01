import io
from collections import Counter

import pytest
from rich.console import Console

from molattn.utils.console import aligned, print_errors, print_line


def test_a_line_is_printed_as_it_is():
    shown = io.StringIO()
    line = "[bold]C[C@H](N)C(=O)O[/bold] c1:o:c:c:c1 3.5 " * 5
    print_line(Console(file=shown, width=20, force_terminal=True), line)
    assert shown.getvalue() == f"{line}\n"


def test_nothing_is_said_to_nobody(capsys):
    print_line(None, "a line")
    assert capsys.readouterr().out == ""


def test_cells_are_aligned_in_one_line_each():
    table = 'smiles,p\r\nC\u2028C,1\r\n"C\nC",2\r\nCCO,3\r\n'
    assert aligned(table, 80) == ("smiles    p\nC\\u2028C  1\nC\\nC      2\nCCO       3\n")


def test_a_table_that_is_too_wide_has_a_line_for_each_column():
    table = "smiles,value,similarity\nCCO,1.5,0.25\nCCCCN,-2,1\n"
    wide = "smiles  value  similarity\nCCO     1.5    0.25\nCCCCN   -2     1\n"
    assert aligned(table, 25) == wide
    assert aligned(table, 24) == (
        "smiles      CCO   CCCCN\nvalue       1.5   -2\nsimilarity  0.25  1\n"
    )
    assert aligned(table, 20) == (
        "smiles      CCO\nvalue       1.5\nsimilarity  0.25\n"
        "\nsmiles      CCCCN\nvalue       -2\nsimilarity  1\n"
    )
    assert aligned(table, 5) == aligned(table, 20)


@pytest.mark.parametrize(
    "errors, told",
    [
        ({}, ""),
        ({"name": 1, "empty": 3}, "errors: 3 empty, 1 name\n"),
        (
            {"name": 2, "empty": 3, "syntax": 1, "valence": 2, "ring_closure": 1},
            "errors: 3 empty, 2 name, 2 valence, 1 syntax, 1 ring_closure\n",
        ),
    ],
)
def test_reasons_are_told_the_commonest_first(errors, told):
    written = io.StringIO()
    print_errors(Counter(errors), Console(file=written, width=80))
    assert written.getvalue() == told


def test_many_wide_rows_are_aligned_in_blocks():
    table = "smiles,p\n" + "".join(f"{'C' * (i % 40 + 1)},1\n" for i in range(2000))
    lines = aligned(table, 60).splitlines()
    assert sum(line.count("C") for line in lines) == sum(i % 40 + 1 for i in range(2000))
    assert max(map(len, lines)) <= 60
