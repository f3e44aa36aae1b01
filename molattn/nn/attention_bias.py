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


class DistanceSlopes(Resettable):
    r"""Slopes, one for each head, by which logits fall with the number of bonds between two atoms.

    .. math::
        a_{rs} \leftarrow a_{rs} - s_h \max(d_{rs} - 1, 0)

    The linear biases of ALiBi (Press et al. 2022, "Train Short, Test Long") on a graph, learned: a
    head with a large slope looks at bonded atoms and the atom itself, one with 0 at all alike. At
    first the slopes are 4, 2, 1, 1/2, ... in three quarters of the heads, and 0 in the others.

    The distance :math:`d` is in a ``column`` of the edge features; above ``max_distance`` it counts
    as that. Pairs without a path (below 0) count as one bond more than ``max_distance``; the
    virtual node of :class:`~molattn.graph.AddDummyNode` (from 10,000) as bonded to all.

    Any number in the column is read as a distance, also a bond's code or an embedding's component:
    make pairs by :class:`~molattn.graph.CompleteGraph`, and give a layer that reads embeddings the
    distances as ``bias_attr``.

    Example:
        >>> slopes = DistanceSlopes(4, max_distance=8)
        >>> slopes(torch.tensor([[1.0], [3.0]]))[1, :3].tolist()
        [-8.0, -4.0, -2.0]
    """

    def __init__(self, heads: int, max_distance: int, column: int = -1) -> None:
        super().__init__()
        self.max_distance = max_distance
        self.column = column
        self.slope = nn.Parameter(torch.empty(heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset the slopes."""
        nn.init.zeros_(self.slope)
        count = 3 * len(self.slope) // 4
        with torch.no_grad():
            self.slope[:count] = 2.0 ** (2.0 - torch.arange(count))

    def forward(self, edge_attr: Tensor) -> Tensor:
        """Map edge features ``[E, D]`` to ``[E, H]``."""
        distance = edge_attr[:, self.column].to(self.slope.dtype)
        bonds = distance.clamp(1, self.max_distance)
        bonds = bonds.masked_fill(distance < 0, self.max_distance + 1)
        bonds = bonds.masked_fill(distance >= 1e4, 1)
        return (1 - bonds).unsqueeze(-1) * self.slope


class PathBias(Linear):
    """A linear map of the last ``channels`` edge features, for example from ``PathBonds``."""

    def __init__(self, heads: int, channels: int) -> None:
        super().__init__(channels, heads, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map edge features ``[E, D]`` to ``[E, H]``."""
        return super().forward(x[:, -self.in_channels :])
