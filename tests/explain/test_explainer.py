import copy
import json
from contextlib import ExitStack
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
import torch
from rdkit import Chem

from molattn import InputError, MolAttn, SmilesError
from molattn.chem import parse_smiles
from molattn.chem.fingerprint_index import FingerprintIndex, read_fingerprints
from molattn.explain import (
    METHODS,
    Method,
    MethodOptions,
    Scores,
    explain,
    measure_faithfulness,
)
from molattn.explain.attention_hooks import attention_weights, record_attention
from molattn.explain.explainer import explain_instance, read_instances
from molattn.model.model import MolAttnConfig
from molattn.model.target_transform import (
    LogTransform,
    RankTransform,
    YeoJohnsonTransform,
)
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
SIGNED = [name for name, method in METHODS.items() if method.signed]
TARGETS = ["logS", "toxic", "phase", "phase_probability_gas"]


@pytest.mark.parametrize("masking", ["remove", "blank"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("method", SIGNED)
def test_scores_of_signed_methods_add_up(model, method, target, masking):
    for found in explain(model, SMILES, method, target=target, masking=masking):
        total = found.prediction - found.baseline - found.atom_scores.sum()
        assert abs(total) <= found.tolerance
        assert found.residual == pytest.approx(total, abs=1e-12)
        assert found.adds_up
        assert found.tolerance <= 0.01
        assert np.abs(found.atom_scores).max() > 2 * found.tolerance


@pytest.mark.parametrize("method", METHODS)
def test_scores_do_not_depend_on_the_mean_of_the_targets(method):
    model = make(tasks=("y",))
    found = []
    for mean in (0.0, 1e9):
        model.set_target_scaling([mean], [1.0])
        found.append(explain(model, SMILES[0], method))
    usual, large = found
    np.testing.assert_allclose(large.atom_scores, usual.atom_scores, atol=1e-5)
    np.testing.assert_allclose(large.bond_scores, usual.bond_scores, atol=1e-5)
    assert np.abs(usual.atom_scores).max() > 1e-3
    assert large.adds_up is usual.adds_up


def test_a_sum_that_is_off_is_said_to_be_off(model):
    found = explain(model, SMILES[0])
    assert replace(found, residual=2 * found.tolerance).adds_up is False


@pytest.mark.parametrize("method", METHODS)
def test_scores_follow_the_atoms_when_a_smiles_lists_them_in_another_order(model, method):
    mol = parse_smiles("CC(=O)Nc1ccc(O)cc1[N+](=O)[O-]")
    order = np.random.default_rng(1).permutation(mol.GetNumAtoms())
    moved = Chem.MolToSmiles(Chem.RenumberAtoms(mol, order.tolist()), canonical=False)
    written = Chem.MolToSmiles(mol, canonical=False)
    one, other = explain(model, [written, moved], method)
    match = parse_smiles(moved).GetSubstructMatch(parse_smiles(written))
    assert sorted(match) != list(match)
    tolerance = 1e-6 * np.abs(one.atom_scores).max() + 1e-6
    np.testing.assert_allclose(other.atom_scores[list(match)], one.atom_scores, atol=tolerance)
    bonds = {
        frozenset(bond): score for bond, score in zip(other.bonds, other.bond_scores, strict=True)
    }
    for (i, j), score in zip(one.bonds, one.bond_scores, strict=True):
        assert bonds[frozenset((match[i], match[j]))] == pytest.approx(score, abs=tolerance)


def test_what_is_explained_is_what_is_predicted(model):
    predicted = model.predict(SMILES)
    for found, row in zip(explain(model, SMILES, "attention"), predicted, strict=True):
        assert found.prediction == pytest.approx(row[0], abs=1e-5)
        assert found.unit == "log mol/L"
        assert found.probability is None
    for found, row in zip(
        explain(model, SMILES, "attention", target="toxic"), predicted, strict=True
    ):
        assert found.probability == pytest.approx(row[1], abs=1e-6)
        assert found.prediction == pytest.approx(np.log(row[1] / (1 - row[1])), abs=1e-4)
        assert found.unit == "log-odds"
    for found, row in zip(
        explain(model, SMILES, "attention", target="phase"), predicted, strict=True
    ):
        label = ("gas", "liquid", "solid")[int(row[2:].argmax())]
        assert found.target == f"phase_probability_{label}"
        assert found.probability == pytest.approx(row[2:].max(), abs=1e-6)


def test_unsigned_scores_are_not_negative_and_claim_no_sum(model):
    for method in {*METHODS} - {*SIGNED}:
        for found in explain(model, SMILES, method):
            assert found.atom_scores.min() >= 0
            assert found.residual is found.baseline is found.tolerance is found.adds_up is None
    for method in ("attention", "rollout"):
        for found in explain(model, SMILES, method):
            assert found.atom_scores.sum() == pytest.approx(1, abs=1e-6)


def test_an_ensemble_of_one_network_twice_is_explained_as_that_network():
    model = make(tasks=("logS",))
    twice = MolAttn.ensemble([model, model])
    for method in METHODS:
        one, two = (explain(some, SMILES[0], method) for some in (model, twice))
        np.testing.assert_allclose(two.atom_scores, one.atom_scores, rtol=1e-4, atol=1e-6)
    assert two.head_names == ("1.1", "1.2", "2.1", "2.2")
    assert two.attention.shape == (2, 4, 10, 10)
    np.testing.assert_array_equal(two.attention[:, :2], one.attention)


def test_scores_of_an_ensemble_are_the_mean_of_those_of_its_members():
    models = [make(seed, tasks=("logS",)) for seed in (0, 1)]
    joined = explain(MolAttn.ensemble(models), SMILES[0], "occlusion")
    apart = [explain(model, SMILES[0], "occlusion").atom_scores for model in models]
    np.testing.assert_allclose(joined.atom_scores, np.mean(apart, axis=0), atol=1e-5)
    assert np.abs(apart[0] - apart[1]).max() > 0.01


def test_second_molecules_and_further_numbers_stay_as_they_are():
    config = {
        "tasks": ("logS",),
        "features": ("pH",),
        "descriptors": ("MolWt",),
        "partner_column": "solvent",
        "network": replace(SMALL, partner="cross_attention", gate=True),
    }
    model = make(**config)
    given = {"partners": ["O", "CCO"], "features": [[7.0], [2.0]]}
    for method in METHODS:
        found = explain(model, SMILES[:2], method, **given)
        predicted = model.predict(SMILES[:2], **given)[:, 0]
        assert [one.prediction for one in found] == pytest.approx(predicted.tolist(), abs=1e-5)
        assert [len(one.atom_scores) for one in found] == [10, 1]
        assert found[0].adds_up in (True, None)
        assert found[0].gates.shape == (2, 2, 10)
    with pytest.raises(ValueError, match="partners: the model needs"):
        explain(model, SMILES[:2], features=given["features"])


def test_the_model_is_left_as_it_was(model):
    model.train()
    for method in METHODS:
        first, second = (explain(model, SMILES[0], method) for _ in range(2))
        np.testing.assert_array_equal(first.atom_scores, second.atom_scores)
    assert model.training
    model.eval()
    hooks = [m._forward_hooks or m._forward_pre_hooks for m in model.modules()]
    assert not any(hooks)
    assert all(weight.grad is None for weight in model.parameters())


def test_an_explanation_is_json(model):
    found = explain(model, SMILES[3])
    read = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert read["atom_scores"] == found.atom_scores.tolist()
    assert read["bonds"][0] == [0, 1]
    assert np.array(read["attention"]).shape == found.attention.shape
    assert {name: len(axis) for name, axis in read["attention_axes"].items()} == dict(
        zip(("layer", "head", "receiver", "sender"), found.attention.shape, strict=True)
    )
    assert found.atom_names[:2] == ("F0", "C1")


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"method": "magic"}, "method: got 'magic', expected one of attention, rollout"),
        (
            {"target": "phases"},
            "expected one of logS, toxic, phase, phase_probability_gas, phase_probability_liquid, "
            "phase_probability_solid; did you mean 'phase'",
        ),
        ({"masking": "hide"}, "masking: got 'hide'"),
        ({"orders": 0}, "orders: got 0"),
        ({"orders": 2.5}, "orders: got 2.5, expected a whole number"),
        ({"groups": [[0.0, 1.0]], "method": "occlusion"}, r"groups: got .*0.0, .* of atom indices"),
        ({"tolerance": 0.0}, "tolerance: got 0.0"),
        ({"groups": "rungs", "method": "occlusion"}, "groups: got 'rungs'"),
        ({"background": []}, "background: got no molecule"),
        (
            {"steps": -1},
            "options: got 'steps', expected one of groups, orders, masking, tolerance, seed$",
        ),
    ],
)
def test_what_does_not_exist_is_refused(model, arguments, words):
    with pytest.raises(InputError, match=words):
        explain(model, "CCO", **arguments)


