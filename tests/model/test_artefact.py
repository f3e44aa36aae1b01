"""A saved model comes back as it was, or not at all."""

import copy
import hashlib
import json
import re
import shutil
import subprocess
import sys

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
from molattn.model.artefact import find_local_model, find_model
from molattn.model.gaussian_process.head import GaussianProcessHead
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.task import Task

from ..conftest import assert_one_line
from ..strategies import altered, damaged

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


def write_manifest(folder):
    """List the files as they are, as somebody does who wants a changed one to be loaded."""
    content = {
        path.name: {
            "size": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in folder.iterdir()
        if path.name not in ("manifest.json", "README.md")
    }
    (folder / "manifest.json").write_text(json.dumps(content))


def change_config(folder, change):
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    change(config)
    path.write_text(json.dumps(config), encoding="utf-8")
    write_manifest(folder)


def change_weights(folder, weights):
    safetensors.torch.save_file(weights, folder / "model.safetensors")
    write_manifest(folder)


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
    for name in ("config.json", "model.safetensors", "manifest.json"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()
    assert not list(folder.glob("*.part"))


@pytest.mark.parametrize(
    "text, message",
    [
        (b"", "not a JSON file"),
        (b'{"format": 1', "not a JSON file"),
        (b"\xff\xfe\x00", "not a JSON file"),
        (b"[1, 2]", "got a JSON list, expected an object"),
        (b"null", "got a JSON NoneType, expected an object"),
        (b"{}", "got format None"),
        (b'{"a": NaN}', "'NaN' is not a finite number"),
        (b'{"a": [-Infinity]}', "'-Infinity' is not a finite number"),
        (b'{"a": 1e999}', "'1e999' is not a finite number"),
        (b'{"a": 1, "b": {"c": 2, "c": 3}}', "duplicate key 'c'"),
        (b'{"a": %s}' % (b"9" * 5000), "integer of 5000 digits"),
        (b'{"a": %s}' % (b"[" * 100_000 + b"]" * 100_000), "nested too deeply"),
        (b'{"a": ' * 100_000, "nested too deeply"),
    ],
)
def test_a_config_that_is_damaged_is_refused(folder, text, message):
    (folder / "config.json").write_bytes(text)
    write_manifest(folder)
    with pytest.raises(InputError, match=message):
        MolAttn.from_pretrained(folder)


def test_a_folder_that_is_missing_is_named(tmp_path):
    with pytest.raises(InputError, match="nowhere: no such folder"):
        MolAttn.from_pretrained(tmp_path / "nowhere")


def test_a_name_of_no_model_is_refused_with_those_of_the_package():
    for find in (find_model, find_local_model):
        with pytest.raises(InputError, match=r"admett: no such folder.*packaged model: admet, b"):
            find("admett")


@pytest.mark.parametrize("find", [find_model, find_local_model])
def test_the_interrupted_run_of_a_missing_folder_is_named(tmp_path, monkeypatch, find):
    (tmp_path / "runs" / "a.unfinished").mkdir(parents=True)
    (tmp_path / "runs" / "a.unfinished" / "config.yaml").touch()
    monkeypatch.chdir(tmp_path)  # where the name is one of the Hub too
    with pytest.raises(InputError, match=r"runs/a\.unfinished is a run .*with resume runs/a\)"):
        find("runs/a")


def test_the_folder_of_a_cross_validation_is_refused_with_that_of_one_of_its_models(tmp_path):
    for number in (2, 1):
        (tmp_path / f"fold_{number}" / "model").mkdir(parents=True)
    (tmp_path / "fold_0").mkdir()
    with pytest.raises(InputError, match=f"such as {tmp_path / 'fold_1'}$"):
        MolAttn.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda c: c.update(color="red"), "model config: unknown key 'color'"),
        (lambda c: c.pop("featurizer"), "model config: missing key 'featurizer'"),
        (lambda c: c.update(format=99), "got format 99, saved by molattn .*, expected"),
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


def test_weights_of_another_model_are_refused(folder):
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    first = sorted(weights)[0]

    def refused(changed, name):
        change_weights(folder, changed)
        with pytest.raises(InputError, match=rf"model\.safetensors.*{name}"):
            MolAttn.from_pretrained(folder)

    refused({k: v for k, v in weights.items() if k != first}, first)
    refused(weights | {"extra": torch.ones(1)}, "extra")
    refused(weights | {"target_scale": torch.ones(2)}, "target_scale")


def test_weights_of_8_bits_are_refused(folder):
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    small = weights["target_mean"].to(torch.float8_e4m3fn)
    change_weights(folder, weights | {"target_mean": small})
    with pytest.raises(InputError, match="target_mean"):
        MolAttn.from_pretrained(folder)


@pytest.mark.parametrize("value", [torch.tensor([torch.inf]), torch.tensor([torch.nan])])
def test_weights_that_are_no_finite_numbers_are_refused(folder, value):
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    change_weights(folder, weights | {"target_mean": value})
    with pytest.raises(InputError, match="target_mean"):
        MolAttn.from_pretrained(folder)


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory):
    """The folder of a saved model with all its files."""
    torch.manual_seed(0)
    tasks = (Task("y"), Task("b", "binary", ("no", "yes")))
    config = MolAttnConfig(tasks, SMALL, kernels=("morgan", "embedding"))
    model = MolAttn(config).eval()
    known = ["C" * length + end for length in range(1, 21) for end in "ON"]
    labels = np.array([[len(text), text[-1] == "N"] for text in known], dtype=float)
    _, inputs = model.network_outputs([model.featurize(text) for text in known])
    model.gaussian_process = GaussianProcessHead.fit(config, inputs, labels)
    model.calibrate(known, labels, ["CCO", "c1ccccc1"])
    folder = tmp_path_factory.mktemp("calibrated") / "model"
    model.save_pretrained(folder)
    return folder


