r"""Recalibrate a model by rows that it has learned from, each predicted without its own label.

A regression joins the predictions :math:`f_1` of the network and :math:`f_2` of the Gaussian
process by :math:`a + b\,((1 - w) f_1 + w f_2)`. Location :math:`a`, scale :math:`b` and weight
:math:`w`, or some of them, are fitted to the rows by least squares. A prior for no change counts as
much as 5 rows, of weight and scale as 20. They are changed if this makes the squared errors of rows
of other folds smaller by more than two standard errors of the difference.

Intervals are multiplied by a factor that is fitted likewise, if the scores of other folds are more
likely with it, as clearly; the likelihood is of an exponential distribution. Probabilities are
calibrated as after a training.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from molattn.model.confidence import difficulty
from molattn.model.uncertainty import ConformalScores, Part, ProbabilityScaling, Uncalibrated

Array = NDArray[np.float64]

FEWEST_ROWS = 10
"""Fewest labels of a task to recalibrate it by."""
_FEWEST_OF_UNCALIBRATED = 30  # classes
_FOLDS = 5
_PRIOR_ROWS = 5.0
_SCALE_ROWS = 20.0  # with the variance of the training labels, 1
_WEIGHT_ROWS = 20.0
_MOST_WEIGHT = np.nextafter(1.0, 0.0)  # with a weight of 1 there is no trained network
_CHOICES = (
    {"location"},
    {"location", "scale"},
    {"weight"},
    {"weight", "location"},
    {"weight", "location", "scale"},
)


class Combination(NamedTuple):
    """How network and Gaussian process are joined, in scaled units."""

    weight: float  # of the Gaussian process
    location: float = 0.0
    scale: float = 1.0

    def __call__(self, network: Array, process: Array) -> Array:
        """Join predictions ``[n]`` of both."""
        return self.location + self.scale * (network + self.weight * (process - network))

    def changes(self, former: "Combination") -> str:
        """Return how predictions change from another combination, for a log line."""
        location = f"{self.location:+.3g} standard deviations of the training labels"
        weights = f"weight of the Gaussian process {former.weight:.0%} to {self.weight:.0%}"
        return f"multiplied by {self.scale:.3g}, moved by {location}, {weights}"

    def fit(
        self, network: Array, process: Array, labels: Array, parameters: Collection[str]
    ) -> "Combination":
        """Fit some parameters to labels ``[n]``; the others stay."""
        weight, location, scale = self
        difference = process - network
        if "location" in parameters:  # which takes the mean
            difference = difference - difference.mean()
        squares = difference @ difference
        if "weight" in parameters and squares > 0.0:
            prior = _WEIGHT_ROWS * squares / len(labels)
            weight = (difference @ (labels - network) + prior * weight) / (squares + prior)
            weight = float(np.clip(weight, 0.0, _MOST_WEIGHT))
        mean = Combination(weight)(network, process)
        center = mean.mean()
        if "scale" in parameters:
            spread = ((mean - center) ** 2).sum()
            scale = float(((mean - center) @ labels + _SCALE_ROWS) / (spread + _SCALE_ROWS))
        if "location" in parameters:
            shift = (labels - mean).sum() / (len(labels) + _PRIOR_ROWS)
            location = float(shift + (1.0 - scale) * center)
        return Combination(weight, location, scale)

    def fit_validated(self, network: Array, process: Array, labels: Array) -> "Combination":
        """Fit what makes labels of other folds more exact; return itself if nothing does."""
        fold = np.arange(len(labels)) % _FOLDS
        before = (labels - self(network, process)) ** 2
        best = 0.0
        selected: Collection[str] = ()
        for parameters in _CHOICES:
            if self.weight == 1.0 and "weight" in parameters:
                continue
            after = np.empty(len(labels))
            for number in range(_FOLDS):
                learns = fold != number
                fitted = self.fit(network[learns], process[learns], labels[learns], parameters)
                after[~learns] = ((labels - fitted(network, process)) ** 2)[~learns]
            gain = (before - after).mean()
            if gain > best and _is_clear(before - after):
                best = gain
                selected = parameters
        return self.fit(network, process, labels, selected)


def recalibrated_scores(
    calibration: ConformalScores, errors: Array, similarity: Array, guess: float
) -> ConformalScores:
    """Return scores for n rows with absolute errors ``[n]``; the same if the test says no.

    Arguments are those of ``ConformalScores.fit``. Scores of too few labels are replaced.
    """
    if np.isnan(calibration.mean):
        return ConformalScores.fit(errors, similarity, guess)
    relative = errors / difficulty(similarity, calibration.near) / calibration.mean
    fold = np.arange(len(errors)) % _FOLDS

    def factor(scores: Array) -> float:
        return float((scores.sum() + _PRIOR_ROWS) / (len(scores) + _PRIOR_ROWS))

    factors = np.array([factor(relative[fold != number]) for number in range(_FOLDS)])[fold]
    if not _is_clear(relative - relative / factors - np.log(factors)):
        return calibration
    scores = np.array(calibration.scores) * factor(relative)
    return replace(calibration, scores=tuple(scores.tolist()))


def recalibrated_probabilities(calibration: Part, logits: Array, labels: NDArray[np.int64]) -> Part:
    """Return the calibration of n rows with logits ``[n, K]``; the same if the test says no."""
    few = isinstance(calibration, Uncalibrated) and len(labels) < _FEWEST_OF_UNCALIBRATED
    if few or len(np.unique(labels)) == 1:
        return calibration
    if not isinstance(calibration, ProbabilityScaling):
        return ProbabilityScaling.fit_validated(logits, labels)
    calibrated = calibration.logits(torch.from_numpy(logits)).numpy()
    more = ProbabilityScaling.fit_validated(calibrated, labels)
    bias = (more.scale * np.array(calibration.bias) + np.array(more.bias)).tolist()
    return replace(calibration, scale=more.scale * calibration.scale, bias=tuple(bias))


def _is_clear(gains: Array) -> bool:
    """Return whether the mean of gains is above two standard errors of it."""
    return bool(gains.mean() > 2.0 * gains.std(ddof=1) / np.sqrt(len(gains)))
