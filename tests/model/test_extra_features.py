"""Descriptors and Morgan counts, from training to prediction."""

import csv
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from molattn.chem.descriptors import DESCRIPTORS, DescriptorCalculator, descriptor_matrix
from molattn.config import DataConfig, NetworkConfig, SupervisedConfig, TrainConfig
from molattn.errors import InputError
from molattn.inference.predict import predict_table
from molattn.model.extra_features import CLIP, given_numbers, scaled_numbers
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.record import MoleculeRecord
from molattn.training.run import train
from molattn.training.scaling import number_scaling

from .test_artefact import change_config

SMALL = NetworkConfig(width=8, heads=2, layers=1, edge_width=4, dropout=0.0)
QUICK = SupervisedConfig(epochs=2, batch_size=4, device="cpu")
DATA = DataConfig(target_columns=("y",), split_column="split", descriptors="all", morgan_counts=32)
TRAINED = ["CCO", "CCN", "c1ccccc1O", "CC(=O)C", "CCCl", "OCC(O)CO", "CC(C)C", "C1CCCC1"]
TESTED = ["CCCCCCCCCCCCCCCC", "[Na+].[Cl-]", "FC(F)(F)F"]


def table(path, tested):
    parts = [*("train",) * 6, *("val",) * 2, *("test",) * len(tested)]
    rows = zip([*TRAINED, *tested], range(20), parts, strict=False)
    path.write_text("smiles,y,split\n" + "".join(f"{s},{y},{p}\n" for s, y, p in rows))
    return TrainConfig(str(path), DATA, SMALL, QUICK)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(table(tmp_path_factory.mktemp("numbers") / "t.csv", TESTED))


def test_numbers_are_scaled_by_the_training_part_alone(run, tmp_path):
    config = run.model.config
    assert (config.descriptors, config.morgan_counts) == (DESCRIPTORS, 32)
    values = descriptor_matrix(TRAINED[:6], DescriptorCalculator(DESCRIPTORS, 32))
    varies = np.nanstd(values, axis=0) > 1e-6
    mean, scale = run.model.feature_mean.numpy(), run.model.feature_scale.numpy()
    np.testing.assert_allclose(mean[varies], np.nanmean(values, axis=0)[varies], rtol=1e-5)
    np.testing.assert_allclose(scale[varies], np.nanstd(values, axis=0)[varies], rtol=1e-4)
    assert 100 < varies.sum() < len(varies) - 20  # each kind occurs

    other = train(table(tmp_path / "other.csv", ["C#N", "O=S(=O)(O)O", "BrBr"])).model
    assert torch.equal(other.feature_mean, run.model.feature_mean)
    assert torch.equal(other.feature_scale, run.model.feature_scale)


def test_a_number_that_did_not_vary_or_was_missing_says_nothing():
    rows = [[1.0, 5.0, np.nan, 0.1], [3.0, 5.0, np.nan, np.nan]]
    nothing = np.zeros((1, 1), dtype=np.uint8)
    records = [MoleculeRecord(nothing, nothing, np.float32(row)) for row in rows]
    mean, scale = (torch.tensor(v, dtype=torch.float32) for v in number_scaling(records, None))
    assert mean.tolist() == pytest.approx([2.0, 5.0, 0.0, 0.1])
    assert scale.isfinite().all()
    assert scale[0] == 1.0
    new = torch.tensor([[4.0, 1e6, 7.0, 9.0], [2.0, np.nan, np.nan, -1e9]])
    scaled = scaled_numbers(new, mean, scale, given=0)
    torch.testing.assert_close(scaled, torch.tensor([[2.0, 0, 0, 0], [0, 0, 0, 0]]))


def test_what_is_calculated_is_cut_off_and_what_is_given_is_not():
    values = torch.tensor([[100.0, 100.0, torch.nan], [-100.0, -100.0, 1.0]])
    scaled = scaled_numbers(values, torch.zeros(3), torch.ones(3), given=1)
    assert scaled.tolist() == [[100.0, CLIP, 0.0], [-100.0, -CLIP, 1.0]]


def test_a_loaded_model_predicts_the_same_in_every_way(run, tmp_path):
    run.model.save_pretrained(tmp_path / "model")
    model = MolAttn.from_pretrained(tmp_path / "model")
    assert model.config == run.model.config
    smiles = [*TRAINED, *TESTED]
    expected = run.model.predict(smiles)
    assert np.isfinite(expected).all()
    np.testing.assert_array_equal(model.predict(smiles), expected)
    one_by_one = [model.predict([text])[0] for text in smiles]
    np.testing.assert_allclose(one_by_one, expected, rtol=1e-4, atol=1e-5)
    source, output = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text("smiles\n" + "\n".join([*smiles, "nonsense"]) + "\n")
    assert predict_table(tmp_path / "model", source, output) == (len(smiles), 1)
    with open(output) as file:
        found = [float(row["y_predicted"]) for row in csv.DictReader(file) if not row["error"]]
    np.testing.assert_allclose(found, expected[:, 0], rtol=1e-4, atol=1e-5)


def test_numbers_reach_the_prediction(run):
    batch = run.model.collate([run.model.featurize("CCO")])
    changed = replace(batch, numbers=batch.numbers * 2)
    assert not torch.equal(run.model(batch), run.model(changed))


def test_a_model_of_another_rdkit_names_the_descriptor_that_is_missing(run, tmp_path):
    run.model.save_pretrained(tmp_path)
    change_config(tmp_path, lambda config: config["descriptors"].insert(3, "FutureIndex"))
    with pytest.raises(InputError, match=r"RDKit 20.* has no 'FutureIndex'"):
        MolAttn.from_pretrained(tmp_path)


def test_molecules_without_the_numbers_of_the_model_are_refused(run):
    plain = MolAttn(MolAttnConfig("y", SMALL))
    with pytest.raises(
        ValueError, match="got 0 calculated features of the molecules, expected 247"
    ):
        run.model.predict_records([plain.featurize("CCO")])
    with pytest.raises(
        ValueError, match="got 247 calculated features of the molecules, expected 0"
    ):
        plain.predict_records([run.model.featurize("CCO")])
    with pytest.raises(ValueError, match="got numbers for 1 of 2 molecules"):
        run.model.collate([run.model.featurize("CCO"), plain.featurize("CCO")])


def test_columns_of_a_frame_are_found_by_name():
    config = MolAttnConfig("y", features=("pH", "T"))
    frame = pd.DataFrame({"T": [300.0, 310.0], "pH": [7.0, 8.0]})
    assert given_numbers(frame, 2, config).tolist() == [[7.0, 300.0], [8.0, 310.0]]
    with pytest.raises(ValueError, match=r"features: got the columns \['T', 'w'\], expected"):
        given_numbers(frame.rename(columns={"pH": "w"}), 2, config)
