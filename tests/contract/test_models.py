"""Packaged and saved models: the same values as before, and no file that has changed."""

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import molattn
from molattn import InputError, MolAttn, MolAttnConfig, SmilesError
from molattn.config import NetworkConfig
from molattn.explain import explain

from ..conftest import rows_of
from .conftest import SETTINGS, predict, refuse, succeed

# Of the packaged models: predictions of `admet`, and every 16th or 32nd entry of embeddings.
VALUES = json.loads((Path(__file__).parent / "values.json").read_text())
WORDS = VALUES["smiles"]
BASES = ("base", "base-minimol", "base-small", "base-large")


@pytest.fixture(scope="module")
def admet():
    return MolAttn.from_pretrained("admet")


def assert_same(got, wanted):
    """Equal to 1e-5, relative to the value or, where that is larger, to a tenth of its column."""
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())


def test_admet_has_its_properties(admet):
    assert sorted(admet.config.targets) == sorted(VALUES["admet"])
    assert admet.endpoints["herg"].description


def test_predictions_of_admet(admet):
    got = admet.predict(WORDS)
    for column, name in enumerate(admet.config.targets):
        assert_same(got[:, column], VALUES["admet"][name])


def test_admet_predicts_a_drug_equally_in_every_usual_drawing(admet):
    usual = (
        "COc1ccc2[nH]c(S(=O)Cc3ncc(C)c(OC)c3C)nc2c1",  # omeprazole
        "COc1cc2c(cc1OC)C1CC(=O)C(CC(C)C)CN1CC2",  # tetrabenazine
        "COc1ccc2cc(C(C)C(=O)[O-])ccc2c1.[Na+]",  # naproxen sodium
    )
    drawn = (
        "COc1ccc2[nH]c([S+]([O-])Cc3ncc(C)c(OC)c3C)nc2c1",
        "[2H]C([2H])([2H])Oc1cc2c(cc1OC([2H])([2H])[2H])C1CC(=O)C(CC(C)C)CN1CC2",
        "COc1ccc2cc(C(C)C(=O)O[Na])ccc2c1",
    )
    assert_same(admet.predict(drawn), admet.predict(usual))
    assert_same(admet.predict(drawn, as_given=True), admet.predict(usual, as_given=True))
    assert np.allclose(admet.training_similarity(drawn), admet.training_similarity(usual))


def test_the_command_predicts_the_same(tmp_path):
    rows = predict("admet", *WORDS, output=tmp_path / "out.csv")
    assert [row["smiles"] for row in rows] == WORDS
    for name, wanted in VALUES["admet"].items():
        is_class = f"{name}_probability" in rows[0]
        got = [float(row[f"{name}_{'probability' if is_class else 'predicted'}"]) for row in rows]
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())
        for row in rows:
            assert 0 <= float(row[f"{name}_training_similarity"]) <= 1
            if is_class:
                wanted_class = str(int(float(row[f"{name}_probability"]) > 0.5))
                assert row[f"{name}_predicted"] == wanted_class
                continue
            ends = (float(row[f"{name}_{end}"]) for end in ("low", "predicted", "high"))
            low, value, high = ends
            assert low <= value <= high


def test_similarity_of_a_training_molecule_is_one(admet):
    for known in admet.nearest(WORDS, 1):
        assert admet.training_similarity([known[0].smiles]) == pytest.approx([1.0])
    values = admet.training_similarity(WORDS)
    assert ((values >= 0) & (values <= 1)).all()


