"""A saved model comes back as it was, or not at all."""

import json
import pickle
import re
import shutil

import numpy as np
import pytest
import safetensors.torch
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from hypothesis import given
from hypothesis import strategies as st

from molattn.config import NetworkConfig
from molattn.errors import InputError
from molattn.model import artefact
from molattn.model.model import MolAttn, MolAttnConfig

from ..conftest import assert_one_line
from ..strategies import damaged

SMALL = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
SMILES = ["CCO", "c1ccccc1"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    torch.manual_seed(0)
    model = MolAttn(MolAttnConfig(("y",), SMALL)).eval()
    model.set_target_scaling([3.0], [2.0])
    folder = tmp_path_factory.mktemp("saved") / "model"
    model.save_pretrained(folder)
    return model, folder


@pytest.fixture
def folder(saved, tmp_path):
    """A copy to damage."""
    return shutil.copytree(saved[1], tmp_path / "model")


def change_config(folder, change):
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    change(config)
    path.write_text(json.dumps(config), encoding="utf-8")


def test_a_model_comes_back_as_it_was(saved):
    model, folder = saved
    loaded = MolAttn.from_pretrained(folder)
    assert loaded.config == model.config
    assert not loaded.training
    assert loaded.state_dict().keys() == model.state_dict().keys()
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)
    np.testing.assert_array_equal(loaded.predict(SMILES), model.predict(SMILES))
    assert np.abs(loaded.predict(SMILES) - 3.0).min() > 0


def test_a_model_saved_again_is_the_same_files(saved, tmp_path):
    _, folder = saved
    MolAttn.from_pretrained(folder).save_pretrained(tmp_path / "again")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()
    assert not list(folder.glob("*.part"))


def test_config_is_plain_json_without_pickles(saved):
    _, folder = saved
    assert {path.suffix for path in folder.iterdir()} <= {".json", ".safetensors", ".md"}
    json.loads((folder / "config.json").read_text(encoding="utf-8"))


