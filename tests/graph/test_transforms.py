import copy
import inspect
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn.models.dimenet import BesselBasisLayer
from torch_geometric.nn.models.schnet import GaussianSmearing
from torch_geometric.transforms import AddRandomWalkPE, Compose

import molattn
from molattn.graph import (
    AddDummyNode,
    BondsAndDistances,
    CompleteGraph,
    CompleteGraphs,
    LaplacianEncoding,
    OnBonds,
    PairDistances,
    TopologicalRadiusGraph,
)
from molattn.testing import permute_nodes


@st.composite
def molecules(draw):
    """Graphs with up to 9 nodes and any bonds but all, features and positions included."""
    n = draw(st.integers(1, 9))
    pairs = [(i, j) for i in range(n) for j in range(i)]
    most = len(pairs) - (n >= 5)  # all pairs of many nodes are refused as bonds
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=most)) if pairs else []
    edges = [pair for i, j in chosen for pair in ((i, j), (j, i))]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    return Data(
        x=torch.randn(n, 3, generator=generator),
        pos=torch.randn(n, 3, generator=generator),
        edge_index=torch.tensor(edges, dtype=torch.long).view(-1, 2).t(),
        edge_attr=torch.randint(1, 9, (len(edges), 2), generator=generator),
    )


def floyd_warshall(data):
    n = data.num_nodes
    length = [[0 if i == j else np.inf for j in range(n)] for i in range(n)]
    for s, r in data.edge_index.t().tolist():
        length[s][r] = min(length[s][r], 1)
    for k, i, j in product(range(n), repeat=3):
        length[i][j] = min(length[i][j], length[i][k] + length[k][j])
    return length


def of_pairs(data):
    """Features of each edge by its ends."""
    ends = map(tuple, data.edge_index.t().tolist())
    return dict(zip(ends, data.edge_attr.tolist(), strict=True))


@given(data=molecules(), self_loops=st.booleans(), limit=st.sampled_from([None, 1, 3]))
def test_complete_graphs_equal_plain_loops(data, self_loops, limit):
    given_bonds, length = of_pairs(data), floyd_warshall(data)
    out = CompleteGraph(self_loops, max_distance=limit)(data)
    pairs = [p for p in product(range(data.num_nodes), repeat=2) if self_loops or p[0] != p[1]]
    assert [tuple(edge) for edge in out.edge_index.t().tolist()] == pairs
    assert out.edge_attr.dtype == torch.int64
    got = of_pairs(out)
    for s, r in pairs:
        distance = length[s][r]
        expected = -1 if distance == np.inf else min(distance, limit or distance)
        bond = given_bonds.get((s, r))
        assert got[s, r] == [*(bond or (0, 0)), bond is not None, expected]


@given(data=molecules(), space=st.booleans())
def test_bonds_and_distances_equal_plain_loops(data, space):
    bonds, length = of_pairs(data), floyd_warshall(data)
    points = data.pos.tolist()
    if not space:
        del data.pos
    out = of_pairs(BondsAndDistances()(data))
    assert len(out) == data.num_nodes**2
    for (s, r), (distance, bond) in out.items():
        assert bond == ((s, r) in bonds or s == r)
        expected = np.sqrt(sum((a - b) ** 2 for a, b in zip(points[s], points[r], strict=True)))
        if not space:
            expected = min(length[s][r], 1e6)
        assert distance == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    "transform",
    [
        CompleteGraph(),
        CompleteGraph(True, max_distance=2, no_path=3),
        PairDistances(),
        PairDistances(GaussianSmearing(0, 5, 7)),
        BondsAndDistances(),
        Compose([BondsAndDistances(), AddDummyNode()]),
    ],
    ids=repr,
)
@given(data=molecules(), seed=st.integers(0, 99))
def test_transforms_are_permutation_equivariant(transform, data, seed):
    n = data.num_nodes
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    there = transform(permute_nodes(data, order))
    here = transform(data.clone())
    if here.num_nodes > n:  # the dummy keeps its place
        order = torch.cat([order, torch.tensor([n])])
    torch.testing.assert_close(there.x, here.x[order])
    old_of_new = order.tolist()
    expected, got = of_pairs(here), of_pairs(there)
    assert len(expected) == len(got)
    for (s, r), features in got.items():
        assert features == pytest.approx(expected[old_of_new[s], old_of_new[r]], abs=1e-5)


