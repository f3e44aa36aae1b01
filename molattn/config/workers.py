"""Options of the processes that work on the rows of a table."""

from dataclasses import dataclass
from typing import Literal, get_args

from molattn.config.validation import check, check_choice, check_unused

__all__ = ["WORKER_OPTIONS", "Engine", "WorkerOptions", "check_workers"]

Engine = Literal["local", "ray"]

WORKER_OPTIONS = ("num_workers", "engine", "ray_address")
"""Options on which no result depends."""


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """Which processes work on the rows of a table.

    Args:
        num_workers: Worker processes that read the molecules and calculate their features; 0 reads
            them in the main process. With --engine ray they also predict, and 0 stands for one for
            each CPU of the cluster.
        engine: Where the workers are: local, on this machine, or ray, on the nodes of a Ray cluster
            (extra ray).
        ray_address: HOST:PORT of a running Ray cluster that this machine belongs to, or auto to
            find it; by default Ray is started on this machine.
    """

    num_workers: int = 0
    engine: Engine = "local"
    ray_address: str | None = None


def check_workers(config: WorkerOptions) -> None:
    """Check the options of the workers."""
    check(config, "num_workers", lambda count: count >= 0, "a whole number of at least 0", int)
    check_choice(config, "engine", get_args(Engine))
    check(config, "ray_address", bool, "HOST:PORT or auto", str)
    if config.engine != "ray":
        check_unused(config, "ray_address", "needs --engine ray")
