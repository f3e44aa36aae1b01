"""A saved model comes back as it was, or not at all."""

import copy
import json
import shutil
from hashlib import sha256

import numpy as np
import pytest
import safetensors.torch
import torch
from torch.overrides import TorchFunctionMode

from molattn.config import NetworkConfig
from molattn.errors import InputError
from molattn.model import artefact
from molattn.model.artefact import MANIFEST_FILE, find_model
from molattn.model.gaussian_process import GaussianProcessHead
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.training_set import Endpoint, Threshold, TrainingMolecules, TrainingSet
from molattn.task import Task

SMALL = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
SMILES = ["CCO", "c1ccccc1"]
ENDPOINT = Endpoint(
    "Ätherlöslichkeit",
    thresholds=(Threshold("soluble", low=-4.0), Threshold("see text", source="Delaney")),
    license="CC BY 4.0",
    rows=1128,
    scores="RMSE 0.56 ± 0.03",
    coverage=0.91,
)


@pytest.fixture(scope="module")
def model():
    """A model with everything that is saved."""
    torch.manual_seed(0)
    tasks = (Task("y"), Task("b", "binary", ("no", "yes")))
    config = MolAttnConfig(tasks, SMALL, kernels=("morgan", "embedding"))
    model = MolAttn(config).eval()
    model.set_target_scaling([3.0, 0.0], [2.0, 1.0])
    known = ["C" * length + end for length in range(1, 21) for end in "ON"]
    labels = np.array([[len(text), text[-1] == "N"] for text in known], dtype=float)
    records = [model.featurize(text) for text in known]
    _, inputs = model.networks.predict(records)
    model.gaussian_process = GaussianProcessHead.fit(config, inputs, labels)
    model.calibrate(known, labels, known)
    index = model.uncertainty.fingerprints
    kept = TrainingMolecules.of(np.arange(40) + 2, known, labels, index.fingerprints, index)
    model.training_set = TrainingSet.of(tasks, labels, kept)
    model.endpoints = {"y": ENDPOINT}
    model.versions = {"molattn": "0.1.0", "rdkit": "2001.1"}
    return model


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    """A copy to damage."""
    return shutil.copytree(saved, tmp_path / "model")


def change(folder, name, content):
    """Change a file and list it as it is, as somebody does who wants it to be loaded."""
    (folder / name).write_bytes(content)
    listed = json.loads((folder / MANIFEST_FILE).read_bytes())
    listed[name] = {"size": len(content), "sha256": sha256(content).hexdigest()}
    (folder / MANIFEST_FILE).write_text(json.dumps(listed))


def refused(folder, *named):
    with pytest.raises(InputError) as error:
        MolAttn.from_pretrained(folder)
    text = str(error.value)
    assert text.isprintable()
    assert all(name in text for name in named), text


def test_a_model_comes_back_as_it_was(model, saved, tmp_path):
    loaded = MolAttn.from_pretrained(saved)
    assert (loaded.config, loaded.endpoints) == (model.config, {"y": ENDPOINT})
    assert "RDKit 2001.1" in loaded.inputs_remark()
    assert not loaded.training
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)
    for call in (MolAttn.predict, MolAttn.predict_interval, MolAttn.training_similarity):
        np.testing.assert_array_equal(call(loaded, SMILES), call(model, SMILES))
    assert loaded.nearest(SMILES, 2) == model.nearest(SMILES, 2)
    assert loaded.neighbors(SMILES, 2) == model.neighbors(SMILES, 2)
    loaded.save_pretrained(tmp_path / "again")
    for path in saved.iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()


def test_files_of_two_models_are_refused(folder, tmp_path):
    MolAttn(MolAttnConfig("y", SMALL)).save_pretrained(tmp_path / "other")
    for path in (tmp_path / "other").iterdir():
        shutil.copy(path, folder)
    refused(folder, "calibration.json is not listed in manifest.json")
    path = tmp_path / "other" / MANIFEST_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | {"extra.bin": {}}))
    refused(tmp_path / "other", "extra.bin is missing")


@pytest.mark.parametrize(
    "content",
    [b"", b'{"format": 1', b"\xff\xfe\x00", b"[1, 2]", b"null", b"{}", b'{"a": ' * 100_000],
)
@pytest.mark.parametrize("name", ["config.json", "calibration.json", "endpoints.json"])
def test_json_of_something_else_is_one_line(folder, name, content):
    if content != b"{}" or name == "config.json":
        change(folder, name, content)
        refused(folder, name)


@pytest.mark.parametrize(
    "edit",
    [
        lambda c: c.update(color="red"),
        lambda c: c.update(format=99),
        lambda c: c["network"].update(depth=3),
        lambda c: c["network"].update(width=16),
        lambda c: c.update(featurizer=[]),
        lambda c: c.update(tasks=[]),
        lambda c: c.update(members=10**9),
        lambda c: c["descriptors"].append("FutureIndex"),
        lambda c: c["target_transforms"][0].update(kind="cube"),
    ],
)
def test_a_config_that_is_not_valid_or_does_not_fit_the_weights_is_refused(folder, edit):
    config = json.loads((folder / "config.json").read_bytes())
    edit(config)
    change(folder, "config.json", json.dumps(config).encode())
    refused(folder)


