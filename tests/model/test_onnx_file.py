"""Exported models: the numbers of the model for molecules of all sizes, without torch."""

import copy
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator
from torch import nn

import molattn
from molattn import InputError, MolAttn, MolAttnConfig
from molattn.chem import OnnxInputs
from molattn.chem.featurizer import Featurizer
from molattn.chem.fingerprints import SubstructureCounter
from molattn.chem.reader import Fields, MoleculeReader
from molattn.cli import main
from molattn.config import NetworkConfig
from molattn.evaluation.report.tables import format_score
from molattn.model.gaussian_process import GaussianProcessHead
from molattn.model.onnx_file import ExportedModel, to_onnx
from molattn.model.sites import SiteCalibration, site_kinds
from molattn.model.target_transform import IdentityTransform, LogTransform
from molattn.model.training_set import TrainingSet
from molattn.task import Task

for needed in ("onnx", "onnxscript"):
    pytest.importorskip(needed, reason=f"{needed} is not installed (molattn[onnx])")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

SMALL = {"width": 8, "heads": 2, "layers": 2, "edge_width": 4}
SCRIPTS = Path(__file__).parents[2] / "scripts"
EXAMPLE = [sys.executable, SCRIPTS / "example_onnx.py"]  # asserts that torch is not there
SMILES = ["[He]", "C", "[Na+].[Cl-]", "F/C=C/[C@H](O)Cl", "c1ccccc1C(=O)NC", "CCO", "C" * 100]


def session_of(content):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return onnxruntime.InferenceSession(content, options)


def run(session, smiles, size, **given):
    """Predictions and embeddings, in batches."""
    metadata = session.get_modelmeta().custom_metadata_map["molattn"]
    inputs = OnnxInputs.from_metadata(metadata)
    parts = []
    for start in range(0, len(smiles), size):
        rows = slice(start, start + size)
        more = {name: values[rows] for name, values in given.items()}
        parts.append(session.run(None, inputs(smiles[rows], **more)))
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


NETWORKS = {
    "edge_attention": {"update_edges": True},
    "gaan": {"self_loops": False, "layers": 1},
    "mat": {"radius": 3, "layers": 1, "edge_width": NetworkConfig.edge_width},
    "graph_network": {"readout": "mean+max"},
    "egt": {"update_edges": True, "layer_options": ("attn_bias=slopes",)},
    "grit": {"graphs": ("bonds", "pairs")},
}


@pytest.mark.slow  # the exporter takes 10 s; the next test has the default layer
@pytest.mark.parametrize("layer", NETWORKS)
def test_every_layer_has_its_numbers_for_all_sizes(layer):
    network = NetworkConfig(**{**SMALL, "layer": layer, **NETWORKS[layer]})
    members = 2 if layer == "egt" else 1
    model = MolAttn(MolAttnConfig(("y",), network, members=members)).eval()
    session = session_of(to_onnx(model)[0])
    expected = model.predict(SMILES), model.embed(SMILES)
    alone, together = run(session, SMILES, 1), run(session, SMILES, len(SMILES))
    for got in (alone, together):
        np.testing.assert_allclose(got[0], expected[0], atol=1e-5)
        np.testing.assert_allclose(got[1], expected[1], atol=1e-4)
    assert np.ptp(expected[0]) > 1e-3  # or equal numbers would say nothing


@pytest.fixture(scope="module")
def trained():
    """A calibrated model with every kind of input, and what it is predicted with."""
    tasks = Task("y", unit="%"), Task("b", "binary", ("0", "1")), Task("c", "multiclass", "uvw")
    options = {
        "partner_column": "solvent",
        "features": ("t",),
        "descriptors": ("MolWt",),
        "morgan_counts": 4,
        "kernels": ("morgan", "atom_pairs", "embedding", "descriptors"),
        "target_transforms": (LogTransform(), IdentityTransform(), IdentityTransform()),
        "standardize": True,
    }
    network = {"update_edges": True, "layer_options": ("attn_bias=slopes",)}
    network["graphs"] = "bonds", "pairs"
    network = NetworkConfig(**SMALL | network, norm="batch")
    model = MolAttn(MolAttnConfig(tasks, network, **options)).eval()
    count = model.config.num_numbers
    model.set_feature_scaling(np.arange(count), np.arange(count) + 2.0)
    smiles = SMILES * 6
    rng = np.random.default_rng(0)
    labels = np.stack([rng.random(42) + 1, *(rng.integers(0, k, 42) for k in (2, 3))], axis=1)
    given = {"partners": ["O", "CCO"] * 21, "features": rng.normal(size=(42, 1))}
    records = model.config.reader(model.config.input_fields()).all(smiles, given["partners"])
    _, inputs = model.networks.predict(records, features=given["features"])
    process = GaussianProcessHead.fit(model.config, inputs[np.arange(30)], labels[:30])
    process = replace(process, shares=np.array([0.3, 0.8, 1.0]))
    transforms = model.config.target_transforms
    model.set_target_scaling([0.0, 0, 0], [2.0, 1, 1], transforms)
    model.gaussian_process = process
    middle = np.median(np.log(model.predict(smiles, **given)[:, 0]))
    # Half of the values are above 100%, whatever the initial weights are.
    model.set_target_scaling([np.log(100.0) - middle, 0, 0], [2.0, 1, 1], transforms)
    model.gaussian_process = process
    model.calibrate(smiles, labels, smiles[:2], **given)
    model.training_set = TrainingSet.of(tasks, labels)  # with which predictions end at 100%
    return model, smiles, given


