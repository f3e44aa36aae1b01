"""Platt scaling of probabilities."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from molattn.errors import InputError

__all__ = ["ProbabilityScaling"]

Array = NDArray[np.float64]

_SMALLEST_PROBABILITY = 1e-12


@dataclass(frozen=True)
class ProbabilityScaling:
    """Probabilities p of K classes as softmax(scale · log p + bias): Platt scaling for any K.

    Scale and biases minimise the negative log-likelihood of the labels plus a penalty: log(scale)
    and each bias have a normal prior of mean 0 and standard deviation 1. The prior keeps them near
    the identity when labels are few or perfectly separated. The likelihood of the labels is never
    below that without scaling.

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
    def fit(cls, probabilities: Array, labels: NDArray[np.int64]) -> "ProbabilityScaling":
        """Fit to labelled rows.

        Args:
            probabilities: ``[n, K]``.
            labels: Class index of each row, ``[n]``.
        """
        logs, target = torch.from_numpy(_logs(probabilities)), torch.from_numpy(labels)
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

    def __call__(self, probabilities: Array) -> Array:
        """Calibrate probabilities ``[n, K]``."""
        scaled = self.scale * _logs(probabilities) + np.asarray(self.bias)
        powers = np.exp(scaled - scaled.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)


def _logs(probabilities: Array) -> Array:
    return np.log(np.maximum(probabilities, _SMALLEST_PROBABILITY))
