"""Edge features that take few distinct values."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from molattn.graph.complete import CompleteGraphs

__all__ = ["CodedEdges"]


@dataclass(frozen=True)
class CodedEdges:
    """Features of pair rows as a code for each pair and a table of what the codes mean.

    A molecule's pairs show tens of distinct features, so a layer computes what it needs of them
    once for each code.

    Args:
        codes: For each pair row its row of the table, ``int64 [num_pairs]``; ``K`` where the pair
            is no edge (see ``CompleteGraphs.is_edge``).
        table: Features of each code, ``[K, D]``.

    Example:
        >>> graphs = CompleteGraphs([2], self_loops=False)
        >>> CodedEdges.from_edges(graphs, torch.tensor([0, 1]), torch.ones(2, 3)).codes
        tensor([2, 0, 1, 2])
    """

    codes: Tensor
    table: Tensor

    @classmethod
    def from_edges(cls, graphs: CompleteGraphs, codes: Tensor, table: Tensor) -> "CodedEdges":
        """Lay codes of edges out as pair rows.

        Args:
            graphs: The layout.
            codes: For each edge of ``graphs.edge_index`` its row of the table, ``[num_edges]``.
            table: Features of each code, ``[K, D]``.
        """
        rows = codes.new_full((graphs.num_pairs,), table.size(0), dtype=torch.int64)
        return cls(rows.index_copy(0, graphs.edge_row, codes.long()), table)

    @property
    def padded_table(self) -> Tensor:
        """The table with a last row of zeros, for pairs that are no edges, ``[K + 1, D]``."""
        return F.pad(self.table, (0, 0, 0, 1))

    def dense(self) -> Tensor:
        """The features of each pair row, ``[num_pairs, D]``; 0 where the pair is no edge."""
        return F.embedding(self.codes, self.padded_table)
