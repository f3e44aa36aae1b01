"""Training on censored labels, from a table to a model."""

from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch

from molattn.config import NetworkConfig, SupervisedConfig, TrainConfig
from molattn.data.dataset import Molecules
from molattn.errors import InputError
from molattn.evaluation.scoring import score_run
from molattn.model.gaussian_process.head import GaussianProcessHead
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.training.checkpoint import CHECKPOINT_FILE, read_checkpoint
from molattn.training.lightning.module import epochs_done
from molattn.training.run import train
from molattn.training.scaling import scale_by
from molattn.training.supervised import fit_model

NAN = float("nan")
ENDS = ("O", "N", "F", "Cl", "S", "Br")
COMMON = {"init_from": "none", "device": "cpu", "baselines": False, "bootstrap": 0}
COMMON |= {"descriptors": "none", "split_column": "part", "target_transform": "none"}
NETWORK = {"width": 16, "heads": 2, "layers": 1, "epochs": 20, "batch_size": 16}
NETWORK |= {"learning_rate": 0.01, "predictor": "network", "dropout": 0.0}
PROCESS = {"predictor": "gaussian_process", "kernels": ["morgan"]}


@pytest.fixture(scope="module")
def frame():
    """Molecules whose property adds up from their parts; of half of them it has a lower bound."""
    rng = np.random.default_rng(0)
    kinds = [(a, b, c, d) for a in range(1, 4) for b in ENDS for c in range(1, 4) for d in ENDS]
    kinds = [kinds[at] for at in rng.permutation(len(kinds))[:160]]
    table = pd.DataFrame(
        {
            "smiles": [f"{'C' * a}C({b}){'C' * c}{d}" for a, b, c, d in kinds],
            "true": [0.5 * (a + c) + 0.3 * ENDS.index(b) + 0.1 * len(d) for a, b, c, d in kinds],
            "part": ["train"] * 90 + ["val"] * 30 + ["test"] * 40,
        }
    )
    is_censored = rng.permutation(np.arange(len(table)) % 2 == 0)
    table["bound"] = table["true"] - is_censored * rng.uniform(0.5, 2.5, len(table))
    table["relation"] = np.where(is_censored, "'>'", "'='")
    table["cell"] = [
        f">{value}" if sign == "'>'" else str(value)
        for value, sign in zip(table["bound"], table["relation"], strict=True)
    ]
    return table


def trained(frame, target, folder=None, **options):
    options = {**COMMON, "target_columns": target, **options}
    return train(TrainConfig.from_options("", options), None, folder, frame=frame)


def rmse(run, frame):
    """The error for the test molecules, of a property that the labels only bound."""
    rows = frame[frame["part"] == "test"]
    errors = run.model.predict(rows["smiles"].tolist())[:, 0] - rows["true"]
    return np.sqrt(np.mean(errors**2))


