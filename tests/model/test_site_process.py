"""The Gaussian processes of atoms and bonds."""

import numpy as np

from molattn.config import NetworkConfig
from molattn.model.environments import site_environments
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.site_process import SiteProcess, learned_tasks, site_inputs
from molattn.model.sites import SiteCalibration
from molattn.task import Task

NETWORK = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
SMILES = ["CCO", "CCN", "CCCl", "c1ccccc1O", "CC(=O)O"]
NUMBER = Task("shift")
CLASS = Task("site", "binary", ("no", "yes"))


def make_model(*tasks):
    return MolAttn(MolAttnConfig((), NETWORK, atom_tasks=tasks or (NUMBER,))).eval()


def fitted(model, labels):
    """Fit the process of atoms; return it with what it read and what the networks predict."""
    records = model.networks.reader(None).all(SMILES)
    values, vectors = model.networks.predict_sites(records, with_vectors=True)
    inputs = site_inputs(records, "atom", vectors["atom"])
    options = {"weights": None, "keys": [*map(str, range(len(labels)))]}
    options |= {"inducing_points": 100, "seed": 0}
    tasks = learned_tasks(model.config, "atom")
    return SiteProcess.fit(tasks, inputs, labels, **options), inputs, values["atom"]


def squares(vectors):
    return ((vectors[:, None] - vectors[None]) ** 2).sum(axis=-1)


def test_process_is_kernel_regression_on_environments_and_vectors():
    model = make_model()
    count = len(model.predict_atoms(SMILES).outputs)
    labels = np.random.default_rng(0).normal(50.0, 20.0, (count, 1))
    process, inputs, _ = fitted(model, labels)
    records = model.networks.reader(None).all(SMILES)
    sets = [{*row} for row in (site_environments(records, "atom") % np.uint64(4096)).tolist()]
    tanimoto = np.array([[len(a & b) / len(a | b) for b in sets] for a in sets])
    vectors = inputs.numbers["embedding"].astype(np.float64)
    vectors = ((vectors - vectors.mean(axis=0)) / vectors.std(axis=0)).clip(-4.0, 4.0)
    distances = squares(vectors)
    length = 0.5 * np.median(distances[np.triu_indices(count, 1)])
    kernel = (tanimoto + np.exp(-distances / length)) / 2.0
    scaled = (labels[:, 0] - labels.mean()) / labels.std()
    residual = scaled - process.head.means[0]
    weights = np.linalg.solve(kernel + process.head.noises[0] * np.eye(count), residual)
    expected = process.head.means[0] + kernel @ weights
    np.testing.assert_allclose(process.head.predict(inputs)[:, 0], expected, atol=5e-3)
    in_own_units = process.with_shares(np.ones(1)).combine((NUMBER,), np.zeros((count, 1)), inputs)
    expected = labels.mean() + labels.std() * expected
    np.testing.assert_allclose(in_own_units[:, 0], expected, atol=0.2)


def test_average_lies_between_network_and_process():
    model = make_model(CLASS, NUMBER)
    count = len(model.predict_atoms(SMILES).outputs)
    process, inputs, values = fitted(model, np.arange(count, dtype=float)[:, None])
    network, half, alone = (
        process.with_shares(np.array([share])).combine(model.config.atom_tasks, values, inputs)
        for share in (0.0, 0.5, 1.0)
    )
    np.testing.assert_allclose(network, values, rtol=1e-6)
    np.testing.assert_allclose(half, (network + alone) / 2.0, rtol=1e-6)
    np.testing.assert_array_equal(alone[:, 0], values[:, 0])  # classes are left to the network
    assert np.abs(alone[:, 1] - values[:, 1]).min() > 0.0


def test_saved_model_predicts_the_same(tmp_path):
    model = make_model(NUMBER, CLASS)
    count = len(model.predict_atoms(SMILES).outputs)
    labels = np.random.default_rng(0).normal(size=(count, 1))
    process, _, values = fitted(model, labels)
    model.site_calibration = SiteCalibration({}, processes={"atom": process})
    expected = model.predict_atoms(SMILES).outputs
    assert np.abs(expected - values).max() > 0.01
    model.save_pretrained(tmp_path / "model")
    found = MolAttn.from_pretrained(tmp_path / "model").predict_atoms(SMILES).outputs
    np.testing.assert_array_equal(found, expected)
    assert not len(model.predict_atoms([]).outputs)


def test_predictions_follow_the_atoms_of_another_order():
    model = make_model()
    count = len(model.predict_atoms(SMILES).outputs)
    labels = np.random.default_rng(0).normal(size=(count, 1))
    process, _, _ = fitted(model, labels)
    model.site_calibration = SiteCalibration({}, processes={"atom": process})
    forward, backward = (model.predict_atoms([x]).outputs[:, 0] for x in ("CC(F)OC", "COC(F)C"))
    np.testing.assert_allclose(forward, backward[[4, 2, 3, 1, 0]], atol=1e-4)