FILES = (
    "config.json",
    "model.safetensors",
    "calibration.json",
    "training_fingerprints.safetensors",
    "gaussian_process.safetensors",
    "manifest.json",
)


def test_each_of_480_flipped_bits_is_noticed(calibrated, tmp_path):
    folder = shutil.copytree(calibrated, tmp_path / "model")
    rng = np.random.default_rng(0)
    for name in FILES:
        path, whole = folder / name, (folder / name).read_bytes()
        for bit in rng.choice(8 * len(whole), 80, replace=False).tolist():
            damaged = bytearray(whole)
            damaged[bit // 8] ^= 1 << bit % 8
            path.write_bytes(damaged)
            with pytest.raises(InputError) as error:
                MolAttn.from_pretrained(folder)
            assert name in str(error.value)
        path.write_bytes(whole)
    MolAttn.from_pretrained(folder)


@pytest.mark.parametrize("name", FILES)
def test_a_model_without_one_of_its_files_is_refused(calibrated, tmp_path, name):
    folder = shutil.copytree(calibrated, tmp_path / "model")
    (folder / name).unlink()
    with pytest.raises(InputError) as error:
        MolAttn.from_pretrained(folder)
    assert str(error.value) == (
        f"{folder}: {name} is missing; copy the folder again from where the model was saved, or "
        "save the model again"
    )


def test_a_manifest_that_lists_another_file_is_refused(folder):
    path = folder / "manifest.json"
    listed = json.loads(path.read_text())
    path.write_text(json.dumps(listed | {"extra.bin": listed["config.json"]}))
    words = re.escape("manifest.json lists 'extra.bin', which is no file of a model; copy")
    with pytest.raises(InputError, match=words):
        MolAttn.from_pretrained(folder)


def test_a_file_of_another_model_is_refused(saved, calibrated, tmp_path):
    folder = shutil.copytree(calibrated, tmp_path / "model")
    for name in ("config.json", "model.safetensors", "manifest.json"):
        shutil.copy(saved[1] / name, folder / name)
    unlisted = "calibration.json is not listed in manifest.json, training_fingerprints.safetensors"
    with pytest.raises(InputError, match=re.escape(unlisted)):
        MolAttn.from_pretrained(folder)


def test_a_model_changed_and_saved_again_is_loaded(saved, tmp_path):
    model, folder = saved
    MolAttn.from_pretrained(folder).half().save_pretrained(tmp_path)
    loaded = MolAttn.from_pretrained(tmp_path)
    assert {weight.dtype for weight in loaded.parameters()} == {torch.float32}
    np.testing.assert_allclose(loaded.predict(SMILES), model.predict(SMILES), rtol=0.01)


def test_half_precision_keeps_the_scaling_of_targets(saved):
    model = copy.deepcopy(saved[0])
    model.target_mean.fill_(1e6)  # beyond the largest number of float16
    before = model.predict(SMILES)
    for changed in (copy.deepcopy(model).half(), copy.deepcopy(model).bfloat16()):
        assert changed.target_mean.dtype == torch.float64
        np.testing.assert_allclose(changed.predict(SMILES) - 1e6, before - 1e6, atol=0.05)


KILLED = """
import os, shutil, signal, sys
from molattn import MolAttn

source, former, target = sys.argv[1:]
model, calls = MolAttn.from_pretrained(source), ("fsync", "rename", "replace", "unlink", "rmdir")

def killed_before(place, function):
    def call(*given, **options):
        place[0] -= 1
        if place[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*given, **options)
    return call

def saved(count):
    child = os.fork()
    if not child:
        for name in calls:
            setattr(os, name, killed_before(count, getattr(os, name)))
        model.save_pretrained(target)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0

count = 0
while True:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(former, target)
    is_done = saved([count])
    print(MolAttn.from_pretrained(target).config.tasks[0].name, flush=True)
    if not is_done:
        assert saved([10**9])  # over what a killed process has left
        assert MolAttn.from_pretrained(target).config.tasks[0].name == "new"
    assert open(target + "/notes.txt").read() == "mine"
    assert {*os.listdir(target)} == {*os.listdir(source), "notes.txt"}
    if is_done:
        break
    count += 1
"""


@pytest.mark.faults
def test_a_folder_holds_a_model_whenever_saving_another_in_it_is_killed(calibrated, tmp_path):
    MolAttn(MolAttnConfig(("new",), SMALL)).save_pretrained(tmp_path / "new")
    former = shutil.copytree(calibrated, tmp_path / "former")
    (former / "notes.txt").write_text("mine")
    place = tmp_path / "place"
    command = [sys.executable, "-c", KILLED, tmp_path / "new", former, place]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    names = run.stdout.split()
    assert len(names) > 20
    first_new = names.index("new")
    assert 0 < first_new < len(names) - 1
    assert {*names[first_new:]} == {"new"} != {*names[:first_new]}


def test_a_model_card_may_be_edited(calibrated, tmp_path):
    folder = shutil.copytree(calibrated, tmp_path / "model")
    (folder / "README.md").write_text("A better one.")
    MolAttn.from_pretrained(folder)


@pytest.mark.parametrize(
    "name, size",
    [
        ("members", 10**9),
        ("members", 2),
        ("layers", 10**9),
        ("layers", 2),
        ("width", 10**4),
        ("width", 10**19),
        ("edge_width", 10**9),
        ("heads", 10**9),
        ("heads", 64),
        ("morgan_counts", 1024),
        ("morgan_counts", 10**9),
    ],
)
@pytest.mark.parametrize("combine", ["linear", "mean"])
def test_sizes_that_the_weights_do_not_have_are_refused_before_they_take_memory(
    folder, name, size, combine
):
    def change(config):
        config["network"]["combine"] = combine
        (config if name in config else config["network"])[name] = size

    change_config(folder, change)
    with pytest.raises(InputError):
        MolAttn.from_pretrained(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.update(
            tasks=[*c["tasks"], {**c["tasks"][0], "name": "z"}],
            target_transforms=2 * c["target_transforms"],
        ),
        lambda c: c["tasks"][0].update(
            kind="multiclass", classes=[f"c{n}" for n in range(10_000)], unit=""
        ),
        lambda c: c["featurizer"].update(atom_columns=c["featurizer"]["atom_columns"] * 1000),
    ],
)
def test_lists_that_the_weights_do_not_have_are_refused(folder, change):
    change_config(folder, change)
    with pytest.raises(InputError):
        MolAttn.from_pretrained(folder)


