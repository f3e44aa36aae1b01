"""Molecules are batched in one way, wherever they are predicted."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from molattn.config import EmbedConfig, NetworkConfig, PredictConfig
from molattn.inference.embed import fingerprint_table
from molattn.inference.predict import predict_table
from molattn.model import batching
from molattn.model.batching import MOST_PAIRS, batches
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.record import MoleculeRecord

SMALL = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
ATOMS = (2, 3, 20, 9, 5, 5, 5)
SMILES = ["C" * n for n in ATOMS]
GROUPS = [[2, 3], [20], [9], [5, 5, 5]]


def molecule(atoms, partner=None):
    codes, pairs = np.zeros((atoms, 1), np.uint8), np.zeros((atoms, atoms), np.uint8)
    return MoleculeRecord(codes, pairs, partner=molecule(partner) if partner else None)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return MolAttn(MolAttnConfig("y", SMALL)).eval()


@pytest.fixture
def collated(monkeypatch):
    """Atoms of each batch that any model lays out, with at most 100 pairs in one."""
    seen, collate = [], MolAttn.collate

    def spy(self, records):
        seen.append([record.num_atoms for record in records])
        return collate(self, records)

    monkeypatch.setattr(batching, "MOST_PAIRS", 100)
    monkeypatch.setattr(MolAttn, "collate", spy)
    return seen


@given(
    st.lists(st.one_of(st.none(), st.tuples(st.integers(1, 900), st.integers(0, 900)))),
    st.integers(1, 5),
)
def test_batches_keep_the_order_and_both_limits(sizes, most):
    items = [None if size is None else molecule(*size) for size in sizes]
    groups = list(batches(items, most, lambda item: item))
    assert [item for group in groups for item in group] == items
    for group in groups:
        assert 1 <= len(group) <= most
        held = [item for item in group if item is not None]
        pairs = sum(m.num_atoms**2 + (m.partner.num_atoms**2 if m.partner else 0) for m in held)
        assert len(group) == 1 or pairs <= MOST_PAIRS


def test_two_molecules_that_attend_to_each_other_count_as_padded():
    one, other = molecule(1000, 1), molecule(1, 1000)
    assert len(list(batches([one, other], 8, lambda item: item))) == 2
    assert len(list(batches([molecule(500, 1)] * 4, 8, lambda item: item))) == 1


def test_predictions_and_embeddings_batch_alike(model, collated, tmp_path):
    table = tmp_path / "in.csv"
    table.write_text("smiles\n" + "\n".join(SMILES) + "\n")
    calls = (
        lambda: model.predict(SMILES, 3),
        lambda: model.embed(SMILES, 3),
        lambda: model.embed(SMILES, 3, atoms=True),
        lambda: model.predict_interval(SMILES, 0.5, 3),
        lambda: predict_table(model, table, tmp_path / "a.csv", PredictConfig(batch_size=3)),
        lambda: fingerprint_table(model, table, tmp_path / "b.csv", EmbedConfig(batch_size=3)),
    )
    model.calibrate(["C", "CC", "CCC"], [[0.0], [1.0], [2.0]], ["CCCC"])
    for call in calls:
        collated.clear()
        call()
        assert collated == GROUPS


def test_smaller_batches_predict_the_same(model, monkeypatch):
    whole = model.predict(SMILES)
    monkeypatch.setattr(batching, "MOST_PAIRS", 100)
    np.testing.assert_allclose(model.predict(SMILES), whole, atol=1e-6)


@pytest.mark.parametrize("size", [0, -3])
def test_a_batch_has_at_least_one_molecule(size):
    with pytest.raises(ValueError, match=f"batch_size: got {size}"):
        list(batches([molecule(2)], size, lambda item: item))
