"""Collation against the records it was given."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from torch_geometric.data import Data

from molattn import from_smiles
from molattn.graph import CodedEdges, CompleteGraphs, collate, collate_complete
from molattn.record import MoleculeRecord


def random_record(size, rng, columns=3):
    return MoleculeRecord(
        atoms=rng.integers(0, 200, (size, columns), dtype=np.uint8),
        pairs=rng.choice(np.array([0, 7, 131, 254], dtype=np.uint8), (size, size)),
    )


@given(
    sizes=st.lists(st.integers(1, 8), min_size=1, max_size=8),
    self_loops=st.booleans(),
    seed=st.integers(0, 99),
)
def test_every_atom_and_pair_arrives(sizes, self_loops, seed):
    rng = np.random.default_rng(seed)
    records = [random_record(size, rng) for size in sizes]
    batch = collate(records, self_loops=self_loops)
    graphs = batch.edge_index
    assert graphs.sizes == tuple(sizes)
    assert batch.num_graphs == len(sizes)
    atoms = np.concatenate([record.atoms for record in records])
    assert np.array_equal(graphs.rows_to_nodes(batch.x).numpy(), atoms)
    joint = batch.pair_codes[graphs.pairs_to_edges(batch.edge_attr).long()]
    sender, receiver = graphs.edge_index
    first = np.cumsum([0, *sizes])
    graph = graphs.batch[sender]
    expected = [
        records[g].pairs[s - first[g], r - first[g]]
        for g, s, r in zip(graph.tolist(), sender.tolist(), receiver.tolist(), strict=True)
    ]
    assert joint.tolist() == expected
    is_edge = torch.cat([mask.flatten() for mask in graphs.pair_masks])
    assert bool((batch.edge_attr[~is_edge] == len(batch.pair_codes)).all())
    assert sorted(set(joint.tolist())) == batch.pair_codes.tolist()


def test_coded_edges_spread_their_table():
    codes = torch.tensor([1, 2, 0])
    edges = CodedEdges(codes, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert edges.dense().tolist() == [[3, 4], [0, 0], [1, 2]]
    assert repr(edges) == "CodedEdges(codes=[3], table=[2, 2])"


def test_coded_edges_from_edges_mark_what_is_no_edge():
    graphs = CompleteGraphs([1, 3], self_loops=False)
    codes = torch.arange(6) % 2
    edges = CodedEdges.from_edges(graphs, codes, torch.randn(2, 4))
    assert torch.equal(graphs.pairs_to_edges(edges.codes), codes)
    is_edge = torch.cat([mask.flatten() for mask in graphs.pair_masks])
    assert torch.equal(edges.codes == 2, ~is_edge)


def test_pyg_graphs_are_collated_with_layout_and_coded_edges():
    graphs = [from_smiles(smiles) for smiles in ("CCO", "C", "c1ccccc1O")]
    (batch,) = DataLoader(graphs, batch_size=3, collate_fn=collate_complete)
    layout, edges = batch.layout, batch.pair_attr
    assert layout.sizes == (3, 1, 7)
    assert len(edges.table) == len(batch.edge_attr.unique(dim=0))
    pairs = layout.pairs_to_edges(edges.dense())
    found = {(s, r): row for s, r, *row in torch.cat([layout.edge_index.T, pairs], 1).tolist()}
    expected = torch.cat([batch.edge_index.T, batch.edge_attr], 1).tolist()
    assert found == {(s, r): row for s, r, *row in expected}
    assert batch.cpu().layout.sizes == layout.sizes


@pytest.mark.parametrize("requires_grad", [False, True])
def test_edges_of_many_kinds_and_edges_with_gradients_are_pair_rows(requires_grad):
    data = Data(x=torch.randn(12, 2), edge_index=CompleteGraphs([12]).edge_index)
    data.edge_attr = torch.randn(144, 3, requires_grad=requires_grad)
    graphs, pairs = CompleteGraphs.from_batch(data)
    assert torch.equal(graphs.pairs_to_edges(pairs), data.edge_attr)
    assert pairs.requires_grad == requires_grad
    data.edge_attr = data.edge_attr[:, 0]  # one feature may be a vector
    assert torch.equal(CompleteGraphs.from_batch(data)[1], pairs[:, :1])
    data.edge_attr = torch.arange(144)  # integers are codes to embed
    edges = CompleteGraphs.from_batch(data)[1]
    assert torch.equal(graphs.pairs_to_edges(edges.dense())[:, 0], data.edge_attr)
    del data.edge_attr
    assert CompleteGraphs.from_batch(data)[1] is None


def test_second_molecules_stay_with_their_first():
    """The same second molecule in several records, and sizes that the layout sorts."""
    rng = np.random.default_rng(0)
    seconds = [random_record(size, rng) for size in (7, 2, 5, 1)]
    order = [2, 0, 3, 0, 1, 2]
    records = [replace(random_record(3, rng), partner=seconds[place]) for place in order]
    batch = collate(records)
    assert batch.partners.num_graphs == len(seconds)
    graphs = batch.partners.edge_index
    atoms = graphs.rows_to_nodes(batch.partners.x)
    for place, index in zip(order, batch.partner_index.tolist(), strict=True):
        assert np.array_equal(atoms[graphs.batch == index].numpy(), seconds[place].atoms)
