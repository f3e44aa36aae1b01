"""The map over Ray's workers, on a cluster of two nodes on this machine."""

import os
import signal
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from molattn.errors import InputError, MolattnError
from molattn.utils import ray_workers
from molattn.utils.ray_workers import check_ray, ray_map


class Work:
    """Notes who does what, and may end its process; pickled by value, as workers lack this file."""

    def __init__(self, folder: Path, kills: int | None = None, faults: int | None = None) -> None:
        self.folder, self.kills, self.faults = folder, kills, faults
        self.is_loaded = False

    def __call__(self, number: int) -> int:
        if not self.is_loaded:
            self.note("loads", os.getpid())
            self.is_loaded = True
        self.note("done", number)
        if number == self.kills:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == self.faults:
            raise ValueError("item 5 is at fault")
        time.sleep(0.05)
        return -number

    def note(self, name: str, text: object) -> None:
        with open(self.folder / name, "a") as file:
            file.write(f"{text}\n")


@pytest.fixture(autouse=True)
def _by_value():
    cloudpickle = pytest.importorskip(
        "ray.cloudpickle", reason="ray is not installed (make test-ray)"
    )
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)


@pytest.mark.ray
def test_results_come_in_order_from_workers_that_load_once(ray_cluster, tmp_path):
    results = ray_map(Work(tmp_path), range(60), 0, address=ray_cluster.address)
    assert list(results) == [-number for number in range(60)]
    loads = (tmp_path / "loads").read_text().split()
    assert len(loads) == len({*loads}) == 2
    assert sorted(map(int, (tmp_path / "done").read_text().split())) == [*range(60)]


@pytest.mark.ray
def test_an_error_comes_out_as_it_is(ray_cluster, tmp_path):
    results = ray_map(Work(tmp_path, faults=5), range(9), 1, address=ray_cluster.address)
    with pytest.raises(ValueError, match="item 5 is at fault") as caught:
        list(results)
    assert str(caught.value) == "item 5 is at fault"
    assert "in __call__" in caught.value.__notes__[0]  # where

    class Items:
        def __iter__(self):
            yield 0
            raise InputError("line 7 is at fault")

    with pytest.raises(InputError, match=r"^line 7 is at fault$"):
        list(ray_map(Work(tmp_path), Items(), 1, address=ray_cluster.address))


@pytest.mark.ray
def test_an_item_that_always_kills_its_worker_is_an_error(ray_cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(ray_workers, "_MOST_ATTEMPTS", 2)
    results = ray_map(Work(tmp_path, kills=3), range(9), 1, address=ray_cluster.address)
    with pytest.raises(MolattnError, match="a worker was killed 2 times by the same rows"):
        list(results)
    assert (tmp_path / "done").read_text().split().count("3") == 2


@pytest.mark.ray
def test_items_wait_until_there_is_room(ray_cluster, tmp_path):
    class Items:
        def __iter__(self):
            for number in range(100):
                with open(tmp_path / "taken", "a") as file:
                    file.write("x")
                yield np.full(2**23, number, np.uint8)  # 800 MB in all

    with closing(ray_map(np.copy, Items(), 1, address=ray_cluster.address)) as results:
        assert next(results)[0] == 0
        time.sleep(5)
        assert (tmp_path / "taken").stat().st_size < 40
        assert [result[0] for result in results] == [*range(1, 100)]


@pytest.mark.ray
def test_another_version_on_a_node_is_an_error(ray_cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(ray_workers, "package_versions", lambda: {"molattn": "0", "rdkit": "1"})
    with pytest.raises(MolattnError, match=r"a worker on \S+ has molattn \S+, this process 0;"):
        list(ray_map(Work(tmp_path), [1], 1, address=ray_cluster.address))


@pytest.mark.parametrize(
    "address, reason",
    [
        ("127.0.0.1:1", "cannot be reached: .+; is Ray running there"),
        ("127.0.0.1", "expected HOST:PORT"),
        ("ray://127.0.0.1:10001", "expected HOST:PORT"),
        ("127.0.0.1:99999", "cannot be reached"),
    ],
)
def test_a_wrong_address_is_an_error(address, reason):
    with pytest.raises(InputError, match=f"^--ray-address: .*{reason}"):
        check_ray(address)
