"""Relative random walk probabilities against walks that are counted one by one."""

from fractions import Fraction

import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import AddRandomWalkPE, Compose

import molattn
from molattn.graph import RRWP, CompleteGraph, CompleteGraphs, PathBonds
from molattn.nn import GRITConv
from molattn.testing import permute_nodes

SMILES = ["CC(C)Oc1ccccc1", "C", "CO.[Na+]", "C1CC1"]


def walks(bonds, start, end, length):
    """The probability of a walk, as the mean over the neighbors of its start."""
    if length == 0:
        return Fraction(start == end)
    neighbors = [j for i, j in bonds if i == start]
    each = [walks(bonds, neighbor, end, length - 1) for neighbor in neighbors]
    return sum(each, Fraction()) / max(len(each), 1)


@pytest.mark.parametrize("smiles", SMILES)
def test_an_encoding_is_the_probability_of_each_walk(smiles):
    bonds = molattn.from_smiles(smiles, pairs="bonds")
    ends = bonds.edge_index.t().tolist()
    complete = CompleteGraph(self_loops=True)
    data = Compose([complete, RRWP(5, bond_column=-2)])(bonds.clone())
    assert torch.equal(data.edge_attr[:, :-5], complete(bonds.clone()).edge_attr.float())
    for (j, i), found in zip(data.edge_index.t().tolist(), data.edge_attr[:, -5:], strict=True):
        expected = [float(walks(ends, i, j, length)) for length in range(5)]
        assert found.tolist() == pytest.approx(expected, abs=1e-6)
        if i == j:
            assert torch.equal(data.rrwp[i], found)


@pytest.mark.parametrize("smiles", SMILES)
def test_the_encoding_of_nodes_equals_pyg(smiles):
    data = molattn.from_smiles(smiles, pairs="bonds")
    expected = AddRandomWalkPE(4)(data.clone()).random_walk_pe
    found = RRWP(5)(data)
    assert torch.equal(found.rrwp[:, 0], torch.ones(data.num_nodes))
    torch.testing.assert_close(found.rrwp[:, 1:], expected)


def test_encodings_follow_a_permutation_of_the_nodes():
    data = molattn.from_smiles(SMILES[0], pairs="bonds")
    order = torch.randperm(data.num_nodes)
    transform = RRWP(6)
    found = transform(permute_nodes(data, order))
    expected = permute_nodes(transform(data), order)
    torch.testing.assert_close(found.rrwp, expected.rrwp)
    torch.testing.assert_close(found.edge_attr, expected.edge_attr)


def test_layers_read_encodings_on_both_forms_of_a_batch():
    transform = Compose([CompleteGraph(self_loops=True), RRWP(4, bond_column=-2)])
    molecules = [transform(molattn.from_smiles(smiles, pairs="bonds")) for smiles in SMILES]
    batch = Batch.from_data_list(molecules)
    conv = GRITConv(4, 8, heads=2, edge_dim=batch.edge_attr.size(1))
    graphs, order = CompleteGraphs.from_edges(batch.edge_index, batch.batch)
    rows, pairs = graphs.nodes_to_rows(batch.rrwp), graphs.edges_to_pairs(batch.edge_attr[order])
    listed = conv(batch.rrwp, batch.edge_index, batch.edge_attr)
    torch.testing.assert_close(graphs.rows_to_nodes(conv(rows, graphs, pairs)), listed)


def test_graphs_that_cannot_be_encoded_are_refused():
    complete = molattn.from_smiles("CCCCC")
    with pytest.raises(ValueError, match="bond_column, 0 for graphs"):
        RRWP(3)(complete)
    assert RRWP(3, bond_column=0)(complete).edge_attr.shape == (20, 8)
    with pytest.raises(TypeError, match="RRWP: got"):
        RRWP(3)(Batch.from_data_list([Data(num_nodes=1, edge_index=torch.empty(2, 0).long())]))


def shortest_paths(bonds, start, end):
    """All shortest paths as lists of bonds."""
    found = [[]] if start == end else []
    paths = [[bond] for bond in bonds if bond[0] == start]
    while paths and not found and len(paths[0]) < 9:
        found = [path for path in paths if path[-1][1] == end]
        paths = [[*path, bond] for path in paths for bond in bonds if bond[0] == path[-1][1]]
    return found


@pytest.mark.parametrize("smiles", ["CC1CC=C1", "C", "CO.[Na+]", "c1ccccc1C"])
def test_path_bonds_are_the_mean_over_the_shortest_paths(smiles):
    data = molattn.from_smiles(smiles, pairs="bonds")
    data.edge_attr = torch.rand(data.num_edges, 2)
    data.edge_attr[:, 0] += 1
    features = dict(zip(map(tuple, data.edge_index.t().tolist()), data.edge_attr, strict=True))
    complete = CompleteGraph(self_loops=True)(data)
    found = PathBonds(2, bond_column=-2)(complete.clone())
    kept, new = found.edge_attr.split([4, 8], dim=1)
    assert torch.equal(kept, complete.edge_attr)
    columns = new.view(-1, 2, 4)[:, :, :2]  # the others are the bond and the distance
    for (sender, receiver), hops in zip(found.edge_index.t().tolist(), columns, strict=True):
        expected = torch.zeros(2, 2)
        for path in (paths := shortest_paths(list(features), receiver, sender)):
            for hop, bond in enumerate(path[:2]):
                expected[hop] += features[bond] / len(paths) / min(len(path), 2)
        torch.testing.assert_close(hops, expected)


def test_integer_codes_of_bonds_have_no_mean():
    codes = molattn.from_smiles("CC=C", pairs="bonds")
    assert int(codes.edge_attr.max()) > 1
    with pytest.raises(ValueError, match="edge_attr: got integers up to"):
        PathBonds(2)(codes.clone())
    one_hot = codes.clone()
    one_hot.edge_attr = torch.nn.functional.one_hot(codes.edge_attr).flatten(1)
    floats = one_hot.clone()
    floats.edge_attr = one_hot.edge_attr.float()
    assert torch.equal(PathBonds(2)(one_hot).edge_attr, PathBonds(2)(floats).edge_attr)
