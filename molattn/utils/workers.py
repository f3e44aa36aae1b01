"""A map over processes of this machine or of a Ray cluster, with the results in order.

``concurrent.futures`` has the processes; joblib reads all items before it gives the first result,
and so does Ray's ``ActorPool``.
"""

import ctypes  # noqa: TID251 (for mallopt, which Python does not call)
import logging
import os
import pickle
import signal
import socket
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache, partial
from importlib.util import find_spec
from itertools import cycle
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from molattn.errors import InputError, MolattnError, quoted
from molattn.utils.registry import IMPORTED, import_files, load_plugins
from molattn.version import package_versions

Item = TypeVar("Item")
Result = TypeVar("Result")

_AHEAD = 4  # items in hand for each worker, so that none waits behind an item that takes long
_RESTARTS = 3  # of a worker that the same rows kill
_SECONDS_TO_CONNECT = 10.0

# Options of malloc.h: M_TRIM_THRESHOLD, M_TOP_PAD and M_MMAP_THRESHOLD, of which glibc takes 32 MB.
_MALLOC = {-1: 1 << 30, -2: 64 << 20, -3: 32 << 20}


def worker_map(
    function: Callable[[Item], Result], items: Iterable[Item], options: Any, threads: int = 1
) -> Generator[Result, None, None]:
    """Yield ``function(item)`` for each item, in order, by the workers that the options name.

    ``options`` are :class:`molattn.config.WorkerOptions`; Ray reserves so many CPUs as ``threads``
    for each worker. Each gets a pickled copy of the function once. Items are consumed lazily.
    """
    count = 0 if options.num_workers == "auto" else options.num_workers
    if options.engine == "local":
        return parallel_map(function, items, count)
    return ray_map(function, items, count, options.ray_address, threads)


def _in_order(
    submit: Callable[[Any], Any], result: Callable[[Any], Any], items: Iterable[Any], ahead: int
) -> Iterator[Any]:
    """Yield the results of items in order, with at most ``ahead`` items submitted before."""
    waiting: deque[Any] = deque()
    for item in items:
        waiting.append(submit(item))
        if len(waiting) >= ahead:
            yield result(waiting.popleft())
    yield from map(result, waiting)


