"""Explanations add up to the prediction, follow the atoms, and belong to any kind of model."""

import copy
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from rdkit import Chem

from molattn import InputError, MolAttn, SmilesError
from molattn.chem import parse_smiles
from molattn.chem.fingerprint_index import FingerprintIndex, read_fingerprints
from molattn.explain import METHODS, Method, MethodOptions, Scores, explain
from molattn.explain.explainer import read_instances
from molattn.explain.target import find_target
from molattn.model.training_set import TrainingSet
from molattn.model.uncertainty import (
    Calibration,
    ConformalScores,
    ProbabilityScaling,
    Uncertainty,
)
from molattn.task import Task

from .conftest import SMALL, TASKS, make, with_process

SMILES = ["CC(=O)Nc1ccccc1", "O", "[Na+].CC(=O)[O-]", "F/C=C/[C@H](O)N"]
TARGETS = ["logS", "toxic", "phase", "phase_probability_gas"]


def calibrated(model):
    """The same model with calibrated probabilities."""
    parts = (
        ConformalScores(0, ()),
        ProbabilityScaling(0.5, (0.6, -1.0)),
        ProbabilityScaling(1.5, (0.3, -1.2, 0.4)),
    )
    molecules = FingerprintIndex.from_fingerprints(read_fingerprints(["CCO"]))
    model = copy.deepcopy(model)
    model.uncertainty = Uncertainty(Calibration(TASKS, parts), molecules)
    return model


@pytest.fixture(scope="module")
def models(model):
    combined = with_process(make(kernels=("morgan", "embedding")), 0.5)
    return {
        "network": model,
        "calibrated": calibrated(model),
        "ensemble": MolAttn.ensemble([make(0), make(1)]),
        "process": calibrated(combined),
    }


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["network", "calibrated", "ensemble", "process"])
def test_what_is_explained_is_what_is_predicted_and_signed_scores_add_up(
    models, kind, method, target
):
    model = models[kind]
    predicted = model.predict(SMILES)
    for found, values in zip(explain(model, SMILES, method, target=target), predicted, strict=True):
        if target == "logS":
            assert found.prediction == pytest.approx(values[0], abs=1e-5)
            assert (found.unit, found.probability) == ("log mol/L", None)
        else:
            name = found.target.replace("toxic", "toxic_probability_yes")
            value = values[model.config.output_names.index(name)]
            assert found.probability == pytest.approx(value, abs=1e-6)
            assert found.prediction == pytest.approx(np.log(value / (1 - value)), abs=1e-4)
            assert found.unit == "log-odds"
        if target == "phase":
            assert found.probability == pytest.approx(values[2:].max(), abs=1e-6)
        if METHODS[method].signed:
            total = found.prediction - found.baseline - found.atom_scores.sum()
            assert found.residual == pytest.approx(total, abs=1e-12)
            assert found.adds_up
            assert found.tolerance <= 0.01
        else:
            assert found.atom_scores.min() >= 0
            assert found.residual is found.baseline is found.tolerance is found.adds_up is None
            attending = found.attention.any(axis=-1).mean()  # not an atom without bonds
            assert found.atom_scores.sum() == pytest.approx(attending, abs=1e-6)
    assert replace(found, residual=1.0, tolerance=0.5).adds_up is False


def test_an_explained_prediction_in_percent_ends_where_predictions_do():
    model = make(tasks=(Task("bound", unit="%"),))
    free = explain(model, SMILES)
    model.set_target_scaling([100.0 - np.mean([one.prediction for one in free]) + 3.0], [2.0])
    free = explain(model, SMILES)
    assert max(one.prediction for one in free) > 100 > min(one.prediction for one in free)
    model.training_set = TrainingSet.of(model.config.tasks, np.array([[0.0], [100.0]]))
    for found, before in zip(explain(model, SMILES), free, strict=True):
        assert found.prediction == min(before.prediction, 100.0)
        assert found.residual == before.residual
        assert found.adds_up


@pytest.mark.parametrize("method", METHODS)
def test_scores_do_not_depend_on_the_mean_of_the_targets(method):
    model, found = make(tasks=("y",)), []
    for mean in (0.0, 1e9):
        model.set_target_scaling([mean], [1.0])
        one = explain(model, SMILES[0], method)
        found.append([*one.atom_scores, *one.bond_scores])
    np.testing.assert_allclose(*found, atol=1e-5)
    assert np.abs(found[0]).max() > 1e-3


