"""Assertions that catch broken layers and models of graphs, molattn's and your own.

Each function checks one promise. :func:`check_module` runs all that apply to a module:

>>> from torch_geometric.data import Batch
>>> from torch_geometric.datasets import FakeDataset
>>> from torch_geometric.nn import GATConv
>>> from molattn.testing import check_module
>>> graphs = FakeDataset(num_graphs=4, avg_num_nodes=6, avg_degree=2, num_channels=8, edge_dim=3)
>>> report = check_module(GATConv(8, 16, heads=2, edge_dim=3), Batch.from_data_list(list(graphs)))
>>> for name, outcome in report.items():
...     print(name, outcome, sep=": ")
permutation: passed
independence: passed
batching: passed
padding: not applicable: GATConv.forward has no mask
direction: passed
rotation: not applicable: GATConv reads no pos
gradients: passed
isolated nodes: passed
stability: passed

``module`` is a layer or a model; put it into ``eval()`` first if it has dropout (``check_module``
does so). ``data`` is a graph or a batch of PyG. Checks of batches need at least two graphs (or a
list of them), with different numbers of nodes, edges and graphs.

The module is called with the attributes of ``data`` whose names are parameters of its ``forward``
(``x``, ``edge_index``, ``edge_attr``, ``batch``, ...), or with ``data`` itself if there are none
but ``batch``. If ``forward`` has a parameter ``mask``, the module is a dense layer: it gets padded
``[B, N, F]`` features, ``adj`` ``[B, N, N]`` and a ``mask`` ``[B, N]`` that is True for nodes, as
PyG's ``DenseGCNConv``. Further keyword arguments are passed on, the same in all calls. Outputs are
tensors, or tuples of them; a pair ``(edge_index, alpha)`` belongs to its edges.

An error is relative to the largest magnitude in that output, or to the median magnitude of the
inputs if this is larger. ``tolerance`` is the largest allowed error; None = 1e-10 in float64, 1e-5
in float32, 2e-2 in half precision. Use float64 to find small errors. Assertions return the worst
error, if they measure one. They raise AssertionError with the node, edge, graph or parameter, the
error, and its usual cause; and :class:`NotApplicableError`, a ValueError, for what they cannot
judge.
"""

from .check import check_module
from .independence import (
    assert_batch_invariant,
    assert_graphs_independent,
    assert_padding_invariant,
)
from .numerics import (
    assert_attention_normalized,
    assert_gradients,
    assert_isolated_nodes,
    assert_smooth,
    assert_stable,
)
from .subject import NotApplicableError
from .symmetry import (
    assert_edge_direction,
    assert_permutation_equivariant,
    assert_permutation_invariant,
    assert_rotation_equivariant,
    permute_nodes,
)

__all__ = [
    "NotApplicableError",
    "assert_attention_normalized",
    "assert_batch_invariant",
    "assert_edge_direction",
    "assert_gradients",
    "assert_graphs_independent",
    "assert_isolated_nodes",
    "assert_padding_invariant",
    "assert_permutation_equivariant",
    "assert_permutation_invariant",
    "assert_rotation_equivariant",
    "assert_smooth",
    "assert_stable",
    "check_module",
    "permute_nodes",
]
