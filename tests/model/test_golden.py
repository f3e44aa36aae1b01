"""Models and run folders that earlier versions wrote still load, and predict the same."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from molattn import MolAttn
from molattn.cli import main
from molattn.data.table import bundled_dataset
from molattn.errors import InputError
from molattn.model import artefact
from molattn.model.checkpoints import FORMAT, OLDEST_FORMAT, update_config
from molattn.model.config import MolAttnConfig

from .golden.record import MOLECULES, record

pytestmark = pytest.mark.usefixtures("without_figures")

GOLDEN = Path(__file__).with_name("golden")
RUN = GOLDEN / "regression_3"
MODELS = {folder.name: folder for folder in sorted(GOLDEN.glob("*_*/"))}


def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def expected(name):
    """What the version that wrote a model predicted; one that was only saved again has it too."""
    kind, _, number = name.rpartition("_")
    while not (MODELS[f"{kind}_{number}"] / "expected.json").exists():
        number = int(number) - 1
    return MODELS[f"{kind}_{number}"]


def config_of(folder):
    inside = folder / "model" / "config.json"
    path = inside if inside.exists() else folder / "config.json"
    return json.loads(path.read_text(encoding="utf-8"))


def test_every_format_has_a_saved_model():
    formats = {config_of(folder)["format"] for folder in MODELS.values()}
    assert formats == {*range(OLDEST_FORMAT, FORMAT + 1)}
    for name, folder in MODELS.items():
        assert name.endswith(f"_{config_of(folder)['format']}")


@pytest.mark.parametrize("name", MODELS)
def test_a_saved_model_predicts_as_before(name):
    found = record(MODELS[name])
    known = json.loads((expected(name) / "expected.json").read_text(encoding="utf-8"))
    assert found.keys() == known.keys()
    for key in ("outputs", "tasks"):
        assert found.pop(key) == known.pop(key)
    for key, values in known.items():
        np.testing.assert_allclose(found[key], values, rtol=1e-6, atol=1e-6, err_msg=key)
    assert ("low" in known) == ("pretrained" not in name)


@pytest.mark.parametrize("name", [name for name in MODELS if "pretrained" not in name])
def test_a_table_of_predictions_has_the_columns_and_values_of_before(name, tmp_path):
    assert (
        main(["predict", str(MODELS[name]), str(MOLECULES), "--output", f"{tmp_path}/o.csv"]) == 0
    )
    found, known = rows(tmp_path / "o.csv"), rows(expected(name) / "predictions.csv")
    assert [*found[0]] == [*known[0]]
    for one, other in zip(found, known, strict=True):
        for column, value in other.items():
            try:
                assert float(one[column]) == pytest.approx(float(value), rel=1e-6, abs=1e-6)
            except ValueError:
                assert one[column] == value


@pytest.mark.parametrize("name", MODELS)
def test_a_saved_model_is_saved_again_in_the_present_format(name, tmp_path):
    model = MolAttn.from_pretrained(MODELS[name])
    model.save_pretrained(tmp_path)
    assert config_of(tmp_path)["format"] == FORMAT
    again = MolAttn.from_pretrained(tmp_path)
    assert again.config == model.config
    assert again.state_dict().keys() == model.state_dict().keys()
    if model.gaussian_process is not None:  # in the precision of its version
        assert again.gaussian_process.to_bytes() == model.gaussian_process.to_bytes()


def test_an_earlier_run_folder_is_explained(tmp_path):
    output = tmp_path / "explained"
    assert main(["explain", str(RUN), str(MOLECULES), "--output", str(output)]) == 0
    assert (output / "index.html").is_file()


def some_of_the_table(name):
    lines = bundled_dataset().read_text(encoding="utf-8").splitlines()
    Path(name).write_text("\n".join([lines[0], *lines[1::28]]) + "\n")


def test_an_earlier_run_folder_is_trained_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    some_of_the_table("solubility.csv")
    options = ["--config", str(RUN / "config.yaml"), "--epochs", "1", "--output", "again"]
    assert main(["train", *options, "--no-baselines", "--bootstrap", "0"]) == 0
    model = MolAttn.from_pretrained("again")
    assert model.config.tasks == MolAttn.from_pretrained(RUN).config.tasks
    assert model.config.network.width == 8


def test_a_new_run_begins_with_an_earlier_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    some_of_the_table("small.csv")
    options = ["--init-from", str(MODELS["pretrained_3"]), "--epochs", "1", "--no-baselines"]
    assert main(["train", "small.csv", "--target-columns", "logS", *options, "--output", "o"]) == 0
    assert MolAttn.from_pretrained("o").config.network.width == 8


def test_options_that_a_format_gained_later_get_their_values_of_then():
    """The packaged model is the oldest there is: it was saved before any of them."""
    config = config_of(artefact.PACKAGED / "base-small")
    added = ("layer", "pairs", "distances", "edge_value", "head", "head_dropout")
    assert not set(added) & set(config["architecture"])
    network = update_config(config)["network"]
    assert [network[name] for name in added] == ["edge_attention", "all", True, True, "mlp", 0.5]
    present = config_of(MODELS["mixed_3"])
    own = {**present["architecture"], "head": "fourier", "layer": "gaan", "pairs": "bonds"}
    assert update_config({**present, "architecture": own})["network"] == {**own, "radius": None}


def test_only_a_model_that_was_trained_so_standardizes():
    for name, folder in MODELS.items():
        standardizes = MolAttn.from_pretrained(folder).config.standardize
        assert standardizes == (name in ("regression_7", "regression_8", "regression_9"))


def test_an_update_leaves_its_argument_as_it_is():
    config = config_of(MODELS["mixed_3"])
    before = json.dumps(config)
    assert update_config(config)["format"] == FORMAT
    assert json.dumps(config) == before


@pytest.mark.parametrize(
    "config, message",
    [
        ({"format": 3}, "missing key 'architecture'"),
        ({"format": 3, "architecture": None}, "missing key 'architecture'"),
        ({"format": 3, "architecture": {}}, "missing key"),
        ({"format": 2}, "format 2"),
        ({"format": FORMAT + 1}, "format 10"),
        ({"format": []}, r"format \[\]"),
        ({}, "format None"),
    ],
)
def test_a_config_that_is_no_model_of_any_format_is_refused(config, message):
    with pytest.raises(InputError, match=message):
        MolAttnConfig.from_dict(config)