def test_a_text_that_is_no_molecule_is_named(model):
    with pytest.raises(SmilesError, match="ethanol"):
        explain(model, ["CCO", "ethanol"])
    assert explain(model, []) == []


def test_methods_have_what_a_page_needs(model):
    instance = next(read_instances(model, ["CC(=O)N"]))
    for name, method in METHODS.items():
        assert method.summary[:1].islower()
        assert not method.summary.endswith(".")
        assert method.source
        assert method.meaning == f"{method.summary} ({method.source})"
        scores = method(instance, MethodOptions())
        assert (len(scores.atoms), len(scores.bonds)) == (4, 3)
        assert (scores.baseline is not None) == method.signed
        if not method.signed:
            assert scores.atoms.min() >= 0
        drawn = explain(model, "CC(=O)N", name).draw()
        assert f">{name.replace('_', ' ')}: " in drawn


@pytest.mark.parametrize(
    "signed, scores, words",
    [
        (True, Scores(np.ones(3), np.ones(2)), "got a baseline or other"),
        (False, Scores(np.ones(3), np.ones(2), 0.5), "got a baseline or other"),
        (False, Scores(np.ones(3), np.ones(2), None, {"a": 1.0}), "got a baseline or other"),
        (True, Scores(np.ones(3), np.ones(2), 0.5, {"a": np.inf}), "other scores that are not fin"),
        (False, Scores(np.ones(2), np.ones(2)), r"atom scores of shape \[2\], expected \[3\]"),
        (False, Scores(np.ones(3), np.ones(3)), r"bond scores of shape \[3\], expected \[2\]"),
        (False, Scores(np.array([1, np.nan, 1]), np.ones(2)), "atom scores that are not finite"),
    ],
)
def test_invalid_scores_of_a_method_are_an_error(model, signed, scores, words):
    wrong = Method(lambda instance, options: scores, signed=signed, summary="a phrase")
    with (
        patch.dict(METHODS._items, wrong=wrong),
        pytest.raises(ValueError, match=f"^wrong: .*{words}"),
    ):
        explain(model, "CCO", "wrong")


