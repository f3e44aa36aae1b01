"""What happens to heads before and after attention: parametric scores and ways to combine."""

import math

import torch
from torch import Tensor, nn
from torch_geometric.nn.dense.linear import is_uninitialized_parameter
from torch_geometric.nn.inits import glorot

from molattn.nn import functional
from molattn.nn.linear import Linear, linear
from molattn.nn.split_columns import split

__all__ = ["COMBINES", "HeadCombine", "HeadScore", "linear_together"]

COMBINES = ("linear", "concat", "mean", "max", "weighted")
_SPLIT = ("linear", "concat")  # the heads share the output width


def linear_together(x: Tensor, *lins: Linear) -> tuple[Tensor, ...]:
    """Apply several linear maps to one input; as one matrix product where nothing forbids.

    A map that was replaced, hooked (as by pruning) or not yet used is called by itself.

    Args:
        x: ``[N, F]``.
        lins: Maps of it.

    Returns:
        What each gives, ``[N, out_channels]``.
    """
    if not all(_is_plain(lin) for lin in lins):
        return tuple(lin(x) for lin in lins)
    weights: list[Tensor] = [lin.weight for lin in lins]
    if x.dtype != weights[0].dtype and not torch.is_autocast_enabled(x.device.type):
        raise TypeError(f"x: got {x.dtype}, expected {weights[0].dtype}, the layer's own")
    biases: list[Tensor] = [
        lin.weight.new_zeros(lin.out_channels) if lin.bias is None else lin.bias for lin in lins
    ]
    out = linear(x, torch.cat(weights), torch.cat(biases))
    return split(out, [lin.out_channels for lin in lins])


def _is_plain(lin: nn.Module) -> bool:
    """Whether its weight and bias say all: a layer of another class, or with hooks, may do more."""
    hooks = len(lin._forward_pre_hooks) + len(lin._forward_hooks) + len(lin._backward_hooks)
    return type(lin) is Linear and not hooks and not is_uninitialized_parameter(lin.weight)


class HeadScore(nn.Module):
    """A score with parameters of its own for each head; see :func:`molattn.nn.functional.score`.

    Args:
        kind: ``dot``, ``scaled_dot``, ``general``, ``additive`` or ``gatv2``.
        heads: Number of heads ``H``.
        channels: Width of a head ``C``.

    Raises:
        ValueError: Unknown kind.
    """

    def __init__(self, kind: str, heads: int, channels: int) -> None:
        super().__init__()
        needs_weight, needs_vector = functional.score_parameters(kind)
        self.kind = kind
        self.scale = 1 / math.sqrt(channels) if kind == "scaled_dot" else 1.0
        columns = 2 * channels if kind == "additive" else channels
        self.weight = nn.Parameter(torch.empty(heads, channels, columns)) if needs_weight else None
        self.vector = nn.Parameter(torch.empty(heads, channels)) if needs_vector else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew (Glorot)."""
        glorot(self.weight)
        glorot(self.vector)

    @property
    def bilinear(self) -> bool:
        """Whether the score is an inner product of projected query and key."""
        return functional.is_bilinear(self.kind)

    def query(self, query: Tensor) -> Tensor:
        """Project queries ``[N, H, C]``; :attr:`scale` is left to the caller."""
        if self.weight is None:
            return query
        projected = functional.project_query(query.transpose(0, 1), self.kind, self.weight)
        return projected.transpose(0, 1)

    def key(self, key: Tensor) -> Tensor:
        """Project keys, or one term of their sum, ``[N, H, C]``."""
        if self.weight is None:
            return key
        return functional.project_key(key.transpose(0, 1), self.kind, self.weight).transpose(0, 1)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Rate pairs of projected query and key, ``[..., H, C]`` each -> ``[..., H]``."""
        return functional.pair_score(query, key, self.kind, self.vector)

    def extra_repr(self) -> str:
        """Show the kind."""
        return self.kind


class HeadCombine(nn.Module):
    r"""Bring heads ``[..., H, C]`` back together as ``[..., out_channels]``.

    ============ ========================================= ==============
    ``linear``   :math:`W_o\, \mathrm{concat}_h\, y^h`     ``C = out / H``
    ``concat``   :math:`\mathrm{concat}_h\, y^h`           ``C = out / H``
    ``mean``     :math:`\frac 1 H \sum_h y^h`              ``C = out``
    ``max``      :math:`\max_h y^h`, elementwise           ``C = out``
    ``weighted`` :math:`\sum_h w_h y^h`, ``w`` learned     ``C = out``
    ============ ========================================= ==============

    Args:
        kind: One of the above.
        heads: Number of heads ``H``.
        out_channels: Width of what comes out.

    Raises:
        ValueError: Unknown kind, or a number of heads that does not divide the width it must.
    """

    def __init__(self, kind: str, heads: int, out_channels: int) -> None:
        super().__init__()
        if kind not in COMBINES:
            raise ValueError(f"combine: got {kind!r}, expected one of {', '.join(COMBINES)}")
        check_positive(heads=heads, out_channels=out_channels)
        if kind in _SPLIT and out_channels % heads:
            raise ValueError(
                f"combine={kind!r} needs heads that divide out_channels: got heads={heads}, "
                f"out_channels={out_channels}"
            )
        self.kind = kind
        self.heads = heads
        self.head_channels = out_channels // heads if kind in _SPLIT else out_channels
        self.lin = Linear(out_channels, out_channels, bias=False) if kind == "linear" else None
        self.weight = nn.Parameter(torch.empty(heads)) if kind == "weighted" else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew; learned head weights start as the mean."""
        if self.lin is not None:
            self.lin.reset_parameters()
        if self.weight is not None:
            nn.init.constant_(self.weight, 1 / self.heads)

    def forward(self, heads: Tensor) -> Tensor:
        """Combine ``[..., H, C]`` to ``[..., out_channels]``."""
        if self.kind == "mean":
            return heads.mean(dim=-2)
        if self.kind == "max":
            return heads.amax(dim=-2)
        if self.weight is not None:
            return (heads * self.weight.unsqueeze(-1)).sum(dim=-2)
        flat = heads.flatten(-2)
        return flat if self.lin is None else self.lin(flat)

    def extra_repr(self) -> str:
        """Show the kind."""
        return self.kind


def check_positive(**options: int) -> None:
    """Raise ValueError for the first option that is not a whole number of at least 1."""
    for name, value in options.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{name}: got {value!r}, expected a whole number")
        if value < 1:
            raise ValueError(f"{name}: got {value}, expected at least 1")
