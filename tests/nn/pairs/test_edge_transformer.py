"""Triangular attention by NumPy; what holds for all layers of pairs is in test_triplets.py."""

import numpy as np
import torch

from molattn.nn import EdgeTransformerConv

from ..conftest import DOUBLE
from .test_triplets import HEADS, WIDTH, every_graph, graph_by_graph, linear


def reference(layer, e, mask):
    n, d = len(e), WIDTH // HEADS
    parts = np.split(linear(layer.lin_in, e), 4, axis=-1)
    query, key, left, right = (part.reshape(n, n, HEADS, d) for part in parts)
    out = np.zeros((n, n, HEADS, d))
    for i, j, h in np.ndindex(n, n, HEADS):
        middle = [m for m in range(n) if mask[i, m] and mask[m, j]]
        weights = np.exp([query[i, m, h] @ key[m, j, h] / np.sqrt(d) for m in middle])
        paths = [left[i, m, h] * right[m, j, h] for m in middle]
        out[i, j, h] = sum((w * p for w, p in zip(weights, paths, strict=True)), np.zeros(d))
        out[i, j, h] /= weights.sum() or 1.0
    return linear(layer.lin_out, out.reshape(n, n, WIDTH))


@every_graph
def test_triangular_attention_against_numpy(make_graph):
    layer, graph = EdgeTransformerConv(WIDTH, HEADS, bias=True).double(), make_graph()
    edges = torch.randn(graph.num_edges, WIDTH, dtype=DOUBLE)
    got = graph.pairs_to_edges(layer(graph.edges_to_pairs(edges), graph))
    expected = graph_by_graph(reference, layer, edges, graph)
    np.testing.assert_allclose(got.detach().numpy(), expected, rtol=0, atol=1e-10)
