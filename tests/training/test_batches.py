import numpy as np
import pytest
import torch

from molattn.config import NetworkConfig
from molattn.data.dataset import Molecules
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.training.batches import LabeledLoader


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
