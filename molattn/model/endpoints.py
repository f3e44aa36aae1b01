"""What the predicted properties of a model mean."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pydantic import ConfigDict, TypeAdapter
from pydantic.dataclasses import dataclass

from molattn.errors import InputError, quoted
from molattn.model.artefact import ENDPOINTS_FILE, ModelFiles
from molattn.task import Task

__all__ = [
    "Endpoint",
    "Threshold",
    "endpoint_tables",
    "endpoints_from_files",
    "endpoints_to_bytes",
]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
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
        ends = (self.low, self.high)
        words = {
            (True, True): f"{self.low} to {self.high}: ",
            (True, False): f"{self.low} and above: ",
            (False, True): f"below {self.high}: ",
            (False, False): "",
        }[ends[0] is not None, ends[1] is not None]
        return f"{words}{self.text}{f' ({self.source})' if self.source else ''}"


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
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


def endpoints_to_bytes(endpoints: Mapping[str, Endpoint]) -> bytes:
    """Return the content of the file of a model's endpoints, which are given by task."""
    return TypeAdapter(dict[str, Endpoint]).dump_json(dict(endpoints), indent=1) + b"\n"


def endpoints_from_files(files: ModelFiles, tasks: Sequence[Task]) -> dict[str, Endpoint]:
    """Read the endpoints of a saved model; empty if it has none.

    Raises:
        InputError: A file that is damaged, or names a task that the model does not have.
    """
    if ENDPOINTS_FILE not in files.content:
        return {}
    endpoints = files.parse(ENDPOINTS_FILE, dict[str, Endpoint])
    if others := endpoints.keys() - {task.name for task in tasks}:
        path = files.folder / ENDPOINTS_FILE
        raise InputError(f"{path}: {quoted(min(others))}: not an endpoint of the model")
    return endpoints


def endpoint_tables(endpoints: Mapping[str, Endpoint]) -> str:
    """Return the endpoints of a model as Markdown: a table of scores, and the facts of each."""

    def lines() -> Iterator[str]:
        yield "| Property | Column | Unit | Labels | Scores | Coverage |"
        yield "| --- | --- | --- | --- | --- | --- |"
        for name, one in endpoints.items():
            coverage = "" if one.coverage is None else f"{one.coverage:.2f}"
            rows = "" if one.rows is None else f"{one.rows:,}"
            cells = (one.title, f"`{name}`", one.unit, rows, one.scores, coverage)
            yield f"| {' | '.join(cells)} |"
        yield "\n## Properties"
        for name, one in endpoints.items():
            facts = {
                "Column": f"`{name}`",
                "Category": one.category,
                "Measured by": one.assay,
                "Unit": one.unit,
                "Wanted": one.direction,
                "Thresholds": "; ".join(map(str, one.thresholds)),
                "Source": one.source,
                "License": one.license,
            }
            yield f"\n### {one.title}\n\n{one.description}\n"
            yield from (f"- {key}: {value}" for key, value in facts.items() if value)

    return "\n".join(lines()) + "\n"