class Written(TorchFunctionMode):
    """Counts the numbers that are written into new weights."""

    numbers = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **kwargs or {})
        if function.__name__ in ("zero_", "uniform_", "normal_"):
            self.numbers += result.numel()
        return result


@pytest.mark.parametrize(
    "sizes",
    [{"width": 2000}, {"edge_width": 50_000}, {"layers": 1000}, {}],
)
def test_a_config_of_a_much_larger_network_is_refused_before_it_is_made(folder, sizes):
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_bytes())
    config["network"].update(sizes)
    config["members"] = 1 if sizes else 1000
    change(folder, "config.json", json.dumps(config).encode())
    with Written() as written:
        refused(folder, "config.json")
    assert written.numbers <= 40 * sum(weight.numel() for weight in weights.values())


def test_arrays_of_another_model_are_refused(folder):
    path = folder / "model.safetensors"
    weights, content = safetensors.torch.load_file(path), path.read_bytes()
    first = sorted(weights)[0]
    mean = weights["target_mean"]
    for changed, name in (
        ({k: v for k, v in weights.items() if k != first}, first),
        (weights | {"extra": torch.ones(1)}, "extra"),
        (weights | {"target_scale": torch.ones(3)}, "target_scale"),
        (weights | {"target_mean": mean.to(torch.float8_e4m3fn)}, "model.safetensors"),
        (weights | {"target_mean": mean + torch.inf}, "target_mean"),
    ):
        change(folder, path.name, safetensors.torch.save(changed))
        refused(folder, path.name, name)
    change(folder, path.name, content)
    for other in ("gaussian_process.safetensors", "training_molecules.safetensors"):
        change(folder, other, safetensors.torch.save({"x": torch.ones(1)}))
        refused(folder, other)
        change(folder, other, b"nonsense")
        refused(folder, other)


def test_saving_replaces_a_model_and_keeps_other_files(folder, monkeypatch):
    (folder / "notes.txt").write_text("mine")
    (folder / "README.md").write_text("A better one.")
    MolAttn.from_pretrained(folder)
    (folder / "more").mkdir()
    (folder / "more" / "config.json").write_text("other")
    before = {path.name: path.is_file() and path.read_bytes() for path in folder.iterdir()}
    small = MolAttn(MolAttnConfig(("new",), SMALL))
    with monkeypatch.context() as patch:
        patch.setattr(artefact, "write_file", None)
        with pytest.raises(TypeError):
            small.save_pretrained(folder)
    after = {path.name: path.is_file() and path.read_bytes() for path in folder.iterdir()}
    assert after == before
    small.save_pretrained(folder)
    assert (folder / "more" / "config.json").read_text() == "other"
    assert MolAttn.from_pretrained(folder).config.targets == ("new",)
    assert {path.name for path in folder.iterdir()} == {
        *("notes.txt", "more", "README.md", "config.json", "model.safetensors", "manifest.json")
    }
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_half_precision_is_loaded_as_single_and_keeps_the_scaling(model, tmp_path):
    expected = model.predict(SMILES)
    copy.deepcopy(model).half().save_pretrained(tmp_path)
    loaded = MolAttn.from_pretrained(tmp_path)
    assert {weight.dtype for weight in loaded.parameters()} == {torch.float32}
    np.testing.assert_allclose(loaded.predict(SMILES), expected, rtol=0.01)
    large = copy.deepcopy(model)
    large.gaussian_process = None
    large.target_mean[0] = 1e6  # beyond the largest number of float16
    before = large.predict(SMILES)
    assert large.half().target_mean.dtype == torch.float64
    np.testing.assert_allclose(large.predict(SMILES)[:, 0] - 1e6, before[:, 0] - 1e6, atol=0.05)


def test_a_folder_without_a_model_is_refused_with_a_hint(tmp_path, monkeypatch):
    (tmp_path / "runs" / "a.unfinished").mkdir(parents=True)
    for number in (2, 1):
        (tmp_path / "folds" / f"fold_{number}" / "model").mkdir(parents=True)
    (tmp_path / "file.pt").touch()
    monkeypatch.chdir(tmp_path)
    for name, hint in (
        ("admett", "packaged model: admet, base"),
        ("runs/a", "resume runs/a"),
        ("folds", "folds/fold_1"),
        ("file.pt", "a file"),
        ("runs", "has no config.json"),
    ):
        with pytest.raises(InputError, match=hint):
            find_model(name)


def test_a_model_is_found_by_the_folder_of_its_run_or_a_file_in_it(saved):
    assert find_model(saved.parent) == find_model(saved / "config.json") == saved


def test_thresholds_in_words():
    ends = [(None, None), (-5.15, None), (None, 3), (1, 3)]
    found = [str(Threshold("good", low, high, "a server")) for low, high in ends]
    assert found == [
        "good (a server)",
        "-5.15 and above: good (a server)",
        "below 3: good (a server)",
        "1 to 3: good (a server)",
    ]
