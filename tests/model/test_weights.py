"""The models that come with the package."""

import csv
import io
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from molattn.chem.featurizer import Featurizer
from molattn.cli import main
from molattn.config import NetworkConfig, TrainConfig
from molattn.model.artefact import PACKAGED, WEIGHTS_FILE, find_model
from molattn.model.model import MolAttn
from molattn.training.fine_tuning import load_pretrained

MOST_BYTES = 10_000_000
SMILES = ["CCO", "CC(=O)Oc1ccccc1C(=O)O", "C[N+](C)(C)CC(=O)[O-]"]
RECORDED = {
    "base": {
        "MolLogP": [0.7905, 1.3561, -1.2191],
        "TPSA": [39.255, 66.4857, 37.041],
        "HeavyAtomCount": [8.2049, 12.7959, 8.6527],
    },
    "base-large": {
        "MolLogP": [-0.1283, 1.4064, -0.6903],
        "TPSA": [25.3295, 62.0408, 35.2926],
        "HeavyAtomCount": [4.805, 13.358, 7.3661],
    },
    "base-small": {
        "MolLogP": [0.2244, 1.1448, -1.2267],
        "TPSA": [21.8486, 65.236, 26.2853],
        "HeavyAtomCount": [4.4901, 12.7983, 7.3356],
    },
}


@pytest.mark.parametrize("name", RECORDED)
def test_a_packaged_model_predicts_what_was_recorded(name):
    model = MolAttn.from_pretrained(name)
    predicted = model.predict(SMILES)
    columns = [model.config.targets.index(one) for one in RECORDED[name]]
    expected = np.transpose([*RECORDED[name].values()])
    np.testing.assert_allclose(predicted[:, columns], expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", RECORDED)
def test_packaged_models_are_of_the_default_network_or_a_wider_one(name):
    config, default = MolAttn.from_pretrained(name).config, NetworkConfig()
    own = {name: getattr(default, name) for name in ("dropout", "head", "head_dropout")}
    width = 256 if name == "base-large" else default.width
    assert replace(config.network, **own) == replace(default, width=width)
    assert config.featurizer == Featurizer.default()


def test_base_is_the_default_beginning():
    begins, _ = load_pretrained(TrainConfig.from_options("", {}))
    assert begins.fine_tuning.init_from == "base"


@pytest.mark.parametrize("name", RECORDED)
def test_packaged_models_are_small_and_their_cards_say_how_to_make_them_again(name):
    folder = find_model(name)
    assert folder == PACKAGED / name
    assert sum(path.stat().st_size for path in folder.iterdir()) <= MOST_BYTES
    assert (folder / WEIGHTS_FILE).is_file()
    card = (folder / "README.md").read_text(encoding="utf-8")
    for said in ("SHA-256", "CC BY-SA 3.0", "seed 0", "molattn pretrain ", "R²", "hours"):
        assert said in card


def test_commands_find_base_by_its_name_unless_a_folder_has_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.csv").write_text("smiles\nCCO\n")
    words = ["predict", "base", "in.csv", "--output", "out.csv"]
    assert main(words) == 0
    with open("out.csv", encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    expected = RECORDED["base"]["MolLogP"][0]
    assert float(row["MolLogP_predicted"]) == pytest.approx(expected, abs=1e-3)
    (tmp_path / "base").mkdir()
    assert main(words) == 2
    assert "base: has no config.json" in capsys.readouterr().err


@pytest.fixture(scope="module")
def admet():
    return MolAttn.from_pretrained("admet")


def test_admet_says_what_it_predicts(admet):
    assert len(admet.config.tasks) == 22
    assert [*admet.endpoints] == [*admet.config.targets]
    labels = admet.training_set.labels
    for task, known in zip(admet.config.tasks, labels, strict=True):
        endpoint = admet.endpoints[task.name]
        facts = (endpoint.title, endpoint.description, endpoint.assay, endpoint.source)
        assert all((*facts, endpoint.license, endpoint.scores))
        assert endpoint.rows == known.count > 300
        if task.kind == "regression":
            assert 0.8 < endpoint.coverage < 1.0
            assert endpoint.unit == task.unit


def test_admet_knows_the_order_of_well_known_molecules(admet):
    smiles = ["CCO", "CCCCCCCCCCCCCCCC", "CC(=O)Oc1ccccc1C(=O)O"]
    places = {name: place for place, name in enumerate(admet.config.targets)}
    predicted = admet.predict(smiles)
    solubility, lipophilicity = (
        predicted[:, places[name]] for name in ("solubility_aqsoldb", "lipophilicity_astrazeneca")
    )
    assert solubility.argsort().tolist() == [1, 2, 0]
    assert solubility[0] > -1.0
    assert lipophilicity.argmax() == 1
    low, high = admet.predict_interval(smiles)
    numbers = [task.kind == "regression" for task in admet.config.tasks]
    assert (low[:, numbers] < high[:, numbers]).all()


def test_admet_is_small_in_a_wheel_and_its_card_has_the_scores():
    folder, content = find_model("admet"), io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path in folder.iterdir():
            wheel.write(path, path.name)
    assert content.tell() < 20_000_000
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "`herg`: binary; 0, 1; ROC-AUC" in card