def test_all_files_of_a_model_on_the_hub_are_downloaded(calibrated, tmp_path, monkeypatch):
    def download(name, allow_patterns):
        for path in calibrated.iterdir():
            if path.name in allow_patterns:
                shutil.copy(path, tmp_path)
        return str(tmp_path)

    monkeypatch.setattr(artefact, "snapshot_download", download)
    monkeypatch.chdir(tmp_path)
    assert MolAttn.from_pretrained("owner/model").uncertainty is not None
    assert {path.name for path in tmp_path.iterdir()} == {*FILES}


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


def assert_one_error_or_loads(folder):
    write_manifest(folder)  # otherwise any change is refused before a file is read
    try:
        MolAttn.from_pretrained(folder)
    except InputError as error:
        assert_one_line(error)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@given(data=st.data())
def test_a_damaged_file_is_one_error_or_loads(saved, tmp_path_factory, name, data):
    folder = tmp_path_factory.getbasetemp() / "damaged"
    shutil.copytree(saved[1], folder, dirs_exist_ok=True)
    (folder / name).write_bytes(data.draw(damaged((saved[1] / name).read_bytes())))
    assert_one_error_or_loads(folder)


@given(data=st.data())
def test_a_config_with_any_value_is_one_error_or_loads(saved, tmp_path_factory, data):
    folder = tmp_path_factory.getbasetemp() / "altered"
    shutil.copytree(saved[1], folder, dirs_exist_ok=True)
    config = json.loads((saved[1] / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(data.draw(altered(config))))
    assert_one_error_or_loads(folder)
