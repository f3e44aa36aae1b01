"""Learned terms of the logits that depend on edges alone (Graphormer)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from molattn.nn.linear import Linear


class AttentionBias(nn.Module):
    r"""A sum of learned terms of the logits, a number for each head: ``attn_bias`` of any layer.

    Ying et al. 2021, "Do Transformers Really Perform Bad for Graph Representation?", equations 6
    and 7. A term is a module that maps edge features ``[E, D]`` to ``[E, H]``. The paper's encoding
    of degrees is one of nodes: ``OnBonds(OneHotDegree(...))``, with PyG's ``OneHotDegree``.

    Args:
        terms: Such as :class:`DistanceBias` and :class:`PathBias`.

    Example:
        >>> from molattn.nn import EGTConv
        >>> bias = AttentionBias(DistanceBias(2, max_distance=8, column=0), PathBias(2, 6))
        >>> x, edge_index = torch.randn(3, 4), torch.tensor([[0, 1], [1, 2]])
        >>> EGTConv(4, 4, heads=2, attn_bias=bias)(x, edge_index, torch.randn(2, 7)).shape
        torch.Size([3, 4])
    """

    def __init__(self, *terms: nn.Module) -> None:
        super().__init__()
        self.terms = nn.ModuleList(terms)

    def reset_parameters(self) -> None:
        """Reset the parameters of all terms."""
        for term in self.terms:
            term.reset_parameters()  # pyright: ignore[reportCallIssue]

    def forward(self, edge_attr: Tensor) -> Tensor:
        """Add up the terms ``[E, H]``."""
        return torch.stack([term(edge_attr) for term in self.terms]).sum(dim=0)


class DistanceBias(nn.Module):
    """A learned number for each head and number of bonds between two atoms.

    Longer distances count as ``max_distance``. Pairs without a path have their own number, and so
    have those of the virtual node of :class:`~molattn.graph.AddDummyNode`.

    Args:
        heads: Number of heads.
        max_distance: Largest distance with a number of its own.
        column: Column of the edge features that holds the distance, negative without a path.
        virtual_distance: Least distance of the virtual node.
    """

    def __init__(
        self, heads: int, max_distance: int, column: int = -1, virtual_distance: float = 1e4
    ) -> None:
        super().__init__()
        self.max_distance, self.column = max_distance, column
        self.virtual_distance = virtual_distance
        self.weight = nn.Parameter(torch.empty(max_distance + 3, heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset the parameters, as in the authors' code."""
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, edge_attr: Tensor) -> Tensor:
        """Look the numbers up, ``[E, H]``."""
        distance = edge_attr[:, self.column]
        code = distance.clamp(0, self.max_distance).round().long()
        code = code.masked_fill(distance < 0, self.max_distance + 1)
        virtual = distance >= self.virtual_distance
        return F.embedding(code.masked_fill(virtual, self.max_distance + 2), self.weight)


class PathBias(Linear):
    """A learned linear map of the last edge features, such as those of ``graph.PathBonds``.

    Args:
        heads: Number of heads.
        channels: Number of features.
    """

    def __init__(self, heads: int, channels: int) -> None:
        super().__init__(channels, heads, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map edge features ``[E, D]`` to ``[E, H]``."""
        return super().forward(x[:, -self.in_channels :])