def test_models_without_self_loops_are_explained():
    model = make(tasks=("logS",), network=replace(SMALL, score="gatv2", self_loops=False))
    for method in METHODS:
        found = explain(model, ["CCO", "C"], method)
        assert all(np.isfinite(one.atom_scores).all() for one in found)
        assert not torch.tensor(found[0].attention).diagonal(dim1=-2, dim2=-1).any()


@pytest.mark.parametrize(
    "transform",
    [
        LogTransform(),
        YeoJohnsonTransform(0.2, 1.0, 3.0),
        RankTransform((0.0, 1.0, 5.0, 90.0), (-9.0, 2.0, 3.0, 9.0)),
    ],
)
def test_scores_of_a_transformed_target_sum_to_the_prediction_in_own_units(transform):
    model = make(tasks=("y",))
    model.set_target_scaling([3.0], [0.5], [transform])
    for method in ("integrated_gradients", "occlusion"):
        for text, found in zip(
            SMILES, explain(model, SMILES, method, tolerance=0.001), strict=True
        ):
            assert found.prediction == pytest.approx(model.predict([text]).item(), rel=1e-5)
            assert found.adds_up
            total = found.baseline + found.atom_scores.sum()
            spread = np.ptp(transform.inverse(torch.tensor([2.5, 3.5]).double()).numpy()) / 2
            assert total == pytest.approx(found.prediction, abs=1.1e-3 * spread)
    assert np.abs(found.atom_scores).max() > 1e-3


def test_a_calibrated_model_gives_its_interval_and_probability():
    model = make()
    smiles = [("C" * n) + "O" for n in range(1, 41)]
    outputs = model.predict_outputs([model.featurize(text) for text in smiles])
    predicted = outputs[0]
    draw = np.random.default_rng(0)
    targets = np.column_stack(
        [predicted[:, 0] + draw.normal(size=40), *draw.integers(2, size=(2, 40))]
    )
    molecules = FingerprintIndex.from_fingerprints(read_fingerprints(smiles))
    model.uncertainty = Uncertainty.fit(model.config, molecules, smiles, outputs, targets)
    outputs = model.predict_outputs([model.featurize(text) for text in SMILES])
    said = model.prediction(outputs, SMILES, 0.8)
    for row, found in enumerate(explain(model, SMILES, "attention", interval=0.8)):
        assert (found.low, found.high) == pytest.approx(
            (said.low[row, 0], said.high[row, 0]), abs=1e-5
        )
        assert found.low + found.high == pytest.approx(2 * found.prediction)
    for row, found in enumerate(explain(model, SMILES, "attention", target="toxic")):
        assert found.probability == pytest.approx(said.prediction[row, 1], abs=1e-6)
        assert found.low is found.high is None