@pytest.mark.parametrize("name", BASES)
def test_embeddings_of_the_packaged_models(name):
    got = MolAttn.from_pretrained(name).embed(WORDS[:3])
    wanted = np.array(VALUES["embeddings"][name])
    for row, values in zip(got[:, :: got.shape[1] // 16], wanted, strict=True):
        assert_same(row, values)


@pytest.mark.parametrize("name", BASES)
def test_the_command_embeds_the_same(name, tmp_path):
    succeed("fingerprint", name, *WORDS[:3], "--output", tmp_path / "out.csv")
    rows = rows_of(tmp_path / "out.csv")
    wanted = MolAttn.from_pretrained(name).embed(WORDS[:3])
    got = [[float(row[f"embedding_{k}"]) for k in range(wanted.shape[1])] for row in rows]
    np.testing.assert_allclose(got, wanted, rtol=2e-6, atol=1e-6)


def test_a_model_is_saved_and_loaded_as_it_is(model, tmp_path):
    one = MolAttn.from_pretrained(model)
    one.save_pretrained(tmp_path / "copy")
    other = MolAttn.from_pretrained(tmp_path / "copy")
    words = ["CCO", "c1ccccc1O"]
    for call in (MolAttn.predict, MolAttn.embed, MolAttn.training_similarity):
        np.testing.assert_array_equal(call(one, words), call(other, words))
    np.testing.assert_array_equal(one.predict_interval(words), other.predict_interval(words))
    assert (one.config, one.config.targets) == (other.config, ("logS",))
    succeed("verify", tmp_path / "copy")


def test_a_new_model_is_saved_and_loaded():
    config = MolAttnConfig(("a", "b"), NetworkConfig(width=8, heads=2, layers=1, edge_width=4))
    model = MolAttn(config).eval()
    assert model.predict(["CCO", "C"]).shape == (2, 2)
    assert len(model.embed(["CCO", "C"], atoms=True)) == 4
    with pytest.raises(SmilesError) as error:
        model.predict(["CCO", "C(C"])
    assert error.value.code == "parenthesis"
    with pytest.raises(TypeError):
        model.predict("CCO")


@pytest.mark.parametrize("place", [0.1, 0.5, 0.99])
def test_a_flipped_bit_is_refused(model, place, tmp_path):
    for file in (model / "model").iterdir():
        if file.name == "README.md":  # which may be edited
            continue
        copy = shutil.copytree(model / "model", tmp_path / file.name)
        content = bytearray(file.read_bytes())
        content[int(place * len(content))] ^= 4
        (copy / file.name).write_bytes(content)
        with pytest.raises(InputError):
            MolAttn.from_pretrained(copy)
        refuse(file.name, "predict", copy, "CCO")


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_nonsense_in_place_of_a_model_is_refused_and_not_run(model, tmp_path):
    mark = tmp_path / "was run"
    bomb = pickle.dumps(Bomb(mark))
    files = [path.name for path in (model / "model").iterdir() if path.name != "README.md"]
    for content in (bomb, b"", b"nonsense", b"{}", b"[" * 100_000, b"\xff" * 1000):
        for folder in ("whole", "one"):
            copy = shutil.copytree(model / "model", tmp_path / folder)
            for name in files if folder == "whole" else files[:1]:
                (copy / name).write_bytes(content)
            with pytest.raises(InputError):
                MolAttn.from_pretrained(copy)
            refuse("", "predict", copy, "CCO")
            shutil.rmtree(copy)
    (tmp_path / "file.pt").write_bytes(bomb)
    refuse("file.pt", "predict", tmp_path / "file.pt", "CCO")
    assert not mark.exists()


def test_a_loaded_model_runs_in_other_types_and_is_a_module(model):
    network = MolAttn.from_pretrained(model)
    assert isinstance(network, torch.nn.Module)
    wanted = network.predict(["CCO"])
    assert network.half().predict(["CCO"]) == pytest.approx(wanted, rel=0.02)
    assert pickle.loads(pickle.dumps(network)).predict(["CCO"]) == pytest.approx(wanted, rel=0.02)


def test_what_a_notebook_shows_is_short(model, admet):
    frame = pd.DataFrame({"smiles": ["C" * n for n in range(1, 31)], "y": [*map(float, range(30))]})
    result = molattn.train(frame, "y", predictor="network", **SETTINGS)
    loaded = MolAttn.from_pretrained(model)
    shown = {
        "model": loaded,
        "packaged model": admet,
        "result": result,
        "explanation": explain(loaded, "CC(=O)Oc1ccccc1C(=O)O", method="occlusion"),
        "estimator": molattn.MolAttnRegressor(),
        "nearest": loaded.nearest(["CCO"], 3),
        "neighbors": loaded.neighbors(["CCO"], 3),
        "graph": molattn.from_smiles("CCO"),
    }
    lengths = {name: len(repr(value)) for name, value in shown.items()}
    assert {name: length for name, length in lengths.items() if length > 1000} == {}
