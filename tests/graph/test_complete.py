"""The layout of complete graphs against plain loops."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data

from molattn.graph import CompleteGraphs
from molattn.graph.plan import plan_blocks

SIZES = st.lists(st.integers(0, 12), max_size=12)


def loop_edges(sizes, self_loops):
    edges, first = [], 0
    for n in sizes:
        edges += [
            (first + sender, first + receiver)
            for receiver in range(n)
            for sender in range(n)
            if self_loops or sender != receiver
        ]
        first += n
    return torch.tensor(edges, dtype=torch.long).reshape(-1, 2).T


@given(sizes=SIZES, self_loops=st.booleans())
def test_views_convert_exactly(sizes, self_loops):
    graphs = CompleteGraphs(sizes, self_loops=self_loops)
    edge_index = loop_edges(sizes, self_loops)
    assert torch.equal(graphs.edge_index, edge_index)
    assert graphs.num_nodes == sum(sizes)
    assert graphs.num_edges == edge_index.size(1)
    assert graphs.num_graphs == len(sizes)
    assert graphs.batch.tolist() == [g for g, n in enumerate(sizes) for _ in range(n)]
    x = torch.randn(graphs.num_nodes, 3)
    rows = graphs.nodes_to_rows(x)
    assert rows.size(0) == graphs.num_rows
    assert torch.equal(graphs.rows_to_nodes(rows), x)
    assert float(rows.abs().sum()) == pytest.approx(float(x.abs().sum()))
    assert torch.equal(graphs.row_graph[graphs.node_row], graphs.batch)
    assert int(graphs.row_mask.sum()) == graphs.num_nodes
    e = torch.randn(graphs.num_edges, 2)
    assert torch.equal(graphs.pairs_to_edges(graphs.edges_to_pairs(e)), e)


def test_blocks_without_padding_in_another_order_than_the_graphs_get_little():
    graphs = CompleteGraphs([60] * 40 + [10] * 60)
    assert [(b.graphs, b.nodes) for b in graphs.blocks] == [(60, 11), (40, 60)]
    in_order = CompleteGraphs([10] * 60 + [60] * 40)
    assert [(b.graphs, b.nodes) for b in in_order.blocks] == [(60, 10), (40, 60)]


@pytest.mark.parametrize(
    "convert, rows, message",
    [
        ("nodes_to_rows", 6, "nodes: got shape [6, 2], expected [4, ...]"),
        ("rows_to_nodes", 4, "rows: got shape [4, 2], expected [6, ...]"),
        ("edges_to_pairs", 18, "edges: got shape [18, 2], expected [10, ...]"),
        ("pairs_to_edges", 10, "pairs: got shape [10, 2], expected [18, ...]"),
    ],
)
def test_views_are_not_converted_twice(convert, rows, message):
    graphs = CompleteGraphs([3, 1])
    with pytest.raises(ValueError, match=re.escape(message)):
        getattr(graphs, convert)(torch.ones(rows, 2))


@given(sizes=SIZES, self_loops=st.booleans())
def test_pair_rows_hold_their_sender_and_receiver(sizes, self_loops):
    graphs = CompleteGraphs(sizes, self_loops=self_loops)
    names = graphs.nodes_to_rows(torch.arange(graphs.num_nodes))
    for block, mask in zip(graphs.blocks, graphs.pair_masks, strict=True):
        name = block.rows(names)
        sender = name.unsqueeze(1).expand(-1, block.nodes, -1)
        receiver = name.unsqueeze(2).expand(-1, -1, block.nodes)
        edges = graphs.edges_to_pairs(graphs.edge_index.T)
        assert torch.equal(block.pairs(edges)[mask], torch.stack([sender[mask], receiver[mask]], 1))
    assert sum(int(mask.sum()) for mask in graphs.pair_masks) == graphs.num_edges
    by_receiver = graphs.pairs_to_edges(graphs.receivers_to_pairs(names))
    assert torch.equal(by_receiver, graphs.edge_index[1])


def is_edge(graphs):
    """Which pair rows are edges."""
    return torch.cat([graphs.row_mask[:0], *(mask.flatten() for mask in graphs.pair_masks)])


def some_edges(graphs, seed):
    """The same layout with a third of the edges."""
    return graphs.with_edges(
        torch.from_numpy(np.random.default_rng(seed).random(graphs.num_pairs) < 1 / 3)
    )


@given(sizes=SIZES, self_loops=st.booleans(), seed=st.integers(0, 99))
def test_a_layout_with_some_edges_has_these_edges(sizes, self_loops, seed):
    whole = CompleteGraphs(sizes, self_loops=self_loops)
    graphs = some_edges(whole, seed)
    kept = whole.pairs_to_edges(graphs.kept)
    assert torch.equal(graphs.edge_index, whole.edge_index[:, kept])
    assert torch.equal(graphs.edge_row, whole.edge_row[kept])
    assert graphs.num_edges == int(kept.sum())
    assert torch.equal(is_edge(graphs), is_edge(whole) & graphs.kept)
    degree = torch.zeros(graphs.num_nodes).index_add(
        0, graphs.edge_index[1], torch.ones(graphs.num_edges)
    )
    if any(sizes):
        isolated = torch.cat([part.flatten() for part in graphs.isolated_rows])
        assert torch.equal(graphs.rows_to_nodes(isolated), degree == 0)
    assert torch.equal(is_edge(graphs.to("cpu")), is_edge(graphs))
    assert whole.kept is None  # and is what it was
    assert torch.equal(whole.edge_index, loop_edges(sizes, self_loops))
    with pytest.raises(ValueError, match=r"kept: got torch\.int64 \[3\], expected torch\.bool"):
        whole.with_edges(torch.zeros(3, dtype=torch.long))


def test_indices_made_in_inference_mode_serve_training():
    with torch.inference_mode():
        graphs = CompleteGraphs([2, 3])
        assert graphs.edge_index.numel() == graphs.num_edges * 2
        assert len(graphs.pair_masks) == len(graphs.isolated_rows)
    x = torch.randn(graphs.num_nodes, 2, requires_grad=True)
    graphs.pairs_to_edges(graphs.receivers_to_pairs(graphs.nodes_to_rows(x))).sum().backward()
    assert x.grad is not None


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=8),
    cost=st.integers(0, 200),
    row=st.integers(0, 30),
)
def test_blocks_are_the_cheapest_partition(sizes, cost, row):
    """Against every way to cut the sorted sizes."""
    sizes = sorted(sizes)

    def price(ranges):
        padded = [(last - first, sizes[last - 1]) for first, last in ranges]
        return sum(count * (size**2 + row * size) + cost for count, size in padded)

    def partitions(first):
        if first == len(sizes):
            yield []
        for last in range(first + 1, len(sizes) + 1):
            for rest in partitions(last):
                yield [(first, last), *rest]

    got = plan_blocks(np.asarray(sizes), cost, row)
    assert [i for first, last in got for i in range(first, last)] == list(range(len(sizes)))
    assert price(got) == min(price(p) for p in partitions(0))


@given(sizes=SIZES, self_loops=st.booleans(), seed=st.integers(0, 99))
def test_edges_are_read_in_any_order(sizes, self_loops, seed):
    given_edges = loop_edges(sizes, self_loops)
    generator = torch.Generator().manual_seed(seed)
    given_edges = given_edges[:, torch.randperm(given_edges.size(1), generator=generator)]
    batch = torch.tensor([g for g, n in enumerate(sizes) for _ in range(n)], dtype=torch.long)
    graphs, order = CompleteGraphs.from_edges(given_edges, batch)
    assert torch.equal(given_edges[:, order], graphs.edge_index)
    assert torch.equal(graphs.batch, batch)
    if any(sizes):
        assert graphs.self_loops == self_loops


def test_edges_that_are_not_all_pairs_are_refused():
    edges = loop_edges([3], self_loops=False)
    graphs, _ = CompleteGraphs.from_edges(edges)
    assert graphs.sizes == (3,)
    for wrong in (edges[:, 1:], edges[:, [0, 0, 2, 3, 4, 5]]):
        with pytest.raises(ValueError, match="edge_index"):
            CompleteGraphs.from_edges(wrong)
    with pytest.raises(ValueError, match="batch"):
        CompleteGraphs.from_edges(edges, torch.tensor([0, 1, 0]))
    with pytest.raises(ValueError, match="sizes"):
        CompleteGraphs([2, -1])


def test_a_layout_moves_with_a_batch_of_pyg():
    batch = Batch.from_data_list([Data(x=torch.randn(n, 4)) for n in (3, 1)])
    batch.layout = CompleteGraphs(batch.ptr.diff().tolist())
    there = batch.to("meta")
    assert there.layout.device == torch.device("meta")
    assert there.layout.nodes_to_rows(there.x).device == torch.device("meta")


@pytest.mark.parametrize("self_loops", [False, True])
def test_everything_derived_is_on_the_device_of_the_layout(self_loops):
    """Without a value of a tensor read, for which the CPU would wait: ``meta`` has none."""
    here = CompleteGraphs([3, 1, 4], self_loops=self_loops)
    there = here.to("meta")
    for name in ("edge_index", "edge_row", "pair_masks", "isolated_rows"):
        expected, got = getattr(here, name), getattr(there, name)
        assert getattr(there, name) is got  # computed once
        if torch.is_tensor(got):
            expected, got = [expected], [got]
        for one, other in zip(expected, got, strict=True):
            assert (one is None) == (other is None)
            assert one is None or (other.is_meta and other.shape == one.shape)
