"""Predictions as JSON types."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from molattn.data.table.text import ENCODING_ERRORS
from molattn.inference.predict import DOMAIN_SIMILARITY
from molattn.serve.batching import Answer
from molattn.serve.catalog import Neighbor, ServedModel
from molattn.task import Task

__all__ = ["Molecule", "PredictResponse", "dumps", "molecule_json"]


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
    name: NotRequired[Annotated[str, Field(description="Of a molecule of an SDF.")]]


class PredictResponse(TypedDict):
    """Predictions of molecules, in the order of the request."""

    model: str
    level: float
    molecules: list[Molecule]


def molecule_json(
    served: ServedModel, columns: Sequence[str], smiles: str | None, answer: Answer
) -> Molecule:
    """Return a molecule and its predictions as JSON types.

    Args:
        served: The model.
        columns: The columns of ``answer.cells``.
        smiles: The molecule as it was given.
        answer: Its prediction.
    """
    cells: dict[str, Any] = (
        {} if answer.cells is None else dict(zip(columns, answer.cells, strict=True))
    )
    similarity = cells.get("training_similarity")
    found: Molecule = {
        "smiles": smiles,
        "error": answer.code or None,
        "message": answer.message if answer.code else None,
        "training_similarity": similarity,
        "in_domain": None if similarity is None else similarity >= DOMAIN_SIMILARITY,
        "predictions": {
            task.name: _prediction(served, task, cells) if cells else None for task in served.tasks
        },
        "neighbors": [],
    }
    if served.model.config.standardize:
        found["standardized_smiles"] = answer.standardized
    return found


def _prediction(
    served: ServedModel, task: Task, cells: Mapping[str, Any]
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
    shares = [1.0 - outputs[0], outputs[0]] if task.kind == "binary" else outputs
    return {
        "class": cells[task.columns[0]],
        "probabilities": dict(zip(task.classes, shares, strict=True)),
        **extra,
        "percentile": served.percentile(task, outputs[0]) if task.kind == "binary" else None,
    }


def dumps(value: Any) -> bytes:
    """Return JSON types as a line of JSON; bytes of a table that are not UTF-8 become U+FFFD."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode(errors=ENCODING_ERRORS).decode(errors="replace").encode()
