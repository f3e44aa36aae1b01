"""Prediction heads: from the vector and the extra features of a molecule to outputs."""

import math
from collections.abc import Callable
from typing import Optional

import torch
from torch import Tensor, nn
from torch.nn import functional

from molattn.nn.resettable import Resettable
from molattn.utils.registry import Registry

PREDICTION_HEADS: Registry[Callable[[int, int, int, int, float], nn.Module]] = Registry("head")
"""Every prediction head by its name: all have the arguments ``(channels, numbers, width, out,
dropout)`` of :class:`MLPHead`, and are called with molecules, and with extra features if the model
has some."""


@PREDICTION_HEADS.register("mlp")
class MLPHead(Resettable, nn.Sequential):
    r"""One hidden layer, :math:`y = V\,\mathrm{dropout}(\mathrm{SiLU}(W [h, z] + b)) + c`.

    Far from the training molecules it extrapolates linearly.

    Args:
        channels: Width of a molecule's vector :math:`h`.
        numbers: Number of extra features :math:`z`.
        width: Width of the hidden layer.
        out: Number of outputs.
        dropout: Dropout of the hidden layer.
    """

    def __init__(self, channels: int, numbers: int, width: int, out: int, dropout: float) -> None:
        maps = (nn.Linear(channels + numbers, width), nn.Linear(width, out))
        super().__init__(maps[0], nn.SiLU(), nn.Dropout(dropout), maps[1])

    def forward(self, molecules: Tensor, numbers: Optional[Tensor] = None) -> Tensor:
        """Predict ``[n, out]`` in scaled units of ``[n, channels]`` and ``[n, numbers]``."""
        return super().forward(_joined(molecules, numbers))


@PREDICTION_HEADS.register("fourier")
class FourierHead(nn.Module):
    r"""Learned Fourier features of a Gaussian kernel, and a linear layer.

    .. math::
        x = [\mathrm{LayerNorm}(h), z] \in \mathbb{R}^F, \qquad
        \phi_i(x) = \sqrt{2 / D}\, \cos(w_i \cdot x / \|w_i\| + b_i), \qquad
        y = V\,\mathrm{dropout}(\phi(x)) + c

    Initially the directions :math:`w_i / \|w_i\|` are uniform on the sphere and
    :math:`b_i \sim U(0, 2 \pi)`, so that :math:`\phi(x) \cdot \phi(x') \approx
    \exp(-\|x - x'\|^2 / 2F)` for large :math:`F` (Rahimi and Recht 2007): similar
    vectors get similar predictions. Directions and :math:`b` are learned. The lengths have no
    effect (weight normalization, Salimans and Kingma 2016, with :math:`g = 1`); free lengths tend
    to grow during training, and predictions would then vary over ever shorter distances. Without
    dropout, predictions are bounded, :math:`|y_k - c_k| \le \sqrt{2 / D}\, \|V_k\|_1`, which
    suits classification (SNGP, Liu et al. 2020, has such a head for it).

    The arguments are those of :class:`MLPHead`, with ``width`` a quarter of :math:`D`; ``scale`` is
    the initial standard deviation :math:`s` of the entries of :math:`w`. Predictions do not depend
    on it, but a step of Adam with learning rate :math:`\eta` turns directions by about
    :math:`\eta / s`.
    """

    def __init__(
        self, channels: int, numbers: int, width: int, out: int, dropout: float, scale: float = 0.05
    ) -> None:
        super().__init__()
        self.scale = scale
        self.directions = nn.Parameter(torch.randn(4 * width, channels + numbers) * scale)
        self.phases = nn.Parameter(torch.rand(4 * width) * 2 * math.pi)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(4 * width, out)

    def reset_parameters(self) -> None:
        """Reset all parameters."""
        nn.init.normal_(self.directions, std=self.scale)
        nn.init.uniform_(self.phases, 0, 2 * math.pi)
        self.out.reset_parameters()

    def forward(self, molecules: Tensor, numbers: Optional[Tensor] = None) -> Tensor:
        """Predict as :meth:`MLPHead.forward` does."""
        x = _joined(_normalized(molecules), numbers)
        directions = functional.normalize(self.directions, dim=-1)
        waves = functional.linear(x, directions, self.phases).cos()
        return self.out(self.dropout(math.sqrt(2 / len(self.phases)) * waves))


@PREDICTION_HEADS.register("both")
class MLPFourierHead(Resettable):
    r"""The sum of an MLP and of Fourier features, both of :math:`[\mathrm{LayerNorm}(h), z]`.

    The MLP extrapolates beyond the range of the training targets, and the Fourier features resolve
    differences between similar molecules. Beside an MLP the directions turn at a quarter of the
    rate of :class:`FourierHead`: the full rate hurts on large regression datasets, fixed
    directions on small ones.
    """

    def __init__(self, channels: int, numbers: int, width: int, out: int, dropout: float) -> None:
        super().__init__()
        self.mlp = MLPHead(channels, numbers, width, out, dropout)
        self.fourier = FourierHead(channels, numbers, width, out, dropout, scale=0.2)

    def forward(self, molecules: Tensor, numbers: Optional[Tensor] = None) -> Tensor:
        """Predict as :meth:`MLPHead.forward` does."""
        return self.mlp(_normalized(molecules), numbers) + self.fourier(molecules, numbers)


def _normalized(molecules: Tensor) -> Tensor:
    return functional.layer_norm(molecules, molecules.shape[-1:])


def _joined(molecules: Tensor, numbers: Optional[Tensor]) -> Tensor:
    if numbers is None:
        return molecules
    return torch.cat([molecules, numbers.to(molecules.dtype)], dim=-1)
