"""Readouts: PyG aggregations of the vectors of atoms to the vector of a molecule."""

import inspect
import math
from collections.abc import Callable
from typing import Union

import torch
from torch import Tensor, nn
from torch_geometric.nn import aggr

from molattn.errors import InputError, quoted
from molattn.nn.pairs.edge_set import PMA
from molattn.nn.resettable import Resettable
from molattn.utils.registry import Registry

READOUTS: Registry[Callable[[int], aggr.Aggregation]] = Registry("readout")
"""Every readout by its name: a function from the width of atoms to a PyG ``Aggregation``."""

READOUTS.register("mean")(lambda _: aggr.MeanAggregation())
READOUTS.register("sum")(lambda _: aggr.SumAggregation())
READOUTS.register("max")(lambda _: aggr.MaxAggregation())
READOUTS.register("min")(lambda _: aggr.MinAggregation())
READOUTS.register("std")(lambda _: aggr.StdAggregation())
READOUTS.register("median")(lambda _: aggr.MedianAggregation())
READOUTS.register("softmax")(lambda width: aggr.SoftmaxAggregation(learn=True, channels=width))
READOUTS.register("variance_preserving")(lambda _: aggr.VariancePreservingAggregation())
READOUTS.register("attentional")(lambda width: aggr.AttentionalAggregation(nn.Linear(width, 1)))
READOUTS.register("deep_sets")(
    lambda width: aggr.DeepSetsAggregation(
        nn.Sequential(nn.Linear(width, width), nn.SiLU()), nn.Linear(width, width)
    )
)
READOUTS.register("set2set")(lambda width: aggr.Set2Set(width, processing_steps=3))
READOUTS.register("set_transformer")(lambda width: aggr.SetTransformerAggregation(width))
READOUTS.register("pma")(lambda width: PMA(width, math.gcd(width, 8)))


class Readout(Resettable):
    """PyG aggregations of atoms, by name or as a module.

    The vector of a molecule without atoms is always 0.

    Args:
        kind: A name of ``READOUTS``, or of a class of ``torch_geometric.nn.aggr`` that needs no
            arguments; several joined by ``+`` are concatenated. Or any PyG ``Aggregation``. The
            built-in ``READOUTS`` are permutation invariant; others are not checked.
        channels: Number of features of atoms.

    Example:
        >>> Readout("mean+max", 8).out_channels
        16
    """

    def __init__(self, kind: Union[str, aggr.Aggregation], channels: int) -> None:
        super().__init__()
        self.kind = kind if isinstance(kind, str) else type(kind).__name__
        makers = readout_makers(kind) if isinstance(kind, str) else [lambda _: kind]
        self.parts = nn.ModuleList(make(channels) for make in makers)
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
        vectors = [aggregation(x, index, dim_size=num_graphs) for aggregation in self.parts]
        return torch.cat([x.reshape(num_graphs, -1) for x in vectors], dim=-1)


def readout_makers(kind: str) -> list[Callable[[int], aggr.Aggregation]]:
    """Return the makers of aggregations; InputError if a name is unknown or needs arguments."""
    return [_maker(name.strip()) for name in kind.split("+")]


def _maker(name: str) -> Callable[[int], aggr.Aggregation]:
    if name in READOUTS:
        return READOUTS[name]
    aggregation = getattr(aggr, name, None)
    if not (isinstance(aggregation, type) and issubclass(aggregation, aggr.Aggregation)):
        raise InputError(
            f"got {quoted(name)}, expected one of {', '.join(READOUTS)}, several joined by +, or "
            "the name of a PyG aggregation that needs no arguments, such as PowerMeanAggregation",
            option="readout",
        )
    try:
        inspect.signature(aggregation).bind()
    except TypeError as error:
        message = f"{name} of PyG needs arguments ({error}); pass it as a module"
        raise InputError(message, option="readout") from error
    return lambda _: aggregation()
