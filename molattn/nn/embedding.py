"""Embeddings of integer codes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from molattn._torch_compat import is_transformed
from molattn.graph.complete import CodedEdges


class CodeEmbedding(nn.Module):
    r"""The sum of the learned vectors of the codes in a row.

    .. math::
        y = \sum_c E_c[\mathrm{code}_c]

    Args:
        sizes: Number of codes of each column.
        channels: Width of the vectors.

    Floating-point input is a row of coefficients of all vectors, those of the first column first:
    the one-hot encoding of codes gives the same result as the codes, and rows may be interpolated.
    Gradients with respect to the vectors have gradients themselves for coefficients, and for codes
    in the transforms of ``torch.func`` (torch has no second derivative of ``embedding_bag``).

    Shapes:
        - **input**: integer codes ``[N, len(sizes)]``, coefficients ``[N, sum(sizes)]``, or
          :class:`~molattn.graph.CodedEdges` with a table of such rows
        - **output**: ``[N, channels]``; of coded edges, the same with an embedded table

    Example:
        >>> CodeEmbedding([3, 2], 8)(torch.tensor([[2, 0], [0, 1]])).shape
        torch.Size([2, 8])
    """

    offsets: Tensor

    def __init__(self, sizes: Sequence[int], channels: int) -> None:
        super().__init__()
        self.sizes = tuple(sizes)
        self.weight = nn.Parameter(torch.empty(sum(sizes), channels))
        starts = [sum(self.sizes[:i]) for i in range(len(self.sizes))]
        self.register_buffer("offsets", torch.tensor(starts), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset the vectors, so that their sum has unit variance."""
        nn.init.normal_(self.weight, std=len(self.sizes) ** -0.5)

    def extra_repr(self) -> str:
        """Sizes and width."""
        return f"{list(self.sizes)}, {self.weight.size(1)}"

    def forward(self, codes: Any) -> Any:
        """Embed rows of codes or coefficients, or the table of coded edges."""
        if isinstance(codes, CodedEdges):
            return replace(codes, table=self(codes.table))
        weight = self.weight
        width = len(weight) if codes.is_floating_point() else len(self.sizes)
        if codes.dim() != 2 or codes.size(1) != width:
            raise ValueError(f"codes: got shape {list(codes.shape)}, expected [*, {width}]")
        if codes.is_floating_point():
            return codes @ weight
        plain = torch.compiler.is_compiling() or is_transformed(weight)
        if not plain and codes.device.type == "cpu" and codes.numel():
            low, high = codes.aminmax(dim=0)
            if low.min() < 0 or bool((high >= torch.tensor(self.sizes)).any()):
                least = f" and down to {low.tolist()}" if low.min() < 0 else ""
                raise IndexError(
                    f"codes: got up to {high.tolist()}{least}, expected less than "
                    f"{list(self.sizes)} and at least 0; were they made by another featurizer, or "
                    "without max_distance or no_path?"
                )
        codes = codes.long() + self.offsets
        if plain:
            return F.embedding(codes, weight).sum(dim=-2)
        return F.embedding_bag(codes, weight, mode="sum")


class PairEmbedding(CodeEmbedding):
    """A learned vector for each type of atom pair.

    Joint codes and component codes are those of :class:`molattn.chem.Featurizer`.

    Args:
        table: Component codes of each joint code, ``[K, P]``.
        sizes: Number of codes of each component.
        channels: Width of the vectors.

    Shapes:
        - **input**: joint codes ``[E]``, or as for :class:`CodeEmbedding`
        - **output**: ``[E, channels]``
    """

    table: Tensor
    blank: Tensor
    """The vector of a pair without any code, ``[channels]``."""

    def __init__(self, table: Tensor, sizes: Sequence[int], channels: int) -> None:
        super().__init__(sizes, channels)
        self.register_buffer("table", table.long(), persistent=False)
        self.register_buffer("blank", torch.zeros(channels), persistent=False)

    def forward(self, codes: Tensor) -> Tensor:
        """Embed joint codes ``[E]``, or rows of component codes or coefficients."""
        if codes.dim() == 1 and not codes.is_floating_point():
            codes = F.embedding(codes.long(), self.table)
        return super().forward(codes)


class FixedPairEmbedding(PairEmbedding):
    """Fixed features of each type of atom pair; nothing is learned.

    Args:
        table, sizes: As for :class:`PairEmbedding`.
        values: The term of each component code, ``[sum(sizes), channels]``.
        blank: The constant term, ``[channels]``.
    """

    def __init__(self, table: Tensor, sizes: Sequence[int], values: Tensor, blank: Tensor) -> None:
        super().__init__(table, sizes, values.size(1))
        del self.weight  # no parameter, and no part of a saved model
        self.register_buffer("weight", values, persistent=False)
        self.blank = blank

    def reset_parameters(self) -> None:
        """Do nothing: there are no parameters."""

    def forward(self, codes: Tensor) -> Tensor:
        """Features of joint codes ``[E]``, or of rows of component codes or coefficients."""
        return self.blank + super().forward(codes)
