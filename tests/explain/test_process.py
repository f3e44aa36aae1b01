"""The Gaussian process of variants of a molecule against NumPy in double precision."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax

from molattn.chem import parse_smiles
from molattn.explain.process import MoleculeProcess
from molattn.model.gaussian_process.kernel import KernelInputs

from .conftest import TASKS, make, with_process

KERNELS = ("morgan", "atom_pairs", "torsions", "feature_morgan", "embedding", "descriptors")
SMILES = "CC(=O)Nc1ccccc1"


@pytest.fixture(scope="module")
def model():
    options = {"kernels": KERNELS, "descriptors": ("MolWt", "TPSA"), "features": ("pH",)}
    features = np.random.default_rng(1).normal(size=(15, 1))
    return with_process(make(**options), 1.0, features=features)


def dense(counts, size):
    return counts[:, :size].toarray().astype(float)


def standardized(kernel, numbers):
    return ((numbers - kernel.mean) / kernel.scale).clip(-4.0, 4.0)


def gaussian(kernel, x):
    distances = ((x[:, None] - kernel.points.astype(float)) ** 2).sum(axis=-1)
    return np.exp(-distances / kernel.length)


def by_hand(head, counter, environments, weights, embedding, numbers):
    """Predict from the formulas; ``numbers`` are standardized."""
    known = dense(head.kernel.counts, len(counter))
    counts = np.zeros((len(weights), len(counter)))
    np.add.at(counts, (slice(None), environments.places), weights)
    found = []
    for kind in counter.groups.values():
        a, b = counts[:, None, kind], known[None, :, kind]
        least, most = np.minimum(a, b).sum(axis=-1), np.maximum(a, b).sum(axis=-1)
        found.append(np.where(most == 0.0, 1.0, least / np.where(most == 0.0, 1.0, most)))
    embedded = head.kernel.numbers["embedding"]
    found.append(gaussian(embedded, standardized(embedded, embedding)))
    found.append(gaussian(head.kernel.numbers["descriptors"], numbers["descriptors"]))
    kernel = np.mean(found, axis=0) * gaussian(head.kernel.features, numbers["feature columns"])
    latent = head.means + kernel @ head.weights
    binary, several = head.scalings[1:]
    yes_no = binary.scale * log_softmax(np.column_stack([0.0 * latent[:, 1], latent[:, 1]]), axis=1)
    yes_no += binary.bias
    logits = several.scale * log_softmax(latent[:, 2:], axis=1) + several.bias
    return np.column_stack([latent[:, 0], yes_no[:, 1] - yes_no[:, 0], logits])


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.4, 1.0]))
def test_variants_are_predicted_by_the_formulas(model, seed, present):
    assert [task.kind for task in TASKS] == ["regression", "binary", "multiclass"]
    head, config = model.gaussian_process, model.config
    record = model.featurize(SMILES)
    features = np.array([[0.3]])
    inputs = KernelInputs.of_records(config, [record], np.zeros((1, 0), np.float32), features)
    environments = config.counter.environments(parse_smiles(SMILES))
    process = MoleculeProcess(head, environments, inputs, torch.device("cpu"))
    draw = np.random.default_rng(seed)
    weights = draw.uniform(size=(3, len(environments.places)))
    weights = np.where(draw.uniform(size=weights.shape) < present, weights, np.round(weights))
    weights[0] = present  # at 0 no environment at all
    embedding = draw.normal(size=(3, model.embedding_width()))
    factors = {name: draw.uniform(size=3) for name in ("descriptors", "feature columns")}
    kernels = {
        "descriptors": head.kernel.numbers["descriptors"],
        "feature columns": head.kernel.features,
    }
    numbers = {"descriptors": record.numbers[None].astype(float), "feature columns": features}
    numbers = {
        name: factors[name][:, None] * standardized(kernels[name], given)
        for name, given in numbers.items()
    }
    found = process(
        *map(torch.from_numpy, (weights, embedding)),
        {k: torch.from_numpy(v) for k, v in factors.items()},
    )
    expected = by_hand(head, config.counter, environments, weights, embedding, numbers)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)


def test_the_whole_molecule_is_predicted_as_by_the_model(model):
    record = model.featurize(SMILES)
    _, inputs = model.network_outputs([record], features=[[0.3]])
    environments = model.config.counter.environments(parse_smiles(SMILES))
    process = MoleculeProcess(model.gaussian_process, environments, inputs, torch.device("cpu"))
    ones = torch.ones(1, len(environments.places), dtype=torch.float64)
    factors = dict.fromkeys(("descriptors", "feature columns"), ones[:, 0])
    found = process(ones, torch.from_numpy(inputs.numbers["embedding"]), factors)
    np.testing.assert_allclose(found, model.gaussian_process.predict(inputs), atol=1e-5)


def test_slopes_are_those_of_the_prediction(model):
    record = model.featurize("CCO")
    _, inputs = model.network_outputs([record], features=[[0.3]])
    environments = model.config.counter.environments(parse_smiles("CCO"))
    process = MoleculeProcess(model.gaussian_process, environments, inputs, torch.device("cpu"))

    def predict(weights, embedding, descriptors, columns):
        factors = {"descriptors": descriptors, "feature columns": columns}
        return process(weights, embedding, factors)

    draw = np.random.default_rng(0)
    sizes = (1, len(environments.places)), (1, model.embedding_width()), (1,), (1,)
    given_inputs = [
        torch.from_numpy(draw.uniform(0.1, 0.9, size=size)).requires_grad_() for size in sizes
    ]
    assert torch.autograd.gradcheck(predict, given_inputs, eps=1e-6, atol=1e-6)
