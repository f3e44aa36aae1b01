import gc
import math
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from molattn.errors import MolattnError
from molattn.utils import time_limit
from molattn.utils.time_limit import StoppedError, call_within, stopped_by

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="limits elapsed time there")


def test_results_and_errors_come_back_and_one_process_serves_all_calls():
    assert call_within(9, math.sqrt, 4.0) == 2.0
    with pytest.raises(ValueError, match="math domain error"):
        call_within(9, math.sqrt, -1.0)
    assert call_within(9, os.getpid) == call_within(9, os.getpid) != os.getpid()


def test_a_call_in_c_code_is_ended_and_the_next_one_is_answered():
    with pytest.raises(TimeoutError):
        call_within(0.2, pow, 3, 10**9)
    assert call_within(9, math.sqrt, 4.0) == 2.0


def test_a_child_that_was_ended_between_two_calls_is_replaced():
    os.kill(call_within(9, os.getpid), signal.SIGKILL)
    time_limit._of_thread.child._process.wait()
    assert call_within(9, math.sqrt, 4.0) == 2.0


def test_an_answer_that_cannot_be_pickled_is_not_taken_for_a_slow_call():
    with pytest.raises(TypeError, match="cannot pickle"):
        call_within(9, open, os.devnull)


def test_idle_time_and_earlier_calls_do_not_count():
    for _ in range(3):
        call_within(0.3, time.sleep, 0.01)
        call_within(0.3, sum, range(2_000_000))


def test_a_call_that_needs_too_much_memory_is_ended():
    with pytest.raises(TimeoutError):
        call_within(9, bytes, 2**33)


def test_what_a_call_prints_is_no_answer():
    assert call_within(9, print, "text") is None
    assert call_within(9, os.write, 1, b"text") == 4


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_signal_ends_a_process_that_waits_for_a_call(number, code):
    script = """if True:
        import sys
        from molattn.utils.time_limit import call_within
        try:
            print(call_within(9, str, "ready"), flush=True)
            call_within(60, pow, 3, 10**9)
        except KeyboardInterrupt:
            sys.exit(130)
        """
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.wait(10) == code


def test_a_module_beside_a_script_that_is_named_like_a_standard_one_does_no_harm(tmp_path):
    (tmp_path / "types.py").write_text("raise RuntimeError")
    script = """if True:
        import types  # the standard one, loaded by Python itself
        import math, sys
        sys.path.insert(0, sys.argv[1])
        from molattn.utils.time_limit import call_within
        print(call_within(9, math.sqrt, 4.0))
        """
    command = [sys.executable, "-c", script, str(tmp_path)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "2.0\n"


def test_a_child_that_does_not_start_is_not_taken_for_a_slow_call(monkeypatch):
    monkeypatch.setattr(time_limit, "_of_thread", time_limit._OfThread())
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(MolattnError, match="/bin/false cannot be started"):
        call_within(9, math.sqrt, 4.0)


def test_each_thread_has_a_child_of_its_own_that_ends_with_it():
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(call_within, 9, os.getpid).result()
        assert other == pool.submit(call_within, 9, os.getpid).result()
        assert other != call_within(9, os.getpid)
    deadline = time.monotonic() + 30
    while Path(f"/proc/{other}").exists():
        assert time.monotonic() < deadline
        gc.collect()
        time.sleep(0.05)


def test_no_call_begins_once_it_is_stopped():
    stop = threading.Event()
    with stopped_by(stop):
        assert call_within(9, math.sqrt, 4.0) == 2.0
        stop.set()
        with pytest.raises(StoppedError):
            call_within(9, math.sqrt, 4.0)
    assert call_within(9, math.sqrt, 4.0) == 2.0