@pytest.mark.parametrize("options", [NETWORK, PROCESS])
def test_bounds_are_learned_better_as_bounds_than_as_values(frame, options):
    censored, taken = (trained(frame, name, **options) for name in ("cell", "bound"))
    assert rmse(censored, frame) < 0.65 * rmse(taken, frame)
    scores, table = score_run(censored), censored.table
    test = table.bounds[0, censored.parts.test, 0]
    predicted = scores.prediction.prediction[:, 0]
    count = int((~np.isnan(test)).sum())
    assert 10 < count < 30
    assert scores.test.tasks["cell"]["count"] == 40 - count
    measured = np.isnan(test)
    errors = (predicted - table.targets[censored.parts.test, 0])[measured]
    assert scores.test.tasks["cell"]["rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)))
    permitted = int((predicted >= test).sum())
    assert permitted > 0.8 * count
    assert scores.censored == {"cell": {"count": count, "permitted": permitted}}


def test_relations_beside_and_before_the_values_are_the_same(frame):
    small = {**NETWORK, "width": 8, "epochs": 2}
    inside = trained(frame, "cell", **small).model
    beside = trained(frame, "bound", relation_columns="relation", **small).model
    for one, other in zip(inside.parameters(), beside.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("predictor", ["network", "both"])
def test_without_censored_labels_a_relation_column_changes_no_bit(frame, predictor):
    small = {**NETWORK, "width": 8, "epochs": 2, "predictor": predictor}
    rows = frame.assign(relation=np.resize(["=", "", "~"], len(frame)))
    plain, related = (
        trained(rows, "true", **small, **more) for more in ({}, {"relation_columns": "relation"})
    )
    for one, other in zip(plain.model.parameters(), related.model.parameters(), strict=True):
        assert torch.equal(one, other)
    np.testing.assert_array_equal(plain.validation_outputs, related.validation_outputs)
    assert score_run(related).censored == {}


@pytest.mark.parametrize("below, fits", [(-2.0, 4), (100.0, 2)])
def test_a_gaussian_process_is_fitted_again_only_if_a_bound_is_violated(
    frame, monkeypatch, below, fits
):
    fit = Mock(side_effect=GaussianProcessHead.fit)
    monkeypatch.setattr(GaussianProcessHead, "fit", fit)
    rows = frame.assign(bound=frame["bound"] - below * (frame["relation"] == "'>'"))
    trained(rows, "bound", relation_columns="relation", **PROCESS)
    assert fit.call_count == fits


class Killed(BaseException):
    """What no code of ours catches."""


def test_a_resumed_run_of_censored_labels_is_the_same(frame, tmp_path, monkeypatch):
    small = {**NETWORK, "width": 8, "epochs": 3, "target_transform": "yeo_johnson"}
    whole = trained(frame, "cell", **small).model
    forward, steps = MolAttn.forward, 0

    def counted(self, *args):
        nonlocal steps
        steps += self.training
        if steps == 9:  # of 6 in an epoch
            raise Killed
        return forward(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(MolAttn, "forward", counted)
        with pytest.raises(Killed):
            trained(frame, "cell", tmp_path, **small)
    assert epochs_done(read_checkpoint(tmp_path / CHECKPOINT_FILE)) == 1
    again = trained(frame, "cell", tmp_path, **small).model
    for one, other in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)


def test_intervals_are_calibrated_by_measured_labels(frame):
    run = trained(frame, "cell", **{**NETWORK, "width": 8, "epochs": 1})
    measured = run.table.targets[run.parts.val, 0]
    (scores,) = run.model.uncertainty.calibration.parts
    assert scores.count == int((~np.isnan(measured)).sum()) < len(measured)


def test_a_part_without_a_measured_label_is_refused(frame):
    rows = frame.assign(cell=np.where(frame["part"] == "val", ">3", frame["cell"]))
    with pytest.raises(InputError, match="no validation row has an uncensored label of a target"):
        trained(rows, "cell", **NETWORK)
    rows = frame.assign(cell=np.where(frame["part"] == "train", ">3", frame["cell"]))
    with pytest.raises(InputError, match="column 'cell': no training row has an uncensored label"):
        trained(rows.assign(true=frame["true"]), ["true", "cell"], **NETWORK)


def test_bounds_are_scaled_with_the_labels():
    small = NetworkConfig(width=8, heads=2, layers=1)
    model = MolAttn(MolAttnConfig(("y", "z"), small))
    records = [model.featurize(text) for text in ("C", "CC", "CCC", "CCCC")]
    targets = np.array([[1.0, 5.0], [NAN, 6.0], [NAN, 7.0], [4.0, NAN]])
    bounds = np.full((2, 4, 2), NAN)
    bounds[0, 1, 0], bounds[1, 2, 0] = 9.0, -2.0
    rows = Molecules(records, targets, bounds=bounds)
    scale_by(model, rows)
    values = np.array([1.0, 9.0, -2.0, 4.0])
    np.testing.assert_allclose(model.target_mean, [values.mean(), 6.0], rtol=1e-6)
    np.testing.assert_allclose(model.target_scale, [values.std(), np.std([5, 6, 7])], rtol=1e-6)
    config = SupervisedConfig(epochs=1, batch_size=4, device="cpu", seed=1)
    history = fit_model(model, rows, rows, config)
    outputs = model.eval().predict_records(records)
    # The validation loss by hand, of the weights of the last epoch.
    mean, scale = model.target_mean.numpy(), model.target_scale.numpy()
    errors = (outputs - targets) / scale
    errors[1, 0] = min(0.0, (outputs[1, 0] - 9.0) / scale[0])
    errors[2, 0] = max(0.0, (outputs[2, 0] + 2.0) / scale[0])
    assert np.isfinite(mean).all()
    assert history.epochs[-1].validation_loss == pytest.approx(np.nanmean(errors**2), rel=1e-3)
