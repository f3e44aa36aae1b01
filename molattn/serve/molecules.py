"""Predictions as JSON types."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from molattn.data.table.text import ENCODING_ERRORS
from molattn.inference.predict import DOMAIN_SIMILARITY
from molattn.serve.batching import Answer
from molattn.serve.catalog import ServedModel
from molattn.task import Task

__all__ = ["dumps", "molecule_json"]


def molecule_json(
    served: ServedModel, columns: Sequence[str], smiles: str, answer: Answer
) -> dict[str, Any]:
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
    found = {
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


def _prediction(served: ServedModel, task: Task, cells: Mapping[str, Any]) -> dict[str, Any]:
    outputs = [cells[name] for name in task.output_names]
    extra: dict[str, Any] = {}
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
