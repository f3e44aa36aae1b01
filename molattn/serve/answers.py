"""Predictions as JSON, JSON lines or a file."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, NotRequired

from pydantic import Field
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send
from typing_extensions import TypedDict

from molattn.config import PredictConfig
from molattn.data.table import FORMATS
from molattn.errors import reason_meaning
from molattn.inference.predict import DOMAIN_SIMILARITY
from molattn.inference.streaming import OutputRows
from molattn.serve.batching import Predicted, Work
from molattn.serve.catalog import Neighbor, ServedModel
from molattn.task import Task

__all__ = ["HeldResponse", "Molecule", "PredictResponse", "dumps", "file_parts", "molecules"]

_AT_ONCE = 64  # molecules whose neighbors are found together


class _OfSomeModels(TypedDict):
    std: NotRequired[Annotated[float, Field(description="Of an ensemble.")]]
    training_similarity: NotRequired[float]
    in_domain: NotRequired[bool]


class RegressionPrediction(_OfSomeModels):
    """A number, with its interval if the model has any."""

    value: float
    low: float | None
    high: float | None
    percentile: float | None


_Class = TypedDict("_Class", {"class": str})


class ClassPrediction(_Class, _OfSomeModels):
    """The most probable class."""

    probabilities: dict[str, float]
    percentile: float | None


class Molecule(TypedDict):
    """A molecule with its predictions, or the reason why it has none."""

    smiles: str | None
    error: Annotated[str | None, Field(description="Reason code; null with predictions.")]
    message: Annotated[str | None, Field(description="The reason in words.")]
    training_similarity: float | None
    in_domain: bool | None
    predictions: dict[str, RegressionPrediction | ClassPrediction | None]
    neighbors: list[Neighbor]
    standardized_smiles: NotRequired[str | None]
    name: NotRequired[Annotated[str, Field(description="Of a table with such a column.")]]
    partner: NotRequired[Annotated[str, Field(description="The second molecule, if any.")]]
    features: NotRequired[Annotated[dict[str, float], Field(description="Extra features.")]]


class PredictResponse(TypedDict):
    """Predictions of molecules, in the order of the request."""

    model: str
    level: float
    molecules: list[Molecule]


class HeldResponse(StreamingResponse):
    """A streamed response that closes :attr:`held` at its end, however it ends."""

    held: ExitStack

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        with self.held:
            await super().__call__(scope, receive, send)


def molecules(work: Work, found: Predicted, neighbors: int) -> list[Molecule]:
    """Return rows and their predictions as JSON types.

    Args:
        work: What was asked.
        found: What was predicted.
        neighbors: Number of nearest training molecules to add.
    """
    served, header = work.served, work.table.header
    columns = [*served.spec(work.level).columns]
    model = served.model.config
    texts = {"name": "name"} | ({"partner": model.partner_column} if model.partner_column else {})
    texts = {key: header.index(name) for key, name in texts.items() if name in header}
    answers = list[Molecule]()
    for row, values, code in found:
        cells: dict[str, Any] = {} if code else dict(zip(columns, values, strict=True))
        similarity = cells.get("training_similarity")
        answer: Molecule = {
            "smiles": None if code == "missing_value" else row.smiles,
            "error": code or None,
            "message": (row.row.reason or reason_meaning(row.code or code)) if code else None,  # pyright: ignore
            "training_similarity": similarity,
            "in_domain": None if similarity is None else similarity >= DOMAIN_SIMILARITY,
            "predictions": {
                task.name: _prediction(served, task, cells) if cells else None
                for task in served.tasks
            },
            "neighbors": [],
        }
        if model.standardize:
            answer["standardized_smiles"] = (row.record and row.record.standardized) or None
        for key, column in texts.items():
            answer[key] = row.row.cells[column]
        if model.features:
            answer["features"] = dict(zip(model.features, row.features, strict=False))
        answers.append(answer)
    if neighbors:
        _add_neighbors(served, answers, found, neighbors)
    return answers


def _add_neighbors(
    served: ServedModel, answers: Sequence[Molecule], found: Predicted, count: int
) -> None:
    good = [
        (answer, row.record.fingerprint)
        for answer, (row, _, code) in zip(answers, found, strict=True)
        if not code and row.record is not None and row.record.fingerprint is not None
    ]
    for start in range(0, len(good), _AT_ONCE):
        some = good[start : start + _AT_ONCE]
        nearest = served.nearest([one for _, one in some], count)
        for (answer, _), near in zip(some, nearest, strict=True):
            answer["neighbors"] = near


def _prediction(
    served: ServedModel, task: Task, cells: dict[str, Any]
) -> RegressionPrediction | ClassPrediction:
    outputs = [cells[name] for name in task.output_names]
    extra: _OfSomeModels = {}
    if served.model.config.members > 1:
        extra["std"] = cells[f"{task.name}_std"]
    if (similarity := cells.get(f"{task.name}_training_similarity")) is not None:
        extra["training_similarity"] = similarity
        extra["in_domain"] = similarity >= DOMAIN_SIMILARITY
    if task.kind == "regression":
        return {
            "value": outputs[0],
            "low": cells.get(f"{task.name}_low"),
            "high": cells.get(f"{task.name}_high"),
            **extra,
            "percentile": served.percentile(task, outputs[0]),
        }
    probabilities = [1.0 - outputs[0], outputs[0]] if task.kind == "binary" else outputs
    return {
        "class": cells[task.columns[0]],
        "probabilities": dict(zip(task.classes, probabilities, strict=True)),
        **extra,
        "percentile": served.percentile(task, outputs[0]) if task.kind == "binary" else None,
    }


def dumps(value: Any) -> bytes:
    """Return JSON types as a line of JSON; bytes of a table that are not UTF-8 become U+FFFD."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode(errors="surrogateescape").decode(errors="replace").encode()


def file_parts(
    work: Work, options: PredictConfig, name: str
) -> Callable[[AsyncIterator[Predicted]], AsyncIterator[bytes]]:
    """Return a function that writes predictions as ``molattn predict`` writes them to a file.

    Args:
        work: What is asked.
        options: How the table is read.
        name: The format of the file.

    Raises:
        InputError: A column that the model needs is missing.
    """
    served, kind, buffer = work.served, FORMATS[name], BytesIO()
    path = Path(f"predictions{kind.suffixes[0]}")
    rows = OutputRows(work.table, served.model, served.spec(work.level), options, path)
    assert kind.write is not None
    return partial(_file_parts, rows, partial(kind.write, buffer), buffer, kind.is_resumable)


async def _file_parts(
    rows: OutputRows,
    make_writer: Callable[..., Any],
    buffer: BytesIO,
    is_streamed: bool,
    predicted: AsyncIterator[Predicted],
) -> AsyncIterator[bytes]:
    writer = make_writer(rows.header, rows.schema)
    async for found in predicted:
        for row, cells, code in found:
            for line in rows(row, [cells], code):
                writer.write(*line)
        if is_streamed:
            yield buffer.getvalue()
            buffer.seek(0)
            buffer.truncate()
    writer.close()
    yield buffer.getvalue()
