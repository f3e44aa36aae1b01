"""The head that predicts properties of atoms from nodes, and of bonds from nodes and edges."""

import torch
from torch import Tensor, nn

from molattn.nn.prediction_head import MLPHead
from molattn.nn.resettable import Resettable


class SiteHead(Resettable):
    r"""A multilayer perceptron of each atom or bond, :math:`y = \mathrm{MLP}(\mathrm{LN}(v))`.

    Of an atom, :math:`v` is its node; of a bond, see :func:`bond_vectors`. The head also holds how
    labels are scaled: ``mean`` and ``scale`` of each output, 0 and 1 of classes.

    Args:
        channels: Width of vectors :math:`v`.
        width: Width of the hidden layer.
        out: Number of outputs.
        dropout: Dropout of the hidden layer.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, channels: int, width: int, out: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.mlp = MLPHead(channels, 0, width, out, dropout)
        self.register_buffer("mean", torch.zeros(out))
        self.register_buffer("scale", torch.ones(out))

    def forward(self, vectors: Tensor) -> Tensor:
        """Predict ``[n, out]`` in scaled units of vectors ``[n, channels]``."""
        return self.mlp(self.norm(vectors))

    def in_own_units(self, outputs: Tensor) -> Tensor:
        """Convert outputs in scaled units; logits of classes stay."""
        return outputs * self.scale + self.mean


def bond_vectors(first: Tensor, second: Tensor, forward: Tensor, backward: Tensor) -> Tensor:
    r"""Represent bonds, the same in both directions.

    .. math::
        v_{ij} = [h_i + h_j,\; |h_i - h_j|,\; e_{ij} + e_{ji}]

    Args:
        first: One atom of each bond, ``[n, channels]``.
        second: The other atom, ``[n, channels]``.
        forward: The edge from the first atom to the second, ``[n, edge_dim]``.
        backward: The edge in the other direction, ``[n, edge_dim]``.
    """
    return torch.cat([first + second, (first - second).abs(), forward + backward], dim=-1)
