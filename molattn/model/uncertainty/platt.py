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

    Scale and biases minimise the negative log-likelihood of the labels plus that of a normal
    distribution of standard deviation 1 around the identity, of log(scale) and of each bias. That
    keeps them where they are when labels are few or are told apart without error, and the
    likelihood of the labels never falls.

    Source: Platt, Advances in Large Margin Classifiers 1999, 61; Guo et al., Proc. ICML 2017, 1321.

    Args:
        scale: Inverse temperature, positive.
        bias: One number for each class.

    Raises:
        InputError: Numbers that are not finite, or no positive scale.
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
        """Learn from labelled rows.

        Args:
            probabilities: ``[n, K]``.
            labels: Place of each row's class, ``[n]``.
        """
        logs, target = torch.from_numpy(_logs(probabilities)), torch.from_numpy(labels)
        # log(scale), then the biases
        parameters = torch.zeros(1 + logs.size(1), dtype=torch.float64, requires_grad=True)
        optimiser = torch.optim.LBFGS([parameters], max_iter=100, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimiser.zero_grad()
            scaled = parameters[0].exp() * logs + parameters[1:]
            misfit = torch.nn.functional.cross_entropy(scaled, target, reduction="sum")
            value = misfit + 0.5 * parameters.square().sum()
            value.backward()
            return value

        with torch.enable_grad():
            optimiser.step(loss)
        log_scale, *bias = parameters.detach().tolist()
        return cls(math.exp(log_scale), tuple(bias))

    def __call__(self, probabilities: Array) -> Array:
        """Calibrate probabilities ``[n, K]``."""
        scaled = self.scale * _logs(probabilities) + np.asarray(self.bias)
        powers = np.exp(scaled - scaled.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)


def _logs(probabilities: Array) -> Array:
    return np.log(np.maximum(probabilities, _SMALLEST_PROBABILITY))
