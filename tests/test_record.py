import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from molattn.record import pairs_within


@given(
    size=st.integers(0, 12),
    radius=st.integers(1, 13),
    seed=st.integers(0, 2**16),
    density=st.sampled_from([0.0, 0.1, 0.3]),
)
def test_pairs_and_lengths_are_those_of_networkx(size, radius, seed, density):
    graph = nx.gnp_random_graph(size, density, seed=seed)
    ends = np.array(list(graph.to_directed().edges), dtype=np.int64).reshape(-1, 2).T
    pairs, lengths = pairs_within(size, ends, radius)
    paths = dict(nx.all_pairs_shortest_path_length(graph, cutoff=radius))
    expected = sorted((i, j, length) for i, near in paths.items() for j, length in near.items())
    assert list(zip(*pairs.tolist(), lengths.tolist(), strict=True)) == expected


@pytest.mark.parametrize("size", [10, 20_000])
def test_a_long_chain_has_pairs_in_proportion_to_its_length(size):
    chain = np.arange(size)
    ends = np.concatenate([[chain[:-1], chain[1:]], [chain[1:], chain[:-1]]], axis=1)
    pairs, lengths = pairs_within(size, ends, 3)
    assert pairs.shape == (2, 7 * size - 12)
    assert lengths.max() == 3