def test_features_of_any_form_are_kept():
    bonds = torch.tensor([[0, 1], [1, 0]])
    assert CompleteGraph()(Data(edge_index=bonds, num_nodes=2)).edge_attr.tolist() == [[1, 1]] * 2
    weights = torch.tensor([0.5, 0.25], dtype=torch.float64)
    out = CompleteGraph()(Data(edge_index=bonds, edge_attr=weights, num_nodes=2))
    assert out.edge_attr.dtype == torch.float64
    assert out.edge_attr.tolist() == [[0.5, 1, 1], [0.25, 1, 1]]


def test_bonds_are_kept_beside_the_pairs_and_both_are_batched():
    def propane():
        bonds = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        return Data(x=torch.ones(3, 1), edge_index=bonds, edge_attr=torch.tensor([1, 1, 2, 2]))

    pairs = CompleteGraph(self_loops=True)(propane())
    graph = CompleteGraph(self_loops=True, keep_bonds=True)(propane())
    assert torch.equal(graph.pair_index, pairs.edge_index)
    assert torch.equal(graph.pair_attr, pairs.edge_attr)
    (batch,) = DataLoader([graph, graph], batch_size=2)
    expected = Batch.from_data_list([propane(), propane()])
    assert torch.equal(batch.edge_index, expected.edge_index)
    assert torch.equal(batch.edge_attr, expected.edge_attr)
    layout, codes = CompleteGraphs.from_batch(batch)
    listed, of_pairs = CompleteGraphs.from_batch(Batch.from_data_list([pairs, pairs]))
    assert layout.sizes == listed.sizes == (3, 3)
    assert torch.equal(codes.dense(), of_pairs.dense())


@pytest.mark.parametrize("limit, longest", [(None, 2), (2, 2), (1, 1)])
def test_the_distance_without_a_path_is_that_of_no_path(limit, longest):
    bonds = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    given = Data(edge_index=bonds, num_nodes=3)
    for value in (-1, longest + 1) if limit else (-1,):
        data = given.clone()
        data.num_nodes = 4 if limit else 3
        found = CompleteGraph(max_distance=limit, no_path=value)(data).edge_attr[:, -1]
        assert found.max() == (max(longest, value) if limit else longest)
    with pytest.raises(ValueError, match=f"no_path: got {longest}"):
        CompleteGraph(max_distance=limit, no_path=longest)


def test_a_bond_column_finds_the_bonds_of_a_complete_graph():
    bonds = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    first = CompleteGraph()(Data(edge_index=bonds, edge_attr=torch.ones(4, 1), num_nodes=3))
    again = CompleteGraph(bond_column=0)(first.clone())
    torch.testing.assert_close(again.edge_attr[:, [0, -2, -1]], first.edge_attr)
    plain = BondsAndDistances()(Data(edge_index=bonds, num_nodes=3))
    found = BondsAndDistances(bond_column=0)(first)
    torch.testing.assert_close(found.edge_attr, plain.edge_attr)


