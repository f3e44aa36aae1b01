"""What the predicted properties of a model mean."""

from dataclasses import replace

from molattn.config.base import checked


@checked
class Threshold:
    """A threshold in use for a property.

    Args:
        text: What holds for values in the range, or a remark if there is no range.
        low: Smallest value of the range; None = it has no lower end.
        high: Its upper end, which is not part of it; None = it has none.
        source: Who uses it.
    """

    text: str
    low: int | float | None = None
    high: int | float | None = None
    source: str = ""

    def __str__(self) -> str:
        low, high = self.low, self.high
        if low is None:
            words = "" if high is None else f"below {high}: "
        else:
            words = f"{low} and above: " if high is None else f"{low} to {high}: "
        return f"{words}{self.text}{f' ({self.source})' if self.source else ''}"


@checked
class Endpoint:
    """What a predicted property means, for people who read predictions.

    Args:
        title: The property in a few words.
        category: Group of properties to which it belongs, such as absorption.
        description: What it is, in a sentence or two.
        assay: How it was measured.
        unit: Unit, or what the probability is of.
        direction: Which values are wanted, as a rule.
        thresholds: Thresholds in use.
        source: Where the training data come from.
        license: Their license.
        rows: Number of training molecules.
        scores: Scores in cross-validation, as text.
        coverage: Fraction of the labels of the cross-validation within their 90% intervals; None
            for a classification.
    """

    title: str
    category: str = ""
    description: str = ""
    assay: str = ""
    unit: str = ""
    direction: str = ""
    thresholds: tuple[Threshold, ...] = ()
    source: str = ""
    license: str = ""
    rows: int | None = None
    scores: str = ""
    coverage: float | None = None

    def without_scores(self) -> "Endpoint":
        """Leave out what holds for one trained model alone."""
        return replace(self, rows=None, scores="", coverage=None)
