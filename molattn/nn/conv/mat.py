"""Attention mixed with distances and bonds (MAT)."""

import math
from typing import Any, Union

import torch
from torch import Tensor, nn
from torch_geometric.typing import OptTensor

from molattn.nn.attention_heads import check_choice
from molattn.nn.conv.attention_conv import AttentionConv
from molattn.nn.dense.linear import Linear
from molattn.nn.functional import Neighborhoods, normalize

_EPSILON = 1e-6  # of the row normalization of bonds, as in the authors' code


class MATConv(AttentionConv):
    r"""Molecule attention (Maziarka et al. 2020, "Molecule Attention Transformer", equation 3).

    .. math::
        A^h &= \lambda_a\, \mathrm{softmax}(Q K^\top / \sqrt C) + \lambda_d\, g(D)
               + \lambda_g\, \tilde A, \qquad \lambda_a + \lambda_d + \lambda_g = 1 \\
        g(D) &= \mathrm{softmax}(-D) \;\text{or}\; \exp(-D), \qquad
        \tilde A_{rs} = \frac{A_{rs}}{\sum_{s'} A_{rs'} + 10^{-6}} \\
        x'_i &= W_o\, \mathrm{concat}_h \sum_j A^h_{ij} W_v x_j + \beta

    Softmax and row sums are over the edges of each receiver. There are two edge features: the
    distance ``edge_attr[:, 0]`` :math:`= D`, and the bond ``edge_attr[:, 1]`` :math:`= A`, which is
    1 for bonded atoms and for an atom with itself, and 0 otherwise.
    :class:`molattn.graph.BondsAndDistances` computes both, and :class:`molattn.graph.AddDummyNode`
    adds the paper's dummy node. The weights that are returned are :math:`A^h`.

    Args:
        in_channels, out_channels, heads, dropout, kwargs: See :class:`AttentionConv`.
        lambda_attention: :math:`\lambda_a`.
        lambda_distance: :math:`\lambda_d`; :math:`\lambda_g = 1 - \lambda_a - \lambda_d`.
        learn_lambdas: Learn all three, as a softmax with these initial values.
        kernel: :math:`g`, ``softmax`` or ``exp``.
        bias: Add a bias to the linear maps.

    Example:
        >>> conv = MATConv(8, 16, heads=4)
        >>> edge_index = torch.tensor([[0, 1, 0, 1], [0, 0, 1, 1]])
        >>> distance_and_bond = torch.tensor([[0.0, 1.0], [1.4, 1.0], [1.4, 1.0], [0.0, 1.0]])
        >>> conv(torch.randn(2, 8), edge_index, distance_and_bond).shape
        torch.Size([2, 16])
    """

    def __init__(
        self,
        in_channels: Union[int, tuple[int, int]],
        out_channels: int,
        heads: int = 1,
        *,
        lambda_attention: float = 1 / 3,
        lambda_distance: float = 1 / 3,
        learn_lambdas: bool = False,
        kernel: str = "softmax",
        dropout: float = 0.0,
        bias: bool = True,
        **kwargs: Any,
    ) -> None:
        check_choice("kernel", kernel, ("softmax", "exp"))
        lambda_bond = 1.0 - lambda_attention - lambda_distance
        # 1/3 + 1/3 + 1/3 and the like may miss 1 by rounding.
        lambda_bond = 0.0 if abs(lambda_bond) < 1e-12 else lambda_bond
        lambdas = (lambda_attention, lambda_distance, lambda_bond)
        least = 1e-12 if learn_lambdas else 0.0  # a learned lambda starts as a logarithm
        if not all(least <= weight <= 1 for weight in lambdas):
            raise ValueError(
                f"lambda_attention, lambda_distance and 1 minus both: got {lambdas}, expected "
                f"numbers from 0 to 1, above 0 with learn_lambdas"
            )
        if (edge_dim := kwargs.pop("edge_dim", 2)) != 2:
            raise ValueError(f"edge_dim: got {edge_dim}, expected 2: distance and bond")
        options: Any = {"edge_dim": 2, "score": "scaled_dot", "dropout": dropout}
        super().__init__(in_channels, out_channels, heads, **options, **kwargs)
        self.kernel = kernel
        self.lambda_attention = lambda_attention
        self.lambda_distance = lambda_distance
        self.initial_lambdas = lambdas
        self.learn_lambdas = learn_lambdas
        self.make_projections(bias, bias)
        self.lin_out = Linear(heads * self.head_channels, out_channels, bias=bias)
        self.log_lambdas = nn.Parameter(torch.empty(3)) if learn_lambdas else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset all parameters; learned lambdas to their initial values."""
        super().reset_parameters()
        if self.log_lambdas is not None:
            with torch.no_grad():
                logarithms = [math.log(weight) for weight in self.initial_lambdas]
                self.log_lambdas.copy_(torch.tensor(logarithms))

    @property
    def lambdas(self) -> Union[Tensor, tuple[float, ...]]:
        r"""The weights :math:`\lambda_a, \lambda_d, \lambda_g`."""
        return self.initial_lambdas if self.log_lambdas is None else self.log_lambdas.softmax(dim=0)

    def weigh(self, logits: Tensor, receivers: Neighborhoods, features: OptTensor) -> Tensor:
        """The weights :math:`A^h`."""
        assert features is not None
        distance, bonded = features.to(logits.dtype).unbind(dim=-1)
        if self.kernel == "softmax":
            proximity = normalize(-distance, receivers)
        else:
            # Elsewhere the features may be of any size, and exp would overflow.
            proximity = receivers.masked((-receivers.masked(distance)).exp())
        bonded = receivers.masked(bonded)
        adjacency = bonded / (receivers.sum(bonded) + _EPSILON)
        lambdas = self.lambdas
        mixed = normalize(logits, receivers, self.temperature)
        fixed = lambdas[1] * proximity + lambdas[2] * adjacency
        return lambdas[0] * mixed + receivers.per_head(fixed)
