"""Numbers of the server, in the format of Prometheus."""

from collections.abc import Callable

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    generate_latest,
)

from molattn.version import __version__

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = CONTENT_TYPE_LATEST

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_MOLECULES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Metrics:
    """Counts requests, molecules and batches.

    Args:
        waiting: Returns the number of molecules that are not answered.
    """

    def __init__(self, waiting: Callable[[], float]) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        Info("molattn", "Version of molattn.", registry=self._registry).info(
            {"version": __version__}
        )
        self._requests = Counter(
            "molattn_requests",
            "Requests by endpoint and status.",
            ["endpoint", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "molattn_request_seconds",
            "Time from the head of a request to the end of its response.",
            ["endpoint"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._molecules = Counter(
            "molattn_molecules",
            "Molecules by model and outcome: predicted, or a reason code.",
            ["model", "outcome"],
            registry=self._registry,
        )
        self._batches = Histogram(
            "molattn_batch_molecules",
            "Molecules that were predicted together.",
            buckets=_MOLECULES,
            registry=self._registry,
        )
        Gauge(
            "molattn_waiting_molecules",
            "Molecules of requests that are not answered.",
            registry=self._registry,
        ).set_function(waiting)

    def request(self, endpoint: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(endpoint, str(status)).inc()
        self._seconds.labels(endpoint).observe(seconds)

    def molecule(self, model: str, code: str) -> None:
        """Count a molecule with its reason code, "" if it was predicted."""
        self._molecules.labels(model, code or "predicted").inc()

    def batch(self, count: int) -> None:
        """Count a batch of so many molecules."""
        self._batches.observe(count)

    def text(self) -> bytes:
        """Return all numbers."""
        return generate_latest(self._registry)
