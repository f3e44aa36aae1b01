"""Calibration of a model: conformal intervals of regressions, calibrated class probabilities.

Both are fitted to labelled rows that were not used to train the weights.
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
    """The calibration of each task of a model.

    Args:
        tasks: The tasks.
        parts: For each task, the conformal scores of a regression, the scaling of a
            classification's probabilities, or the reason why they are not calibrated.

    Raises:
        InputError: Parts that do not fit the tasks.
    """

    tasks: tuple[Task, ...]
    parts: tuple[Union[ConformalScores, ProbabilityScaling, str], ...]

    def __post_init__(self) -> None:
        for task, part in zip(self.tasks, self.parts, strict=True):
            expected = ConformalScores if task.kind == "regression" else (ProbabilityScaling, str)
            classes = len(part.bias) if isinstance(part, ProbabilityScaling) else len(task.classes)
            if not isinstance(part, expected) or classes != len(task.classes):
                raise InputError(
                    f"calibration: does not fit the {task.kind} task {quoted(task.name)}"
                )

    @classmethod
    def fit(
        cls, tasks: Sequence[Task], prediction: Array, targets: Array, similarity: Array
    ) -> "Calibration":
        """Fit to labelled rows, each task to those that have its label.

        Args:
            tasks: T tasks.
            prediction: Predictions of n molecules, ``[n, outputs]``, uncalibrated.
            targets: Their labels ``[n, T]``, NaN where missing.
            similarity: Of each to the nearest training molecule, ``[n]``.
        """
        parts = []
        for place, (task, outputs) in enumerate(zip(tasks, output_slices(tasks), strict=True)):
            known = ~np.isnan(targets[:, place])
            labels, predicted = targets[known, place], prediction[known, outputs]
            if task.kind == "regression":
                errors = np.abs(labels - predicted[:, 0]) / difficulty(similarity[known])
                parts.append(ConformalScores.from_scores(errors))
            elif len(labels) < _FEWEST_LABELS:
                parts.append(f"{len(labels)} labels, expected {_FEWEST_LABELS} or more")
            elif len(set(labels.tolist())) == 1:
                parts.append("all labels are of one class")
            else:
                probabilities = _class_probabilities(task, predicted)
                parts.append(ProbabilityScaling.fit(probabilities, labels.astype(int)))
        return cls(tuple(tasks), tuple(parts))

    def calibrated(self, prediction: Array) -> Array:
        """Calibrate the probabilities of a prediction ``[n, outputs]``; regressions stay."""
        result = prediction.copy()
        for task, part, outputs in zip(
            self.tasks, self.parts, output_slices(self.tasks), strict=True
        ):
            if isinstance(part, ProbabilityScaling):
                scaled = part(_class_probabilities(task, prediction[:, outputs]))
                result[:, outputs] = scaled[:, 1:] if task.kind == "binary" else scaled
        return result

    def half_widths(self, similarity: Array, level: float) -> Array:
        """Return half the width of each interval, ``[n, T]``.

        Infinite where a task has too few labels for the level; NaN for classifications.

        Args:
            similarity: To the nearest training molecule, ``[n]``.
            level: Between 0 and 1.

        Raises:
            InputError: A level outside the range.
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
        """Return a sentence for each regression with too few labels for a level.

        Args:
            level: Between 0 and 1.
            place: Index of the one task to check; None = all.
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
        """Return a sentence on the calibration of each task."""
        summaries = zip(self.tasks, map(_summary, self.parts), strict=True)
        return [f"{quoted(task.name)}: {text}" for task, text in summaries]

    def to_dict(self) -> dict[str, Any]:
        """Return the calibration by task name, in JSON types."""
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
        """Read the output of :meth:`to_dict`.

        Args:
            tasks: The model's tasks.
            parts: The calibration by task name.

        Raises:
            InputError: Content that cannot be read, or does not fit the tasks.
        """
        try:
            if set(parts) != {task.name for task in tasks}:
                raise InputError(
                    f"calibration: got the tasks {quoted(sorted(parts))}, expected those of the "
                    f"model, {quoted(sorted(task.name for task in tasks))}"
                )
            return cls(tuple(tasks), tuple(_part(parts[task.name]) for task in tasks))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"calibration: not readable: {error}") from error


def _part(values: Mapping[str, Any]) -> Union[ConformalScores, ProbabilityScaling, str]:
    if "scores" in values:
        return ConformalScores(values["count"], tuple(values["scores"]))
    if "scale" in values:
        return ProbabilityScaling(values["scale"], tuple(values["bias"]))
    return str(values["uncalibrated"])


def _summary(part: Union[ConformalScores, ProbabilityScaling, str]) -> str:
    if isinstance(part, ConformalScores):
        return f"intervals from {part.count} errors, finite to the level {part.highest_level:.3g}"
    if isinstance(part, ProbabilityScaling):
        return f"probabilities calibrated, log-odds times {part.scale:.2f}"
    return f"probabilities not calibrated: {part}"


def _class_probabilities(task: Task, outputs: Array) -> Array:
    """Return the probability of each class, ``[n, K]``."""
    return outputs if task.kind == "multiclass" else np.hstack([1.0 - outputs, outputs])
