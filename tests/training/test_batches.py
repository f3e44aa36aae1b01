import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from molattn.config import NetworkConfig
from molattn.data.dataset import Molecules
from molattn.graph import graph_costs
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.training import batches as module
from molattn.training.batches import LabeledLoader, Part, split_evenly


@pytest.fixture(scope="module")
def model():
    return MolAttn(MolAttnConfig(("y",), NetworkConfig(width=8, heads=2, layers=1)))


@pytest.fixture(scope="module")
def molecules(model):
    records = [model.featurize("C" * n) for n in range(1, 12)]
    labels = np.arange(1.0, 12.0)[:, None]
    return Molecules(records, labels, 10.0 * labels[:, 0], 100.0 * labels)


def labels(batches):
    return [batch.targets[:, 0].tolist() for batch in batches]


def order(batches):
    return [label for part in labels(batches) for label in part]


def test_each_epoch_has_every_molecule_once_in_an_order_of_its_own(model, molecules):
    batches = LabeledLoader(model, molecules, 4, seed=3)
    orders = []
    for epoch in range(3):
        batches.set_epoch(epoch)
        assert [len(part) for part in labels(batches)] == [4, 4, 3]
        orders.append(order(batches))
    assert len({*map(tuple, orders)}) == 3
    assert all(sorted(given) == list(range(1, 12)) for given in orders)
    assert order(LabeledLoader(model, molecules, 4, seed=4)) != orders[0]


def test_without_a_seed_the_order_is_their_own_every_time(model, molecules):
    batches = LabeledLoader(model, molecules, 4)
    for _ in range(2):
        assert order(batches) == list(range(1, 12))


@pytest.mark.parametrize("stop", [0, 1, 2])
def test_an_epoch_is_taken_up_where_it_was_left(model, molecules, stop):
    batches = LabeledLoader(model, molecules, 4, seed=3)
    batches.set_epoch(5)
    whole = labels(batches)
    batches.set_epoch(5)
    stream = iter(batches)
    for _ in range(stop):
        next(stream)
    again = LabeledLoader(model, molecules, 4, seed=3)
    again.load_state_dict(batches.state_dict())
    assert labels(again) == whole[stop:]


def test_all_that_belongs_to_a_molecule_stays_with_it(model, molecules):
    for batch in LabeledLoader(model, molecules, 4, seed=1):
        sizes = torch.bincount(batch.molecules.edge_index.batch).tolist()
        assert batch.targets[:, 0].tolist() == sizes
        assert batch.weights.tolist() == [10.0 * size for size in sizes]
        assert batch.features[:, 0].tolist() == [100.0 * size for size in sizes]


def test_bounds_are_those_of_the_rows(model, molecules):
    bounds = np.stack([molecules.targets + 0.25, molecules.targets + 0.5])
    batches = LabeledLoader(model, molecules._replace(bounds=bounds), 4, seed=3)
    for batch in batches:
        np.testing.assert_array_equal(batch.bounds[0], batch.targets + 0.25)
        np.testing.assert_array_equal(batch.bounds[1], batch.targets + 0.5)
    assert {batch.bounds for batch in LabeledLoader(model, molecules, 4)} == {None}


@pytest.fixture
def as_rank(monkeypatch):
    def become(rank, count):
        monkeypatch.setattr(module, "process_rank", lambda: rank)
        monkeypatch.setattr(module, "num_processes", lambda: count)

    return become


@pytest.mark.parametrize("count", [2, 3, 5])
def test_several_processes_see_each_molecule_once_in_the_batch_of_one(
    model, molecules, as_rank, count
):
    def loader():
        return LabeledLoader(model, molecules, 4, seed=3)

    whole = [{*part} for part in labels(loader())]
    parts = []
    for rank in range(count):
        as_rank(rank, count)
        parts.append(labels(loader()))
    for batch, found in zip(whole, zip(*parts, strict=True), strict=True):
        assert all(found)  # no process is without a molecule
        known = [label for part in found for label in part if not np.isnan(label)]
        assert len(known) == len(batch)
        assert {*known} == batch