@pytest.mark.parametrize("method", METHODS)
def test_scores_follow_the_atoms(model, method):
    """Of a SMILES and of an RDKit molecule with hydrogens in another order."""
    mol = parse_smiles("CC(=O)N/C=C/[C@H](O)[N+](=O)[O-]")
    order = np.random.default_rng(1).permutation(mol.GetNumAtoms()).tolist()
    moved = Chem.RenumberAtoms(mol, order)
    first = explain(model, Chem.MolToSmiles(mol, canonical=False), method)
    second = explain(model, Chem.MolToSmiles(moved, canonical=False), method)
    third = explain(model, Chem.AddHs(moved), method)
    assert third.smiles == Chem.MolToSmiles(mol)
    assert third.draw().startswith("<?xml")  # whose bonds are those of the molecule
    tolerance = 5e-6 * np.abs(first.atom_scores).max() + 5e-6
    origin = parse_smiles(first.smiles)
    for found in (second, third):
        match = (found.mol or parse_smiles(found.smiles)).GetSubstructMatch(origin)
        assert sorted(match) != list(match)
        np.testing.assert_allclose(
            found.atom_scores[list(match)], first.atom_scores, atol=tolerance
        )
        bonds = {frozenset(b): s for b, s in zip(found.bonds, found.bond_scores, strict=True)}
        for (i, j), score in zip(first.bonds, first.bond_scores, strict=True):
            assert bonds[frozenset((match[i], match[j]))] == pytest.approx(score, abs=tolerance)
    read = json.loads(json.dumps(third.to_dict(), allow_nan=False))
    assert "mol" not in read
    assert read["atom_scores"] == third.atom_scores.tolist()
    axes = {name: len(labels) for name, labels in read["attention_axes"].items()}
    assert [*axes] == ["layer", "head", "receiver", "sender"]
    assert (*axes.values(),) == np.array(read["attention"]).shape


def test_second_molecules_and_features_stay_as_they_are():
    config = {
        "tasks": ("logS",),
        "features": ("pH",),
        "descriptors": ("MolWt",),
        "partner_column": "solvent",
        "network": replace(SMALL, gate=True),
    }
    model = make(**config)
    inputs = {"partners": iter(["O", "CCO"]), "features": [[7.0], [2.0]]}
    for method in METHODS:
        inputs["partners"] = iter(["O", "CCO"])
        found = explain(model, iter(SMILES[:2]), method, **inputs)
        predicted = model.predict(SMILES[:2], partners=["O", "CCO"], features=inputs["features"])
        assert [e.prediction for e in found] == pytest.approx(predicted[:, 0].tolist(), abs=1e-5)
        assert [len(e.atom_scores) for e in found] == [10, 1]
        assert found[0].adds_up in (True, None)
        assert found[0].gates.shape == (2, 2, 10)
    with pytest.raises(ValueError, match="partners"):
        explain(model, SMILES[:2], features=inputs["features"])


def test_the_model_is_left_as_it_was(model):
    model.train()
    for method in METHODS:
        first, second = (explain(model, SMILES[0], method) for _ in range(2))
        np.testing.assert_array_equal(first.atom_scores, second.atom_scores)
    assert model.training
    model.eval()
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert all(weight.grad is None for weight in model.parameters())


@pytest.mark.parametrize(
    "arguments",
    [
        {"groups": [[0.5, 1.0]], "method": "occlusion"},
        {"groups": [[0], [0]], "method": "occlusion"},
        {"groups": [[3]], "method": "occlusion"},
        {"groups": [[]], "method": "occlusion"},
        {"groups": "rungs", "method": "occlusion"},
    ],
    ids=str,
)
def test_invalid_arguments_are_refused(model, arguments):
    with pytest.raises(InputError):
        explain(model, "CCO", **arguments)


def test_molecules_are_one_or_an_iterable(model):
    texts = ["CCO", "CCN"]
    expected = explain(model, texts, "attention")
    for given in ((text for text in texts), pd.Series(texts)):
        found = explain(model, given, "attention")
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one.atom_scores, other.atom_scores)
    assert explain(model, []) == []
    for invalid in (None, [None], "ethanol", ["CCO", "ethanol"]):  # None: as RDKit returns it
        with pytest.raises(SmilesError):
            explain(model, invalid)


