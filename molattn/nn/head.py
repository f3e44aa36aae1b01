"""From the vector of a molecule, and numbers that join it, to outputs."""

import math
from collections.abc import Callable
from typing import Optional

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["HEADS", "BothHeads", "FourierHead", "MLPHead"]

# Of Fourier weights at first. Answers do not know of it: it sets how far a step of the optimiser
# turns a direction. At 1 larger sets of numbers lose, and where directions stay small ones do.
_LENGTH = 4.0


class MLPHead(nn.Sequential):
    r"""One hidden layer, :math:`y = V\,\mathrm{dropout}(\mathrm{SiLU}(W [h, z] + b)) + c`.

    Far from the molecules of training it goes on in straight lines.

    Args:
        channels: Width of a molecule's vector :math:`h`.
        numbers: How many numbers :math:`z` join it.
        width: Width of the hidden layer.
        out: Number of outputs.
        dropout: Dropout of the hidden layer.
    """

    def __init__(self, channels: int, numbers: int, width: int, out: int, dropout: float) -> None:
        super().__init__(
            nn.Linear(channels + numbers, width),
            nn.SiLU(),
            nn.Dropout(dropout),
            nn.Linear(width, out),
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
        \phi_i(x) = \sqrt{2 / D}\, \cos(w_i \cdot x / \|w_i\| + b_i), \qquad
        y = V\,\mathrm{dropout}(\phi(x)) + c

    At first the directions :math:`w_i / \|w_i\|` are uniform on the sphere and
    :math:`b_i \sim U(0, 2 \pi)`, so that :math:`\phi(x) \cdot \phi(x') \approx
    \exp(-\|x - x'\|^2 / 2F)` for large :math:`F` (Rahimi and Recht 2007): molecules that are near
    get near answers. Then directions and :math:`b` are learned, lengths are not (weight
    normalisation, Salimans and Kingma 2016, with :math:`g = 1`): free, they grow with every step of
    the optimiser, and more steps would make answers bend over shorter distances.
    Answers are bounded, :math:`|y - c| \le \sqrt{2 / D}\, \|V\|_1`, which suits classes (SNGP, of
    Liu et al. 2020, has such a head for them).

    Args:
        channels: Width of a molecule's vector :math:`h`.
        numbers: How many numbers :math:`z` join it.
        width: A quarter of the number of features :math:`D`.
        out: Number of outputs.
        dropout: Dropout of the features.
    """

    def __init__(self, channels: int, numbers: int, width: int, out: int, dropout: float) -> None:
        super().__init__()
        self.features = nn.Linear(channels + numbers, 4 * width)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(4 * width, out)
        nn.init.normal_(self.features.weight, std=_LENGTH * (channels + numbers) ** -0.5)
        nn.init.uniform_(self.features.bias, 0.0, 2 * math.pi)

    def forward(self, molecules: Tensor, numbers: Optional[Tensor] = None) -> Tensor:
        """Predict as :meth:`MLPHead.forward` does."""
        x = _joined(_normalised(molecules), numbers)
        directions = functional.normalize(self.features.weight, dim=-1)
        phases = functional.linear(x, directions, self.features.bias)
        features = math.sqrt(2 / self.features.out_features) * phases.cos()
        return self.out(self.dropout(features))


class BothHeads(nn.Module):
    r"""The sum of an MLP and of Fourier features, both of :math:`[\mathrm{LayerNorm}(h), z]`.

    The one can go on where targets are numbers that grow beyond those of training, the other bends
    where molecules are near.

    Args: As those of :class:`MLPHead` and :class:`FourierHead`.
    """

    def __init__(self, channels: int, numbers: int, width: int, out: int, dropout: float) -> None:
        super().__init__()
        self.mlp = MLPHead(channels, numbers, width, out, dropout)
        self.fourier = FourierHead(channels, numbers, width, out, dropout)

    def forward(self, molecules: Tensor, numbers: Optional[Tensor] = None) -> Tensor:
        """Predict as :meth:`MLPHead.forward` does."""
        return self.mlp(_normalised(molecules), numbers) + self.fourier(molecules, numbers)


HEADS: dict[str, Callable[[int, int, int, int, float], nn.Module]] = {
    "mlp": MLPHead,
    "fourier": FourierHead,
    "both": BothHeads,
}
"""Every head by its name; all take the same arguments."""


def _normalised(molecules: Tensor) -> Tensor:
    return functional.layer_norm(molecules, molecules.shape[-1:])


def _joined(molecules: Tensor, numbers: Optional[Tensor]) -> Tensor:
    if numbers is None:
        return molecules
    return torch.cat([molecules, numbers.to(molecules.dtype)], dim=-1)
