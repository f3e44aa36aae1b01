"""Integer codes to vectors."""

from collections.abc import Sequence
from typing import Optional

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class CodeEmbedding(nn.Module):
    r"""The sum of one learned vector for each column of codes.

    .. math::
        y = \sum_c E_c[\mathrm{code}_c]

    Args:
        sizes: Number of codes of each column.
        channels: Width of the vectors.

    Floating-point input is read as amounts of all codes, column after column: the one-hot encoding
    of a row of codes gives the same vector as the codes, and rows may be interpolated.

    Shapes:
        - **input**: integer codes ``[N, len(sizes)]``, or amounts ``[N, sum(sizes)]``
        - **output**: ``[N, channels]``

    Raises:
        ValueError: Wrong number of columns.
        IndexError: A code that its column does not have (checked on the CPU only).

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

    @property
    def vectors(self) -> Tensor:
        """The vector of each code, column after column, ``[sum(sizes), channels]``."""
        return self.weight

    def forward(self, codes: Tensor) -> Tensor:
        """Embed rows of codes, or of amounts."""
        weight = self.vectors
        if codes.is_floating_point():
            if codes.dim() != 2 or codes.size(1) != len(weight):
                raise ValueError(
                    f"amounts: got shape {list(codes.shape)}, expected [*, {len(weight)}]"
                )
            return codes @ weight
        if codes.dim() != 2 or codes.size(1) != len(self.sizes):
            raise ValueError(
                f"codes: got shape {list(codes.shape)}, expected [*, {len(self.sizes)}]"
            )
        if codes.device.type == "cpu" and codes.numel() and not torch.compiler.is_compiling():
            for column, (most, size) in enumerate(
                zip(codes.amax(dim=0).tolist(), self.sizes, strict=True)
            ):
                if most >= size:
                    raise IndexError(
                        f"codes: got {most} in column {column}, expected 0 to {size - 1}; were "
                        "they made by another featurizer?"
                    )
        return F.embedding_bag(codes.long() + self.offsets, weight, mode="sum")


class PairEmbedding(CodeEmbedding):
    """A learned vector for each type of atom pair.

    Args:
        table: Component codes of each joint code, ``[K, P]``.
        sizes: Number of codes of each component.
        channels: Width of the vectors.
        seen_as: The code that replaces each component code, ``int64 [sum(sizes)]``, both counted
            column after column; None = codes are not replaced.

    Shapes:
        - **input**: joint codes ``[E]``, component codes ``[E, P]``, or amounts of every component
          code ``[E, sum(sizes)]``
        - **output**: ``[E, channels]``
    """

    table: Tensor
    seen_as: Optional[Tensor]

    def __init__(
        self,
        table: Tensor,
        sizes: Sequence[int],
        channels: int,
        *,
        seen_as: Optional[Tensor] = None,
    ) -> None:
        super().__init__(sizes, channels)
        self.register_buffer("table", table.long(), persistent=False)
        self.register_buffer("seen_as", seen_as, persistent=False)

    @property
    def blank(self) -> Tensor:
        """The vector of a pair without any code, ``[channels]``."""
        return self.weight.new_zeros(self.weight.size(1))

    @property
    def vectors(self) -> Tensor:
        """The vector of each code, after replacement, ``[sum(sizes), channels]``."""
        return self.weight if self.seen_as is None else self.weight[self.seen_as]

    def forward(self, codes: Tensor) -> Tensor:
        """Embed joint codes ``[E]``, or rows of component codes or amounts."""
        return super().forward(self.table[codes.long()] if codes.dim() == 1 else codes)


class FixedPairEmbedding(PairEmbedding):
    """Fixed numbers for each kind of atom pair, not learned.

    Args:
        table: As for :class:`PairEmbedding`.
        sizes: Likewise.
        values: What each component code adds, ``[sum(sizes), channels]``.
        blank: What it is added to, ``[channels]``.
        seen_as: As for :class:`PairEmbedding`.
    """

    base: Tensor

    def __init__(
        self,
        table: Tensor,
        sizes: Sequence[int],
        values: Tensor,
        blank: Tensor,
        *,
        seen_as: Optional[Tensor] = None,
    ) -> None:
        super().__init__(table, sizes, values.size(1), seen_as=seen_as)
        del self.weight  # no parameter, and no part of a saved model
        self.register_buffer("weight", values, persistent=False)
        self.register_buffer("base", blank, persistent=False)

    @property
    def blank(self) -> Tensor:
        """The vector of a pair without any code, ``[channels]``."""
        return self.base

    def forward(self, codes: Tensor) -> Tensor:
        """Numbers of joint codes ``[E]``, or of rows of component codes or amounts."""
        return self.base + super().forward(codes)
