from dataclasses import replace
from importlib import metadata

import pytest

from molattn.config import NetworkConfig
from molattn.errors import InputError
from molattn.model import reference_inputs
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.reference_inputs import ReferenceInputs

from .test_artefact import change

SMALL = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
CONFIG = MolAttnConfig("y", SMALL, descriptors=("MolLogP", "MaxPartialCharge"), morgan_counts=64)
COUNTED = MolAttnConfig("y", SMALL, kernels=("morgan",))


def earlier(config):
    """The inputs of a training with another RDKit."""
    found = ReferenceInputs.of(config)
    return replace(found, versions={**found.versions, "rdkit": "2001.1"})


def test_inputs_of_the_same_versions_are_not_calculated_again(monkeypatch):
    found = ReferenceInputs.of(CONFIG)
    monkeypatch.setattr(reference_inputs, "MoleculeReader", None)
    assert found.remark(CONFIG) == ""


@pytest.mark.parametrize("config", [CONFIG, COUNTED], ids=["descriptors", "counts"])
def test_another_version_with_the_same_inputs_is_noticed(config):
    found = earlier(config)
    remark = found.remark(config)
    assert f"rdkit 2001.1, and rdkit {metadata.version('rdkit')} is installed" in remark
    assert remark.endswith("12 reference molecules are the same")
    if config is CONFIG:  # a change of the last digits is none
        found.molecules[0]["descriptors"][0] *= 1 + 1e-7
        assert found.remark(config) == remark


@pytest.mark.parametrize(
    "config, key, value, named",
    [
        (CONFIG, "descriptors", [1.0, None], "descriptors"),
        (CONFIG, "Morgan counts", "0", "Morgan counts"),
        (CONFIG, "graph", "0", "graph"),
        (COUNTED, "counted substructures", "0", "counted substructures"),
    ],
)
def test_inputs_that_differ_are_named(config, key, value, named):
    found = earlier(config)
    found.molecules[2][key] = value
    assert f"1 of 12 reference molecules differ ({named})" in found.remark(config)


def test_they_are_saved_and_an_ensemble_compares_what_it_reads_itself(tmp_path):
    model = MolAttn(COUNTED)
    assert model.inputs_remark() == ""
    model.reference_inputs = earlier(COUNTED)
    model.save_pretrained(tmp_path)
    loaded = MolAttn.from_pretrained(tmp_path)
    assert loaded.reference_inputs == model.reference_inputs
    joined = MolAttn.ensemble([model, loaded])
    assert not joined.config.kernels
    for one in (loaded, joined):
        assert one.inputs_remark().endswith("are the same")
    change(tmp_path, "reference_inputs.json", b'{"molecules": []}')
    with pytest.raises(InputError, match=r"reference_inputs\.json"):
        MolAttn.from_pretrained(tmp_path)
