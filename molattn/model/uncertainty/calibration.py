"""Predictions that say how sure they are: conformal intervals of numbers, calibrated probabilities.

Both are learned from labelled rows that did not train the weights.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

import numpy as np
from numpy.typing import NDArray

from molattn.errors import InputError, quoted
from molattn.model.uncertainty.conformal import ConformalScores, difficulty
from molattn.model.uncertainty.platt import ProbabilityScaling
from molattn.task import Task, output_slices

__all__ = ["Calibration"]

Array = NDArray[np.float64]


_FEWEST_LABELS = 30


@dataclass(frozen=True)
class Calibration:
    """What each task's labelled rows told, for all tasks of a model.

    Args:
        tasks: The tasks.
        parts: For each the scores of a regression, the scaling of a classification, or why there is
            none.

    Raises:
        InputError: Parts that do not fit the tasks.
    """

    tasks: tuple[Task, ...]
    parts: tuple[Union[ConformalScores, ProbabilityScaling, str], ...]

    def __post_init__(self) -> None:
        for task, part in zip(self.tasks, self.parts, strict=True):
            if task.kind == "regression":
                fits = isinstance(part, ConformalScores)
            else:
                fits = isinstance(part, str) or (
                    isinstance(part, ProbabilityScaling) and len(part.bias) == len(task.classes)
                )
            if not fits:
                raise InputError(
                    f"calibration: got another kind of task than {quoted(task.name)} is"
                )

    @classmethod
    def fit(
        cls, tasks: Sequence[Task], prediction: Array, targets: Array, similarity: Array
    ) -> "Calibration":
        """Learn from labelled rows, each task from those that have its label.

        Args:
            tasks: T tasks.
            prediction: What a model gives for n molecules, ``[n, outputs]``, uncalibrated.
            targets: Their labels ``[n, T]``, NaN where missing.
            similarity: To the nearest training molecule, ``[n]``.
        """
        parts = []
        for place, (task, outputs) in enumerate(zip(tasks, output_slices(tasks), strict=True)):
            known = ~np.isnan(targets[:, place])
            labels, guess = targets[known, place], prediction[known, outputs]
            if task.kind == "regression":
                errors = np.abs(labels - guess[:, 0]) / difficulty(similarity[known])
                parts.append(ConformalScores.of(errors))
            elif len(labels) < _FEWEST_LABELS:
                parts.append(f"{len(labels)} labels, expected {_FEWEST_LABELS} or more")
            elif len(set(labels.tolist())) == 1:
                parts.append("all labels are of one class")
            else:
                parts.append(ProbabilityScaling.fit(_of_classes(task, guess), labels.astype(int)))
        return cls(tuple(tasks), tuple(parts))

    def calibrated(self, prediction: Array) -> Array:
        """Calibrate the probabilities of a prediction ``[n, outputs]``; numbers stay."""
        result = prediction.copy()
        for task, part, outputs in zip(
            self.tasks, self.parts, output_slices(self.tasks), strict=True
        ):
            if isinstance(part, ProbabilityScaling):
                chances = part(_of_classes(task, prediction[:, outputs]))
                result[:, outputs] = chances[:, 1:] if task.kind == "binary" else chances
        return result

    def half_widths(self, similarity: Array, level: float) -> Array:
        """Return half the width of each interval, ``[n, T]``.

        Infinite where a task has too few labels for the level; NaN for classifications.

        Args:
            similarity: To the nearest training molecule, ``[n]``.
            level: Between 0 and 1.

        Raises:
            InputError: Another level.
        """
        if not 0.0 < level < 1.0:
            raise InputError(f"interval: got the level {level}, expected one between 0 and 1")
        bounds = [
            part.bound(level) if isinstance(part, ConformalScores) else math.nan
            for part in self.parts
        ]
        return difficulty(similarity)[:, None] * np.asarray(bounds)

    def coverage_sd(self, place: int, level: float, rows: int) -> float:
        """Return :meth:`ConformalScores.coverage_sd` of the task at a place; NaN without scores."""
        part = self.parts[place]
        return part.coverage_sd(level, rows) if isinstance(part, ConformalScores) else math.nan

    def without_interval(self, level: float, place: Optional[int] = None) -> list[str]:
        """Return a sentence for each regression that has too few labels for a level.

        Args:
            level: Between 0 and 1.
            place: Of the one task that is looked at; by default all are.
        """
        chosen = slice(None) if place is None else slice(place, place + 1)
        fewest = math.ceil(round(level / (1.0 - level), 9))
        return [
            f"{quoted(task.name)}: no interval at the level {level:g} from {part.count} labels, "
            f"expected {fewest} or more"
            for task, part in zip(self.tasks[chosen], self.parts[chosen], strict=True)
            if isinstance(part, ConformalScores) and math.isinf(part.bound(level))
        ]

    def lines(self) -> list[str]:
        """Return what a person should know, a sentence for each task."""
        told = zip(self.tasks, map(_told, self.parts), strict=True)
        return [f"{quoted(task.name)}: {text}" for task, text in told]

    def to_dict(self) -> dict[str, Any]:
        """As JSON types."""
        parts = {}
        for task, part in zip(self.tasks, self.parts, strict=True):
            if isinstance(part, ConformalScores):
                parts[task.name] = {"count": part.count, "scores": list(part.kept)}
            elif isinstance(part, ProbabilityScaling):
                parts[task.name] = {"scale": part.scale, "bias": list(part.bias)}
            else:
                parts[task.name] = {"uncalibrated": part}
        return parts

    @classmethod
    def from_dict(cls, tasks: Sequence[Task], parts: Mapping[str, Any]) -> "Calibration":
        """Read what :meth:`to_dict` gave.

        Args:
            tasks: The model's tasks.
            parts: What was given.

        Raises:
            InputError: Parts that do not fit the tasks, or are none.
        """
        try:
            if set(parts) != {task.name for task in tasks}:
                raise InputError("calibration: got other tasks than the model's")
            return cls(tuple(tasks), tuple(_part(parts[task.name]) for task in tasks))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"calibration: not readable: {error}") from error


def _part(values: Mapping[str, Any]) -> Union[ConformalScores, ProbabilityScaling, str]:
    if "scores" in values:
        return ConformalScores(values["count"], tuple(values["scores"]))
    if "scale" in values:
        return ProbabilityScaling(values["scale"], tuple(values["bias"]))
    return str(values["uncalibrated"])


def _told(part: Union[ConformalScores, ProbabilityScaling, str]) -> str:
    if isinstance(part, ConformalScores):
        return f"intervals from {part.count} errors, finite to the level {part.highest_level:.3g}"
    if isinstance(part, ProbabilityScaling):
        return f"probabilities calibrated, log-odds times {part.scale:.2f}"
    return f"probabilities not calibrated: {part}"


def _of_classes(task: Task, outputs: Array) -> Array:
    """Return the probability of each class, ``[n, K]``."""
    return outputs if task.kind == "multiclass" else np.hstack([1.0 - outputs, outputs])
