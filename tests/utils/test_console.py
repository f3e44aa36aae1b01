import io
from itertools import count
from types import SimpleNamespace

from rich.console import Console

from molattn.utils import console as module
from molattn.utils.console import (
    print_line,
    row_progress,
    step_progress,
)


def test_a_line_is_printed_as_it_is(capsys):
    shown = io.StringIO()
    line = "[bold]C[C@H](N)C(=O)O[/bold] c1:o:c:c:c1 3.5 " * 5
    print_line(Console(file=shown, width=20, force_terminal=True), line)
    assert shown.getvalue() == f"{line}\n"
    print_line(None, "a line")
    assert capsys.readouterr().out == ""


def test_a_terminal_has_a_bar_with_the_count():
    stream = io.StringIO()
    console = Console(file=stream, width=100, force_terminal=True)
    with row_progress(console, "predicting", 10) as advance, step_progress(None, "scoring"):
        advance(4, 1)
    assert "predicting" in stream.getvalue()
    assert "4/10" in stream.getvalue().replace(" ", "")


def test_a_log_has_lines_with_the_rate_and_the_remaining_time(monkeypatch):
    clock = count(step=4).__next__  # seconds, 4 more at each look
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock))
    stream = io.StringIO()
    console = Console(file=stream, width=30)
    with step_progress(console, "scoring"), row_progress(console, "predicting", 50, done=2) as go:
        go(8)
        go(2)
        go(6, 1)  # after 12 s, of which the line is written after 16
        go(1)
    assert stream.getvalue().splitlines() == [
        "scoring",
        "predicting: 18 of 50 rows, 1.00 a second, 1 with an error, 0:00:32 left",
    ]