@pytest.fixture(scope="module", params=["network", "ensemble", "gaussian_process"])
def both(request):
    """A model, and the same one with calibrated probabilities."""
    if request.param == "ensemble":
        plain = MolAttn.ensemble([make(0), make(1)])
    elif request.param == "gaussian_process":
        plain = with_process(make(kernels=("morgan", "embedding")), 0.5)
    else:
        plain = make()
    parts = (
        ConformalScores(0, ()),
        ProbabilityScaling(0.5, (0.6, -1.0)),
        ProbabilityScaling(1.5, (0.3, -1.2, 0.4)),
    )
    calibrated = copy.deepcopy(plain)
    molecules = FingerprintIndex.from_fingerprints(read_fingerprints(["CCO"]))
    calibrated.uncertainty = Uncertainty(Calibration(TASKS, parts), molecules)
    return plain, calibrated


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("method", METHODS)
def test_calibrated_probabilities_are_explained(both, method, target):
    model = both[1]
    for found in explain(model, SMILES, method, target=target):
        predicted = model.predict([found.smiles])[0]
        if target == "logS":
            assert found.prediction == pytest.approx(predicted[0], abs=1e-5)
            continue
        name = found.target.replace("toxic", "toxic_probability_yes")
        chance = predicted[model.config.output_names.index(name)]
        assert found.probability == pytest.approx(chance, abs=1e-6)
        assert found.prediction == pytest.approx(np.log(chance / (1 - chance)), abs=1e-5)
        if method in SIGNED:
            assert found.adds_up
            total = found.baseline + found.atom_scores.sum() + sum(found.other_scores.values())
            assert found.prediction == pytest.approx(total, abs=found.tolerance)


@pytest.mark.parametrize("method", SIGNED)
def test_calibration_of_two_classes_is_affine_in_log_odds(both, method):
    before, after = (explain(one, SMILES[0], method, target="toxic") for one in both)
    for name in ("prediction", "baseline"):
        expected = 0.5 * getattr(before, name) - 1.6
        assert getattr(after, name) == pytest.approx(expected, abs=1e-5)
    np.testing.assert_allclose(after.atom_scores, 0.5 * before.atom_scores, atol=after.tolerance)
    np.testing.assert_allclose(after.bond_scores, 0.5 * before.bond_scores, atol=after.tolerance)
    assert np.abs(after.atom_scores).max() > 2 * after.tolerance


def test_an_interval_of_percent_ends_as_that_of_the_prediction():
    torch.manual_seed(0)
    model = MolAttn(MolAttnConfig((Task("bound", unit="%"),), SMALL)).eval()
    smiles = ["C" * n + "O" for n in range(1, 41)]
    targets = np.linspace(0.0, 100.0, 40)[:, None]
    model.calibrate(smiles, targets, smiles)
    free = explain(model, SMILES[0], "attention")
    model.training_set = TrainingSet.of(model.config.tasks, targets)
    found = explain(model, SMILES[0], "attention")
    low, high = model.predict_interval(SMILES[:1])
    assert (found.low, found.high) == pytest.approx((low.item(), high.item()), abs=1e-4)
    assert found.high - found.low < free.high - free.low


def test_methods_share_what_they_all_need(small_model):
    methods = ("attention", "rollout", "occlusion")
    apart = [explain(small_model, SMILES[0], method) for method in methods]
    instance = next(read_instances(small_model, SMILES[:1]))
    known = small_model.uncertainty.molecules
    with (
        patch.object(known, "similarity", wraps=known.similarity) as similarity,
        patch("molattn.explain.instance.attention_weights", wraps=attention_weights) as attention,
    ):
        found = [explain_instance(instance, method, MethodOptions()) for method in methods]
    assert (similarity.call_count, attention.call_count) == (1, 1)
    for one, other in zip(found, apart, strict=True):
        np.testing.assert_array_equal(one.atom_scores, other.atom_scores)
        np.testing.assert_array_equal(one.attention, other.attention)
        assert (one.prediction, one.low, one.high) == (other.prediction, other.low, other.high)


