"""Learned terms of the logits that depend on edges alone (Graphormer)."""

import torch
from torch import Tensor, nn

from molattn.nn.dense.linear import Linear
from molattn.nn.resettable import Resettable


class AttentionBias(Resettable):
    r"""A sum of terms of the logits: modules that map edge features ``[E, D]`` to ``[E, H]``.

    Ying et al. 2021, "Do Transformers Really Perform Bad for Graph Representation?", equations 6
    and 7. Any layer takes it as ``attn_bias``. The paper's encoding of degrees is one of nodes:
    ``OnBonds(OneHotDegree(...))``, with PyG's ``OneHotDegree``.

    Example:
        >>> from molattn.nn import EGTConv
        >>> bias = AttentionBias(DistanceBias(2, max_distance=8, column=0), PathBias(2, 6))
        >>> x, edge_index = torch.randn(3, 4), torch.tensor([[0, 1], [1, 2]])
        >>> EGTConv(4, 4, heads=2, attn_bias=bias)(x, edge_index, torch.randn(2, 7)).shape
        torch.Size([3, 4])
    """

    def __init__(self, term: nn.Module, *terms: nn.Module) -> None:
        super().__init__()
        self.terms = nn.ModuleList([term, *terms])

    def forward(self, edge_attr: Tensor) -> Tensor:
        """Add up the terms ``[E, H]``."""
        return torch.stack([term(edge_attr) for term in self.terms]).sum(dim=0)


class DistanceBias(nn.Embedding):
    """A learned number for each head and number of bonds between two atoms.

    It is in a ``column`` of the edge features; above ``max_distance`` it counts as that. Pairs
    without a path (below 0) have their own number, as do those of the virtual node of
    :class:`~molattn.graph.AddDummyNode` (from 10,000).
    """

    def __init__(self, heads: int, max_distance: int, column: int = -1) -> None:
        super().__init__(max_distance + 3, heads)
        self.max_distance = max_distance
        self.column = column

    def reset_parameters(self) -> None:
        """Reset the parameters."""
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, input: Tensor) -> Tensor:
        """Look up the numbers of edge features ``[E, D]``, ``[E, H]``."""
        distance = input[:, self.column]
        code = distance.clamp(0, self.max_distance).round().long()
        code = code.masked_fill(distance < 0, self.max_distance + 1)
        return super().forward(code.masked_fill(distance >= 1e4, self.max_distance + 2))


class PathBias(Linear):
    """A linear map of the last ``channels`` edge features, for example from ``PathBonds``."""

    def __init__(self, heads: int, channels: int) -> None:
        super().__init__(channels, heads, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map edge features ``[E, D]`` to ``[E, H]``."""
        return super().forward(x[:, -self.in_channels :])
