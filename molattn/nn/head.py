"""From the vector of a molecule, and numbers that join it, to outputs."""

import math
from typing import Optional

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["FourierHead", "MLPHead"]


class MLPHead(nn.Sequential):
    r"""One hidden layer, :math:`V\,\mathrm{dropout}(\mathrm{SiLU}(W [h, z] + b)) + c`.

    Where molecules are unlike those of training it goes on in straight lines.

    Args:
        channels: Width of a molecule's vector :math:`h`.
        numbers: How many numbers :math:`z` join it.
        hidden: Width of the hidden layer.
        out: Number of outputs.
        dropout: Dropout of the hidden layer.
    """

    def __init__(self, channels: int, numbers: int, hidden: int, out: int, dropout: float) -> None:
        super().__init__(
            nn.Linear(channels + numbers, hidden),
            nn.SiLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, out),
        )

    def forward(self, molecules: Tensor, numbers: Optional[Tensor] = None) -> Tensor:
        """Predict in scaled units and logits, ``[n, out]``.

        Args:
            molecules: ``[n, channels]``.
            numbers: ``[n, numbers]``, scaled; None where there are none.
        """
        return super().forward(_joined(molecules, numbers))


class FourierHead(nn.Module):
    r"""Learned Fourier features of a Gaussian kernel, and a linear layer.

    .. math::
        x = [\mathrm{LayerNorm}(h), z] \in \mathbb{R}^F, \qquad
        \phi(x) = \sqrt{2 / D}\, \cos(W x + b), \qquad
        y = V\,\mathrm{dropout}(\phi(x)) + c

    At first :math:`W_{ij} \sim N(0, 1 / F)` and :math:`b_i \sim U(0, 2 \pi)`, so that
    :math:`\phi(x) \cdot \phi(x') \approx \exp(-\|x - x'\|^2 / 2F)` (Rahimi and Recht 2007): what
    counts is how near molecules are to those of training, and far from all of them it has no strong
    opinion (Liu et al. 2020). Then :math:`W` and :math:`b` are learned like all other weights.

    Args:
        channels: Width of a molecule's vector :math:`h`.
        numbers: How many numbers :math:`z` join it.
        hidden: Number of features :math:`D`.
        out: Number of outputs.
        dropout: Dropout of the features.
    """

    def __init__(self, channels: int, numbers: int, hidden: int, out: int, dropout: float) -> None:
        super().__init__()
        self.features = nn.Linear(channels + numbers, hidden)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(hidden, out)
        nn.init.normal_(self.features.weight, std=(channels + numbers) ** -0.5)
        nn.init.uniform_(self.features.bias, 0.0, 2 * math.pi)

    def forward(self, molecules: Tensor, numbers: Optional[Tensor] = None) -> Tensor:
        """Predict as :meth:`MLPHead.forward` does."""
        x = _joined(functional.layer_norm(molecules, molecules.shape[-1:]), numbers)
        features = math.sqrt(2 / self.features.out_features) * self.features(x).cos()
        return self.out(self.dropout(features))


def _joined(molecules: Tensor, numbers: Optional[Tensor]) -> Tensor:
    if numbers is None:
        return molecules
    return torch.cat([molecules, numbers.to(molecules.dtype)], dim=-1)
