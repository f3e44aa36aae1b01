"""A map over the workers of a Ray cluster, with the results in order, by Ray Data."""

import logging
import os
import pickle
import signal
import socket
import threading
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, TypeVar

from molattn.errors import InputError, MolattnError, quoted
from molattn.utils.registry import load_plugins
from molattn.version import package_versions

__all__ = ["check_ray", "ray_map"]

Item = TypeVar("Item")
Result = TypeVar("Result")

_MOST_ATTEMPTS = 4
_BYTES_WAITING = 2**26  # of items and results, for each worker
_SECONDS_TO_CONNECT = 10.0
_LONGEST_REASON = 300
# Read by Ray when it is imported. What it reports would be mixed with output, and its report on
# usage goes over the network.
_ENVIRONMENT = {
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".*",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # of a Ray that is started here: workers are as urgent as this
}


def ray_map(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    num_workers: int,
    *,
    address: str | None = None,
    threads: int = 1,
    report: Callable[[str], None] = lambda line: None,
) -> Generator[Result, None, None]:
    """Yield ``function(item)`` for each item, in order, computed by the workers of a Ray cluster.

    If a worker is killed, Ray starts another one, and its items are computed again. Items are
    consumed lazily: with the results that wait for their turn, up to 64 MB for each worker.

    Args:
        function: The function. Each worker gets a copy of it once, for which it is pickled, as are
            its results.
        items: The items, read in a process of this machine, for which the iterable is pickled; if
            that is killed they are read again, so that each iteration must give the same.
        num_workers: Number of workers; 0 for one for each CPU of the cluster, or for so many CPUs
            as it has ``threads``.
        address: ``HOST:PORT`` of a cluster that this machine belongs to, or ``auto``; None starts
            one on this machine and ends it after the last item. Where Ray is connected already,
            that cluster is used.
        threads: Number of CPUs that Ray reserves for each worker.
        report: Called with a line when Ray is started, and for each worker that was killed.

    Raises:
        InputError: As :func:`check_ray`.
        MolattnError: Ray cannot be started or connected to, a worker has other versions of the
            packages that affect results, an item ended its worker four times, or the cluster
            failed.
    """
    if find_spec("ray") is None:
        raise InputError(
            '--engine ray needs the package ray, which is not installed: pip install "molattn[ray]"'
        )
    with _cluster(address, num_workers * threads, report) as ray:
        yield from _mapped(ray, function, items, num_workers, threads, report)


def check_ray(address: str | None) -> None:
    """Check that Ray is installed, and that something answers at its address.

    Args:
        address: As for :func:`ray_map`.

    Raises:
        InputError: Names what is missing.
    """
    if find_spec("ray") is None:
        raise InputError(
            '--engine ray needs the package ray, which is not installed: pip install "molattn[ray]"'
        )
    if address in (None, "auto"):
        return
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit():
        raise InputError(
            f"--ray-address: got {quoted(address)}, expected HOST:PORT of a cluster that this "
            "machine belongs to (ray start --address HOST:PORT), or auto"
        )
    try:
        socket.create_connection((host, int(port)), _SECONDS_TO_CONNECT).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"--ray-address: {quoted(address)} cannot be reached: {_reason(error)}; is Ray running "
            "there (ray start --head)?"
        ) from error


def _mapped(
    ray: Any,
    function: Callable[[Any], Any],
    items: Iterable[Any],
    num_workers: int,
    threads: int,
    report: Callable[[str], None],
) -> Iterator[Any]:
    import pyarrow as pa

    here = {f"node:{ray.util.get_node_ip_address()}": 0.001}
    data = ray.data.DataContext.get_current().copy()
    data.enable_progress_bars = False
    data.execution_options.preserve_order = True
    data.target_max_block_size = 1  # each item is a block of its own, which a worker takes
    cpus = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
    if max(cpus, default=0) < threads:
        raise MolattnError(
            f"--threads: got {threads}, but no node of the Ray cluster has more than "
            f"{max(cpus, default=0)} CPUs"
        )
    size = num_workers or sum(count // threads for count in cpus)
    most = ray.data.ExecutionResources(object_store_memory=size * _BYTES_WAITING)
    data.execution_options.resource_limits = most
    tally = ray.remote(_Tally).options(num_cpus=0, resources=here).remote()
    # By a reference in a container, which Ray leaves to the worker to follow.
    shared = [ray.put(ray.cloudpickle.dumps(function))]

    def read(_: Any) -> Iterator[Any]:
        for content in _numbered(items):
            yield pa.table({"item": pa.array([content], pa.large_binary())})

    expected = 0
    with ray.data.DataContext.current(data):
        blocks = (
            ray.data.from_items([0], override_num_blocks=1)
            # Without a CPU of its own, as the workers may take all.
            .map_batches(read, batch_format="pyarrow", num_cpus=0, resources=here)
            .map_batches(
                _Worker,
                batch_format="pyarrow",
                fn_constructor_args=(shared, tally, _MOST_ATTEMPTS, package_versions()),
                compute=ray.data.ActorPoolStrategy(size=size, max_tasks_in_flight_per_actor=2),
                num_cpus=threads,
            )
        )
        batches = blocks.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0)
        for batch in batches:
            for content in batch["item"]:
                number, attempts, result = pickle.loads(content.as_buffer())
                if isinstance(result, _Failure):
                    raise result.error
                if number != expected:
                    raise MolattnError(f"Ray: got item {number}, expected item {expected}")
                expected += 1
                for _ in range(attempts - 1):
                    report("a worker was killed, and what it computed is computed again")
                yield result