class Bomb:
    """What a pickle may do to whoever opens it."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was opened",))


@pytest.mark.parametrize("make", ["pickle", "torch", "bomb"])
def test_a_pickle_by_the_name_of_safetensors_is_refused(saved, folder, make):
    path = folder / "model.safetensors"
    if make == "torch":
        torch.save(saved[0].state_dict(), path)
    else:
        thing = Bomb() if make == "bomb" else dict(saved[0].state_dict())
        path.write_bytes(pickle.dumps(thing))
    with pytest.raises(InputError, match="not a readable safetensors file"):
        MolAttn.from_pretrained(folder)


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_weights_that_are_cut_short_are_refused(folder, keep):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(InputError, match="not a readable safetensors file"):
        MolAttn.from_pretrained(folder)


@pytest.mark.parametrize(
    "text, message",
    [
        (b"", "not a JSON file"),
        (b'{"format": 1', "not a JSON file"),
        (b"\xff\xfe\x00", "not a JSON file"),
        (b"[1, 2]", "got a JSON list, expected an object"),
        (b"null", "got a JSON NoneType, expected an object"),
        (b"{}", "got format None"),
    ],
)
def test_a_config_that_is_damaged_is_refused(folder, text, message):
    (folder / "config.json").write_bytes(text)
    with pytest.raises(InputError, match=message):
        MolAttn.from_pretrained(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_file_that_is_missing_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(InputError, match=f"has no {re.escape(name)}"):
        MolAttn.from_pretrained(folder)


def test_a_folder_that_is_missing_is_named(tmp_path):
    with pytest.raises(InputError, match="nowhere: no such folder"):
        MolAttn.from_pretrained(tmp_path / "nowhere")


def test_a_model_that_was_saved_before_an_option_has_its_default(folder):
    expected = MolAttn.from_pretrained(folder)

    def without_later_ones(config):
        config["format"] = 3
        config["architecture"] = config.pop("network")
        for name in ("layer", "pairs", "distances", "edge_value", "head_dropout"):
            del config["architecture"][name]

    change_config(folder, without_later_ones)
    found = MolAttn.from_pretrained(folder)
    assert found.config == expected.config
    assert np.array_equal(found.predict(["CCO"]), expected.predict(["CCO"]))


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda c: c.update(color="red"), "model config: unknown key 'color'"),
        (lambda c: c.pop("featurizer"), "model config: missing key 'featurizer'"),
        (lambda c: c.update(format=99), "got format 99 of molattn .*, expected"),
        (
            lambda c: c["network"].update(depth=3),
            "model config, network: unknown key 'depth'",
        ),
        (
            lambda c: c["network"].pop("heads"),
            "model config, network: missing key 'heads'",
        ),
        (lambda c: c["featurizer"].update(color="red"), "color"),
        (lambda c: c.update(tasks=[]), "tasks: expected at least one"),
        (lambda c: c.update(featurizer=[]), "featurizer"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(folder, change, message):
    change_config(folder, change)
    with pytest.raises(InputError, match=message):
        MolAttn.from_pretrained(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.update(tasks=5),
        lambda c: c.update(network=None),
        lambda c: c["network"].update(score="cosine"),
        lambda c: c["network"].update(layers="two"),
        lambda c: c["network"].update(width=-8),
        lambda c: c["network"].update(heads=0),
        lambda c: c["network"].update(dropout=2.0),
        lambda c: c["network"].update(readout="loudest"),
    ],
)
def test_a_config_of_no_possible_model_is_refused(folder, change):
    change_config(folder, change)
    with pytest.raises(InputError):
        MolAttn.from_pretrained(folder)


def test_weights_of_another_model_are_refused(folder):
    path = folder / "model.safetensors"
    weights = safetensors.torch.load_file(path)
    first = sorted(weights)[0]

    def refused(changed, message):
        safetensors.torch.save_file(changed, path)
        with pytest.raises(InputError, match=message):
            MolAttn.from_pretrained(folder)

    refused({k: v for k, v in weights.items() if k != first}, f"missing weight {first!r}")
    refused(weights | {"extra": torch.ones(1)}, "unexpected weight 'extra'")
    wider = weights | {"target_mean": torch.ones(2)}
    refused(wider, r"weight 'target_mean' has shape \[2\], expected \[1\]")
    change_config(folder, lambda c: c["network"].update(width=16))
    refused(weights, r"has shape .*, expected")


@pytest.mark.parametrize("value", [torch.tensor([1]), torch.tensor([torch.nan])])
def test_weights_that_are_no_finite_numbers_are_refused(folder, value):
    path = folder / "model.safetensors"
    weights = safetensors.torch.load_file(path)
    safetensors.torch.save_file(weights | {"target_mean": value}, path)
    with pytest.raises(InputError, match="target_mean"):
        MolAttn.from_pretrained(folder)


def test_a_hub_that_gives_no_model_is_told_in_a_line_with_its_reason(tmp_path, monkeypatch):
    def refuse(name, **_):
        raise LocalEntryNotFoundError(f"{name}: no connection\nmore of it")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(artefact, "snapshot_download", refuse)
    with pytest.raises(InputError) as error:
        MolAttn.from_pretrained("owner/model")
    told = "owner/model: no such folder, and no download from the Hugging Face Hub: "
    assert str(error.value) == told + "owner/model: no connection"
    assert error.value.__suppress_context__


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@given(data=st.data())
def test_a_damaged_file_is_one_error_or_loads(saved, tmp_path_factory, name, data):
    folder = tmp_path_factory.getbasetemp() / "damaged"
    shutil.copytree(saved[1], folder, dirs_exist_ok=True)
    (folder / name).write_bytes(data.draw(damaged((saved[1] / name).read_bytes())))
    try:
        MolAttn.from_pretrained(folder)
    except InputError as error:
        assert_one_line(error)
