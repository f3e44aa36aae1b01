import io
import time

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
        time.sleep(0.3)  # it is drawn ten times a second
    assert "predicting" in stream.getvalue()
    assert "4/10" in stream.getvalue().replace(" ", "")


def test_a_log_has_lines_with_the_rate_and_the_remaining_time(monkeypatch):
    monkeypatch.setattr(module, "_SECONDS_PER_LINE", 0.1)
    stream = io.StringIO()
    console = Console(file=stream, width=30)
    with step_progress(console, "scoring"), row_progress(console, "predicting", 10, done=2) as go:
        go(2)
        time.sleep(0.2)
        go(2, 1)
    scoring, line = stream.getvalue().splitlines()
    assert scoring == "scoring"
    assert line.startswith("predicting: 6 of 10 rows, ")
    assert line.endswith(" a second, 1 with an error, 0:00:00 left")