def _numbered(items: Iterable[Any]) -> Iterator[bytes]:
    """Yield the items with their numbers, pickled; an error in reading them takes a place too."""
    number = 0
    try:
        for number, item in enumerate(items, 1):
            yield pickle.dumps((number - 1, item), protocol=5)
    except Exception as error:
        yield pickle.dumps((number, _Failure.of(error)), protocol=5)


class _Failure:
    """An exception that was raised in another process, as a result."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    @classmethod
    def of(cls, error: Exception) -> "_Failure":
        if not isinstance(error, MolattnError):
            error.add_note(traceback.format_exc())  # which is lost when it is pickled
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            return cls(MolattnError(f"{type(error).__name__}: {error}"))
        return cls(error)


class _Tally:
    """Counts how often an item was begun; an actor of its own, as a killed worker forgets it."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def begun(self, number: int) -> int:
        self._counts.pop(number - 100_000, None)  # done long ago
        self._counts[number] += 1
        return self._counts[number]


class _Worker:
    """The function in a worker."""

    def __init__(
        self, shared: list[Any], tally: Any, most_attempts: int, versions: Mapping[str, str]
    ) -> None:
        self._shared, self._tally = shared, tally
        self._most_attempts, self._versions = most_attempts, versions
        self._function: Any = None

    def __call__(self, batch: Any) -> Any:
        import pyarrow as pa

        done = [self._done(content.as_buffer()) for content in batch["item"]]
        return pa.table({"item": pa.array(done, pa.large_binary())})

    def _done(self, content: Any) -> bytes:
        import ray  # pyright: ignore[reportMissingImports]

        number, item = pickle.loads(content)
        attempts: Any = ray.get(self._tally.begun.remote(number))
        try:
            result = item if isinstance(item, _Failure) else self._result(item, attempts)
        except Exception as error:
            result = _Failure.of(error)
        return pickle.dumps((number, attempts, result), protocol=5)

    def _result(self, item: Any, attempts: int) -> Any:
        import ray  # pyright: ignore[reportMissingImports]

        if attempts > self._most_attempts:
            raise MolattnError(
                f"a worker was killed {self._most_attempts} times by the same rows; is there "
                "enough memory? Fewer --num-workers on each node need less, and so does a smaller "
                "--batch-size"
            )
        if self._function is None:
            for package, version in package_versions().items():
                if version != self._versions[package]:
                    raise MolattnError(
                        f"--engine ray: a worker on {ray.util.get_node_ip_address()} has {package} "
                        f"{version}, this process {self._versions[package]}; install the same "
                        "version on all nodes"
                    )
            load_plugins()
            self._function = pickle.loads(ray.get(self._shared[0]))
        return self._function(item)


@contextmanager
def _cluster(address: str | None, cpus: int, report: Callable[[str], None]) -> Iterator[Any]:
    """Connect to a cluster, or start one on this machine, within the block."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ray  # pyright: ignore[reportMissingImports]
        import ray.data  # pyright: ignore[reportMissingImports]

        logging.getLogger("ray.data").setLevel(logging.CRITICAL)
        is_own = not ray.is_initialized()
        if is_own:
            if address is None:
                report("starting Ray on this machine")
            _connect(ray, address, cpus)
    try:
        yield ray
    except ray.exceptions.RayError as error:  # pyright: ignore[reportAttributeAccessIssue]
        raise MolattnError(f"Ray: {_reason(getattr(error, 'cause', None) or error)}") from error
    finally:
        if is_own:
            ray.shutdown()


def _connect(ray: Any, address: str | None, cpus: int) -> None:
    options: dict[str, Any] = {"address": address or "local"}
    if address is None:
        options |= {"num_cpus": max(cpus, os.cpu_count() or 1), "include_dashboard": False}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with _stderr_hidden():  # a line that says which level of messages is set
            ray.init(log_to_driver=False, logging_level=logging.CRITICAL, **options)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        what = "Ray cannot be started" if address is None else f"--ray-address: {quoted(address)}"
        raise MolattnError(f"{what}: {_reason(error)}") from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)  # Ray has set its own


@contextmanager
def _stderr_hidden() -> Iterator[None]:
    """Let what libraries of other languages write to standard error within the block go nowhere."""
    kept = os.dup(2)
    try:
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _reason(error: BaseException) -> str:
    text = " ".join(str(getattr(error, "strerror", None) or error).split())
    return text if len(text) <= _LONGEST_REASON else f"{text[: _LONGEST_REASON - 3]}..."
