import math
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from molattn.utils.time_limit import call_within

from ..conftest import HANGING

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="limits elapsed time there")
ENDLESS = "(a+)+b", "a" * 99  # the time doubles with each letter


def test_results_and_errors_come_back_and_one_process_serves_all_calls():
    assert call_within(HANGING, math.sqrt, 4.0) == 2.0
    with pytest.raises(ValueError, match="math domain error"):
        call_within(HANGING, math.sqrt, -1.0)
    with pytest.raises(TypeError, match="cannot pickle"):
        call_within(HANGING, open, os.devnull)
    assert call_within(HANGING, print, "text") is None  # which is no answer
    processes = [call_within(HANGING, os.getpid) for _ in range(2)]
    assert processes[0] == processes[1] != os.getpid()


def test_a_call_in_c_code_is_ended_and_the_next_one_is_answered():
    with pytest.raises(TimeoutError):
        call_within(0.1, re.fullmatch, *ENDLESS)
    with pytest.raises(TimeoutError):
        call_within(HANGING, bytes, 2**33)  # more memory than is allowed
    child = call_within(HANGING, os.getpid)
    os.kill(child, signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert call_within(HANGING, math.sqrt, 4.0) == 2.0


def test_each_call_has_the_whole_limit_of_cpu_time():
    for seconds in (4000, 1000, 9000):
        left, _ = call_within(seconds, signal.getitimer, signal.ITIMER_PROF)
        assert seconds - HANGING < left <= seconds + 1  # rounded up to ticks
    assert call_within(HANGING, signal.getitimer, signal.ITIMER_REAL) == (0, 0)


def test_threads_do_not_wait_for_each_other(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(call_within, HANGING, Path.read_text, tmp_path / "pipe")
        with open(tmp_path / "pipe", "w") as pipe:  # once the child process has opened it
            assert pool.submit(call_within, HANGING, os.getpid).result(HANGING) != os.getpid()
            assert not slow.done()
            pipe.write("text")
        assert slow.result(HANGING) == "text"


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_signal_ends_a_process_that_waits_for_a_call(tmp_path, number, code):
    (tmp_path / "types.py").write_text("raise RuntimeError")  # named like a standard module
    script = """if True:
        import re, types, sys
        sys.path.insert(0, sys.argv[1])
        from molattn.utils.time_limit import call_within
        try:
            print(call_within(60, str, "ready"), flush=True)
            call_within(60, re.fullmatch, "(a+)+b", "a" * 99)  # the most that it outlives a signal
        except KeyboardInterrupt:
            sys.exit(130)
        """
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.wait(HANGING) == code
