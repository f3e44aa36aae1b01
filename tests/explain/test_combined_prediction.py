"""Explanations of the prediction that a network and a Gaussian process make together."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from molattn import MolAttn
from molattn.chem.fingerprints import HashedCounts
from molattn.explain import explain, measure_faithfulness
from molattn.explain.explainer import read_instances
from molattn.explain.pyg import GraphModel
from molattn.model.gaussian_process.kernel import KernelInputs, stack_counts
from molattn.model.target_transform import LogTransform, TargetTransform, YeoJohnsonTransform

from .conftest import LEARNED, TASKS, make, with_process

COUNTS = ("morgan", "atom_pairs", "torsions", "feature_morgan")
DESCRIPTORS = ("MolWt", "TPSA", "HeavyAtomCount")
SMILES = ["CC(=O)Nc1ccc(O)cc1", "O", "[Na+].CC(=O)[O-]"]
TARGETS = ["logS", "toxic", "phase", "phase_probability_gas"]
SIGNED = ["integrated_gradients", "occlusion"]
TRANSFORMS = [TargetTransform(), LogTransform(), YeoJohnsonTransform(0.4, 1.0, 2.0)]


def make_combined(share, transform=None, **options):
    """A model of three tasks whose Gaussian process has a share, with all kinds of inputs."""
    options = {"kernels": (*COUNTS, "embedding", "descriptors"), "morgan_counts": 8} | options
    model = make(descriptors=DESCRIPTORS, **options)
    scale = [40.0, 20.0, 4.0] + [0.5] * model.config.morgan_counts
    model.set_feature_scaling(scale, scale)
    if transform is not None:
        model.set_target_scaling([0.5, 0.0, 0.0], [0.8, 1.0, 1.0], (transform, *TRANSFORMS[:1] * 2))
    return with_process(model, share)


@pytest.fixture(scope="module", params=[0.4, 1.0], ids=["both", "gaussian_process"])
def combined(request):
    return make_combined(request.param)


@pytest.fixture(scope="module")
def of_counts():
    """A model whose Gaussian process on counts predicts alone, so that nothing else matters."""
    kernels = ("morgan", "atom_pairs")
    return with_process(make(tasks=("y",), kernels=kernels), 1.0)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("method", [*SIGNED, "gradient_attention"])
def test_the_combined_prediction_is_explained(combined, method, target):
    outputs = combined.predict_outputs([combined.featurize(text) for text in SMILES])
    predicted = combined.prediction(outputs, SMILES, 0.9).prediction
    for found, row in zip(explain(combined, SMILES, method, target=target), predicted, strict=True):
        if target == "logS":
            assert found.prediction == pytest.approx(row[0], abs=1e-5)
        else:
            place = combined.config.output_names.index(
                found.target.replace("toxic", "toxic_probability_yes")
            )
            assert found.prediction == pytest.approx(
                np.log(row[place] / (1 - row[place])), abs=1e-5
            )
        assert found.adds_up in (True, None)
        if method in SIGNED:
            assert [*found.other_scores] == ["descriptors", "Morgan counts"]
            total = found.baseline + found.atom_scores.sum() + sum(found.other_scores.values())
            assert found.prediction == pytest.approx(total, abs=found.tolerance)
        else:
            assert found.other_scores == {}


@pytest.mark.parametrize("transform", TRANSFORMS[1:], ids=lambda one: one.kind)
@pytest.mark.parametrize("method", SIGNED)
def test_transformed_targets_are_explained_in_their_own_unit(method, transform):
    model = make_combined(0.5, transform)
    found = explain(model, SMILES[0], method)
    assert found.prediction == pytest.approx(model.predict(SMILES[:1])[0, 0], abs=1e-5)
    assert found.adds_up
    assert np.abs(found.atom_scores).max() > 2 * found.tolerance


def test_second_molecules_and_feature_columns_join_in():
    draw = np.random.default_rng(1)
    inputs = {
        "partners": draw.choice(["O", "CCO", "CS(C)=O"], size=len(LEARNED)).tolist(),
        "features": draw.normal(size=(len(LEARNED), 1)),
    }
    model = make(
        tasks=TASKS[:1],
        kernels=("morgan", "embedding", "descriptors"),
        descriptors=DESCRIPTORS,
        features=("pH",),
        partner_column="solvent",
    )
    scale = [1.0] + [40.0, 20.0, 4.0] * 2
    model.set_feature_scaling(scale, scale)
    model = with_process(model, 0.5, **inputs)
    given = {"partners": ["O", "CCO", "O"], "features": [[0.3], [-1.0], [2.0]]}
    predicted = model.predict(SMILES, **given)[:, 0]
    for method in SIGNED:
        found = explain(model, SMILES, method, **given)
        assert [one.prediction for one in found] == pytest.approx(predicted.tolist(), abs=1e-5)
        assert all(one.adds_up for one in found)
        assert all([*one.other_scores] == ["feature columns", "descriptors"] for one in found)
        if method == "occlusion":  # without atoms and features only the second molecule is left
            assert found[0].baseline == pytest.approx(found[2].baseline, abs=1e-5)
            assert abs(found[0].baseline - found[1].baseline) > 1e-3


@pytest.mark.parametrize("masking", ["remove", "blank"])
def test_masked_atoms_take_their_environments_with_them(of_counts, masking):
    instance = next(read_instances(of_counts, SMILES[:1]))
    kept = np.random.default_rng(0).uniform(size=(12, instance.num_atoms)) < 0.6
    kept[:2] = [[False], [True]]
    places, atoms = instance.environments
    rows = []
    for some in kept:
        present = [(atoms[one] <= some).all() for one in range(len(places))]
        counted = sorted(Counter(places[present].tolist()).items())
        columns = np.array(counted, dtype=np.int64).reshape(-1, 2).T
        rows.append(HashedCounts(columns[0].astype(np.uint16), columns[1].astype(np.uint8)))
    inputs = KernelInputs(len(kept), stack_counts(rows), {})
    outputs = of_counts.gaussian_process.predict(inputs)[:, 0]
    found = instance.predict_kept(kept, masking)
    np.testing.assert_allclose(found, 2.0 * outputs + 3.0, atol=1e-5)
    assert np.ptp(found) > 0.1


def test_masked_pairs_leave_the_counts_as_they_are(of_counts):
    found = explain(of_counts, SMILES[0], "occlusion")
    assert np.abs(found.bond_scores).max() < 1e-6 < np.abs(found.atom_scores).max()


@pytest.mark.parametrize("smiles", ["CCO", "CC(=O)[O-].[Na+]"])
def test_an_environment_is_worth_its_integral_and_shared_by_its_atoms(of_counts, smiles):
    instance = next(read_instances(of_counts, [smiles]))
    places, atoms = instance.environments
    size, steps, change = len(places), 400, 1e-4
    middles = (np.arange(steps) + 0.5) / steps
    worth = np.zeros(size)
    for place in range(size):
        weights = np.tile(middles, (2, 1)).reshape(-1, 1) * np.ones(size)
        weights[:, place] += change * np.repeat([1.0, -1.0], steps)
        inputs = (
            instance.atoms.expand(2 * steps, -1, -1),
            instance.pairs.expand(2 * steps, -1, -1, -1),
        )
        with torch.inference_mode():
            up, down = instance(*inputs, torch.from_numpy(weights)).numpy().reshape(2, steps)
        worth[place] = ((up - down) / (2 * change)).mean()
    expected = (worth / atoms.sum(axis=1)) @ atoms
    found = explain(of_counts, smiles, tolerance=1e-4)
    np.testing.assert_allclose(found.atom_scores, expected, atol=2e-3)
    assert np.abs(expected).max() > 0.1


def test_atoms_that_no_symmetry_tells_apart_have_one_score(combined):
    for method in SIGNED:
        found = explain(combined, "Cc1ccc(C)cc1", method).atom_scores
        np.testing.assert_allclose(found[[0, 1, 2, 2, 2]], found[[5, 4, 3, 6, 7]], atol=1e-5)


def test_the_score_of_a_group_of_features_is_known_in_a_linear_model():
    model = make(tasks=("y",), descriptors=DESCRIPTORS, morgan_counts=8)
    model.set_feature_scaling([30.0, 20.0, 5.0] + [0.2] * 8, [20.0, 20.0, 4.0] + [0.5] * 8)

    class Linear(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.linspace(-0.5, 0.5, 11))

        def forward(self, molecules, features):
            return (features @ self.weight + molecules[:, 0]).unsqueeze(-1)

    model.nets[0].head = Linear()
    record = model.featurize("CCO")
    scaled = (record.numbers - model.feature_mean.numpy()) / model.feature_scale.numpy()
    parts = 2.0 * scaled.clip(-3.0, 3.0) * np.linspace(-0.5, 0.5, 11)
    for method in SIGNED:
        found = explain(model, "CCO", method).other_scores
        assert found["descriptors"] == pytest.approx(parts[:3].sum(), abs=1e-4)
        assert found["Morgan counts"] == pytest.approx(parts[3:].sum(), abs=1e-4)


def test_undefined_descriptors_are_the_mean():
    model = make_combined(0.5)
    instance = next(read_instances(model, ["CCO"]))
    numbers = instance.record.numbers.copy()
    numbers[0] = np.nan
    unknown = replace(instance, record=replace(instance.record, numbers=numbers))
    predicted = model.predict_records([unknown.record])[0, 0]
    assert unknown.prediction == pytest.approx(predicted, abs=1e-5)
    assert abs(unknown.prediction - instance.prediction) > 1e-3


def test_the_interval_is_around_the_combined_prediction():
    model = make_combined(0.5, morgan_counts=0)
    labels = np.random.default_rng(0).normal(3, 2, size=(len(LEARNED) * 2, 3))
    labels[:, 1:] = labels[:, 1:] > 3
    model.calibrate(LEARNED * 2, labels, LEARNED)
    found = explain(model, SMILES[0], "attention", interval=0.8)
    low, high = model.predict_interval(SMILES[:1], 0.8)
    assert (found.low, found.high) == pytest.approx((low[0, 0], high[0, 0]), abs=1e-5)


def test_deletion_starts_at_the_prediction_and_ends_without_atoms(combined):
    instance = next(read_instances(combined, SMILES[:1]))
    ends = instance.predict_kept(
        np.array([[True], [False]]) & np.ones((2, instance.num_atoms), bool)
    )
    found = measure_faithfulness(combined, SMILES[:1], ["occlusion"]).rows[0]
    assert found.deletion[-1] == pytest.approx(abs(ends[0] - ends[1]), abs=1e-5)
    assert found.insertion[0] == pytest.approx(found.deletion[-1], abs=1e-6)


def test_members_of_an_ensemble_share_the_gaussian_process():
    models = [make(seed, tasks=("y",), kernels=("morgan", "embedding")) for seed in (0, 1)]
    model = MolAttn.ensemble(models)
    model.config = replace(model.config, kernels=("morgan", "embedding"))
    model = with_process(model, 0.5)
    for method in (*SIGNED, "gradient_attention"):
        found = explain(model, SMILES[0], method)
        assert found.prediction == pytest.approx(model.predict(SMILES[:1])[0, 0], abs=1e-5)
        assert found.adds_up in (True, None)
        assert np.abs(found.atom_scores).max() > 1e-3


def test_explainers_of_pyg_refuse_what_is_not_in_the_graph(of_counts):
    with pytest.raises(ValueError, match="Gaussian process, expected a network"):
        GraphModel(of_counts)


SUMS = ("MolWt", "NOCount", "NHOHCount")


@pytest.fixture(scope="module", params=[(), ("morgan", "embedding", "descriptors")])
def of_sums(request):
    """A model of descriptors that are sums over atoms, without and with a Gaussian process."""
    model = make(descriptors=SUMS, morgan_counts=8, kernels=request.param)
    scale = [60.0, 2.0, 1.0] + [0.5] * 8
    model.set_feature_scaling(scale, scale)
    return with_process(model, 0.5) if request.param else model


@pytest.mark.parametrize("method", SIGNED)
def test_descriptors_that_are_sums_over_atoms_are_part_of_their_scores(of_sums, method):
    predicted = of_sums.predict(SMILES)[:, 0]
    for found, value in zip(explain(of_sums, SMILES, method), predicted, strict=True):
        assert found.prediction == pytest.approx(value, abs=1e-5)
        assert [*found.other_scores] == ["Morgan counts"]
        assert found.adds_up


@pytest.mark.parametrize("masking", ["remove", "blank"])
def test_a_masked_atom_takes_its_part_of_the_descriptors_with_it(of_sums, masking, monkeypatch):
    read = []
    decode = type(of_sums).outputs_and_embedding

    def spy(self, batch, numbers):
        read.append(numbers)
        return decode(self, batch, numbers)

    monkeypatch.setattr(type(of_sums), "outputs_and_embedding", spy)
    instance = next(read_instances(of_sums, ["NC(=O)CO"]))  # parts: N, C, O, C, O
    kept = np.array([[True] * 5, [False, True, True, True, True], [False] * 5])
    read.clear()
    instance.predict_kept(kept, masking)
    numbers = torch.cat(read).double().numpy()
    order = np.argsort(-numbers[:, 0])  # distinct masks come in another order
    found = numbers[order][:, :3] * [60.0, 2.0, 1.0] + [60.0, 2.0, 1.0]
    expected = [[75.067, 3.0, 3.0], [75.067 - 16.023, 2.0, 1.0], [0.0, 0.0, 0.0]]
    np.testing.assert_allclose(found, expected, atol=1e-4)
