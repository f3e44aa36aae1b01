"""What networks read: batches that fit into memory, features, descriptors and Morgan counts."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from molattn.chem import parse_smiles
from molattn.chem.descriptors import DESCRIPTORS, DescriptorCalculator
from molattn.config import (
    DataConfig,
    EmbedConfig,
    NetworkConfig,
    PredictConfig,
    SupervisedConfig,
    TrainConfig,
)
from molattn.errors import InputError, SmilesError
from molattn.inference import embed_table
from molattn.inference.predict import predict_table
from molattn.model import networks
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.networks import MOST_PAIRS, Networks, batches
from molattn.model.scaling import CLIP, scaled_numbers, table_features
from molattn.record import MoleculeRecord
from molattn.training.run import train
from molattn.training.scaling import number_scaling

SMALL = NetworkConfig(width=8, heads=2, layers=1, edge_width=4, dropout=0.0)
TRAINED = ["CCO", "CCN", "c1ccccc1O", "CC(=O)C", "CCCl", "OCC(O)CO", "CC(C)C", "C1CCCC1"]
TESTED = ["CCCCCCCCCCCCCCCC", "[Na+].[Cl-]", "FC(F)(F)F"]


def molecule(atoms, partner=None):
    codes, pairs = np.zeros((atoms, 1), np.uint8), np.zeros((atoms, atoms), np.uint8)
    return MoleculeRecord(codes, pairs, partner=molecule(partner) if partner else None)


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


def test_a_list_with_invalid_molecules_has_nan_or_a_row_with_the_error():
    model = MolAttn(MolAttnConfig("y", SMALL, features=("pH", "T"), members=2)).eval()
    smiles = ["CCO", "C(C", "CCN"]
    numbers = pd.DataFrame({"T": [1.0, 2.0, 3.0], "pH": [7.0, 8.0, 9.0]})
    valid = model.predict(smiles[::2], features=numbers.iloc[::2])
    with pytest.raises(SmilesError, match="position 1"):
        model.predict(smiles, features=numbers)
    values = model.predict(smiles, features=numbers, errors="nan")
    assert np.isnan(values).tolist() == [[False], [True], [False]]
    np.testing.assert_allclose(values[::2], valid, rtol=1e-6)
    of_members = model.predict(smiles, features=numbers, errors="nan", members=True)
    assert np.isnan(of_members[:, :, 0]).tolist() == [[False, True, False]] * 2
    assert np.isnan(model.predict(["C("], features=[[1.0, 2.0]], errors="nan")).all()
    frame = model.predict_frame(smiles, features=numbers)
    np.testing.assert_allclose(frame.iloc[::2, 0].astype(float), valid[:, 0], rtol=1e-6)
    assert "position" not in frame["error"].iloc[1]
    assert "parenthesis" in frame["error"].iloc[1]
    with pytest.raises(InputError, match="errors"):
        model.predict(smiles, features=numbers, errors="ignore")


def test_molecules_are_batched_in_one_way_wherever_they_are_predicted(monkeypatch, tmp_path):
    model = MolAttn(MolAttnConfig("y", SMALL)).eval()
    smiles = ["C" * n for n in (2, 3, 20, 9, 5, 5, 5)]
    whole = model.predict(smiles)
    with pytest.raises(ValueError, match="batch_size"):
        model.predict(smiles, 0)
    seen, collate = [], Networks.collate

    def spy(self, records):
        seen.append([record.num_atoms for record in records])
        return collate(self, records)

    monkeypatch.setattr(networks, "MOST_PAIRS", 100)
    monkeypatch.setattr(Networks, "collate", spy)
    table = tmp_path / "in.csv"
    table.write_text("smiles\n" + "\n".join(smiles) + "\n")
    model.calibrate(["C", "CC", "CCC"], [[0.0], [1.0], [2.0]], ["CCCC"])
    for call in (
        lambda: np.testing.assert_allclose(model.predict(smiles, 3), whole, atol=1e-6),
        lambda: model.embed(smiles, 3),
        lambda: model.embed(smiles, 3, atoms=True),
        lambda: model.predict_interval(smiles, 0.5, 3),
        lambda: predict_table(model, table, tmp_path / "a.csv", PredictConfig(batch_size=3)),
        lambda: embed_table(model, table, tmp_path / "b.csv", EmbedConfig(batch_size=3)),
    ):
        seen.clear()
        call()
        assert seen == [[2, 3], [20], [9], [5, 5, 5]]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("numbers") / "t.csv"
    parts = [*("train",) * 6, *("val",) * 2, *("test",) * 3]
    rows = zip([*TRAINED, *TESTED], range(11), parts, strict=True)
    path.write_text("smiles,y,split\n" + "".join(f"{s},{y},{p}\n" for s, y, p in rows))
    options = {"descriptors": "all", "morgan_counts": 32}
    data = DataConfig(target_columns=("y",), split_column="split", **options)
    return train(
        TrainConfig(str(path), data, SMALL, SupervisedConfig(epochs=1, batch_size=4, device="cpu"))
    )


def test_numbers_are_scaled_by_the_training_rows_alone_and_reach_the_prediction(run, tmp_path):
    model = run.model
    assert (model.config.descriptors, model.config.morgan_counts) == (DESCRIPTORS, 32)
    calculator = DescriptorCalculator(DESCRIPTORS, 32)
    values = np.array([calculator(parse_smiles(text)) for text in TRAINED[:6]])
    varies = np.nanstd(values, axis=0) > 1e-6
    mean, scale = model.feature_mean.numpy(), model.feature_scale.numpy()
    np.testing.assert_allclose(mean[varies], np.nanmean(values, axis=0)[varies], rtol=1e-5)
    np.testing.assert_allclose(scale[varies], np.nanstd(values, axis=0)[varies], rtol=1e-4)
    assert 100 < varies.sum() < len(varies) - 20  # each kind occurs
    smiles = [*TRAINED, *TESTED]
    model.save_pretrained(tmp_path)
    again, expected = MolAttn.from_pretrained(tmp_path), model.predict(smiles)
    assert np.isfinite(expected).all()
    np.testing.assert_array_equal(again.predict(smiles), expected)
    alone = [again.predict([text])[0] for text in smiles]
    np.testing.assert_allclose(alone, expected, rtol=1e-4, atol=1e-5)
    batch = model.collate([model.featurize("CCO")])
    changed = replace(batch, numbers=batch.numbers * 2)
    assert not torch.equal(model(batch), model(changed))
    plain = MolAttn(MolAttnConfig("y", SMALL))
    for one, other in ((model, plain), (plain, model)):
        with pytest.raises(ValueError, match="featurize"):
            one.predictor.values(one.predictor.predict_outputs([other.featurize("CCO")]))


def test_a_number_that_did_not_vary_or_was_missing_says_nothing():
    rows = [[1.0, 5.0, np.nan, 0.1], [3.0, 5.0, np.nan, np.nan]]
    nothing = np.zeros((1, 1), dtype=np.uint8)
    records = [MoleculeRecord(nothing, nothing, np.float32(row)) for row in rows]
    mean, scale = (torch.tensor(v, dtype=torch.float32) for v in number_scaling(records, None))
    assert mean.tolist() == pytest.approx([2.0, 5.0, 0.0, 0.1])
    assert scale[0] == 1.0
    new = torch.tensor([[4.0, 1e6, 7.0, 9.0], [2.0, np.nan, np.nan, -1e9]])
    scaled = scaled_numbers(new, mean, scale, from_table=0)
    torch.testing.assert_close(scaled, torch.tensor([[2.0, 0, 0, 0], [0, 0, 0, 0]]))
    # What is calculated is clipped, and what is given is not.
    values = torch.tensor([[100.0, 100.0, torch.nan], [-100.0, -100.0, 1.0]])
    scaled = scaled_numbers(values, torch.zeros(3), torch.ones(3), from_table=1)
    assert scaled.tolist() == [[100.0, CLIP, 0.0], [-100.0, -CLIP, 1.0]]


def test_columns_of_a_frame_are_found_by_name():
    config = MolAttnConfig("y", features=("pH", "T"))
    frame = pd.DataFrame({"T": [300.0, 310.0], "pH": [7.0, 8.0]})
    assert table_features(frame, 2, config).tolist() == [[7.0, 300.0], [8.0, 310.0]]
    with pytest.raises(ValueError, match="features"):
        table_features(frame.rename(columns={"pH": "w"}), 2, config)
