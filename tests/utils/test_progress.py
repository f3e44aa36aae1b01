import io
import time

import pytest
from rich.console import Console

from molattn.utils import progress
from molattn.utils.progress import row_progress, step_progress


def test_a_terminal_has_a_bar_with_the_count():
    stream = io.StringIO()
    console = Console(file=stream, width=100, force_terminal=True)
    with row_progress(console, "predicting", 10) as advance:
        advance(4, 1)
        time.sleep(0.3)  # it is drawn ten times a second
    assert "predicting" in stream.getvalue()
    assert "4/10" in stream.getvalue().replace(" ", "")


def test_a_log_has_lines_with_the_rate_and_the_remaining_time(monkeypatch):
    monkeypatch.setattr(progress, "_SECONDS_PER_LINE", 0.05)
    stream = io.StringIO()
    with row_progress(Console(file=stream, width=30), "predicting", 10, done=2) as advance:
        time.sleep(0.08)
        advance(4, 1)
        time.sleep(0.1)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "predicting: 2 of 10 rows"
    assert lines[-1].startswith("predicting: 6 of 10 rows, ")
    assert lines[-1].endswith(" a second, 1 with an error, 0:00:00 left")
    with step_progress(Console(file=stream), "scoring"):
        time.sleep(0.18)
    lines = stream.getvalue().splitlines()
    assert lines[-1] == "scoring: 0 s so far"
    time.sleep(0.1)
    assert stream.getvalue().splitlines() == lines


@pytest.mark.parametrize("console", [None, Console(quiet=True)])
def test_without_a_console_nothing_is_shown(console, capsys):
    with row_progress(console, "predicting") as advance, step_progress(console, "scoring"):
        advance(3, 1)
    assert capsys.readouterr().out == ""
