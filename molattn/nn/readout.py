"""Atoms to a molecule, by PyG's own aggregations."""

from collections.abc import Callable
from typing import Union

import torch
from torch import Tensor, nn
from torch_geometric.nn import aggr

__all__ = ["READOUTS", "Readout"]

READOUTS: dict[str, Callable[[int], aggr.Aggregation]] = {
    "mean": lambda _: aggr.MeanAggregation(),
    "sum": lambda _: aggr.SumAggregation(),
    "max": lambda _: aggr.MaxAggregation(),
    "min": lambda _: aggr.MinAggregation(),
    "std": lambda _: aggr.StdAggregation(),
    "median": lambda _: aggr.MedianAggregation(),
    "softmax": lambda width: aggr.SoftmaxAggregation(learn=True, channels=width),
    "variance_preserving": lambda _: aggr.VariancePreservingAggregation(),
    "attentional": lambda width: aggr.AttentionalAggregation(nn.Linear(width, 1)),
    "deep_sets": lambda width: aggr.DeepSetsAggregation(
        nn.Sequential(nn.Linear(width, width), nn.SiLU()), nn.Linear(width, width)
    ),
    "set2set": lambda width: aggr.Set2Set(width, processing_steps=3),
    "set_transformer": lambda width: aggr.SetTransformerAggregation(width),
}


class Readout(nn.Module):
    """Permutation-invariant PyG aggregations of atoms, by name or given as modules.

    A molecule without atoms gives 0, whatever the aggregation would make of nothing.

    Args:
        kind: A name of ``READOUTS``, or of a class of ``torch_geometric.nn.aggr`` that needs no
            arguments; several joined by ``+`` are concatenated. Or any PyG ``Aggregation``. Whether
            one that is not in ``READOUTS`` is permutation invariant is the caller's affair.
        channels: Width of atoms.

    Raises:
        ValueError: A name that is neither.

    Example:
        >>> Readout("mean+max", 8).out_channels
        16
    """

    def __init__(self, kind: Union[str, aggr.Aggregation], channels: int) -> None:
        super().__init__()
        self.kind = kind if isinstance(kind, str) else type(kind).__name__
        if isinstance(kind, str):
            parts = [_named(name.strip(), channels) for name in kind.split("+")]
        else:
            parts = [kind]
        self.parts = nn.ModuleList(parts)
        with torch.no_grad():
            probe = self._aggregate(torch.zeros(2, channels), torch.zeros(2, dtype=torch.long), 1)
        self.out_channels: int = probe.size(-1)

    def forward(self, x: Tensor, index: Tensor, num_graphs: int) -> Tensor:
        """Aggregate atoms ``[N, channels]`` to molecules ``[num_graphs, out_channels]``.

        Args:
            x: Atoms, without padding.
            index: Molecule of each atom, ascending.
            num_graphs: Number of molecules.
        """
        if x.size(0) == 0:
            return x.new_zeros(num_graphs, self.out_channels)
        out = self._aggregate(x, index, num_graphs)
        present = torch.zeros(num_graphs, 1, dtype=torch.bool, device=x.device)
        return torch.where(present.index_fill(0, index, True), out, 0.0)

    def _aggregate(self, x: Tensor, index: Tensor, num_graphs: int) -> Tensor:
        parts = [part(x, index, dim_size=num_graphs) for part in self.parts]
        return torch.cat([part.reshape(num_graphs, -1) for part in parts], dim=-1)


def _named(name: str, channels: int) -> aggr.Aggregation:
    if name in READOUTS:
        return READOUTS[name](channels)
    known = getattr(aggr, name, None)
    try:
        if isinstance(known, type) and issubclass(known, aggr.Aggregation):
            return known()
    except TypeError as error:
        raise ValueError(
            f"readout: {name} of PyG needs arguments; give it as a module: {error}"
        ) from error
    raise ValueError(
        f"readout: got {name!r}, expected one of {', '.join(READOUTS)}, several joined by +, or "
        "the name of a PyG aggregation that needs no arguments, such as PowerMeanAggregation"
    )
