import numpy as np
import pytest
import torch

from molattn.config import NetworkConfig
from molattn.data.dataset import Molecules
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.training import batches as module
from molattn.training.batches import LabeledLoader

TINY = NetworkConfig(width=8, heads=2, layers=1)


@pytest.fixture(scope="module")
def model():
    return MolAttn(MolAttnConfig(("y",), TINY))


@pytest.fixture(scope="module")
def molecules(model):
    records = [model.featurize("C" * n) for n in range(1, 12)]
    labels = np.arange(1.0, 12.0)[:, None]
    bounds = np.stack([labels + 0.25, labels + 0.5])
    return Molecules(records, labels, 10.0 * labels[:, 0], 100.0 * labels, bounds)


def labels(batches):
    return [batch.targets[:, 0].tolist() for batch in batches]


def test_each_epoch_has_every_molecule_once_in_an_order_of_its_own(model, molecules):
    batches = LabeledLoader(model, molecules, 4, seed=3)
    orders = []
    for epoch in range(3):
        batches.set_epoch(epoch)
        found = labels(batches)
        assert [len(batch) for batch in found] == [4, 4, 3]
        orders.append([label for batch in found for label in batch])
    assert len({*map(tuple, orders)}) == 3
    assert all(sorted(order) == list(range(1, 12)) for order in orders)
    for _ in range(2):  # without a seed
        found = [label for batch in labels(LabeledLoader(model, molecules, 4)) for label in batch]
        assert found == list(range(1, 12))


def test_an_epoch_has_no_more_auxiliary_molecules_than_others(model, molecules, monkeypatch):
    monkeypatch.setattr(module, "FEWEST_AUXILIARY", 0)
    batches = LabeledLoader(model, molecules, 4, seed=3, auxiliary=8)
    seen = set()
    for epoch in range(9):
        batches.set_epoch(epoch)
        order = [label for batch in labels(batches) for label in batch]
        assert len({*order}) == batches.count == 6
        assert {1.0, 2.0, 3.0} < {*order}
        seen |= {*order}
    assert len(seen) == 11
    few = LabeledLoader(model, molecules, 4, seed=3, auxiliary=2)
    assert labels(few) == labels(LabeledLoader(model, molecules, 4, seed=3))


def test_an_epoch_of_few_molecules_has_160_auxiliary_ones(model):
    record = model.featurize("CCO")
    many = Molecules([record] * 510, np.arange(510.0)[:, None], np.ones(510))
    batches = LabeledLoader(model, many, 64, seed=3, auxiliary=500)
    order = [label for batch in labels(batches) for label in batch]
    assert len({*order}) == len(order) == batches.count == 170
    assert {*range(10)} < {*order}


@pytest.mark.parametrize("stop", [0, 1, 2])
def test_an_epoch_is_resumed_at_its_batch(model, molecules, stop):
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
        np.testing.assert_array_equal(batch.bounds[0], batch.targets + 0.25)
        np.testing.assert_array_equal(batch.bounds[1], batch.targets + 0.5)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_processes_share_the_batches_of_one(model, molecules, monkeypatch, count):
    def loader():
        return LabeledLoader(model, molecules, 4, seed=3)

    whole = [{*batch} for batch in labels(loader())]
    parts = []
    for rank in range(count):
        monkeypatch.setattr(module, "process_rank", lambda rank=rank: rank)
        monkeypatch.setattr(module, "num_processes", lambda: count)
        parts.append(labels(loader()))
    for batch, found in zip(whole, zip(*parts, strict=True), strict=True):
        assert all(found)  # no process is without a molecule
        known = [label for part in found for label in part if not np.isnan(label)]
        assert len(known) == len(batch)
        assert {*known} == batch
        loads = [sum(label for label in part if not np.isnan(label)) for part in found]
        assert max(loads) - min(loads) <= max(batch)  # of similar size


@pytest.mark.parametrize("network", [{}, {"radius": 2}, {"self_loops": False}, {"layer": "mat"}])
def test_atoms_of_a_frozen_encoder_are_those_of_their_batch(network):
    torch.manual_seed(0)
    model = MolAttn(MolAttnConfig(("y",), NetworkConfig(width=8, heads=2, layers=2, **network)))
    smiles = ["CCO", "[Na+].[Cl-]", "C", "c1ccccc1.CC(=O)[O-].[K+]", "O=C(O)C1CCCCC1", "O", "CC.C"]
    records = [model.featurize(one) for one in smiles]
    molecules = Molecules(records, np.zeros((len(records), 1)), None, None)
    assert all(batch.atoms is None for batch in LabeledLoader(model, molecules, 3, seed=1))
    model.freeze("encoder")
    model.train()
    for batch in LabeledLoader(model, molecules, 3, seed=1):
        expected, _ = model.nets[0].encode_atoms(batch.molecules)
        torch.testing.assert_close(batch.atoms, expected)
    assert model.training


def test_a_model_of_another_class_computes_every_batch(molecules):
    class Own(MolAttn):
        pass

    model = Own(MolAttnConfig(("y",), TINY))
    model.freeze("encoder")
    assert all(batch.atoms is None for batch in LabeledLoader(model, molecules, 4))