def test_a_part_has_the_inputs_of_its_molecules(model, molecules):
    loader = LabeledLoader(model, molecules, 4, seed=3)
    rows = np.array([7, 2, 9, 4])
    batch = loader.batch(rows, (0, 0), Part(np.array([1, 3])))
    whole = loader.batch(np.array([2, 4]), (0, 0))
    for name in ("targets", "weights", "features"):
        assert torch.equal(getattr(batch, name), getattr(whole, name))
    assert batch.molecules.edge_index.sizes == (3, 5)
    without = loader.batch(rows, (0, 0), Part(np.array([0]), counts=False))
    assert without.targets.isnan().all()


@given(st.lists(st.integers(1, 10**6), max_size=40), st.integers(1, 6))
def test_parts_of_a_batch_are_all_of_it_and_of_similar_cost(costs, count):
    costs = np.array(costs, dtype=np.int64)
    parts = split_evenly(costs, count)
    assert len(parts) == count
    assert sorted(np.concatenate(parts)) == list(range(len(costs)))
    assert all((np.diff(part) > 0).all() for part in parts)
    if len(costs):
        loads = [int(costs[part].sum()) for part in parts]
        least = max(costs.sum() / count, costs.max())
        assert max(loads) <= (4 / 3) * least + costs.max() / 3
        # Greedy: without its cheapest molecule, no part is above the average.
        for part, load in zip(parts, loads, strict=True):
            assert not len(part) or load - costs[part].min() <= costs.sum() / count


def test_parts_of_drug_like_batches_differ_by_less_than_a_percent():
    random = np.random.default_rng(0)
    for _ in range(20):
        sizes = random.normal(27, 7, size=64).clip(5, 60).astype(np.int64)
        costs = graph_costs(sizes)
        loads = [costs[part].sum() for part in split_evenly(costs, 2)]
        assert max(loads) <= 1.01 * np.mean(loads)


def test_a_molecule_with_listed_pairs_costs_by_their_number():
    network = NetworkConfig(width=8, heads=2, layers=1, radius=2)
    model = MolAttn(MolAttnConfig(("y",), network))
    records = [model.featurize("C" * n) for n in (1, 30, 60)]
    loader = LabeledLoader(model, Molecules(records, np.zeros((3, 1))), 3)
    costs = loader.costs(np.arange(3))
    # with itself, two atoms on either side, and fewer at the ends: 5 n - 6
    assert (costs - 40 * np.array([1, 30, 60])).tolist() == [1, 144, 294]


@pytest.mark.parametrize(
    "network", [{}, {"pairs": "bonds"}, {"radius": 2}, {"self_loops": False}, {"layer": "mat"}]
)
def test_atoms_of_a_frozen_encoder_are_those_of_their_batch(network):
    torch.manual_seed(0)
    model = MolAttn(MolAttnConfig(("y",), NetworkConfig(width=8, heads=2, layers=2, **network)))
    smiles = ["CCO", "[Na+].[Cl-]", "C", "c1ccccc1.CC(=O)[O-].[K+]", "O=C(O)C1CCCCC1", "O", "CC.C"]
    records = [model.featurize(one) for one in smiles]
    molecules = Molecules(records, np.zeros((len(records), 1)), None, None)
    loader = LabeledLoader(model, molecules, 3, seed=1)
    assert all(batch.atoms is None for batch in loader)
    model.freeze("encoder")
    model.train()
    loader = LabeledLoader(model, molecules, 3, seed=1)
    assert "_atoms" not in vars(loader)  # which is copied to other processes
    batches = [*loader]
    assert model.training
    for batch in batches:
        expected, _ = model.nets[0].encode_atoms(batch.molecules)
        torch.testing.assert_close(batch.atoms, expected)
        ours = model.nets[0].encode(batch.molecules, batch.atoms)
        torch.testing.assert_close(ours, model.nets[0].encode(batch.molecules))


def test_a_model_of_a_class_of_its_own_computes_every_batch(molecules):
    class Own(MolAttn):
        pass

    model = Own(MolAttnConfig(("y",), NetworkConfig(width=8, heads=2, layers=1)))
    model.freeze("encoder")
    assert all(batch.atoms is None for batch in LabeledLoader(model, molecules, 4))