def parallel_map(
    function: Callable[[Item], Result], items: Iterable[Item], num_workers: int
) -> Generator[Result, None, None]:
    """Yield ``function(item)`` for each item, in order, by worker processes; 0 = in this one.

    Raises:
        MolattnError: A worker process was killed, or could not be started.
    """
    if not num_workers:
        yield from map(function, items)
        return
    with TemporaryDirectory(prefix="molattn-") as folder:
        # In a file: a large argument of a process that dies while it starts blocks this one. By
        # pickle: multiprocessing would share the memory of tensors.
        path = Path(folder, "function")
        path.write_bytes(pickle.dumps(function, pickle.HIGHEST_PROTOCOL))
        spawn = get_context("spawn")  # not a fork of a process that may hold locks
        pool = ProcessPoolExecutor(num_workers, spawn, _start, ([*IMPORTED.values()],))
        try:
            submit: Any = partial(pool.submit, _call, path)
            yield from _in_order(submit, Future.result, items, _AHEAD * num_workers)
        except BrokenProcessPool as error:
            raise MolattnError(
                "a worker process was killed or could not be started; is there enough memory? "
                "Fewer --num-workers need less, and so does a smaller --batch-size"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _start(imported: Iterable[Path]) -> None:
    """Leave interrupts to the parent; end when it is killed, whatever this process waits for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent: Any = parent_process()

    def wait() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
    import_files(imported)


@lru_cache(maxsize=1)
def _loaded(path: Path) -> Callable[[Any], Any]:
    load_plugins()  # which the function may name
    return pickle.loads(path.read_bytes())


def _call(path: Path, item: Any) -> Any:
    return _loaded(path)(item)


def check_ray(address: str | None) -> None:
    """Check that Ray is installed, and that something answers at ``HOST:PORT`` if it is given."""
    if find_spec("ray") is None:
        raise InputError(
            'ray needs the package ray, which is not installed: pip install "molattn[ray]"',
            option="engine",
        )
    if address in (None, "auto"):
        return
    host, _, port = address.rpartition(":")
    try:
        # Ray itself waits for minutes, and takes ray:// for a client without these functions.
        socket.create_connection((host, int(port)), _SECONDS_TO_CONNECT).close()
    except (OSError, OverflowError, ValueError) as error:
        raise InputError(
            f"got {quoted(address)} ({error}), expected HOST:PORT of a running cluster "
            "(ray start --head) that this machine belongs to, or auto",
            option="ray_address",
        ) from error


def _most_workers(nodes: list[dict[str, Any]], threads: int) -> int:
    """How many workers of so many threads a Ray cluster has CPUs for."""
    cpus = [int(node["Resources"].get("CPU", 0)) for node in nodes if node["Alive"]]
    if not (most := sum(count // threads for count in cpus)):
        raise InputError(f"got {threads}, but no node has as many", option="threads")
    return most


def ray_map(
    function: Callable[[Any], Any],
    items: Iterable[Any],
    num_workers: int,
    address: str | None = None,
    threads: int = 1,
) -> Generator[Any, None, None]:
    """Yield ``function(item)`` for each item, in order, computed by the workers of a Ray cluster.

    If a worker is killed, Ray starts another one, and its items are computed again. There is at
    most one for each ``threads`` CPUs of the cluster, also if ``num_workers`` is 0. Without an
    address Ray is started on this machine and ended after the last item, unless it is connected.

    Raises:
        InputError: No node has so many CPUs.
        MolattnError: Ray cannot be reached, a worker has other versions of the packages that affect
            results, or an item ended its worker four times.
    """
    # Ray reads it when it is imported; its report on usage goes over the network.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with warnings.catch_warnings(action="ignore"):
        import ray  # pyright: ignore[reportMissingImports]

        is_own = not ray.is_initialized()
        if is_own:
            _connect(ray, address, num_workers * threads)
    try:
        most = _most_workers(ray.nodes(), threads)
        size = min(num_workers or most, most)
        options = {"num_cpus": threads, "max_restarts": -1, "max_task_retries": _RESTARTS}
        make = ray.remote(**options)(_Worker).remote
        # In a list: Ray leaves such a reference to the worker to follow.
        shared = [ray.put(ray.cloudpickle.dumps(function))]
        workers = cycle([make(shared, package_versions()) for _ in range(size)])
        submit = lambda item: next(workers).call.remote(item)  # noqa: E731
        yield from _in_order(submit, ray.get, items, _AHEAD * size)
    except ray.exceptions.RayTaskError as error:
        raise (error.cause or error) from None
    except ray.exceptions.RayError as error:
        reason = " ".join(str(error).split())[:300]
        raise MolattnError(f"Ray: {reason}; fewer --num-workers need less memory") from error
    finally:
        if is_own:
            ray.shutdown()


class _Worker:
    """The function in a worker."""

    def __init__(self, shared: list[Any], versions: Mapping[str, str]) -> None:
        self._shared = shared
        self._versions = versions
        self._function = None

    def call(self, item: Any) -> Any:
        import ray  # pyright: ignore[reportMissingImports]

        if self._function is None:
            if (versions := package_versions()) != self._versions:
                raise MolattnError(
                    f"--engine ray: {ray.util.get_node_ip_address()} has {versions}, this process "
                    f"{self._versions}; install the same versions on all nodes"
                )
            load_plugins()
            self._function = pickle.loads(ray.get(self._shared[0]))
        return self._function(item)


def _connect(ray: Any, address: str | None, cpus: int) -> None:
    """Connect to a cluster, or start one on this machine."""
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    if address is None:
        address = "local"
        cpus = max(cpus, os.cpu_count() or 1)
        options |= {"num_cpus": cpus, "include_dashboard": False}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address, **options)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise MolattnError(f"Ray cannot be started or connected to: {error}") from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)  # Ray has set its own


def reuse_memory() -> bool:
    """Make glibc keep memory that is freed, instead of returning it to the system.

    Otherwise each batch gets its large arrays anew, page by page, which takes a tenth of the time
    of a prediction. Torch asks for huge pages, of which it touches fewer, if it is told so before
    its first tensor. Both hold for the whole process, so that only commands call it. Returns
    whether the C library has such a function.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library; Windows
        return False
    return all(mallopt(name, value) == 1 for name, value in _MALLOC.items())
