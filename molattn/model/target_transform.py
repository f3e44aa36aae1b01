"""Transforms of regression targets, such as the logarithm of a half-life."""

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Annotated, Literal, Self

import numpy as np
import torch
from annotated_types import Gt, Interval
from numpy.typing import NDArray
from pydantic import Discriminator
from torch import Tensor

from molattn.config.base import checked
from molattn.task import Task, output_slices

Array = NDArray[np.float64]

_LARGEST_EXPONENT = 300.0  # its exponential, times any label, is finite
_POWERS = np.linspace(0.0, 2.0, 201)


@checked
class IdentityTransform:
    """The identity: labels are learned as they are."""

    kind: Literal["none"] = field(default="none", kw_only=True)

    @classmethod
    def fit(cls, labels: Array) -> Self:
        """Return the transform, which has no parameters."""
        return cls()

    def forward(self, labels: Tensor) -> Tensor:
        """Transform labels."""
        return labels

    def inverse(self, values: Tensor) -> Tensor:
        """Convert transformed values to labels: finite for finite values, and differentiable."""
        return values

    def log_jacobian(self, labels: Tensor) -> Tensor:
        """Return the logarithm of the derivative of :meth:`forward` at each label."""
        return torch.zeros_like(labels)

    def describe(self) -> str:
        """Return the kind for a log line."""
        return f"{self.kind} transform"


@checked
class LogTransform:
    """The natural logarithm, of labels above 0; any other counts as the smallest above 0."""

    kind: Literal["log"] = field(default="log", kw_only=True)

    @classmethod
    def fit(cls, labels: Array) -> Self:
        """Return the transform, which has no parameters."""
        return cls()

    def forward(self, labels: Tensor) -> Tensor:
        """Transform labels."""
        return labels.clamp(min=torch.finfo(labels.dtype).tiny).log()

    def inverse(self, values: Tensor) -> Tensor:
        """Return the exponential, of values of at most 300."""
        return values.clamp(max=_LARGEST_EXPONENT).exp()

    def log_jacobian(self, labels: Tensor) -> Tensor:
        """Return -log y for each label y."""
        return -self.forward(labels)

    def describe(self) -> str:
        """Return the kind for a log line."""
        return f"{self.kind} transform"


@checked
class YeoJohnsonTransform:
    r"""A power transform of labels of any sign.

    For :math:`x = (y - \mathrm{center}) / \mathrm{scale}` and the power :math:`\lambda`,

    .. math::
        z = \begin{cases}
            ((1 + x)^\lambda - 1) / \lambda & x \ge 0 \\
            -((1 - x)^{2 - \lambda} - 1) / (2 - \lambda) & x < 0
        \end{cases}

    with its limits, :math:`\log(1 + x)` at :math:`\lambda = 0` and :math:`-\log(1 - x)` at
    :math:`\lambda = 2`. Powers from 0 to 2 map the numbers onto all numbers, so that each value has
    an inverse. As labels are centered and scaled first, their unit and origin do not matter.

    Source: Yeo and Johnson, Biometrika 2000, 87, 954.
    """

    power: Annotated[float, Interval(ge=0, le=2)]
    center: float = 0.0
    scale: Annotated[float, Gt(0)] = 1.0
    kind: Literal["yeo_johnson"] = field(default="yeo_johnson", kw_only=True)

    @classmethod
    def fit(cls, labels: Array) -> Self:
        """Fit the power by maximum likelihood, to 0.01: transformed labels are taken as normal.

        Center and scale are median and interquartile range (or standard deviation, if that is 0).
        """
        low, center, high = np.quantile(labels, [0.25, 0.5, 0.75]).tolist()
        scale = high - low or float(np.std(labels))
        values = torch.from_numpy(labels)

        def cost(transform: "YeoJohnsonTransform") -> float:
            spread = transform.forward(values).var(correction=0)
            return float(0.5 * spread.log() - transform.log_jacobian(values).mean())

        return min((cls(power, center, scale) for power in _POWERS.tolist()), key=cost)

    def forward(self, labels: Tensor) -> Tensor:
        """Transform labels."""
        x = (labels - self.center) / self.scale
        above = _power(x.clamp(min=0.0), self.power)
        below = _power((-x).clamp(min=0.0), 2.0 - self.power)
        return torch.where(x < 0, -below, above)

    def inverse(self, values: Tensor) -> Tensor:
        """Convert transformed values to labels."""
        is_below = values < 0
        # No clamp: its derivative at the limit depends on the version of torch.
        above = _root(values.masked_fill(is_below, 0.0), self.power)
        below = _root(-values.masked_fill(~is_below, 0.0), 2.0 - self.power)
        return torch.where(is_below, -below, above) * self.scale + self.center

    def log_jacobian(self, labels: Tensor) -> Tensor:
        """Return the logarithm of the derivative at each label."""
        x = (labels - self.center) / self.scale
        return x.sign() * (self.power - 1.0) * x.abs().log1p() - math.log(self.scale)

    def describe(self) -> str:
        """Return the kind and the power."""
        return f"{self.kind} transform of power {self.power:.2f}"


TargetTransform = IdentityTransform | LogTransform | YeoJohnsonTransform
"""An increasing function of labels; a model learns the transformed labels.

Labels and values are ``float64`` tensors of any shape; NaN stays NaN.
"""
AnyTransform = Annotated[TargetTransform, Discriminator("kind")]
TRANSFORMS: dict[str, type[TargetTransform]] = {
    kind.kind: kind for kind in (IdentityTransform, LogTransform, YeoJohnsonTransform)
}
"""The kinds of transforms by name."""


def transformed_labels(labels: Tensor, transforms: Sequence[TargetTransform]) -> Tensor:
    """Transform labels ``[..., T]`` of T tasks; class indices and NaN stay as they are."""
    columns = zip(labels.split(1, dim=-1), transforms, strict=False)
    transformed = [transform.forward(column) for column, transform in columns]
    return torch.cat([labels[..., :0], *transformed], dim=-1)


def limits_with_transform(bounds: Array, transforms: Sequence[TargetTransform]) -> Array:
    """Return limits of labels ``[2, n, T]``; a lower limit without a logarithm is none: NaN."""
    is_log = np.array([transform.kind == "log" for transform in transforms], dtype=bool)
    low, high = bounds
    return np.stack([np.where(is_log & (low <= 0.0), np.nan, low), high])


def own_units(
    outputs: Tensor, tasks: Sequence[Task], transforms: Sequence[TargetTransform]
) -> Tensor:
    """Convert transformed regressions ``[..., num_outputs]`` to own units; classes stay."""
    slices = zip(output_slices(tasks), transforms, strict=True)
    values = [transform.inverse(outputs[..., columns]) for columns, transform in slices]
    return torch.cat([outputs[..., :0], *values], dim=-1)


def _power(x: Tensor, power: float) -> Tensor:
    """Return the Box-Cox transform of 1 + x for x >= 0."""
    return (power * x.log1p()).expm1() / power if power else x.log1p()


def _root(z: Tensor, power: float) -> Tensor:
    """Return the inverse of :func:`_power`."""
    exponent = (power * z).log1p() / power if power else z
    return exponent.clamp(max=_LARGEST_EXPONENT).expm1()
