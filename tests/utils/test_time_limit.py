import math
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from molattn.utils.time_limit import call_within

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="limits elapsed time there")


def test_results_and_errors_come_back_and_one_process_serves_all_calls():
    assert call_within(9, math.sqrt, 4.0) == 2.0
    with pytest.raises(ValueError, match="math domain error"):
        call_within(9, math.sqrt, -1.0)
    with pytest.raises(TypeError, match="cannot pickle"):
        call_within(9, open, os.devnull)
    assert call_within(9, print, "text") is None  # which is no answer
    assert call_within(9, os.getpid) == call_within(9, os.getpid) != os.getpid()


def test_a_call_in_c_code_is_ended_and_the_next_one_is_answered():
    with pytest.raises(TimeoutError):
        call_within(0.2, pow, 3, 10**9)
    with pytest.raises(TimeoutError):
        call_within(9, bytes, 2**33)  # more memory than is allowed
    for _ in range(3):  # neither idle time nor earlier calls count
        call_within(0.3, time.sleep, 0.01)
        call_within(0.3, sum, range(2_000_000))
    os.kill(call_within(9, os.getpid), signal.SIGKILL)
    time.sleep(0.1)
    assert call_within(9, math.sqrt, 4.0) == 2.0


def test_threads_do_not_wait_for_each_other():
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(call_within, 9, time.sleep, 0.5)
        assert pool.submit(call_within, 9, os.getpid).result() != os.getpid()
        assert not slow.done()


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_signal_ends_a_process_that_waits_for_a_call(tmp_path, number, code):
    (tmp_path / "types.py").write_text("raise RuntimeError")  # named like a standard module
    script = """if True:
        import types, sys
        sys.path.insert(0, sys.argv[1])
        from molattn.utils.time_limit import call_within
        try:
            print(call_within(9, str, "ready"), flush=True)
            call_within(60, pow, 3, 10**9)
        except KeyboardInterrupt:
            sys.exit(130)
        """
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.wait(10) == code
