import os
import platform
import signal
import subprocess
import sys
import time
from operator import neg
from pathlib import Path

import pytest

from molattn.errors import InputError, MolattnError
from molattn.utils.workers import check_ray, parallel_map, ray_map

from ..conftest import HANGING


def failing(text):
    raise InputError(text)


def overtaken(item):
    """Return the number; the first one waits for the second, in another process."""
    number, file = item
    if number == 1:
        file.touch()
    while number == 0 and not file.exists():
        time.sleep(0.01)
    return number


def test_results_come_in_order_of_items_that_are_taken_a_few_ahead(tmp_path):
    taken = []
    items = (taken.append(number) or (number, tmp_path / "second") for number in range(40))
    results = parallel_map(overtaken, items, 2)
    assert next(results) == 0
    assert len(taken) < 12
    assert list(results) == [*range(1, 40)]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_error_comes_out_as_it_is(num_workers):
    with pytest.raises(InputError, match=r"^line 7$"):
        list(parallel_map(failing, ["line 7"], num_workers))
    with pytest.raises(InputError, match=r"^line 8$"):
        list(parallel_map(neg, map(failing, ["line 8"]), num_workers))


SCRIPT = """
from itertools import repeat
from signal import SIGKILL, raise_signal
from time import sleep
from molattn.utils.workers import parallel_map

{}
"""
UNGUARDED = "list(parallel_map(bytes(10**6).find, [b'1'], 1))  # the worker runs this too"
BUSY = """if __name__ == "__main__":
    results = parallel_map(bytes, repeat(10**6), 1)
    next(results)
    print("begun", flush=True)
    sleep(9999)
"""


def test_a_killed_worker_and_one_that_cannot_start_are_errors(tmp_path):
    with pytest.raises(MolattnError, match="worker process"):
        list(parallel_map(signal.raise_signal, [signal.SIGKILL], 1))
    (tmp_path / "script.py").write_text(SCRIPT.format(UNGUARDED))
    command = [sys.executable, tmp_path / "script.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGING)
    assert done.returncode == 1
    assert "MolattnError: a worker process" in done.stderr


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="no /proc")
def test_workers_end_with_a_process_that_is_killed(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT.format(BUSY))
    command = [sys.executable, tmp_path / "script.py"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"begun\n"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.kill()
    assert children
    end = time.monotonic() + HANGING
    while alive := [child for child in children if Path(f"/proc/{child}").exists()]:
        assert time.monotonic() < end, alive
        time.sleep(0.1)


class Work:
    """Kills its process at an item the first times; pickled by value, as workers lack this file."""

    def __init__(self, folder, at, times):
        self.folder, self.at, self.times = folder, at, times

    def __call__(self, number):
        if number == self.at:
            with open(self.folder / "killed", "a+") as file:
                file.seek(0)
                if len(file.read()) < self.times:
                    file.write("x")
                    file.flush()
                    os.kill(os.getpid(), signal.SIGKILL)
        if number < 0:
            raise InputError("line 7")
        return -number


@pytest.fixture
def by_value():
    cloudpickle = pytest.importorskip("ray.cloudpickle", reason="ray is not installed")
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.mark.ray
@pytest.mark.parametrize("workers", [0, 5])
def test_workers_of_ray_that_are_killed_are_replaced(ray_cluster, by_value, tmp_path, workers):
    results = ray_map(Work(tmp_path, 7, 3), range(60), workers, ray_cluster.address)
    assert list(results) == [-number for number in range(60)]
    with pytest.raises(InputError, match=r"^line 7$"):
        list(ray_map(Work(tmp_path, 0, 0), [1, -1], workers, ray_cluster.address))
    with pytest.raises(MolattnError, match="--num-workers"):
        list(ray_map(Work(tmp_path, 7, 99), range(9), workers, ray_cluster.address))


@pytest.mark.ray
def test_another_version_on_a_node_is_an_error(ray_cluster, by_value, tmp_path, monkeypatch):
    monkeypatch.setattr("molattn.utils.workers.package_versions", lambda: {"molattn": "0"})
    with pytest.raises(MolattnError, match="install the same versions"):
        list(ray_map(Work(tmp_path, 0, 0), [1], 1, ray_cluster.address))


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "a:b", "127.0.0.1:99999"])
def test_a_wrong_address_is_an_error(address, monkeypatch):
    monkeypatch.setattr("molattn.utils.workers.find_spec", lambda name: True)
    with pytest.raises(InputError) as error:
        check_ray(address)
    assert error.value.option == "ray_address"


MEMORY = """
import sys
import numpy as np
from molattn.utils.workers import reuse_memory

if sys.argv[1] == "reuse":
    assert reuse_memory()
parts = [np.ones(2**21) for _ in range(4)]
del parts
print(open("/proc/self/statm").read().split()[1])
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_freed_memory_is_used_again():
    as_it_is, reused = (
        int(subprocess.check_output([sys.executable, "-c", MEMORY, word]))
        for word in ("leave", "reuse")
    )
    assert (reused - as_it_is) * os.sysconf("SC_PAGE_SIZE") > 3 * 8 * 2**21  # in memory still


@pytest.mark.parametrize("wanted", ["", "0"])
def test_torch_is_asked_for_huge_pages_unless_the_user_forbids_it(wanted):
    name = "THP_MEM_ALLOC_ENABLE"
    code = "import os; from molattn.utils.workers import reuse_memory; reuse_memory()"
    environment = {key: value for key, value in os.environ.items() if key != name}
    asked = subprocess.check_output(
        [sys.executable, "-c", f"{code}; print(os.environ['{name}'])"],
        env=environment | ({name: wanted} if wanted else {}),
        text=True,
    )
    assert asked.strip() == (wanted or "1")
