import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from operator import neg
from pathlib import Path

import pytest

from molattn.errors import InputError, MolattnError
from molattn.utils.workers import parallel_map


class _OddError(Exception):
    def __init__(self, one, other):
        super().__init__(f"{one}, {other}")


def failing(text):
    raise InputError(text)


def failing_oddly(_):
    raise _OddError("a", "b")


def pid_of(_):
    return os.getpid()


def slow(item):
    number, delay = item
    time.sleep(delay)
    return number


def loaded(_):
    return {*sys.modules}


BUSY = """
from itertools import repeat
from time import sleep
from molattn.errors import MolattnError
from molattn.utils.workers import parallel_map

done = parallel_map(bytes, repeat(10**6), 1)  # more than a pipe holds
next(done)
print("begun", flush=True)
sleep(60)
"""


@pytest.mark.parametrize("num_workers", [0, 2])
def test_what_is_done_comes_in_the_order_of_what_is_asked(num_workers):
    assert list(parallel_map(neg, range(29), num_workers)) == [-n for n in range(29)]


def test_a_slow_item_keeps_neither_the_order_nor_the_other_worker():
    delays = [0.5, *[0.0] * 9]
    assert list(parallel_map(slow, enumerate(delays), 2)) == [*range(10)]


def test_what_is_asked_is_taken_a_few_ahead_alone():
    taken = []
    asked = (taken.append(n) or n for n in range(100))
    some = parallel_map(neg, asked, 1)
    assert next(some) == 0
    time.sleep(0.2)
    assert len(taken) < 9
    some.close()


def test_a_fault_of_what_is_asked_comes_out_as_it_is():
    def asked():
        yield 1
        raise ValueError("line 7")

    some = parallel_map(neg, asked(), 1)
    with pytest.raises(ValueError, match=r"^line 7$"):
        list(some)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_work_that_stops_does_not_end_all(num_workers):
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        list(parallel_map(next, [iter("")], num_workers))


def test_workers_are_no_copies_and_leave_interrupts_to_this_process():
    former = signal.signal(signal.SIGUSR1, print)
    try:
        assert list(parallel_map(signal.getsignal, [signal.SIGUSR1], 1)) == [signal.SIG_DFL]
    finally:
        signal.signal(signal.SIGUSR1, former)
    blocked_now = partial(signal.pthread_sigmask, signal.SIG_BLOCK)
    assert list(parallel_map(blocked_now, [()], 1)) == [{signal.SIGINT}]
    assert blocked_now(()) == set()


def test_a_worker_that_is_killed_is_one_error_that_names_it():
    said = r"^a worker process \(pid \d+\) was killed \(SIGKILL\); is there enough memory\?$"
    with pytest.raises(MolattnError, match=said):
        list(parallel_map(signal.raise_signal, [signal.SIGKILL], 1))


DYING = """
from molattn.errors import MolattnError
from molattn.utils.workers import parallel_map

list(parallel_map(bytes(10**6).find, [b"1"], 1))  # without a guard: the worker runs this too
"""


def test_a_worker_that_dies_while_it_starts_is_an_error(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(DYING)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert re.search(r"MolattnError: a worker process \(pid \d+\) ended", done.stderr)


def test_a_worker_that_is_killed_between_two_items_is_named_too():
    some = parallel_map(pid_of, range(50), 1)
    os.kill(next(some), signal.SIGKILL)
    with pytest.raises(MolattnError, match="was killed \\(SIGKILL\\)"):
        list(some)


def test_an_error_of_a_worker_comes_out_as_it_is():
    with pytest.raises(InputError, match=r"^line 7$"):
        list(parallel_map(failing, ["line 7"], 1))
    with pytest.raises(RuntimeError, match=r"^_OddError: a, b$"):  # which cannot be pickled
        list(parallel_map(failing_oddly, [""], 1))


def test_a_worker_imports_no_more_than_it_needs():
    (names,) = parallel_map(loaded, [0], 1)
    assert not {"torch", "numpy", "rdkit"} & names


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="no /proc")
def test_workers_end_with_a_process_that_is_killed():
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.kill()
    assert children
    end = time.monotonic() + 30
    while alive := [child for child in children if Path(f"/proc/{child}").exists()]:
        assert time.monotonic() < end, alive
        time.sleep(0.1)
