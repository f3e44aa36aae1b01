import io
import time

import pytest
from rich.console import Console

from molattn.utils import progress
from molattn.utils.progress import row_progress, step_progress


@pytest.mark.parametrize(
    "total, line",
    [
        (None, "500 rows, 250 a second, 3 with an error"),
        (200_500, "500 of 200,500 rows, 250 a second, 3 with an error, 0:13:20 left"),
        (400, "500 of 400 rows, 250 a second, 3 with an error, 0:00:00 left"),
    ],
)
def test_the_count_has_a_rate_and_the_time_that_is_left(monkeypatch, total, line):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    count = progress._Count(total)
    now[0] = 2.0
    count.add(300)
    count.add(200, 3)
    assert str(count) == line


def test_a_terminal_has_a_bar_with_the_count():
    stream = io.StringIO()
    console = Console(file=stream, width=100, force_terminal=True)
    with row_progress(console, "predicting", 10) as advance:
        advance(4, 1)
        time.sleep(0.3)  # it is drawn ten times a second
    assert "predicting" in stream.getvalue()
    assert "4 of 10 rows" in stream.getvalue()


def test_a_log_has_a_line_at_regular_times_and_none_after_the_end(monkeypatch):
    monkeypatch.setattr(progress, "_SECONDS_PER_LINE", 0.05)
    stream = io.StringIO()
    with row_progress(Console(file=stream, width=30), "predicting", 10) as advance:
        time.sleep(0.08)
        advance(4, 1)
        time.sleep(0.1)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "predicting: 0 of 10 rows"
    assert lines[-1].startswith("predicting: 4 of 10 rows, ")
    assert ", 1 with an error, " in lines[-1]
    time.sleep(0.1)
    assert stream.getvalue().splitlines() == lines


def test_a_step_without_parts_is_told_at_regular_times(monkeypatch):
    monkeypatch.setattr(progress, "_SECONDS_PER_LINE", 0.05)
    stream = io.StringIO()
    with step_progress(Console(file=stream), "scoring"):
        time.sleep(0.18)
    assert {*stream.getvalue().splitlines()} == {"scoring: 0 s so far"}
    with step_progress(None, "scoring"), step_progress(Console(file=stream, quiet=True), "scoring"):
        time.sleep(0.08)


def test_a_slow_rate_keeps_two_digits(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    count = progress._Count(None)
    assert str(count) == "0 rows"
    count.add(1)
    now[0] = 8.0
    assert str(count) == "1 row, 0.12 a second"


def test_rows_that_were_done_before_do_not_count_for_the_rate(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    count = progress._Count(1000, 500)
    assert str(count) == "500 of 1,000 rows"
    count.add(100)
    now[0] = 2.0
    assert str(count) == "600 of 1,000 rows, 50 a second, 0:00:08 left"


@pytest.mark.parametrize("console", [None, Console(quiet=True)])
def test_without_a_console_nothing_is_shown(console, capsys):
    with row_progress(console, "predicting") as advance:
        advance(3, 1)
    assert capsys.readouterr().out == ""
