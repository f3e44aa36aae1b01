"""Predictions as JSON, JSON lines or a file."""

import json
from collections.abc import AsyncIterator, Callable
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from molattn.config import PredictConfig
from molattn.data.table import FORMATS
from molattn.errors import reason_meaning
from molattn.inference.predict import DOMAIN_SIMILARITY
from molattn.inference.streaming import OutputRows
from molattn.serve.batching import Predicted, Work
from molattn.serve.catalog import Neighbor, ServedModel
from molattn.task import Task

__all__ = ["Molecule", "PredictResponse", "dumps", "file_writer", "molecules"]

Prediction = TypedDict(
    "Prediction",
    {
        "value": NotRequired[Annotated[float, Field(description="Of a regression.")]],
        "low": NotRequired[float | None],
        "high": NotRequired[float | None],
        "class": NotRequired[Annotated[str, Field(description="The most probable class.")]],
        "probabilities": NotRequired[dict[str, float]],
        "std": NotRequired[Annotated[float, Field(description="Of an ensemble.")]],
        "training_similarity": NotRequired[float],
        "in_domain": NotRequired[bool],
        "percentile": float | None,
    },
)
"""A number with its interval, or a class with the probabilities of all."""


class Molecule(TypedDict):
    """A molecule with its predictions, or the reason why it has none."""

    smiles: str | None
    error: Annotated[str | None, Field(description="Reason code; null with predictions.")]
    message: Annotated[str | None, Field(description="The reason in words.")]
    training_similarity: float | None
    in_domain: bool | None
    predictions: dict[str, Prediction | None]
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


def molecules(work: Work, predicted: Predicted, neighbors: int) -> list[Molecule]:
    """Return rows and their predictions, with so many nearest training molecules, as JSON types."""
    served, header, model = work.served, work.table.header, work.served.model.config
    columns = [*served.spec(work.level).columns]
    names = {"name": "name"} | ({"partner": model.partner_column} if model.partner_column else {})
    texts = {key: header.index(name) for key, name in names.items() if name in header}
    answers = list[Molecule]()
    for row, values, code in predicted:
        cells: dict[str, Any] = {} if code else dict(zip(columns, values, strict=True))
        similarity = cells.get("training_similarity")
        answer: Molecule = {
            "smiles": None if code == "missing_value" else row.smiles,
            "error": code or None,
            "message": (row.table_row.reason or reason_meaning(row.code or code)) if code else None,
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
            answer[key] = row.table_row.cells[column]
        if model.features:
            answer["features"] = dict(zip(model.features, row.features, strict=False))
        answers.append(answer)
    if neighbors:
        good = [n for n, (*_, code) in enumerate(predicted) if not code]
        prints: list[Any] = [predicted[n][0].record.fingerprint for n in good]  # pyright: ignore
        for n, near in zip(good, served.nearest(prints, neighbors), strict=True):
            answers[n]["neighbors"] = near
    return answers


def _prediction(served: ServedModel, task: Task, cells: dict[str, Any]) -> Prediction:
    first, *others = (cells[name] for name in task.output_names)
    has_percentile = task.kind != "multiclass"
    answer: Prediction = {"percentile": served.percentile(task, first) if has_percentile else None}
    if served.model.config.members > 1:
        answer["std"] = cells[f"{task.name}_std"]
    if (similarity := cells.get(f"{task.name}_training_similarity")) is not None:
        answer["training_similarity"] = similarity
        answer["in_domain"] = similarity >= DOMAIN_SIMILARITY
    if task.kind == "regression":
        ends = {end: cells.get(f"{task.name}_{end}") for end in ("low", "high")}
        return {"value": first, **ends, **answer}  # pyright: ignore[reportReturnType]
    probabilities = [1.0 - first, first] if task.kind == "binary" else [first, *others]
    by_class = dict(zip(task.classes, probabilities, strict=True))
    return {"class": cells[task.columns[0]], "probabilities": by_class, **answer}


def dumps(value: Any) -> bytes:
    """Return JSON types as a line of JSON; bytes of a table that are not UTF-8 become U+FFFD."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode(errors="surrogateescape").decode(errors="replace").encode()


def file_writer(
    work: Work, options: PredictConfig, name: str
) -> Callable[[AsyncIterator[Predicted]], AsyncIterator[bytes]]:
    """Return a function that writes predictions in a format, as ``molattn predict`` does."""
    served, file_format, buffer = work.served, FORMATS[name], BytesIO()
    path = Path(f"predictions{file_format.suffixes[0]}")
    rows = OutputRows(work.table, served.model, served.spec(work.level), options, path)

    async def write(predicted: AsyncIterator[Predicted]) -> AsyncIterator[bytes]:
        writer = file_format.write(buffer, rows.header, rows.schema)  # pyright: ignore
        async for batch in predicted:
            for row, cells, code in batch:
                for line in rows.cells(row, [cells], code):
                    writer.write(*line)
            if file_format.is_resumable:  # text, which is sent as it is written
                yield buffer.getvalue()
                buffer.seek(0)
                buffer.truncate()
        writer.close()
        yield buffer.getvalue()

    return write
