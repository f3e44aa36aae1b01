"""What the predicted properties of a model mean."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from molattn.errors import InputError, quoted
from molattn.model.artefact import ENDPOINTS_FILE, ModelFiles
from molattn.task import Task

__all__ = ["Endpoint", "endpoints_from_files", "endpoints_to_bytes"]


@dataclass(frozen=True)
class Endpoint:
    """What a predicted property means, for people who read predictions.

    Args:
        title: The property in a few words.
        category: Group of properties to which it belongs, such as absorption.
        description: What it is, in a sentence or two.
        assay: How it was measured.
        unit: Unit, or what the probability is of.
        direction: Which values are wanted, as a rule.
        thresholds: Thresholds in use: each a text such as "above 40%: moderate hERG risk".
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
    thresholds: tuple[str, ...] = ()
    source: str = ""
    license: str = ""
    rows: int | None = None
    scores: str = ""
    coverage: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types."""
        return {**asdict(self), "thresholds": list(self.thresholds)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Endpoint":
        """Read the output of :meth:`to_dict`; fields may be missing, except for the title.

        Raises:
            InputError: An unknown field, or a value of another type.
        """
        kinds = {"thresholds": (list, tuple), "rows": int, "coverage": (int, float)}
        known = {field.name: field.default for field in fields(cls)}
        if "title" not in values:
            raise InputError("missing key 'title'")
        for name, value in values.items():
            if name not in known:
                raise InputError(f"unknown key {quoted(name)}")
            is_text = isinstance(value, kinds.get(name, str))
            if not is_text and not (value is None and known[name] is None):
                raise InputError(f"{name}: got {quoted(value)}")
        if not all(isinstance(text, str) for text in values.get("thresholds", ())):
            raise InputError("thresholds: expected strings")
        return cls(**{**values, "thresholds": tuple(values.get("thresholds", ()))})


def endpoints_to_bytes(endpoints: Mapping[str, Endpoint]) -> bytes:
    """Return the content of the file of a model's endpoints, which are given by task."""
    found = {name: endpoint.to_dict() for name, endpoint in endpoints.items()}
    return (json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def endpoints_from_files(files: ModelFiles, tasks: Sequence[Task]) -> dict[str, Endpoint]:
    """Read the endpoints of a saved model; empty if it has none.

    Raises:
        InputError: A file that is damaged, or names a task that the model does not have.
    """
    if ENDPOINTS_FILE not in files.content:
        return {}
    path, names = files.folder / ENDPOINTS_FILE, {task.name for task in tasks}
    endpoints = {}
    for name, values in files.json(ENDPOINTS_FILE).items():
        if name not in names or not isinstance(values, dict):
            raise InputError(f"{path}: {quoted(name)}: not an endpoint of the model")
        try:
            endpoints[name] = Endpoint.from_dict(values)
        except InputError as error:
            raise InputError(f"{path}: {quoted(name)}: {error}") from error
    return endpoints
