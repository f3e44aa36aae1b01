"""What the predicted properties of a model mean."""

from dataclasses import replace

from molattn.config.base import checked


@checked
class Threshold:
    """A threshold in use for a property."""

    text: str  # what holds for values in the range, or a remark without a range
    low: int | float | None = None  # smallest value of the range
    high: int | float | None = None  # its upper end, which is not part of it
    source: str = ""  # who uses it

    def __str__(self) -> str:
        low, high = self.low, self.high
        if low is None:
            words = "" if high is None else f"below {high}: "
        else:
            words = f"{low} and above: " if high is None else f"{low} to {high}: "
        return f"{words}{self.text}{f' ({self.source})' if self.source else ''}"


@checked
class Endpoint:
    """What a predicted property means, for people who read predictions."""

    title: str
    category: str = ""  # group of properties, such as absorption
    description: str = ""  # what it is, in a sentence or two
    assay: str = ""  # how it was measured
    unit: str = ""  # or what the probability is of
    direction: str = ""  # which values are desired, as a rule
    thresholds: tuple[Threshold, ...] = ()
    source: str = ""  # of the training data
    license: str = ""  # of the training data
    rows: int | None = None  # number of training molecules
    scores: str = ""  # in cross-validation
    coverage: float | None = None  # of the 90% intervals in cross-validation

    def without_scores(self) -> "Endpoint":
        """Leave out what holds for one trained model alone."""
        return replace(self, rows=None, scores="", coverage=None)
