"""Edge features that take few distinct values."""

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

__all__ = ["CodedEdges"]


@dataclass(frozen=True)
class CodedEdges:
    """Features of pair rows as a code for each pair and a table of what the codes mean.

    A molecule's pairs show tens of distinct features, so a layer computes what it needs of them
    once for each code.

    Args:
        codes: For each pair row its row of the table, ``int64 [num_pairs]``; ``K`` where the pair
            is no edge (see ``CompleteGraphs.pair_masks``).
        table: Features of each code, ``[K, D]``.
    """

    codes: Tensor
    table: Tensor

    @property
    def padded_table(self) -> Tensor:
        """The table with a last row of zeros, for pairs that are no edges, ``[K + 1, D]``."""
        return F.pad(self.table, (0, 0, 0, 1))

    def dense(self) -> Tensor:
        """The features of each pair row, ``[num_pairs, D]``; 0 where the pair is no edge."""
        return F.embedding(self.codes, self.padded_table)
