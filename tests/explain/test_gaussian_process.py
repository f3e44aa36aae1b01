"""The prediction that a network and a Gaussian process make together, against NumPy."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax
from torch import nn

from molattn.chem import parse_smiles
from molattn.chem.fingerprints import HashedCounts
from molattn.explain import explain
from molattn.explain.explainer import read_instances
from molattn.explain.process import MoleculeProcess
from molattn.explain.pyg import GraphModel
from molattn.model.kernel import KernelInputs, stack_counts
from molattn.model.networks import Networks
from molattn.model.target_transform import IdentityTransform, LogTransform, YeoJohnsonTransform

from .conftest import LEARNED, TASKS, make, with_process

COUNTS = ("morgan", "atom_pairs", "torsions", "feature_morgan")
DESCRIPTORS = ("MolWt", "TPSA", "HeavyAtomCount")
SUMS = ("MolWt", "NOCount", "NHOHCount")  # over atoms
SMILES = ["CC(=O)Nc1ccc(O)cc1", "O", "[Na+].CC(=O)[O-]"]
SIGNED = ["integrated_gradients", "occlusion"]


def make_combined(weight, transform=None, **options):
    """A model of three tasks whose Gaussian process has a weight, with all kinds of inputs."""
    options = {"kernels": (*COUNTS, "embedding", "descriptors"), "morgan_counts": 8} | options
    model = make(**({"descriptors": DESCRIPTORS} | options))
    scale = [40.0, 20.0, 4.0] + [0.5] * model.config.morgan_counts
    model.set_feature_scaling(scale, scale)
    if transform is not None:
        identity = IdentityTransform()
        transforms = (transform, identity, identity)
        model.set_target_scaling([0.5, 0.0, 0.0], [0.8, 1.0, 1.0], transforms)
    return with_process(model, weight)


@pytest.fixture(scope="module")
def combined():
    return make_combined(0.4)


@pytest.fixture(scope="module")
def of_counts():
    """A model whose Gaussian process on counts predicts alone, so that nothing else matters."""
    return with_process(make(tasks=("y",), kernels=("morgan", "atom_pairs")), 1.0)


# The kernels and the process as a function of environments, embedding and numbers


def dense(counts, size):
    return counts[:, :size].toarray().astype(float)


def standardized(kernel, numbers):
    return ((numbers - kernel.mean) / kernel.scale).clip(-4.0, 4.0)


def gaussian(kernel, x):
    distances = ((x[:, None] - kernel.points.astype(float)) ** 2).sum(axis=-1)
    return np.exp(-distances / kernel.length)


def by_hand(head, counter, environments, weights, embedding, numbers):
    """Predict from the formulas; ``numbers`` are standardized."""
    training = dense(head.kernel.counts, len(counter))
    counts = np.zeros((len(weights), len(counter)))
    np.add.at(counts, (slice(None), environments.positions), weights)
    found = []
    for kind in counter.groups.values():
        a, b = counts[:, None, kind], training[None, :, kind]
        least, most = np.minimum(a, b).sum(axis=-1), np.maximum(a, b).sum(axis=-1)
        found.append(np.where(most == 0.0, 1.0, least / np.where(most == 0.0, 1.0, most)))
    embedded = head.kernel.numbers["embedding"]
    found.append(gaussian(embedded, standardized(embedded, embedding)))
    found.append(gaussian(head.kernel.numbers["descriptors"], numbers["descriptors"]))
    kernel = np.mean(found, axis=0) * gaussian(head.kernel.features, numbers["feature columns"])
    latent = head.means + kernel @ head.weights
    binary, multiclass = head.scalings[1:]
    logits = log_softmax(np.column_stack([0.0 * latent[:, 1], latent[:, 1]]), axis=1)
    logits = binary.scale * logits + binary.bias
    classes = multiclass.scale * log_softmax(latent[:, 2:], axis=1) + multiclass.bias
    return np.column_stack([latent[:, 0], logits[:, 1] - logits[:, 0], classes])


@pytest.fixture(scope="module")
def process():
    """A Gaussian process of one molecule, what it reads of it, and the model."""
    options = {"kernels": (*COUNTS, "embedding", "descriptors"), "features": ("pH",)}
    features = np.random.default_rng(1).normal(size=(15, 1))
    model = make(**options, descriptors=("MolWt", "TPSA"))
    model = with_process(model, 1.0, features=features)
    text = "CC(=O)Nc1ccccc1"
    _, inputs = model.networks.predict([model.featurize(text)], features=[[0.3]])
    environments = model.config.counter.environments(parse_smiles(text))
    return MoleculeProcess(model, environments, inputs), inputs, model


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.4, 1.0]))
def test_variants_are_predicted_by_the_formulas(process, seed, present):
    process, inputs, model = process
    head, counter = model.gaussian_process, model.config.counter
    environments = counter.environments(parse_smiles("CC(=O)Nc1ccccc1"))
    draw = np.random.default_rng(seed)
    weights = draw.uniform(size=(3, len(environments.positions)))
    weights = np.where(draw.uniform(size=weights.shape) < present, weights, np.round(weights))
    weights[0] = present  # at 0 no environment at all
    embedding = draw.normal(size=(3, model.networks.embedding_width()))
    factors = {name: draw.uniform(size=3) for name in ("descriptors", "feature columns")}
    given_numbers = {
        "descriptors": (head.kernel.numbers["descriptors"], inputs.numbers["descriptors"]),
        "feature columns": (head.kernel.features, inputs.features),
    }
    numbers = {
        name: factors[name][:, None] * standardized(kernel, values.astype(float))
        for name, (kernel, values) in given_numbers.items()
    }
    tensors = {name: torch.from_numpy(factor) for name, factor in factors.items()}
    found = process(torch.from_numpy(weights), torch.from_numpy(embedding), tensors)
    expected = by_hand(head, counter, environments, weights, embedding, numbers)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)


# Explanations


@pytest.mark.parametrize("transform", [None, LogTransform(), YeoJohnsonTransform(0.4, 1.0, 2.0)])
@pytest.mark.parametrize("method", SIGNED)
def test_the_combined_prediction_is_explained(method, transform):
    model = make_combined(0.4 if transform is None else 0.5, transform)
    predicted = model.predict(SMILES)[:, 0]
    for found, value in zip(explain(model, SMILES, method), predicted, strict=True):
        assert found.prediction == pytest.approx(value, abs=1e-5)
        assert found.adds_up
        assert [*found.other_scores] == ["descriptors", "Morgan counts"]
        total = found.baseline + found.atom_scores.sum() + sum(found.other_scores.values())
        assert found.prediction == pytest.approx(total, abs=found.tolerance)


def test_second_molecules_and_feature_columns_join_in():
    draw = np.random.default_rng(1)
    inputs = {
        "partners": draw.choice(["O", "CCO", "CS(C)=O"], size=len(LEARNED)).tolist(),
        "features": draw.normal(size=(len(LEARNED), 1)),
    }
    config = {"features": ("pH",), "partner_column": "solvent", "descriptors": DESCRIPTORS}
    model = make(tasks=TASKS[:1], kernels=("morgan", "embedding", "descriptors"), **config)
    scale = [1.0] + [40.0, 20.0, 4.0] * 2
    model.set_feature_scaling(scale, scale)
    model = with_process(model, 0.5, **inputs)
    inputs = {"partners": ["O", "CCO", "O"], "features": [[0.3], [-1.0], [2.0]]}
    predicted = model.predict(SMILES, **inputs)[:, 0]
    for method in SIGNED:
        found = explain(model, SMILES, method, **inputs)
        assert [e.prediction for e in found] == pytest.approx(predicted.tolist(), abs=1e-5)
        assert all(e.adds_up for e in found)
        assert all([*e.other_scores] == ["feature columns", "descriptors"] for e in found)
    # Without atoms and features only the second molecule remains.
    assert found[0].baseline == pytest.approx(found[2].baseline, abs=1e-5)
    assert abs(found[0].baseline - found[1].baseline) > 1e-3


def test_masked_atoms_take_their_environments_with_them(of_counts):
    instance = next(read_instances(of_counts, SMILES[:1]))
    kept = np.random.default_rng(0).uniform(size=(12, instance.num_atoms)) < 0.6
    kept[:2] = [[False], [True]]
    places, atoms = instance.environments
    rows = []
    for some in kept:
        present = [(environment <= some).all() for environment in atoms]
        counted = sorted(Counter(places[present].tolist()).items())
        columns = np.array(counted, dtype=np.int64).reshape(-1, 2).T
        rows.append(HashedCounts(columns[0].astype(np.uint16), columns[1].astype(np.uint8)))
    inputs = KernelInputs(len(kept), stack_counts(rows), {})
    outputs = of_counts.gaussian_process.predict(inputs)[:, 0]
    found = instance.predict_kept(kept)
    np.testing.assert_allclose(found, 2.0 * outputs + 3.0, atol=1e-5)
    assert np.ptp(found) > 0.1
    bonds = explain(of_counts, SMILES[0], "occlusion").bond_scores
    assert np.abs(bonds).max() < 1e-6  # masked pairs leave the counts as they are


@pytest.mark.parametrize("smiles", ["CCO", "CC(=O)[O-].[Na+]"])
def test_an_environment_is_worth_its_integral_and_shared_by_its_atoms(of_counts, smiles):
    instance = next(read_instances(of_counts, [smiles]))
    atoms = instance.environments.atoms
    steps, change = 400, 1e-4
    middles = (np.arange(steps) + 0.5) / steps
    integrals = np.zeros(len(atoms))
    for k in range(len(atoms)):
        weights = np.tile(middles, (2, 1)).reshape(-1, 1) * np.ones(len(atoms))
        weights[:, k] += change * np.repeat([1.0, -1.0], steps)
        given_features = instance.atoms, instance.pairs
        features = [tensor.expand(2 * steps, *tensor.shape) for tensor in given_features]
        with torch.inference_mode():
            up, down = instance(*features, torch.from_numpy(weights)).numpy().reshape(2, steps)
        integrals[k] = ((up - down) / (2 * change)).mean()
    expected = (integrals / atoms.sum(axis=1)) @ atoms
    found = explain(of_counts, smiles, tolerance=1e-4)
    np.testing.assert_allclose(found.atom_scores, expected, atol=2e-3)
    assert np.abs(expected).max() > 0.1


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
    terms = 2.0 * scaled.clip(-3.0, 3.0) * np.linspace(-0.5, 0.5, 11)
    for method in SIGNED:
        found = explain(model, "CCO", method).other_scores
        assert found["descriptors"] == pytest.approx(terms[:3].sum(), abs=1e-4)
        assert found["Morgan counts"] == pytest.approx(terms[3:].sum(), abs=1e-4)


def test_undefined_descriptors_are_the_mean(combined):
    instance = next(read_instances(combined, ["CCO"]))
    numbers = instance.record.numbers.copy()
    numbers[0] = np.nan
    unknown = replace(instance, record=replace(instance.record, numbers=numbers))
    outputs = combined.predictor.predict_outputs([unknown.record])
    predicted = combined.predictor.values(outputs)[0, 0]
    assert unknown.prediction == pytest.approx(predicted, abs=1e-5)
    assert abs(unknown.prediction - instance.prediction) > 1e-3


@pytest.mark.parametrize("kernels", [(), ("morgan", "embedding", "descriptors")])
def test_an_atom_takes_its_contribution_to_the_descriptors_with_it(kernels, monkeypatch):
    model = make(descriptors=SUMS, morgan_counts=8, kernels=kernels)
    scale = [60.0, 2.0, 1.0] + [0.5] * 8
    model.set_feature_scaling(scale, scale)
    model = with_process(model, 0.5) if kernels else model
    predicted = model.predict(SMILES)[:, 0]
    for method in SIGNED:
        for found, value in zip(explain(model, SMILES, method), predicted, strict=True):
            assert found.prediction == pytest.approx(value, abs=1e-5)
            assert [*found.other_scores] == ["Morgan counts"]
            assert found.adds_up
    instance = next(read_instances(model, ["NC(=O)CO"]))
    kept = np.array([[True] * 5, [False, True, True, True, True], [False] * 5])
    read, decode = [], Networks.outputs_and_embedding

    def spy(self, batch, numbers):
        read.append(numbers)
        return decode(self, batch, numbers)

    monkeypatch.setattr(Networks, "outputs_and_embedding", spy)
    instance.predict_kept(kept)
    numbers = torch.cat(read).double().numpy()
    order = np.argsort(-numbers[:, 0])  # distinct masks come in another order
    descriptors = numbers[order][:, :3] * [60.0, 2.0, 1.0] + [60.0, 2.0, 1.0]
    expected = [[75.067, 3.0, 3.0], [75.067 - 16.023, 2.0, 1.0], [0.0, 0.0, 0.0]]
    np.testing.assert_allclose(descriptors, expected, atol=1e-4)


def test_explainers_of_pyg_refuse_what_the_networks_do_not_predict_from_one_molecule(of_counts):
    for model in (of_counts, make(features=("pH",)), make(partner_column="solvent")):
        with pytest.raises(ValueError, match="model: got one that takes"):
            GraphModel(model)
