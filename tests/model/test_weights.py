"""The models that come with the package."""

import io
import zipfile
from dataclasses import replace

import pytest

from molattn.chem.featurizer import Featurizer
from molattn.config import NetworkConfig, TrainConfig
from molattn.model.artefact import PACKAGED, WEIGHTS_FILE, find_model
from molattn.model.model import MolAttn
from molattn.training.fine_tuning import load_pretrained

MOST_BYTES = 10_000_000
BASES = ("base", "base-large", "base-small")


@pytest.mark.parametrize("name", BASES)
def test_packaged_models_are_of_the_default_network_or_a_wider_one(name):
    config, default = MolAttn.from_pretrained(name).config, NetworkConfig()
    own = {name: getattr(default, name) for name in ("dropout", "head", "head_dropout")}
    width = 256 if name == "base-large" else default.width
    assert replace(config.network, **own) == replace(default, width=width)
    assert config.featurizer == Featurizer.default()


def test_base_is_the_default_beginning():
    begins, _ = load_pretrained(TrainConfig.from_options("", {}))
    assert begins.fine_tuning.init_from == "base"


@pytest.mark.parametrize("name", BASES)
def test_packaged_models_are_small_and_their_cards_say_how_to_make_them_again(name):
    folder = find_model(name)
    assert folder == PACKAGED / name
    assert sum(path.stat().st_size for path in folder.iterdir()) <= MOST_BYTES
    assert (folder / WEIGHTS_FILE).is_file()
    card = (folder / "README.md").read_text(encoding="utf-8")
    for said in ("SHA-256", "CC BY-SA 3.0", "seed 0", "molattn pretrain ", "R²", "hours"):
        assert said in card


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
