"""Numbers of the server, in the format of Prometheus."""

from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    generate_latest,
)

from molattn.version import __version__

__all__ = ["Metrics"]

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_MOLECULES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Metrics:
    """Counts requests, molecules and batches; ``waiting`` returns the molecules not answered.

    Attributes:
        molecules: By model and outcome, ``predicted`` or a reason code.
        batches: Molecules that were predicted together.
    """

    def __init__(self, waiting: Callable[[], float]) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        info = Info("molattn", "Version of molattn.", registry=registry)
        info.info({"version": __version__})
        self._requests = Counter(
            "molattn_requests",
            "Requests by endpoint and status.",
            ["endpoint", "status"],
            registry=registry,
        )
        self._seconds = Histogram(
            "molattn_request_seconds",
            "Time from the head of a request to the end of its response.",
            ["endpoint"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.molecules = Counter(
            "molattn_molecules",
            "Molecules by model and outcome: predicted, or a reason code.",
            ["model", "outcome"],
            registry=registry,
        )
        self.batches = Histogram(
            "molattn_batch_molecules",
            "Molecules that were predicted together.",
            buckets=_MOLECULES,
            registry=registry,
        )
        Gauge(
            "molattn_waiting_molecules",
            "Molecules of requests that are not answered.",
            registry=registry,
        ).set_function(waiting)

    def request(self, endpoint: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(endpoint, str(status)).inc()
        self._seconds.labels(endpoint).observe(seconds)

    def text(self) -> bytes:
        """Return all numbers."""
        return generate_latest(self._registry)
