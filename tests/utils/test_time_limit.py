import math
import os
import signal
import subprocess
import sys
import time

import pytest

from molattn.utils.time_limit import call_within

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
        print(call_within(9, str, "ready"), flush=True)
        try:
            call_within(60, pow, 3, 10**9)
        except KeyboardInterrupt:
            sys.exit(130)
        """
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.wait(10) == code
