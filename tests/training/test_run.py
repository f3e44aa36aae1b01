"""Runs: resumed, in ensembles, of weighted and of censored rows, and what their models keep."""

import io
import itertools
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console

from molattn.chem.fingerprint_index import FingerprintIndex, read_fingerprints
from molattn.config import (
    DataConfig,
    GaussianProcessConfig,
    NetworkConfig,
    ReportConfig,
    SupervisedConfig,
    TrainConfig,
)
from molattn.data.table import bundled_dataset
from molattn.errors import InputError
from molattn.model.model import MolAttn
from molattn.model.uncertainty import Uncertainty
from molattn.task import Task
from molattn.training import run as module
from molattn.training.checkpoint import CHECKPOINT_FILE, STATE_KEY, read_checkpoint
from molattn.training.resolve import resolve
from molattn.training.run import train

from .fitting import interrupted

SMALL = NetworkConfig(width=8, heads=2, layers=1, edge_width=4, dropout=0.2, readout="sum")
# 27 training rows: 7 steps an epoch.
QUICK = SupervisedConfig(
    checkpoint="best", epochs=4, batch_size=4, patience=4, device="cpu", learning_rate=0.01
)
ONCE = replace(QUICK, epochs=1, checkpoint="last", patience=None)
DATA = DataConfig(target_columns=("logS",), split_column="split", descriptors="none")
NETWORK = GaussianProcessConfig(predictor="network")
QUIET = ReportConfig(baselines=False, bootstrap=0)
NAN = float("nan")


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    lines = bundled_dataset().read_text(encoding="utf-8").splitlines()
    path = tmp_path_factory.mktemp("training") / "small.csv"
    path.write_text("\n".join([*lines[:31], *lines[-10:]]) + "\n")
    return TrainConfig(str(path), DATA, SMALL, QUICK, QUIET, gaussian_process=NETWORK)


def assert_same(run, other):
    weights, others = run.model.state_dict(), other.model.state_dict()
    assert all(torch.equal(weights[name], others[name]) for name in weights)
    for history, others in zip(run.histories, other.histories, strict=True):
        np.testing.assert_allclose(
            [epoch[1:4] for epoch in history.curve], [epoch[1:4] for epoch in others.curve]
        )
        assert history.kept_epoch == others.kept_epoch


