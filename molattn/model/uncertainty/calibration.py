"""Calibration of a model: conformal intervals of regressions, calibrated class probabilities.

Both are fitted to labeled rows that the model was not trained on.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional, Union

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from molattn.errors import InputError, quoted
from molattn.model.outputs import class_logits, class_probabilities
from molattn.task import Task, output_slices
from molattn.utils.console import counted

__all__ = ["Calibration", "ConformalScores", "ProbabilityScaling", "difficulty"]

Array = NDArray[np.float64]

_FEWEST_LABELS = 30
_MOST_SCORES = 1000


def difficulty(similarity: Array) -> Array:
    """Return the expected error relative to that of a training molecule, exp(1 - s).

    Errors grow as molecules get less similar to the training molecules, by about this factor on
    measured data. It has no fitted parameter, so intervals stay valid.

    Args:
        similarity: Tanimoto similarity s to the nearest training molecule, any shape.
    """
    return np.exp(1.0 - similarity)


@dataclass(frozen=True)
class ConformalScores:
    """Absolute errors of labeled molecules, which determine the half-width at any level.

    Split conformal prediction with normalized scores |y - prediction| / difficulty: if the
    n + 1 scores are exchangeable, the new one does not exceed the ceil((n + 1) p)-th smallest of
    the others with probability at least p.

    Source: Lei et al., J. Am. Stat. Assoc. 2018, 113, 1094, section 2.2; Papadopoulos et al., Proc.
    ECML 2002, 345 (normalized).

    Args:
        count: Number of scores.
        kept: All scores, ascending; of more than 1,000, those at 1,000 evenly spaced ranks, with
            the largest.

    Raises:
        InputError: Scores that are not finite, negative, not ascending, or of a wrong number.
    """

    count: int
    kept: Annotated[tuple[float, ...], Field(validation_alias="scores")]

    def __post_init__(self) -> None:
        kept = np.asarray(self.kept, dtype=np.float64)
        fits = kept.shape == (min(self.count, _MOST_SCORES),) and bool(np.isfinite(kept).all())
        if not fits or (kept < 0.0).any() or (np.diff(kept) < 0.0).any():
            raise InputError(
                f"calibration: got {len(self.kept)} scores of {self.count} rows, expected one per "
                f"row, at most {_MOST_SCORES}, all finite, ascending and not negative"
            )

    @classmethod
    def from_scores(cls, scores: Array) -> "ConformalScores":
        """Select the scores to keep, ``[n]`` in any order.

        Raises:
            ValueError: A score that is not finite.
        """
        if not np.isfinite(scores).all():
            raise ValueError("scores: expected finite numbers, got NaN or infinity")
        ranks = cls._ranks(len(scores))
        return cls(len(scores), tuple(np.sort(scores)[ranks - 1].tolist()))

    @staticmethod
    def _ranks(count: int) -> NDArray[np.int64]:
        """Ranks of the scores that are kept, from 1."""
        if count <= _MOST_SCORES:
            return np.arange(1, count + 1)
        return -(-np.arange(1, _MOST_SCORES + 1) * count // _MOST_SCORES)

    def rank(self, level: float) -> int:
        """Return the rank of the score that bounds a new one; more than ``count`` if none does.

        If that score was not kept, it is the rank of the next larger kept one.
        """
        # Rounded, as floating point puts (n + 1) * level slightly above some whole numbers.
        rank = max(1, math.ceil(round((self.count + 1) * level, 9)))
        if rank > self.count:
            return rank
        kept = self._ranks(self.count)
        return int(kept[np.searchsorted(kept, rank)])

    def bound(self, level: float) -> float:
        """Return the bound of a new score at a level; infinite with too few scores."""
        rank = self.rank(level)
        if rank > self.count:
            return math.inf
        return self.kept[int(np.searchsorted(self._ranks(self.count), rank))]

    def expected_coverage(self, level: float, rows: int) -> tuple[float, float]:
        """Return mean and standard deviation of the fraction of new scores within the bound.

        The mean is k / (n + 1) for the score of rank k, at least the level. The fraction has a
        beta-binomial distribution, as both the scores that determine the bound and the new ones are
        random.

        Source: Angelopoulos and Bates, arXiv:2107.07511, section 3.2 and appendix C.

        Args:
            level: Between 0 and 1, with a finite bound.
            rows: Number of new scores.
        """
        total, mean = self.count + 1, self.rank(level) / (self.count + 1)
        return mean, math.sqrt(mean * (1.0 - mean) * (total + rows) / (rows * (total + 1)))

    @property
    def highest_level(self) -> float:
        """The highest level with a finite bound, n / (n + 1)."""
        return self.count / (self.count + 1)


@dataclass(frozen=True)
class ProbabilityScaling:
    """Probabilities of K classes as softmax(scale · log p + bias): Platt scaling for any K.

    log p are the normalized logits, log_softmax(logits).

    Scale and biases minimize the negative log-likelihood of the labels plus a penalty: log(scale)
    and each bias have a normal prior of mean 0 and standard deviation 1, which keeps the scaling
    near the identity when labels are few or perfectly separated. The likelihood of the labels is at
    least that without scaling.

    Source: Platt, Advances in Large Margin Classifiers 1999, 61; Guo et al., Proc. ICML 2017, 1321.

    Args:
        scale: Inverse temperature, positive.
        bias: One number for each class.

    Raises:
        InputError: Numbers that are not finite, or a scale that is not positive.
    """

    scale: float
    bias: tuple[float, ...]

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (self.scale, *self.bias))) or self.scale <= 0.0:
            raise InputError(
                f"calibration: got scale {self.scale}, bias {list(self.bias)}, expected finite "
                "numbers and a positive scale"
            )

    @classmethod
    def fit(cls, logits: Array, labels: NDArray[np.int64]) -> "ProbabilityScaling":
        """Fit to logits ``[n, K]`` and the class index of each row, ``[n]``."""
        logs, target = torch.from_numpy(logits).log_softmax(dim=1), torch.from_numpy(labels)
        # log(scale), then the biases
        parameters = torch.zeros(1 + logs.size(1), dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.LBFGS([parameters], max_iter=100, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimizer.zero_grad()
            scaled = parameters[0].exp() * logs + parameters[1:]
            nll = torch.nn.functional.cross_entropy(scaled, target, reduction="sum")
            value = nll + 0.5 * parameters.square().sum()
            value.backward()
            return value

        with torch.enable_grad():
            optimizer.step(loss)
        log_scale, *bias = parameters.detach().tolist()
        return cls(math.exp(log_scale), tuple(bias))

    def __call__(self, logits: Array) -> Array:
        """Return calibrated probabilities of logits ``[n, K]``."""
        return self.logits(torch.from_numpy(logits)).softmax(dim=1).numpy()

    def logits(self, logits: Tensor) -> Tensor:
        """Return the logits of calibrated probabilities, ``[n, K]``, differentiably."""
        logs = logits.log_softmax(dim=1)
        return self.scale * logs + logs.new_tensor(self.bias)


Part = Union[ConformalScores, ProbabilityScaling, dict[Literal["uncalibrated"], str]]
"""The calibration of a task in a file."""


@dataclass(frozen=True)
class Calibration:
    """The calibration of each task of a model.

    Args:
        tasks: The tasks.
        parts: For each task, the conformal scores of a regression, the scaling of a
            classification, or the reason why its probabilities are not calibrated.

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
        cls, tasks: Sequence[Task], outputs: Array, targets: Array, similarity: Array
    ) -> "Calibration":
        """Fit each task to the rows that have its label and a finite prediction.

        Args:
            tasks: T tasks.
            outputs: Predictions of n molecules, ``[n, outputs]``: regressions on the transformed
                scale, logits of classes.
            targets: Their labels ``[n, T]`` on the same scale, NaN where missing.
            similarity: Of each to the nearest training molecule of each task, ``[n, T]``.
        """
        parts = []
        for place, (task, part) in enumerate(zip(tasks, output_slices(tasks), strict=True)):
            known = ~np.isnan(targets[:, place]) & np.isfinite(outputs[:, part]).all(axis=1)
            labels, predicted = targets[known, place], outputs[known, part]
            if task.kind == "regression":
                errors = np.abs(labels - predicted[:, 0]) / difficulty(similarity[known, place])
                parts.append(ConformalScores.from_scores(errors))
            elif len(labels) < _FEWEST_LABELS:
                parts.append(f"{counted(len(labels), 'label')}, at least {_FEWEST_LABELS} needed")
            elif len(set(labels.tolist())) == 1:
                parts.append("all labels are of one class")
            else:
                logits = class_logits(torch.from_numpy(predicted), task).numpy()
                parts.append(ProbabilityScaling.fit(logits, labels.astype(int)))
        return cls(tuple(tasks), tuple(parts))

    def calibrated(self, outputs: Array) -> Array:
        """Convert logits ``[n, outputs]`` to calibrated probabilities; regressions stay.

        The probabilities of a task that is not calibrated are those of the model.
        """
        result = class_probabilities(torch.from_numpy(outputs), self.tasks).numpy()
        for task, part, place in zip(
            self.tasks, self.parts, output_slices(self.tasks), strict=True
        ):
            if isinstance(part, ProbabilityScaling):
                logits = class_logits(torch.from_numpy(outputs[:, place]), task)
                scaled = part(logits.numpy())
                result[:, place] = scaled[:, 1:] if task.kind == "binary" else scaled
        return result

    def half_widths(self, similarity: Array, level: float) -> Array:
        """Return half the width of each interval, ``[n, T]``.

        Infinite where a task has too few labels for the level; NaN for classifications.

        Args:
            similarity: To the nearest training molecule of each task, ``[n, T]``.
            level: Between 0 and 1.

        Raises:
            InputError: A level outside the range.
        """
        if not 0.0 < level < 1.0:
            raise InputError(f"interval: got level {level}, expected a number between 0 and 1")
        bounds = [
            part.bound(level) if isinstance(part, ConformalScores) else math.nan
            for part in self.parts
        ]
        return difficulty(similarity) * np.asarray(bounds)

    def shortfalls(self, level: float, place: Optional[int] = None) -> list[str]:
        """Return a log line for each task that is not calibrated.

        These are regressions with too few labels for the level, and classifications.

        Args:
            level: Between 0 and 1.
            place: Index of the one task to check; None = all.
        """
        chosen = slice(None) if place is None else slice(place, place + 1)
        fewest = math.ceil(round(level / (1.0 - level), 9))
        lines = []
        for task, part in zip(self.tasks[chosen], self.parts[chosen], strict=True):
            if isinstance(part, str):
                lines.append(f"{quoted(task.name)}: {_summary(part)}")
            elif isinstance(part, ConformalScores) and math.isinf(part.bound(level)):
                lines.append(
                    f"{quoted(task.name)}: no {level:.4g} interval: calibrated on "
                    f"{counted(part.count, 'label')}, at least {fewest} needed"
                )
        return lines

    def lines(self) -> list[str]:
        """Return a log line on the calibration of each task."""
        parts = zip(self.tasks, self.parts, strict=True)
        return [f"{quoted(task.name)}: {_summary(part)}" for task, part in parts]

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
    def from_dict(cls, tasks: Sequence[Task], parts: Mapping[str, Part]) -> "Calibration":
        """Make it of parts by task name.

        Raises:
            InputError: Parts that do not fit the tasks.
        """
        if parts.keys() != {task.name for task in tasks}:
            raise InputError("calibration: does not have the tasks of the model")
        found = (parts[task.name] for task in tasks)
        return cls(
            tuple(tasks),
            tuple(part["uncalibrated"] if isinstance(part, dict) else part for part in found),
        )


def _summary(part: Union[ConformalScores, ProbabilityScaling, str]) -> str:
    if isinstance(part, ConformalScores) and not part.count:
        return "no intervals: no labels to calibrate on"
    if isinstance(part, ConformalScores):
        level = f"highest possible level {part.highest_level:.3g}"
        return f"intervals calibrated on {counted(part.count, 'label')} ({level})"
    if isinstance(part, ProbabilityScaling):
        return f"probabilities calibrated (Platt scaling, scale {part.scale:.2f})"
    return f"probabilities not calibrated: {part}"
