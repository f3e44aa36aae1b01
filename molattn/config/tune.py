"""How a search for good options goes."""

from dataclasses import dataclass
from math import inf

from molattn.config.validation import check

__all__ = ["TuneConfig"]


@dataclass(frozen=True)
class TuneConfig:
    """How a search for good options goes.

    Args:
        trials: Trials in all, those of a resumed study included; by default 50, or as many as the
            study was begun with.
        timeout: Seconds after which no further trial begins.
        prune: End a trial whose lowest validation loss is above the median of the others at its
            epoch.
    """

    trials: int | None = None
    timeout: float | None = None
    prune: bool = True

    def __post_init__(self) -> None:
        if self.trials is not None:
            check(self, "trials", lambda n: n >= 1, "a whole number of at least 1", int)
        if self.timeout is not None:
            check(self, "timeout", lambda seconds: 0.0 < seconds < inf, "a positive number")
