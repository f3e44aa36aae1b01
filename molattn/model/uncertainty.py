"""Conformal intervals of regressions, calibrated class probabilities, and predictions with both.

Both are fitted to labeled rows that the model was not trained on.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from annotated_types import Gt
from numpy.typing import NDArray
from torch import Tensor

from molattn.chem.fingerprint_index import FingerprintIndex, read_fingerprints
from molattn.chem.fingerprints import Fingerprint
from molattn.chem.parse import Molecule
from molattn.config.base import checked
from molattn.errors import quoted
from molattn.model.artefact import CALIBRATION_FILE, FINGERPRINTS_FILE, ModelFiles, to_json
from molattn.model.confidence import NEAR, difficulty, least_error, near_error
from molattn.model.config import MolAttnConfig
from molattn.model.label_limits import largest_errors
from molattn.model.outputs import class_logits, class_probabilities, mean_of_members
from molattn.model.target_transform import limits_with_transform, transformed_labels
from molattn.task import Task, output_slices
from molattn.utils.console import counted

Array = NDArray[np.float64]

_FEWEST_LABELS = 30
_FEWEST_ERRORS = 10
_MOST_SCORES = 1000
_MOST_CORRELATED = 1000  # errors; time grows with their cube
_CORRELATIONS = np.linspace(0.0, 0.98, 50)
_FOLDS = 5  # of the rows that probabilities are calibrated by


@checked
class ConformalScores:
    """Absolute errors of labeled molecules, which determine the half-width at any level.

    Split conformal prediction with normalized scores |y - prediction| / difficulty: if the
    n + 1 scores are exchangeable, the new one does not exceed the ceil((n + 1) p)-th smallest of
    the others with probability at least p.

    Source: Lei et al., J. Am. Stat. Assoc. 2018, 113, 1094, section 2.2; Papadopoulos et al., Proc.
    ECML 2002, 345 (normalized).
    """

    count: int  # number of scores
    scores: tuple[float, ...]  # ascending; of more than 1,000, those at 1,000 even ranks
    near: float = NEAR  # expected error at a similarity of 1, relative to that of a guess
    correlation: float | None = None  # of errors of molecules of similarity 1; None = unknown

    @classmethod
    def from_scores(cls, scores: Array, near: float = NEAR) -> "ConformalScores":
        """Select the scores to keep, ``[n]`` in any order."""
        ranks = cls._ranks(len(scores))
        return cls(len(scores), tuple(np.sort(scores)[ranks - 1].tolist()), near)

    @classmethod
    def fit(cls, errors: Array, similarity: Array, guess: float) -> "ConformalScores":
        """Return the scores of absolute errors ``[n]``; ``guess`` is the error of a guess."""
        near = near_error(errors, similarity, guess)
        return cls.from_scores(errors / difficulty(similarity, near), near)

    @staticmethod
    def _ranks(count: int) -> NDArray[np.int64]:
        """Return the ranks of the selected scores, from 1."""
        if count <= _MOST_SCORES:
            return np.arange(1, count + 1)
        return -(-np.arange(1, _MOST_SCORES + 1) * count // _MOST_SCORES)

    def rank(self, level: float) -> int:
        """Return the rank of the score that bounds a new one; above ``count`` if none does."""
        # Rounded, as floating point puts (n + 1) * level slightly above some whole numbers.
        rank = max(1, math.ceil(round((self.count + 1) * level, 9)))
        if rank > self.count:
            return rank
        ranks = self._ranks(self.count)
        return int(ranks[np.searchsorted(ranks, rank)])

    def bound(self, level: float) -> float:
        """Return the bound of a new score at a level; infinite with too few scores."""
        rank = self.rank(level)
        if rank > self.count:
            return math.inf
        return self.scores[int(np.searchsorted(self._ranks(self.count), rank))]

    @property
    def mean(self) -> float:
        """Expected absolute error of a training molecule; NaN with fewer than 10 scores."""
        return float(np.mean(self.scores)) if self.count >= _FEWEST_ERRORS else math.nan

    def expected_coverage(self, level: float, rows: int) -> tuple[float, float]:
        """Return mean and standard deviation of the fraction of new scores within the bound.

        The mean is k / (n + 1) for the score of rank k, at least the level. The fraction of the
        ``rows`` new scores has a beta-binomial distribution.

        Source: Angelopoulos and Bates, arXiv:2107.07511, section 3.2 and appendix C.
        """
        total = self.count + 1
        mean = self.rank(level) / total
        return mean, math.sqrt(mean * (1.0 - mean) * (total + rows) / (rows * (total + 1)))

    def __str__(self) -> str:
        highest = self.count / (self.count + 1)
        labels = counted(self.count, "label")
        return f"intervals calibrated on {labels} (highest possible level {highest:.3g})"


def error_correlation(errors: Array, similarity: Array) -> float:
    r"""Estimate the correlation of errors of molecules of similarity 1, from 0 to 1.

    The errors ``[n]`` are normal with the covariance :math:`(1 - \lambda) I + \lambda S`, where S
    is the similarity ``[n, n]``. Returned is the smallest of those :math:`\lambda` whose
    log-likelihood is at most 1/2, a standard error, below the largest: with few errors, or equal
    ones, it is 0.
    """
    if np.ptp(errors) == 0.0:
        return 0.0
    values, vectors = np.linalg.eigh(similarity)
    squares = ((errors - errors.mean()) @ vectors) ** 2
    variances = 1.0 + _CORRELATIONS[:, None] * (values - 1.0)
    scale = np.maximum((squares / variances).mean(axis=1), np.finfo(float).tiny)
    likelihood = -0.5 * (len(errors) * np.log(scale) + np.log(variances).sum(axis=1))
    return float(_CORRELATIONS[(likelihood >= likelihood.max() - 0.5).argmax()])


@checked
class ProbabilityScaling:
    """Probabilities of K classes as softmax(scale · log p + bias): Platt scaling for any K.

    log p are the normalized logits, log_softmax(logits). Scale and biases minimize the negative
    log-likelihood of the labels plus a penalty: log(scale) and each bias have a standard normal
    prior, which keeps the scaling near the identity when labels are few or perfectly separated. The
    likelihood of the labels is at least that without scaling.

    Source: Platt, Advances in Large Margin Classifiers 1999, 61; Guo et al., Proc. ICML 2017, 1321.
    """

    scale: Annotated[float, Gt(0)]  # inverse temperature
    bias: tuple[float, ...]  # of each class

    @classmethod
    def fit(cls, logits: Array, labels: NDArray[np.int64]) -> "ProbabilityScaling":
        """Fit to logits ``[n, K]`` and the class index of each row, ``[n]``."""
        logs = torch.from_numpy(logits).log_softmax(dim=1)
        target = torch.from_numpy(labels)
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

    @classmethod
    def fit_validated(cls, logits: Array, labels: NDArray[np.int64]) -> "ProbabilityScaling":
        """Fit, or change nothing if that makes held-out labels more likely in cross-validation."""
        fold = np.arange(len(labels)) % _FOLDS
        gain = 0.0
        for number in range(_FOLDS):
            is_held_out = fold == number
            held_out = torch.from_numpy(logits[is_held_out])
            target = torch.from_numpy(labels[is_held_out])
            scaled = cls.fit(logits[~is_held_out], labels[~is_held_out]).logits(held_out)
            before = F.cross_entropy(held_out, target, reduction="sum")
            gain += float(before - F.cross_entropy(scaled, target, reduction="sum"))
        return cls.fit(logits, labels) if gain > 0.0 else cls(1.0, (0.0,) * logits.shape[1])

    def __call__(self, logits: Array) -> Array:
        """Return calibrated probabilities of logits ``[n, K]``."""
        return self.logits(torch.from_numpy(logits)).softmax(dim=1).numpy()

    def logits(self, logits: Tensor) -> Tensor:
        """Return the logits of calibrated probabilities, ``[n, K]``, differentiably."""
        logs = logits.log_softmax(dim=1)
        return self.scale * logs + logs.new_tensor(self.bias)

    def __str__(self) -> str:
        if self.scale == 1.0 and not any(self.bias):
            return "probabilities as predicted: calibration made labels of other rows less likely"
        return f"probabilities calibrated (Platt scaling, scale {self.scale:.2f})"


@checked
class Uncalibrated:
    """Why the probabilities of a classification are not calibrated."""

    uncalibrated: str

    def __str__(self) -> str:
        return f"probabilities not calibrated: {self.uncalibrated}"


Part = ConformalScores | ProbabilityScaling | Uncalibrated


def calibrated_outputs(outputs: Tensor, tasks: Sequence[Task], parts: Sequence[Part]) -> Tensor:
    """Convert logits ``[n, outputs]`` to probabilities; other outputs stay.

    ``parts`` are the calibrations of the tasks; empty = probabilities are not calibrated.
    """
    converted = [outputs[:, :0]]
    for index, (task, columns) in enumerate(zip(tasks, output_slices(tasks), strict=True)):
        values = outputs[:, columns]
        scaling = parts[index] if parts else None
        if isinstance(scaling, ProbabilityScaling):
            probabilities = scaling.logits(class_logits(values, task)).softmax(dim=1)
            converted.append(probabilities[:, -task.num_outputs :])
        else:
            converted.append(class_probabilities(values, [task]))
    return torch.cat(converted, dim=1)


@dataclass(frozen=True)
class Calibration:
    """The calibration of each task of a model."""

    tasks: tuple[Task, ...]
    parts: tuple[Part, ...]

    @classmethod
    def fit(
        cls,
        tasks: Sequence[Task],
        outputs: Array,
        targets: Array,
        similarity: Array,
        guesses: Sequence[float],
        bounds: Array | None = None,
    ) -> "Calibration":
        """Fit each of T tasks to the rows that have its label and a finite prediction.

        Args:
            tasks: The tasks.
            outputs: Regressions on the transformed scale, logits of classes, ``[n, outputs]``.
            targets: Labels on the same scale, NaN where missing, ``[n, T]``.
            similarity: To the nearest training molecule of each task, ``[n, T]``.
            guesses: Errors of a guess, see :func:`molattn.model.confidence.guess_error`, ``[T]``.
            bounds: Limits of labels on the same scale, NaN where there is none, ``[2, n, T]``.
                Intervals of predictions then contain the whole intervals of labels.
        """
        parts: list[Part] = []
        for index, (task, columns) in enumerate(zip(tasks, output_slices(tasks), strict=True)):
            is_labeled = ~np.isnan(targets[:, index])
            rows = np.flatnonzero(is_labeled & np.isfinite(outputs[:, columns]).all(axis=1))
            labels = targets[rows, index]
            predicted = outputs[rows, columns]
            if task.kind == "regression":
                limits = None if bounds is None else bounds[:, rows, index]
                errors = largest_errors(predicted[:, 0], labels, limits)
                parts.append(ConformalScores.fit(errors, similarity[rows, index], guesses[index]))
            elif len(labels) < _FEWEST_LABELS:
                reason = f"{counted(len(labels), 'label')}, at least {_FEWEST_LABELS} needed"
                parts.append(Uncalibrated(reason))
            elif len(np.unique(labels)) == 1:
                parts.append(Uncalibrated("all labels are of one class"))
            else:
                logits = class_logits(torch.from_numpy(predicted), task).numpy()
                parts.append(ProbabilityScaling.fit_validated(logits, labels.astype(int)))
        return cls(tuple(tasks), tuple(parts))

    def with_correlations(
        self,
        outputs: Array,
        targets: Array,
        similarity: Array,
        held_out: Sequence[Molecule | Fingerprint],
        folds: NDArray[np.int64] | None = None,
    ) -> "Calibration":
        """Add to each regression how similar the errors of similar molecules are.

        The arguments are those of :meth:`fit`, the n molecules, and which model predicted each:
        errors of different models are not compared.
        """
        all_prints = read_fingerprints(held_out)
        folds = np.zeros(len(targets), dtype=np.int64) if folds is None else folds
        errors = outputs[:, [columns.start for columns in output_slices(self.tasks)]] - targets
        errors = errors / difficulty(similarity, self.near)
        parts = list(self.parts)
        for task, scores in enumerate(parts):
            rows = np.flatnonzero(np.isfinite(errors[:, task]))
            if isinstance(scores, ConformalScores) and len(rows):
                rows = rows[:: -(-len(rows) // _MOST_CORRELATED)]
                prints = [all_prints[row] for row in rows]
                between = FingerprintIndex(prints).similarities(prints)
                between *= folds[rows, None] == folds[rows]
                correlation = error_correlation(errors[rows, task], between)
                parts[task] = replace(scores, correlation=correlation)
        return replace(self, parts=tuple(parts))

    def calibrated(self, outputs: Array) -> Array:
        """Return :func:`calibrated_outputs`."""
        return calibrated_outputs(torch.from_numpy(outputs), self.tasks, self.parts).numpy()

    def half_widths(self, similarity: Array, level: float) -> Array:
        """Return half the width of each interval, ``[n, T]``; NaN for classifications.

        It is infinite where a task has too few labels for the level, a number between 0 and 1.
        ``similarity`` is the similarity to the nearest training molecule of each task, ``[n, T]``.
        """
        if not 0.0 < level < 1.0:
            raise ValueError(f"level: got {level}, expected a number between 0 and 1")
        bounds = [
            part.bound(level) if isinstance(part, ConformalScores) else math.nan
            for part in self.parts
        ]
        return difficulty(similarity, self.near) * np.asarray(bounds)

    def expected_errors(
        self, prediction: Array, similarity: Array, guesses: Array, nearby: float | Array = 1.0
    ) -> Array:
        """Return the expected error of each prediction, ``[n, T]``; NaN with too few labels.

        A regression has an absolute error on the transformed scale: the mean conformal score times
        :func:`difficulty`, times how large errors are nearby. Classes have the rate 1 - max p of
        wrong ones, by their probabilities p. Both are at least :func:`least_error` times the error
        of a guess, and thus that of a guess at a similarity of 0.

        Args:
            prediction: Calibrated probabilities, ``[n, outputs]``; regressions are not used.
            similarity: To the nearest training molecule of each task, ``[n, T]``.
            guesses: Errors of a guess, ``[T]``.
            nearby: Errors of similar training molecules relative to the mean, ``[n, T]``.
        """
        errors = difficulty(similarity, self.near) * nearby
        parts = zip(self.parts, output_slices(self.tasks), strict=True)
        for index, (part, columns) in enumerate(parts):
            if isinstance(part, ConformalScores):
                errors[:, index] *= part.mean
            elif isinstance(part, Uncalibrated):
                errors[:, index] = math.nan
            else:
                values = prediction[:, columns]
                if values.shape[1] == 1:
                    values = np.hstack([1.0 - values, values])
                errors[:, index] = 1.0 - values.max(axis=1)
        return np.maximum(errors, guesses * least_error(similarity))

    @property
    def near(self) -> Array:
        """Error of each task near training molecules, relative to that of a guess, ``[T]``."""
        near = (
            scores.near if isinstance(scores, ConformalScores) else 1.0 for scores in self.parts
        )
        return np.fromiter(near, dtype=np.float64)

    def shortfalls(self, level: float) -> list[str]:
        """Return a log line for each task that is not calibrated or not for the level."""
        texts = (_shortfall(calibration, level) for calibration in self.parts)
        named = zip(self.tasks, texts, strict=True)
        return [f"{quoted(task.name)}: {text}" for task, text in named if text]

    def lines(self, level: float) -> list[str]:
        """Return a log line on the calibration of each task: what it lacks for a level, or is."""
        texts = (_shortfall(calibration, level) or calibration for calibration in self.parts)
        named = zip(self.tasks, texts, strict=True)
        return [f"{quoted(task.name)}: {text}" for task, text in named]


def fewest_scores(level: float) -> int:
    """Return the number of labels, or labeled molecules, below which intervals are infinite."""
    return math.ceil(round(level / (1.0 - level), 9))


def _shortfall(calibration: Part, level: float) -> str:
    """Return what a calibration lacks for intervals of a level and a confidence, "" if nothing."""
    if not isinstance(calibration, ConformalScores):
        return f"{calibration}; no confidence" if isinstance(calibration, Uncalibrated) else ""
    fewest = {
        f"{level:.4g} interval": fewest_scores(level),
        "confidence": _FEWEST_ERRORS,
    }
    lacking = [
        f"no {what} (at least {count} needed)"
        for what, count in fewest.items()
        if calibration.count < count
    ]
    calibrated = f"calibrated on {counted(calibration.count, 'label')}: "
    return calibrated + " and ".join(lacking) if lacking else ""


@dataclass(frozen=True, repr=False)
class Uncertainty:
    """The calibration of a model, on the transformed scale, and its training fingerprints.

    With a Gaussian process, the fingerprints of validation rows are added; the similarities of the
    calibration are to the training rows alone.
    """

    calibration: Calibration
    fingerprints: FingerprintIndex

    @classmethod
    def fit(
        cls,
        config: MolAttnConfig,
        fingerprints: FingerprintIndex,
        held_out: Sequence[Molecule | Fingerprint],
        outputs: Array,
        targets: Array,
        guesses: Sequence[float],
        bounds: Array | None = None,
    ) -> "Uncertainty":
        """Fit to labels of held-out molecules, and what the predictor outputs for them.

        ``guesses`` are the errors of a guess, ``bounds`` the limits of labels.
        """
        tasks = config.tasks
        mean = mean_of_members(torch.from_numpy(outputs), tasks).numpy()
        transforms = config.target_transforms
        labels = transformed_labels(torch.tensor(targets), transforms).numpy()
        limits = bounds
        if bounds is not None:
            limits = torch.from_numpy(limits_with_transform(bounds, transforms))
            limits = transformed_labels(limits, transforms).numpy()
        similarity = fingerprints.task_similarity(held_out, len(tasks))
        calibration = Calibration.fit(tasks, mean, labels, similarity, guesses, limits)
        calibration = calibration.with_correlations(mean, labels, similarity, held_out)
        return cls(calibration, fingerprints)

    def to_files(self, config: MolAttnConfig) -> dict[str, bytes]:
        """Return the content of its files in a saved model, by name."""
        parts = dict(zip(config.targets, self.calibration.parts, strict=True))
        return {
            CALIBRATION_FILE: to_json(parts, dict[str, Part]),
            FINGERPRINTS_FILE: self.fingerprints.to_bytes(),
        }

    @classmethod
    def from_files(cls, files: ModelFiles, config: MolAttnConfig) -> "Uncertainty | None":
        """Read the files of :meth:`to_files`; None without them."""
        parts = files.parse(CALIBRATION_FILE, dict[str, Part])
        if not parts:
            return None
        calibration = Calibration(config.tasks, tuple(parts[name] for name in config.targets))
        with files.reading(FINGERPRINTS_FILE):
            fingerprints = FingerprintIndex.from_arrays(files.arrays(FINGERPRINTS_FILE))
        return cls(calibration, fingerprints)


class Prediction(NamedTuple):
    """Predictions of n molecules and T tasks with their uncertainty; NaN where undefined."""

    prediction: Array  # values in own units, calibrated probabilities, [n, outputs]
    low: Array  # lower end of the interval in own units, infinite with too few labels, [n, T]
    high: Array  # upper end, likewise
    std: Array  # standard deviation over members of the value or the class probability, [n, T]
    similarity: Array  # to the nearest training molecule, [n]
    task_similarity: Array  # to the nearest training molecule with a label of the task, [n, T]
    confidence: NDArray[np.str_]  # a grade of molattn.model.confidence, "" where unknown, [n, T]
    expected_error: Array  # absolute, in own units, or the rate of wrong classes, [n, T]
    closeness: Array  # task_similarity, but 0 of a molecule with atoms that no other has, [n, T]