@pytest.mark.parametrize("method", METHODS)
def test_the_scores_of_an_rdkit_molecule_are_in_the_order_of_its_atoms(model, method):
    text = "F/C=C/[C@H](O)N"
    expected = explain(model, text, method)
    order = [4, 2, 0, 5, 1, 3]
    mol = Chem.AddHs(Chem.RenumberAtoms(Chem.MolFromSmiles(text), order))
    found = explain(model, mol, method)
    assert found.symbols == tuple(expected.symbols[place] for place in order)
    np.testing.assert_allclose(found.atom_scores, expected.atom_scores[order], atol=1e-5)
    assert found.prediction == pytest.approx(expected.prediction, abs=1e-6)
    assert found.smiles == Chem.CanonSmiles(text)
    pairs = {tuple(sorted((order[a], order[b]))) for a, b in found.bonds}
    assert pairs == {tuple(sorted(pair)) for pair in expected.bonds}
    assert [one.smiles for one in explain(model, [mol, text], method)] == [found.smiles, text]


def test_an_rdkit_molecule_is_drawn_with_its_own_atoms(model):
    """Every bond of the explanation is one of the drawing, or RDKit would raise an error."""
    mol = Chem.RenumberAtoms(Chem.MolFromSmiles("OC(F)Cl"), [2, 0, 3, 1])
    found = explain(model, mol)
    assert found.draw().startswith("<?xml")
    assert "mol" not in json.loads(json.dumps(found.to_dict()))
    assert explain(model, "OC(F)Cl").mol is None


def test_none_is_an_invalid_molecule(model):
    """As RDKit returns it for an invalid SMILES."""
    for invalid in (None, [None]):
        with pytest.raises(SmilesError, match="the value is missing"):
            explain(model, invalid)


def test_molecules_may_come_from_a_generator(model):
    texts = ["CCO", "CCN"]
    expected = explain(model, texts, "attention")
    found = explain(model, (text for text in texts), "attention")
    for one, other in zip(found, expected, strict=True):
        assert one.smiles == other.smiles
        np.testing.assert_array_equal(one.atom_scores, other.atom_scores)
    pairs = make(tasks=("y",), partner_column="solvent")
    found = explain(pairs, iter(texts), "attention", partners=iter(["O", "C"]))
    assert [one.smiles for one in found] == texts
    tested = measure_faithfulness(model, iter(texts), ["attention"])
    assert tested.molecules == 2
    for name in ("smiles", "partners"):
        given = {"smiles": ["CCO"], "partners": ["O"]} | {name: "CCO"}
        with pytest.raises(TypeError, match=f"^{name}: got one molecule, expected a list"):
            next(read_instances(pairs, **given))


def test_a_series_is_a_list(model):
    texts = ["CCO", "CCN"]
    assert [one.smiles for one in explain(model, pd.Series(texts), "attention")] == texts


@pytest.mark.parametrize("method", METHODS)
def test_the_standard_form_is_explained(method):
    model = make(tasks=("y",), kernels=(), standardize=True)
    plain = make(tasks=("y",), kernels=())
    text, form = "[Na+].FC([O-])=N[C@@H](C)c1ccccc1", "C[C@H](NC(=O)F)c1ccccc1"
    expected, found = explain(plain, form, method), explain(model, text, method)
    assert (found.smiles, found.symbols, found.bonds) == (form, expected.symbols, expected.bonds)
    assert found.mol is None
    np.testing.assert_array_equal(found.atom_scores, expected.atom_scores)
    mol = Chem.AddHs(Chem.MolFromSmiles(text))
    given = explain(model, mol, method)
    assert given.smiles == form
    assert given.symbols == ("F", "C", "O", "N", *"CCCCCCCC")  # as in the text, without the ion
    places = given.mol.GetSubstructMatch(Chem.MolFromSmiles(form))
    np.testing.assert_allclose(given.atom_scores[list(places)], expected.atom_scores, atol=2e-5)
    assert given.draw().startswith("<?xml")
    assert explain(model, "OCC", method).smiles == "OCC"


def test_a_recording_that_begins_within_a_prediction_leaves_it_alone():
    model = MolAttn(MolAttnConfig("y")).eval()
    expected = model.predict(["CCO"])
    batch = model.collate([model.featurize("c1ccccc1")])
    conv, recorded = model.nets[0].attention_layers[0], []
    with ExitStack() as stack:

        def begin(*_):  # as another thread may, once the layer is called
            if not recorded:
                recorded.extend(stack.enter_context(record_attention(model, batch.edge_index)))

        stack.callback(conv.register_forward_pre_hook(begin).remove)
        assert model.predict(["CCO"]) == expected
        assert recorded[0].weights == []
        with torch.inference_mode():
            model(batch)
        assert len(recorded[0].weights) == model.config.network.layers