def test_distances_of_pairs_are_expanded_in_a_basis():
    pos = torch.tensor([[0.0, 0.0, 0.0], [3.0, 4.0, 0.0]])
    data = Data(pos=pos, edge_index=torch.tensor([[0, 1], [1, 0]]), edge_attr=torch.ones(2, 1))
    out = PairDistances(GaussianSmearing(0.0, 10.0, 5))(data.clone())
    centers = np.linspace(0, 10, 5)
    expected = np.exp(-0.5 * ((5 - centers) / 2.5) ** 2)
    np.testing.assert_allclose(out.edge_attr[0, 1:], expected, rtol=1e-5)
    assert out.edge_attr[0, 0] == 1
    bessel = PairDistances(BesselBasisLayer(4, 10.0))(data.clone()).edge_attr
    assert bessel.shape == (2, 5)
    assert not bessel.requires_grad
    data.edge_attr = torch.full((2, 1), 1 / 3, dtype=torch.float64)
    kept = PairDistances()(data).edge_attr
    assert kept.dtype == torch.float64
    assert kept[0].tolist() == [1 / 3, 5.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_a_dummy_node_has_a_column_of_its_own_and_pairs_with_all_atoms(dtype):
    bonds = torch.tensor([[0, 1], [1, 0]])
    data = Data(
        x=torch.tensor([[6, 2], [8, 1]], dtype=dtype),
        edge_index=bonds,
        pos=torch.eye(3)[:2],
        charge=torch.tensor([1, -1]),
        y=torch.tensor([0.5]),
        num_nodes=2,
    )
    out = AddDummyNode()(BondsAndDistances()(data))
    assert out.x.dtype == dtype
    assert out.x.tolist() == [[6, 2, 0], [8, 1, 0], [0, 0, 1]]
    assert (out.num_nodes, out.charge.tolist(), out.y.tolist()) == (3, [1, -1, 0], [0.5])
    assert out.dummy_mask.tolist() == [False, False, True]
    features = of_pairs(out)
    assert len(features) == 9
    for pair in ((0, 2), (1, 2), (2, 2), (2, 0), (2, 1)):
        assert features[pair] == [1e6, 0]
    far = (out.pos[2] - out.pos[:2]).norm(dim=-1)
    torch.testing.assert_close(far, torch.full((2,), 1e6), rtol=1e-5, atol=0)
    assert data.num_nodes == 2  # what was given stays


def test_batches_count_dummies_as_nodes():
    one = Data(x=torch.ones(1, 2), edge_index=torch.zeros(2, 0, dtype=torch.long))
    two = Data(x=torch.ones(2, 2), edge_index=torch.tensor([[0, 1], [1, 0]]))
    make = Compose([BondsAndDistances(), AddDummyNode()])
    batch = Batch.from_data_list([make(one), make(two)])
    assert batch.batch.tolist() == [0, 0, 1, 1, 1]
    assert batch.ptr.tolist() == [0, 2, 5]
    assert batch.dummy_mask.tolist() == [False, True, False, False, True]
    assert batch.x[~batch.dummy_mask].tolist() == [[1, 1, 0]] * 3


OPTIONS = {
    CompleteGraph: {
        "self_loops": True,
        "max_distance": 4,
        "no_path": -2,
        "keep_bonds": True,
        "bond_column": 0,
    },
    TopologicalRadiusGraph: {"radius": 2, "self_loops": True, "bond_column": 0},
    PairDistances: {"basis": GaussianSmearing(0, 5, 7)},
    BondsAndDistances: {"no_path": 9.0, "bond_column": 0},
    AddDummyNode: {"distance": 9.0, "distance_column": -1},
}


@pytest.mark.parametrize("transform", OPTIONS, ids=lambda transform: transform.__name__)
def test_transforms_that_differ_have_reprs_that_differ(transform):
    assert set(OPTIONS[transform]) == set(inspect.signature(transform).parameters)
    needed = {"radius": 1} if transform is TopologicalRadiusGraph else {}
    shown = {repr(transform(**needed | {name: v})) for name, v in OPTIONS[transform].items()}
    assert len(shown | {repr(transform(**needed))}) == len(OPTIONS[transform]) + 1


BOND = torch.tensor([[0, 1], [1, 0]])


@pytest.mark.parametrize(
    "make, option",
    [
        (lambda: CompleteGraph(max_distance=0), "max_distance"),
        (lambda: CompleteGraph(max_distance=3, no_path=3), "no_path"),
        (lambda: CompleteGraph(no_path=1), "no_path"),
        (lambda: TopologicalRadiusGraph(0), "radius"),
        (lambda: CompleteGraph()(Data(x=torch.ones(2, 1))), "edge_index"),
        (lambda: PairDistances()(Data(edge_index=BOND, num_nodes=2)), "pos"),
        (lambda: BondsAndDistances(no_path=-1), "no_path"),
        (lambda: AddDummyNode(-1.0), "distance"),
        (lambda: AddDummyNode()(Data(x=torch.ones(2), edge_index=BOND)), "x"),
    ],
)
def test_an_option_that_does_not_fit_is_named(make, option):
    with pytest.raises(ValueError, match=option):
        make()


@pytest.mark.parametrize("self_loops", [True, False])
def test_a_radius_selects_edges_of_the_complete_graph(self_loops):
    bonds = torch.tensor([[0, 1, 1, 2, 2, 3, 4, 5], [1, 0, 2, 1, 3, 2, 5, 4]])
    data = Data(edge_index=bonds, edge_attr=torch.randn(8, 2), num_nodes=6)
    whole = CompleteGraph(self_loops)(copy.copy(data))
    length = whole.edge_attr[:, -1]
    for radius in (1, 2, 9):
        near = TopologicalRadiusGraph(radius, self_loops)(copy.copy(data))
        kept = (length >= 0) & (length <= radius)
        assert torch.equal(near.edge_index, whole.edge_index[:, kept])
        assert torch.equal(near.edge_attr, whole.edge_attr[kept])


@pytest.mark.parametrize("num_edges", [0, 1])
def test_a_single_atom_gets_a_dummy_node(num_edges):
    names = ("z", "node_charge", "charge", "u", "y", "edge_weight", "bond_length")
    data = Data(
        x=torch.ones(1, 2),
        edge_index=torch.zeros(2, num_edges, dtype=torch.long),
        pos=torch.ones(1, 3),
        **{name: torch.ones(1) for name in names[:5]},
        **{name: torch.ones(num_edges) for name in names[5:]},
    )
    out = AddDummyNode()(data)
    assert out.pos.shape == (2, 3)
    expected = [2, 2, 1, 1, 1, num_edges + 3, num_edges]
    assert [out[name].size(0) for name in names] == expected


PAIR_GRAPHS = [CompleteGraph, partial(TopologicalRadiusGraph, 300)]


@pytest.mark.parametrize("make", [*PAIR_GRAPHS, BondsAndDistances])
@pytest.mark.parametrize("self_loops", [False, True])
def test_complete_graphs_of_codes_need_the_bond_column(make, self_loops):
    data = molattn.from_smiles("CCCCC", self_loops=self_loops)
    message = r"all pairs of 5 nodes as bonds.*bond_column, 0 for graphs of molattn\.from_smiles"
    with pytest.raises(ValueError, match=message):
        make()(data)
    assert of_pairs(make(bond_column=0)(data))[0, 4][-1] in (4, 0)  # its distance, or no bond
    some = data.clone()
    some.edge_index, some.edge_attr = data.edge_index[:, 2:], data.edge_attr[2:]
    make()(some)
    one = data.clone()
    one.edge_attr = data.edge_attr[:, 0]
    make()(one)
    data.edge_attr = data.edge_attr.float()
    make()(data)
    make()(molattn.from_smiles("CCCC"))


@pytest.mark.parametrize("make", PAIR_GRAPHS)
@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.uint8])
def test_narrow_dtypes_hold_all_distances(make, dtype):
    n = 300
    chain = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
    bonds = torch.cat([chain, chain.flip(0)], dim=1)
    given = Data(edge_index=bonds, edge_attr=torch.ones(bonds.size(1), 1, dtype=dtype), num_nodes=n)
    out = make()(given)
    assert out.edge_attr.dtype == torch.int64
    ends = (out.edge_index == torch.tensor([[0], [n - 1]])).all(dim=0)
    assert out.edge_attr[ends].tolist() == [[0, 0, n - 1]]
    given.edge_attr = given.edge_attr.short()
    assert make()(given).edge_attr.dtype == torch.int16