def test_gaussian_process_calibration_transforms_and_other_inputs_are_in_the_graph(trained):
    model, smiles, given = trained
    content, exported = to_onnx(model, with_gaussian_process=True)
    session = session_of(content)
    expected = model.predict(smiles, **given)
    predictions, embeddings = run(session, smiles, 5, **given)
    np.testing.assert_allclose(predictions, expected, rtol=1e-5)
    vectors = model.embed(smiles, partners=given["partners"])
    np.testing.assert_allclose(embeddings, vectors, atol=1e-4)
    few = {name: values[:7] for name, values in given.items()}
    np.testing.assert_allclose(run(session, smiles[:7], 1, **few)[0], expected[:7], rtol=1e-5)
    assert 0 < (expected[:, 0] == 100).mean() < 1
    of_molecules = ("atoms", "pairs", "counts")
    names = [*of_molecules, *(f"partner_{name}" for name in of_molecules), "features"]
    assert [one.name for one in session.get_inputs()] == names
    known = json.loads(session.get_modelmeta().custom_metadata_map["molattn"])
    assert known["outputs"] == [*model.config.output_names]
    assert [task["unit"] for task in known["tasks"]] == ["%", "", ""]
    assert known["is_calibrated"] == [False, True, True]
    assert known["left_out"] == exported.left_out()
    assert known["left_out"] == ["prediction intervals", "training similarity", "confidence"]


def test_counts_are_those_of_rdkit():
    smiles = "CC(=O)Oc1ccccc1C(=O)O"
    reader = MoleculeReader(Featurizer.default(), Fields(counts=SubstructureCounter()))
    molecule = Chem.MolFromSmiles(smiles)
    generators = [
        rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=4096),
        rdFingerprintGenerator.GetAtomPairGenerator(fpSize=4096),
    ]
    expected = [one.GetCountFingerprintAsNumPy(molecule) for one in generators]
    np.testing.assert_array_equal(OnnxInputs(reader)([smiles])["counts"], [np.hstack(expected)])


def test_networks_alone_are_calibrated_as_the_model_without_a_gaussian_process(trained):
    model, smiles, given = trained
    model = copy.deepcopy(model)
    model.gaussian_process = None
    inputs = OnnxInputs(model.config.reader(Fields(model.config.calculator)))(smiles, **given)
    with torch.no_grad():
        predictions, _ = ExportedModel(model)(**{k: torch.from_numpy(v) for k, v in inputs.items()})
    np.testing.assert_allclose(predictions, model.predict(smiles, **given), rtol=1e-5)


