import json
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest

from molattn.config import NetworkConfig
from molattn.errors import InputError
from molattn.model import reference_inputs
from molattn.model.artefact import INPUTS_FILE, ModelFiles
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.reference_inputs import REFERENCE_MOLECULES, ReferenceInputs

SMALL = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
CONFIG = MolAttnConfig("y", SMALL, descriptors=("MolLogP", "MaxPartialCharge"), morgan_counts=64)
COUNTED = MolAttnConfig("y", SMALL, kernels=("morgan",))
RDKIT = metadata.version("rdkit")


@pytest.fixture
def other_rdkit(monkeypatch):
    """Another version of RDKit than that of the training."""
    known = metadata.version
    monkeypatch.setattr(
        reference_inputs, "version", lambda name: "2099.1" if name == "rdkit" else known(name)
    )


def changed(config, change):
    """Return the remark on inputs of which one has changed since the training."""
    content = json.loads(ReferenceInputs.of(config).to_bytes())
    content["versions"]["rdkit"] = "2001.1"
    change(content["molecules"])
    return ReferenceInputs(**content).remark(config)


def test_inputs_of_the_same_versions_are_not_calculated_again(monkeypatch):
    found = ReferenceInputs.of(CONFIG)
    monkeypatch.setattr(reference_inputs, "MoleculeReader", None)
    assert found.remark(CONFIG) == ""


@pytest.mark.parametrize("config", [CONFIG, COUNTED], ids=["descriptors", "counts"])
def test_another_version_with_the_same_inputs_is_told(config, other_rdkit, monkeypatch):
    found = replace(ReferenceInputs.of(config), versions={"molattn": "0.1.0", "rdkit": RDKIT})
    assert found.remark(config) == (
        f"the model was trained with rdkit {RDKIT}, and rdkit 2099.1 is installed: the inputs of "
        f"{len(REFERENCE_MOLECULES)} reference molecules are the same"
    )


def test_an_ensemble_compares_what_it_reads_itself(other_rdkit):
    model = MolAttn(COUNTED)
    model.reference_inputs = replace(
        ReferenceInputs.of(COUNTED), versions={"molattn": "0.1.0", "rdkit": RDKIT}
    )
    assert model.inputs_remark().endswith("are the same")
    joined = MolAttn.ensemble([model, model])
    assert not joined.config.kernels
    assert joined.inputs_remark().endswith("are the same")


@pytest.mark.parametrize(
    "config, key, value, named",
    [
        (CONFIG, "descriptors", [1.0, None], "descriptor 'MolLogP', descriptor 'MaxPartialCharge'"),
        (CONFIG, "Morgan counts", "0", "Morgan counts"),
        (CONFIG, "graph", "0", "graph"),
        (COUNTED, "counted substructures", "0", "counted substructures"),
        (COUNTED, "error", "valence", "error"),
    ],
)
def test_inputs_that_differ_are_named(config, key, value, named):
    remark = changed(config, lambda molecules: molecules[2].update({key: value}))
    assert remark == (
        f"the model was trained with rdkit 2001.1, and rdkit {RDKIT} is installed: the inputs of "
        f"1 of {len(REFERENCE_MOLECULES)} reference molecules differ ({named}), so that "
        "predictions may differ too; with rdkit==2001.1 they do not"
    )


def test_a_change_of_the_last_digits_is_none():
    def change(molecules):
        molecules[0]["descriptors"][0] *= 1 + 1e-7

    assert changed(CONFIG, change).endswith("are the same")


def test_they_are_saved_with_the_model(tmp_path, other_rdkit):
    model = MolAttn(CONFIG)
    assert model.inputs_remark() == ""
    model.save_pretrained(tmp_path / "without")
    assert MolAttn.from_pretrained(tmp_path / "without").reference_inputs is None
    model.reference_inputs = ReferenceInputs.of(CONFIG)
    model.reference_inputs.versions["rdkit"] = RDKIT  # pyright: ignore
    model.save_pretrained(tmp_path / "with")
    loaded = MolAttn.from_pretrained(tmp_path / "with")
    assert loaded.reference_inputs == model.reference_inputs
    assert loaded.inputs_remark().endswith("are the same")


@pytest.mark.parametrize(
    "content",
    [
        '{"versions": {}, "molecules": []}',
        '{"molecules": []}',
        '{"versions": {"rdkit": "1", "molattn": "1"}, "molecules": [1]}',
        '{"versions": {"rdkit": "1", "molattn": "1"}, "molecules": [{"smiles": 1}]}',
    ],
)
def test_a_damaged_file_is_one_line(content):
    files = ModelFiles(Path("m"), {INPUTS_FILE: content.encode()}, None)
    with pytest.raises(InputError, match=r"^m/reference_inputs.json: "):
        ReferenceInputs.from_files(files)
