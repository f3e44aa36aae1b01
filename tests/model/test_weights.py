"""The models that come with the package."""

from dataclasses import replace

import pytest

from molattn.chem.featurizer import Featurizer
from molattn.config import NetworkConfig
from molattn.model.artefact import PACKAGED, WEIGHTS_FILE, find_model
from molattn.model.model import MolAttn

MOST_BYTES = 10_000_000
BASES = ("base", "base-large", "base-minimol", "base-small")


@pytest.mark.parametrize("name", BASES)
def test_packaged_models_are_of_the_default_network_or_a_wider_one(name):
    config, default = MolAttn.from_pretrained(name).config, NetworkConfig()
    own = {name: getattr(default, name) for name in ("dropout", "head", "head_dropout")}
    width = 256 if name == "base-large" else default.width
    # They were trained without slopes, and before blocks could read bonds alone.
    older = {"layer_options": (), "graphs": ("pairs",), "norm": "layer"}
    assert replace(config.network, **own) == replace(default, width=width, **older)
    assert config.featurizer == Featurizer.default()


@pytest.mark.parametrize("name", BASES)
def test_packaged_models_are_small_and_their_cards_say_how_to_make_them_again(name):
    folder = find_model(name)
    assert folder == PACKAGED / name
    assert sum(path.stat().st_size for path in folder.iterdir()) <= MOST_BYTES
    assert (folder / WEIGHTS_FILE).is_file()
    card = (folder / "README.md").read_text(encoding="utf-8")
    for said in ("SHA-256", "CC BY-SA 3.0", "seed 0", "molattn pretrain ", "R²", "hours"):
        assert said in card


def test_admet_says_what_it_predicts():
    admet = MolAttn.from_pretrained("admet")
    assert len(admet.config.tasks) == 22
    assert [*admet.endpoints] == [*admet.config.targets]
    labels = admet.training_set.labels
    for task, known in zip(admet.config.tasks, labels, strict=True):
        endpoint = admet.endpoints[task.name]
        facts = (endpoint.title, endpoint.description, endpoint.assay, endpoint.source)
        assert all((*facts, endpoint.license, endpoint.scores))
        limited = ("herg", "bbb_martins", "vdss_lombardo", "dili")
        is_limited = task.name in limited or task.name.startswith("cyp")
        assert bool(endpoint.limitations) == is_limited
        assert endpoint.rows == known.count > 300
        if task.kind == "regression":
            assert 0.8 < endpoint.coverage < 1.0
            assert endpoint.unit == task.unit