def test_the_command_says_what_is_left_out_and_the_example_needs_no_torch(tmp_path, capfd):
    smiles = ["C" * size + end for size in range(1, 21) for end in ("O", "N")]
    frame = pd.DataFrame({"smiles": smiles, "y": [len(text) % 7 for text in smiles]})
    options = SMALL | {"layers": 1, "epochs": 1, "descriptors": "none"}
    trained = molattn.train(frame, target_columns=["y"], baselines=False, **options)
    model = trained.model
    model.save_pretrained(tmp_path / "run" / "model")
    trained.run_scores.metrics.write(tmp_path / "run")
    file = tmp_path / "model.onnx"
    assert main(["export", str(tmp_path / "run"), "--to", "onnx", "--output", str(file)]) == 0
    said = " ".join(capfd.readouterr().out.split())
    process = model.gaussian_process
    assert process is not None
    share = float(process.shares[0])
    scores = trained.run_scores.metrics.scores
    assert f"left out: the Gaussian process ({share:.0%} of the prediction), prediction" in said
    alone, whole = (scores[name].tasks["y"]["rmse"] for name in ("network", "test"))
    texts = f"{format_score(alone)} of the network alone, {format_score(whole)} of the whole model"
    assert f"rmse of y: {texts}" in said
    of_file = session_of(file.read_bytes()).get_modelmeta().custom_metadata_map["molattn"]
    assert json.loads(of_file)["network_weights"] == {"y": pytest.approx(1.0 - share, abs=1e-6)}
    expected = {"network": {"y": {"rmse": alone}}, "test": {"y": {"rmse": whole}}}
    assert json.loads(of_file)["test_scores"] == expected
    with pytest.raises(InputError, match="without a Gaussian process of molecules"):
        to_onnx(MolAttn(model.config).eval(), with_gaussian_process=True)
    model.gaussian_process = None
    shown = subprocess.run([*EXAMPLE, file, "CCO"], capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.split() == ["CCO", "y_predicted", f"{model.predict(['CCO'])[0, 0]:.4g}"]


def test_inputs_have_the_hydrogens_that_the_model_reads():
    config = MolAttnConfig(("y",), NetworkConfig(**SMALL), hydrogens=True, atom_tasks=("shift",))
    metadata = ExportedModel(MolAttn(config).eval()).metadata()
    inputs = OnnxInputs.from_metadata(json.dumps(metadata))(["CCO"])
    assert inputs["atoms"].shape[1] == 9


def test_tasks_of_molecules_as_written_are_named_as_they_are_of_parents():
    options = {"standardize": "parent", "written_tasks": ("logS",)}
    exported = ExportedModel(MolAttn(MolAttnConfig(("logS",), NetworkConfig(**SMALL), **options)))
    assert "logS for molecules as written (this file predicts their parents)" in exported.left_out()
    assert exported.metadata()["written_tasks"] == ["logS"]


@pytest.mark.slow  # the exporter takes 10 s
@pytest.mark.parametrize("tasks", [("y",), ()])
def test_atoms_and_bonds_have_their_numbers_among_the_padded_pairs(tasks, tmp_path):
    network = NetworkConfig(**SMALL, update_edges=True)
    broken = Task("broken", "multiclass", ("a", "b", "c"))
    options = {"atom_tasks": ("shift",), "bond_tasks": ("bde", broken), "hydrogens": not tasks}
    model = MolAttn(MolAttnConfig(tasks, network, **options)).eval()
    records = model.config.reader(Fields()).all(["CCO"])
    kinds = (site_kinds(records, level, model.config.featurizer) for level in ("atom", "bond"))
    labeled = {name: (int(kind[1]),) for name, kind in zip(("shift", "bde"), kinds, strict=True)}
    model.site_calibration = SiteCalibration({}, labeled)  # of C, and of bonds of C and O
    smiles = ["C", "[OH:2]C([H])C#N", "c1ccccc1C(=O)NC.[Na+]"]
    file = tmp_path / "model.onnx"
    file.write_bytes(to_onnx(model)[0])
    shown = subprocess.run([*EXAMPLE, file, "CO"], capture_output=True, text=True, check=True)
    lines = [line.split() for line in shown.stdout.splitlines()]
    (carbon,) = (line for line in lines if line[1:4] == ["atom", "0", "shift_predicted"])
    assert float(carbon[-1]) == pytest.approx(model.predict_atoms(["CO"]).outputs[0, 0], rel=1e-2)
    assert any(line[1:3] == ["bond", "0"] for line in lines)
    session = session_of(file.read_bytes())
    metadata = session.get_modelmeta().custom_metadata_map["molattn"]
    assert len(json.loads(metadata)["site_outputs"]["bond"]) == 4
    inputs = OnnxInputs.from_metadata(metadata)
    names = [output.name for output in session.get_outputs()]
    outputs = dict(zip(names, session.run(None, inputs(smiles)), strict=True))
    assert ("predictions" in outputs) == bool(tasks)
    for index, sites in enumerate(inputs.sites(smiles)):
        atoms = outputs["atom_predictions"][index, sites.atoms]
        atoms[sites.atoms < 0] = np.nan
        expected = model.predict_atoms(smiles[index : index + 1]).outputs
        np.testing.assert_allclose(atoms, expected, atol=1e-4)
        bonds = outputs["bond_predictions"][index][tuple(sites.bonds)]
        bonds[(sites.bonds < 0).any(axis=0)] = np.nan
        expected = model.predict_bonds(smiles[index : index + 1]).outputs
        np.testing.assert_allclose(bonds, expected, atol=1e-4)


def test_what_cannot_be_exported_is_refused(tmp_path, capfd):
    config = MolAttnConfig(("y",), NetworkConfig(**SMALL))
    head = nn.Linear(MolAttn(config).nets[0].molecule_width, 1)
    unsorted = MolAttnConfig(("y",), NetworkConfig(**SMALL, readout="set_transformer"))
    charges = MolAttnConfig((), NetworkConfig(**SMALL), atom_tasks=("q",), charge_tasks=("q",))
    refused = {"Linear": MolAttn(config, head=head), "set_trans": MolAttn(unsorted)}
    for got, model in (refused | {"charges": MolAttn(charges)}).items():
        with pytest.raises(InputError, match=got) as error:
            to_onnx(model.eval())
        assert error.value.option == "to"
    assert main(["export", "base", "--to", "pmml", "--output", str(tmp_path / "m")]) == 2
    line = capfd.readouterr().err
    assert "--to" in line
    assert "onnx" in line