@pytest.mark.parametrize(
    "signed, scores, error",
    [
        (True, Scores(np.ones(3), np.ones(2)), ValueError),
        (False, Scores(np.ones(3), np.ones(2), 0.5), ValueError),
        (False, Scores(np.ones(3), np.ones(2), None, {"a": 1.0}), ValueError),
        (True, Scores(np.ones(3), np.ones(2), 0.5, {"a": np.inf}), ValueError),
        (False, Scores(np.ones(2), np.ones(2)), ValueError),
        (False, Scores(np.array([1, np.nan, 1]), np.ones(2)), ValueError),
    ],
)
def test_invalid_scores_of_a_method_are_an_error(model, signed, scores, error):
    wrong = Method(lambda instance, options: scores, signed=signed, summary="a phrase")
    with pytest.raises(error):
        wrong(next(read_instances(model, ["CCO"])), MethodOptions())


@pytest.mark.parametrize("combined", [False, True])
def test_the_interval_is_that_of_the_model(combined):
    model = make(kernels=("morgan",) if combined else ())
    model = with_process(model, 0.5) if combined else model
    smiles = ["C" * n + "O" for n in range(1, 41)]
    targets = np.column_stack([np.linspace(0.0, 100.0, 40), *np.eye(2)[:, np.arange(40) % 2]])
    model.calibrate(smiles, targets, smiles)
    low, high = model.predict_interval(SMILES, 0.8)
    for row, found in enumerate(explain(model, SMILES, "attention", interval=0.8)):
        assert (found.low, found.high) == pytest.approx((low[row, 0], high[row, 0]), abs=1e-4)
    found = explain(model, SMILES[0], "attention", target="toxic")
    assert found.low is found.high is None


@pytest.mark.parametrize("method", METHODS)
def test_the_standardized_molecule_is_explained(method):
    model = make(tasks=("y",), kernels=(), standardize=True)
    plain = make(tasks=("y",), kernels=())
    text, form = "[Na+].FC([O-])=N[C@@H](C)c1ccccc1", "C[C@H](NC(=O)F)c1ccccc1"
    expected, found = explain(plain, form, method), explain(model, text, method)
    assert (found.smiles, found.symbols, found.bonds) == (form, expected.symbols, expected.bonds)
    np.testing.assert_array_equal(found.atom_scores, expected.atom_scores)
    given = explain(model, Chem.AddHs(Chem.MolFromSmiles(text)), method)
    assert given.smiles == form
    assert given.symbols == ("F", "C", "O", "N", *"CCCCCCCC")  # as in the text, without the ion
    match = given.mol.GetSubstructMatch(Chem.MolFromSmiles(form))
    np.testing.assert_allclose(given.atom_scores[list(match)], expected.atom_scores, atol=2e-5)


def test_a_class_is_worth_the_log_odds_of_its_calibrated_probability(model):
    outputs = 3 * torch.randn(2, 5, 5, dtype=torch.float64)  # of members and molecules
    some = calibrated(model)
    scaling = some.uncertainty.calibration.parts[2]
    for k, name in enumerate(TASKS[2].output_names):
        for member, found in zip(outputs, find_target(some, name).value(outputs), strict=True):
            chance = scaling(member[:, 2:].numpy())[:, k]
            assert found.tolist() == pytest.approx(np.log(chance / (1 - chance)).tolist())
    torch.testing.assert_close(
        find_target(some, "toxic").value(outputs), 0.5 * outputs[..., 1] - 1.6
    )
    scaled = outputs[..., 0] * 2.0 + 3.0
    torch.testing.assert_close(find_target(some, "logS").value(outputs), scaled)


@pytest.mark.parametrize("calls", [32, pytest.param(1000, marks=pytest.mark.slow)])
def test_threads_predict_and_explain_with_one_model_at_once(calls):
    model = make(network=replace(SMALL, layers=1, gate=True))
    # Each thread lets the others in while it is within the head or within a layer.
    for module in (model.nets[0].head, *model.nets[0].attention_layers):
        module.register_forward_pre_hook(lambda *_: time.sleep(1e-3))

    def call(number):
        if number % 4:
            return model.predict(["CCO"])
        return explain(model, "CCO", "attention").to_dict()

    expected = [call(0), call(1)]
    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(call, range(calls))]
    assert all(one == expected[0] for one in found[::4])
    np.testing.assert_array_equal(found[1::4], np.array([expected[1]] * (calls // 4)))
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
