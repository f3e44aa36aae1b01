from dataclasses import replace

import numpy as np
import pytest

from molattn.chem.parse import parse_smiles
from molattn.config import NetworkConfig
from molattn.model.config import MolAttnConfig
from molattn.model.gaussian_process import GaussianProcessHead, condition
from molattn.model.kernel import KernelInputs, stack_counts
from molattn.task import Task

SMALL = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
TASKS = (Task("y"), Task("b", "binary", ("no", "yes")))
CONFIG = MolAttnConfig(TASKS, SMALL, kernels=("morgan", "embedding"))
SMILES = [head + "C" * n + end for n in range(1, 9) for head in "NC" for end in ("O", "F", "C=O")]
OLD, NEW = np.arange(36), np.arange(36, 48)


def make_inputs():
    rng = np.random.default_rng(0)
    counts = stack_counts([CONFIG.counter(parse_smiles(text)) for text in SMILES])
    embedding = rng.normal(size=(len(SMILES), 4))
    rows = np.append(OLD, NEW)
    rows[NEW[:2]] = OLD[:2]  # replicates
    return KernelInputs(len(SMILES), counts, {"embedding": embedding})[rows]


INPUTS = make_inputs()


def make_labels():
    rng = np.random.default_rng(1)
    y = INPUTS.numbers["embedding"][:, 0] + 0.3 * rng.normal(size=len(SMILES))
    labels = np.column_stack([y, y > 0.2]).astype(float)
    labels[NEW[-3:], 0] = np.nan
    return labels


LABELS = make_labels()


PROCESS = GaussianProcessHead.fit(CONFIG, INPUTS[OLD], LABELS[OLD])


def as_saved(inputs):
    """Round numbers as those of training rows are."""
    kernel = PROCESS.kernel.numbers["embedding"]
    points = kernel.standardized(inputs.numbers["embedding"]).astype(np.float16)
    return replace(inputs, numbers={"embedding": kernel.mean + kernel.scale * points})


INPUTS = as_saved(INPUTS)


@pytest.fixture
def process():
    return PROCESS


def exact(process, rows, labels, weights=None):
    """Fit all rows with the hyperparameters of a process, densely; return their means."""
    kernel = process.kernel.at(INPUTS[rows])(INPUTS[rows], rounded=True)
    weights = np.ones(len(rows)) if weights is None else weights
    noise = np.diag(process.noises[0] / weights)
    return process.means[0] + kernel @ np.linalg.solve(kernel + noise, labels - process.means[0])


def test_conditioning_is_a_fit_of_all_rows_with_the_same_hyperparameters(process):
    conditioned, _ = condition(process, INPUTS[NEW], LABELS[NEW])
    rows = np.append(OLD, NEW[:-3])
    expected = exact(process, rows, LABELS[rows, 0])
    found = conditioned.predict(INPUTS[rows])[:, 0]
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-6)
    assert conditioned.labeled[len(OLD) :, 0].tolist() == [True] * 9 + [False] * 3


def test_conditioning_twice_is_conditioning_once(process):
    once, _ = condition(process, INPUTS[NEW], LABELS[NEW])
    first, _ = condition(process, INPUTS[NEW[:5]], LABELS[NEW[:5]])
    twice, _ = condition(first, INPUTS[NEW[5:]], LABELS[NEW[5:]])
    np.testing.assert_allclose(twice.predict(INPUTS), once.predict(INPUTS), rtol=0.0, atol=1e-6)
    covariances = [gp.posterior(INPUTS[NEW], 0)[0] for gp in (once, twice)]
    np.testing.assert_allclose(*covariances, atol=1e-6)


def test_unseen_outputs_are_those_of_a_process_without_the_row(process):
    _, unseen = condition(process, INPUTS[NEW], LABELS[NEW])
    for number in (0, 4):  # the first is a replicate of a row of the fit
        others, _ = condition(
            process, INPUTS[np.delete(NEW, number)], LABELS[np.delete(NEW, number)]
        )
        expected = others.predict(INPUTS[NEW[[number]]])
        np.testing.assert_allclose(unseen[[number]], expected, rtol=0.0, atol=1e-6)
    conditioned, _ = condition(process, INPUTS[NEW], LABELS[NEW])
    without_label = conditioned.predict(INPUTS[NEW[-3:]])[:, 0]
    np.testing.assert_allclose(unseen[-3:, 0], without_label, atol=1e-6)


def test_a_weight_divides_the_noise(process):
    labels = LABELS[NEW[:-3]].copy()
    labels[:, 1] = np.nan
    weights = np.linspace(0.2, 3.0, 9)
    conditioned, _ = condition(process, INPUTS[NEW[:-3]], labels, weights)
    rows = np.append(OLD, NEW[:-3])
    expected = exact(process, rows, LABELS[rows, 0], np.append(np.ones(36), weights))
    np.testing.assert_allclose(conditioned.predict(INPUTS[rows])[:, 0], expected, atol=1e-6)


def test_beyond_the_inducing_points_new_rows_are_learned_too():
    few = GaussianProcessHead.fit(CONFIG, INPUTS[OLD], LABELS[OLD], inducing_points=12)
    labels = LABELS[NEW] + 2.0
    labels[:, 1] = np.nan
    conditioned, _ = condition(few, INPUTS[NEW], labels)
    errors = [
        np.abs(gp.predict(INPUTS[NEW[:-3]])[:, 0] - labels[:-3, 0]).mean()
        for gp in (few, conditioned)
    ]
    assert errors[1] < 0.7 * errors[0]


def test_a_task_without_labels_in_the_fit_learns_nothing(process):
    empty = replace(process, noises=np.array([0.0, process.noises[1]]))
    conditioned, _ = condition(empty, INPUTS[NEW], LABELS[NEW])
    assert not conditioned.weights[len(OLD) :, 0].any()
