"""Options of the scores."""

from dataclasses import dataclass

from molattn.config.validation import check

__all__ = ["ReportConfig"]


@dataclass(frozen=True)
class ReportConfig:
    """How a run is judged.

    Args:
        baselines: Score a constant and a random forest too.
        interval: Probability of the intervals of the test rows.
        bootstrap: Resamplings for 95 % intervals; 0 for none.
    """

    baselines: bool = True
    interval: float = 0.9
    bootstrap: int = 1000

    def __post_init__(self) -> None:
        check(self, "interval", lambda level: 0.0 < level < 1.0, "a number between 0 and 1")
        check(self, "bootstrap", lambda n: n >= 0, "a whole number of at least 0", int)