CASES = {
    "each step": {"checkpoint_steps": 1, "checkpoint": "last", "schedule": "constant"},
    "steps, bf16": {"checkpoint_steps": 3, "precision": "bf16", "loss": "huber"},
    "early stopping": {
        **{"learning_rate": 30.0, "schedule": "constant", "patience": 1, "checkpoint_steps": 2},
        "epochs": 9,
    },
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_a_resumed_training_has_the_same_weights_bit_for_bit(
    config, tmp_path, monkeypatch, options
):
    config = replace(config, training=replace(QUICK, **{"epochs": 2, **options}))
    whole = train(config)
    epochs = len(whole.histories[0].curve)
    assert (epochs < config.training.epochs) == ("patience" in options)
    for step in (11, 7 * epochs):
        folder = tmp_path / str(step)
        interrupted(monkeypatch, config, folder, step)
        if step == 11 and "loss" in options:  # again
            interrupted(monkeypatch, config, folder, 2)
        assert_same(train(config, folder=folder), whole)
    assert len((folder / "history.csv").read_text().splitlines()) == 1 + epochs
    monkeypatch.setattr(MolAttn, "forward", None)  # a finished training trains no more
    assert read_checkpoint(folder / CHECKPOINT_FILE)[STATE_KEY]["curve"]


def test_a_resumed_run_may_have_another_time_limit_but_no_other_option(
    config, tmp_path, monkeypatch
):
    interrupted(monkeypatch, config, tmp_path, 9)
    with pytest.raises(InputError) as error:
        train(replace(config, training=replace(QUICK, batch_size=5)), folder=tmp_path)
    assert error.value.option == "batch_size"
    monkeypatch.setattr("lightning.pytorch.callbacks.Timer.time_elapsed", lambda *_: 7200.0)
    hurried = replace(config, training=replace(QUICK, max_hours=2.0))
    shown = io.StringIO()
    train(hurried, Console(file=shown, width=200), folder=tmp_path)
    assert "time limit reached (--max-hours)" in shown.getvalue()


@pytest.mark.parametrize("predictor, keeps", [("network", True), ("both", True), ("both", False)])
def test_a_model_knows_the_molecules_that_it_has_learned_from(config, predictor, keeps):
    data = DataConfig(target_columns=("logS",), keep_training_molecules=True, keep_residuals=keeps)
    process = GaussianProcessConfig(predictor=predictor)
    run = train(replace(config, data=data, training=ONCE, gaussian_process=process))
    model, split = run.model, run.split
    prints = run.table.fingerprints(range(len(run.table.rows)))
    known = np.array(model.uncertainty.fingerprints.contains(prints))
    assert known[split.train].all()
    assert known[split.val].all() == (predictor == "both")
    # Errors are those of a Gaussian process without the label of the molecule.
    errors = model.uncertainty.fingerprints.errors
    assert (errors is not None) == (keeps and predictor == "both")
    if errors is not None:
        assert errors.mean() == pytest.approx(1.0, abs=0.2)
    # Intervals are calibrated by the similarity to the training rows alone.
    calibrated = Uncertainty.fit(
        model.config,
        FingerprintIndex(run.table.fingerprints(split.train)),
        run.table.fingerprints(split.val),
        run.validation_outputs,
        run.table.targets[split.val],
        model.predictor.guess_errors(),
    )
    assert calibrated.calibration == model.uncertainty.calibration


CLASSES, NUMBERS = Task("c", "binary", ("n", "y")), Task("y")


def table_of(tasks):
    """A training table as far as its options are resolved from it."""
    same = dict.fromkeys(("all_tasks", "tasks", "learned_tasks"), tasks)
    return Mock(**same, auxiliary=None, sites={}, hydrogens=False, targets=np.zeros((1, 1)))


@pytest.mark.parametrize(
    "given, tasks, rows, auxiliary, expected",
    [
        (None, [CLASSES], 1601, 0, 30),
        (None, [CLASSES], 1664, 0, 29),
        (None, [CLASSES], 832, 832, 29),
        (None, [CLASSES], 832, 100_000, 29),
        (None, [CLASSES], 100_000, 0, 10),
        (None, [CLASSES, NUMBERS], 100_000, 0, 30),
        (30, [CLASSES], 100_000, 0, 30),
        (100, [CLASSES], 10, 0, 100),
    ],
)
def test_large_classifications_are_trained_for_fewer_epochs(
    config, monkeypatch, given, tasks, rows, auxiliary, expected
):
    config = replace(config, training=SupervisedConfig(epochs=given))
    table = table_of(tasks)
    molecules = Mock(records=range(rows + auxiliary))
    monkeypatch.setattr("molattn.training.resolve.learned_molecules", lambda *_: (molecules, None))
    resolved = resolve(config, table, Mock(train=range(rows)), None)
    assert resolved.training.epochs == expected
    assert len(resolved.remarks) == (expected < 30)


def test_the_precision_follows_from_width_and_cpu(config, monkeypatch):
    monkeypatch.setattr("molattn.training.resolve.has_amx", lambda: True)
    table = table_of([NUMBERS])
    for width, options, expected in (
        (256, {}, "bf16"),
        (255, {}, "fp32"),
        (256, {"precision": "fp32"}, "fp32"),
    ):
        training, network = replace(QUICK, **options), replace(SMALL, width=width)
        resolved = resolve(
            replace(config, training=training, network=network), table, Mock(train=[1]), None
        )
        assert resolved.training.precision == expected


def test_a_sample_of_the_validation_rows_calibrates_with_rare_labels(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "MAX_CALIBRATION", 10)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"smiles": [f"{'C' * n}{x}" for n in range(1, 21) for x in "ONFS"]})
    frame["split"] = np.resize(["train", "val"], 80)
    frame["y"], frame["rare"] = rng.normal(size=80), NAN
    frame.loc[[0, 1, 2, 5, 41], "rare"] = [1.0, 2.0, 0.5, 0.1, 1.5]
    data = replace(DATA, target_columns=("y", "rare"))
    config = TrainConfig("", data, SMALL, ONCE, QUIET, gaussian_process=NETWORK)
    frame.loc[3, "split"] = "test"
    first, second = train(config, frame=frame).model.uncertainty.calibration.parts
    assert first.count == 10
    assert second.count == 3  # all validation rows that have the label