@pytest.mark.parametrize("smiles", ["C", "CC(C)Oc1ccccc1", "CO.[Na+]"])
def test_encodings_on_bonds_ignore_other_pairs(smiles):
    bonds, complete = (molattn.from_smiles(smiles, pairs=pairs) for pairs in ("bonds", "all"))
    expected = AddRandomWalkPE(4)(bonds.clone()).random_walk_pe
    found = OnBonds(AddRandomWalkPE(4), bond_column=0)(complete.clone())
    assert torch.equal(found.random_walk_pe, expected)
    for name, value in complete:  # all else is as it was
        assert torch.equal(found[name], value) if torch.is_tensor(value) else found[name] == value
    joined = OnBonds(AddRandomWalkPE(4, None), bond_column=0)(complete.clone())
    assert torch.equal(joined.x[:, complete.x.size(1) :], expected.to(joined.x))


@pytest.mark.parametrize("smiles", ["C", "CO", "CC(C)Oc1ccccc1", "CO.[Na+]"])
def test_laplacian_encoding_has_the_smallest_eigenvectors(smiles):
    bonds, complete = (molattn.from_smiles(smiles, pairs=pairs) for pairs in ("bonds", "all"))
    n = bonds.num_nodes
    adjacency = torch.zeros(n, n)
    adjacency[tuple(bonds.edge_index)] = 1
    root = adjacency.sum(1).clamp_min(1).rsqrt()
    laplacian = torch.eye(n) - root * adjacency * root[:, None]
    values = torch.linalg.eigvalsh(laplacian)
    encoding = LaplacianEncoding(5, bond_column=0)(complete).laplacian_pe
    assert encoding.shape == (n, 5)
    present = min(5, n - 1)
    assert not encoding[:, present:].any()
    vectors = encoding[:, :present]
    torch.testing.assert_close(laplacian @ vectors, vectors * values[1 : present + 1])
    torch.testing.assert_close(vectors.T @ vectors, torch.eye(present))
