import io

from rich.console import Console

from molattn.utils.console import print_line


def test_a_line_is_printed_as_it_is():
    shown = io.StringIO()
    line = "[bold]C[C@H](N)C(=O)O[/bold] c1:o:c:c:c1 3.5 " * 5
    print_line(Console(file=shown, width=20, force_terminal=True), line)
    assert shown.getvalue() == f"{line}\n"


def test_nothing_is_said_to_nobody(capsys):
    print_line(None, "a line")
    assert capsys.readouterr().out == ""