def test_a_large_mean_of_a_target_and_a_feature_costs_no_digit():
    numbers = np.random.default_rng(0).integers(-2048, 2048, (60, 2)) / 1024
    smiles = ["C" * n + end for n in range(1, 21) for end in "ONF"]
    split = [*itertools.islice(itertools.cycle(["train", "train", "val", "test"]), 60)]
    data = DataConfig(target_columns=("y",), split_column="split", feature_columns=("x",))
    config = TrainConfig("", data, replace(SMALL, norm="layer"), ONCE, QUIET)
    found = []
    for shift in (0.0, 1e9):  # the numbers are exact with each
        y, x = (numbers + shift).T
        frame = pd.DataFrame({"smiles": smiles, "y": y, "x": x, "split": split})
        model = train(config, frame=frame).model
        features = x[:20, None]
        ends = model.predict_interval(smiles[:20], 0.5, features=features)
        predicted = model.predict(smiles[:20], features=features)
        found.append(np.stack([*ends, predicted]) - shift)
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-6)


# Censored labels.

ENDS = ("O", "N", "F", "Cl", "S", "Br")
LEARN = {"width": 16, "heads": 2, "layers": 1, "epochs": 20, "batch_size": 16, "dropout": 0.0}
LEARN |= {"learning_rate": 0.01, "predictor": "network"}
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
            "split": ["train"] * 90 + ["val"] * 30 + ["test"] * 40,
        }
    )
    is_censored = rng.permutation(np.arange(len(table)) % 2 == 0)
    table["bound"] = table["true"] - is_censored * rng.uniform(0.5, 2.5, len(table))
    table["relation"] = np.where(is_censored, ">", "=")
    table["cell"] = np.where(is_censored, ">" + table["bound"].astype(str), table["bound"])
    return table


def trained(frame, target, **options):
    common = {"init_from": "none", "device": "cpu", "baselines": False, "bootstrap": 0}
    common |= {"descriptors": "none", "split_column": "split", "target_transform": "none"}
    options = {**common, "target_columns": target, **options}
    return train(TrainConfig.from_options("", options), frame=frame)


@pytest.mark.parametrize("options", [LEARN, PROCESS])
def test_bounds_are_learned_better_as_bounds_than_as_values(frame, options):
    censored, taken = (trained(frame, name, **options) for name in ("cell", "bound"))
    rows = frame[frame["split"] == "test"]
    errors = [
        np.mean((run.model.predict(rows["smiles"].tolist())[:, 0] - rows["true"]) ** 2) ** 0.5
        for run in (censored, taken)
    ]
    assert errors[0] < 0.65 * errors[1]
    measured = censored.table.targets[censored.split.val, 0]
    (part,) = censored.model.uncertainty.calibration.parts
    assert part.count == int((~np.isnan(measured)).sum()) < len(measured)


@pytest.mark.parametrize("keeps", [True, False])
def test_predictions_pass_the_limit_of_an_assay(frame, keeps):
    limit = frame["true"].median()
    labels = frame["true"].clip(upper=limit).astype(str)
    labels[frame["true"] > limit] = f">{limit}"
    run = trained(frame.assign(y=labels), "y", keep_residuals=keeps, **PROCESS)
    rows = frame[(frame["split"] == "test") & (frame["true"] > limit)]
    assert (run.model.predict(rows["smiles"].tolist())[:, 0] > limit).mean() > 0.75
    # The error of a censored label is unknown.
    index = run.model.uncertainty.fingerprints
    assert (index.errors is not None) == keeps
    learned = frame[frame["split"] != "test"]
    measured = learned.loc[learned["true"] <= limit, "smiles"]
    known = {row.tobytes() for row in read_fingerprints(measured.tolist())}
    for row, error in zip(index.fingerprints, index.errors if keeps else (), strict=keeps):
        assert np.isnan(error[0]) == (row.tobytes() not in known)
