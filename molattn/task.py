"""Prediction tasks: regression, binary and multiclass classification."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from molattn.errors import InputError, quoted

TaskKind = Literal["regression", "binary", "multiclass"]
Level = Literal["atom", "bond"]
"""What a site is, whose property is predicted beside those of molecules."""


@dataclass(frozen=True)
class Task:
    """One property to predict.

    A label is a number, for a classification the index of its class, and NaN where missing.

    Args:
        name: The target column.
        kind: ``regression``, ``binary`` or ``multiclass``.
        classes: Names of the classes: two for ``binary``, the second of which is the positive
            class, three or more for ``multiclass``, none for ``regression``.
        unit: Unit of the target of a regression.

    Raises:
        InputError: There is no name, or the classes do not match the kind.
    """

    name: str
    kind: TaskKind = "regression"
    classes: tuple[str, ...] = ()
    unit: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", tuple(self.classes))
        counts = {"regression": (0, 0), "binary": (2, 2), "multiclass": (3, math.inf)}
        least, most = counts.get(self.kind, (1, 0))
        count = len({*self.classes})
        if not self.name or not least <= count <= most or count != len(self.classes):
            raise InputError(
                f"task {quoted(self.name)}: got the kind {quoted(self.kind)} with the classes "
                f"{quoted(list(self.classes))}, expected a name, and regression without classes, "
                "binary with two or multiclass with more"
            )

    @property
    def num_outputs(self) -> int:
        """Number of outputs of a model for this task."""
        return len(self.classes) if self.kind == "multiclass" else 1

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs: a prediction, or probabilities (binary: of the second class).

        A probability is named by its class, unless the classes are 0 and 1.
        """
        if self.kind == "regression":
            return (f"{self.name}_predicted",)
        if self.classes == ("0", "1"):
            return (f"{self.name}_probability",)
        named = self.classes[1:] if self.kind == "binary" else self.classes
        return tuple(f"{self.name}_probability_{label}" for label in named)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of a table of predictions: the most probable class (if any), then the outputs."""
        if self.kind == "regression":
            return self.output_names
        return (f"{self.name}_predicted", *self.output_names)

    @property
    def possible_columns(self) -> tuple[str, ...]:
        """:attr:`columns`, and the columns that a calibrated model or an ensemble adds."""
        more = ("low", "high") if self.kind == "regression" else ()
        more = (*more, "std", "confidence", "expected_error", "training_similarity")
        more = (*more, "measured", "confidence_reason")
        added = [f"{self.name}_{end}" for end in more]
        if self.kind == "binary":
            added += [f"{self.output_names[0]}_{end}" for end in ("low", "high")]
        return (*self.columns, *added)

    def cells(self, outputs: Sequence[float]) -> list[float | str]:
        """Return the cells of :attr:`columns` for one molecule's ``num_outputs`` finite outputs."""
        values = [float(value) for value in outputs]
        if self.kind == "regression":
            return [*values]
        scores = values if self.kind == "multiclass" else [1.0 - values[0], values[0]]
        return [self.classes[scores.index(max(scores))], *values]

    def to_dict(self) -> dict[str, Any]:
        """Return the task as JSON types."""
        return {**asdict(self), "classes": list(self.classes)}


def check_columns(tasks: Sequence[Task]) -> None:
    """Raise InputError if tables of predictions could have two columns of one name."""
    names = Counter(name for task in tasks for name in task.possible_columns)
    name, count = max(names.items(), key=itemgetter(1), default=("", 0))
    if count > 1:
        targets = [quoted(task.name) for task in tasks if name in task.possible_columns]
        raise InputError(
            f"predictions of {' and '.join(targets)} would have the same column {quoted(name)}; "
            "rename a target"
        )


def output_slices(tasks: Sequence[Task]) -> list[slice]:
    """Return the slice of each task's outputs among those of all tasks, in order.

    Example:
        >>> output_slices([Task("y"), Task("c", "multiclass", ("a", "b", "c"))])
        [slice(0, 1, None), slice(1, 4, None)]
    """
    slices = []
    start = 0
    for task in tasks:
        slices.append(slice(start, start + task.num_outputs))
        start += task.num_outputs
    return slices


def count_outputs(tasks: Sequence[Task]) -> int:
    """Return the number of outputs of all tasks."""
    return sum(task.num_outputs for task in tasks)


def interleaved(order: NDArray[np.int64], labeled: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Reorder n rows so that the targets take turns: the first with each label, the second, ...

    ``labeled``: which labels each row has, ``[n, T]``; rows without any come last.
    """
    turns = np.full(len(order), len(order) + 1)
    for has_label in labeled[order].T:
        turns = np.where(has_label, np.minimum(turns, has_label.cumsum()), turns)
    return order[np.argsort(turns, kind="stable")]
