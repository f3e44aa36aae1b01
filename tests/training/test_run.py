import io
import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from molattn.chem.featurizer import FEATURIZERS, Featurizer
from molattn.chem.fingerprint_index import FingerprintIndex
from molattn.config import (
    DataConfig,
    GaussianProcessConfig,
    NetworkConfig,
    PredictConfig,
    PrepareConfig,
    ReportConfig,
    SupervisedConfig,
    TrainConfig,
)
from molattn.data.prepare import prepare_store
from molattn.data.splitting import split_rows
from molattn.data.table import bundled_dataset
from molattn.errors import InputError
from molattn.evaluation.scoring import score_run
from molattn.inference.predict import predict_table
from molattn.model.model import MolAttn
from molattn.model.uncertainty import Uncertainty
from molattn.task import Task
from molattn.training import checkpoint
from molattn.training import run as run_module
from molattn.training.batches import LabeledLoader
from molattn.training.checkpoint import CHECKPOINT_FILE, read_checkpoint
from molattn.training.lightning.module import epochs_done
from molattn.training.run import train

from ..conftest import rows_of

SMALL = NetworkConfig(width=8, heads=2, layers=1, edge_width=4, dropout=0.2, readout="sum")
# 27 training rows: 7 steps an epoch.
QUICK = SupervisedConfig(
    checkpoint="best", epochs=5, batch_size=4, patience=5, device="cpu", learning_rate=0.01
)
DATA = DataConfig(target_columns=("logS",), split_column="split")


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    lines = bundled_dataset().read_text(encoding="utf-8").splitlines()
    path = tmp_path_factory.mktemp("training") / "small.csv"
    path.write_text("\n".join([*lines[:31], *lines[-10:]]) + "\n")
    return TrainConfig(str(path), DATA, SMALL, QUICK)


def test_a_store_trains_the_same_model_as_its_table(config, tmp_path, monkeypatch):
    short = Featurizer(max_distance=3)
    monkeypatch.setitem(FEATURIZERS._items, "short", lambda: short)
    lines = Path(config.file).read_text(encoding="utf-8").splitlines()
    lines[5:5] = [lines[5].replace(lines[5].split(",")[0], "C1CC"), "CCO,1", "ethanol,1,x,train"]
    (tmp_path / "in.csv").write_text("\n".join(lines) + "\n")
    keep = {"keep_training_molecules": True}
    config = replace(config, file=str(tmp_path / "in.csv"), data=replace(DATA, **keep))
    kept = PrepareConfig(target_columns=("logS",), split_column="split")
    prepare_store([config.file], tmp_path / "store", kept)
    runs = [train(config), train(replace(config, file=str(tmp_path / "store")))]
    skipped = [[row.line for row in run.table.skipped] for run in runs]
    assert skipped[0] == skipped[1]
    assert len(runs[0].table.skipped) == 3
    contents = [run.model.to_files(tmp_path).content for run in runs]
    assert contents[0] == contents[1]
    assert len(contents[0]) > 3
    other = replace(config, file=str(tmp_path / "store"), data=replace(DATA, featurizer="short"))
    with pytest.raises(InputError, match="store: contains molecules prepared with featurizer"):
        train(other)


@pytest.mark.parametrize("predictor", ["network", "both"])
def test_a_model_knows_the_molecules_that_it_has_learned_from(config, predictor):
    data = DataConfig(target_columns=("logS",), keep_training_molecules=True)
    process = GaussianProcessConfig(predictor=predictor)
    run = train(replace(config, data=data, gaussian_process=process))
    model, parts = run.model, run.parts
    prints = run.table.fingerprints(range(len(run.table.rows)))
    known = np.array(model.uncertainty.molecules.contains(prints))
    assert known[parts.train].all()
    assert known[parts.val].all() == (predictor == "both")
    assert (model.training_set.molecules.places[len(parts.train) :] >= 0).all() == known[
        parts.val
    ].all()
    # Intervals are calibrated by the similarity to the training rows alone.
    trained = FingerprintIndex(run.table.fingerprints(parts.train))
    calibrated = Uncertainty.fit(
        model.config,
        trained,
        run.table.fingerprints(parts.val),
        run.validation_outputs,
        run.table.targets[parts.val],
    )
    assert calibrated.calibration.to_dict() == model.uncertainty.calibration.to_dict()


CLASSES, NUMBERS = Task("c", "binary", ("n", "y")), Task("y")


@pytest.mark.parametrize(
    "given, tasks, rows, expected",
    [
        (None, [CLASSES], 1600, 30),
        (None, [CLASSES], 1601, 30),
        (None, [CLASSES, CLASSES], 1664, 29),
        (None, [CLASSES], 4000, 12),
        (None, [CLASSES], 100_000, 10),
        (None, [NUMBERS], 100_000, 30),
        (None, [CLASSES, NUMBERS], 100_000, 30),
        (30, [CLASSES], 100_000, 30),
        (3, [CLASSES], 10, 3),
        (100, [CLASSES], 10, 100),
    ],
)
def test_large_classifications_are_trained_for_fewer_epochs(given, tasks, rows, expected):
    config = SupervisedConfig(epochs=given)
    assert run_module.number_of_epochs(config, tasks, rows) == expected


def test_the_epochs_of_a_large_classification_are_told(config, monkeypatch):
    monkeypatch.setattr(run_module, "_CLASSIFICATION_STEPS", 3)
    monkeypatch.setattr(run_module, "_LEAST_EPOCHS", 2)
    text = Path(config.file).read_text(encoding="utf-8").splitlines()
    lines = [line.replace(line.rsplit(",", 2)[1], str(at % 2)) for at, line in enumerate(text[1:])]
    path = Path(config.file).with_name("classes.csv")
    path.write_text("\n".join([text[0], *lines]) + "\n")
    told = Console(file=io.StringIO(), width=200)
    options = replace(QUICK, epochs=None, batch_size=16, checkpoint="last", patience=None)
    run = train(replace(config, file=str(path), training=options), told)
    assert len(run.histories[0].epochs) == 2
    assert "training for 2 epochs, as there are many rows and only classes" in told.file.getvalue()


class Killed(BaseException):
    """What no code of ours catches."""


def interrupted(monkeypatch, config, folder, step):
    """Train into a folder, dying at a training step counted from 1 over all members."""
    forward, steps = MolAttn.forward, 0

    def counted(self, *args):
        nonlocal steps
        steps += self.training
        if steps == step:
            raise Killed
        return forward(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(MolAttn, "forward", counted)
        with pytest.raises(Killed):
            train(config, folder=folder)


def assert_same(run, other):
    weights, others = run.model.state_dict(), other.model.state_dict()
    assert all(torch.equal(weights[name], others[name]) for name in weights)
    for history, others in zip(run.histories, other.histories, strict=True):
        assert [epoch[:4] for epoch in history.epochs] == [epoch[:4] for epoch in others.epochs]
        assert history.best == others.best


CASES = {
    "each epoch": {},
    "steps": {"checkpoint_steps": 3},
    "each step": {"checkpoint_steps": 1},
    "constant, bf16": {"schedule": "constant", "precision": "bf16", "loss": "huber"},
    "early stopping": {
        "learning_rate": 30.0,
        "schedule": "constant",
        "patience": 1,
        "checkpoint_steps": 2,
    },
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_a_resumed_training_comes_to_the_same_weights_bit_for_bit(
    config, tmp_path, monkeypatch, options
):
    data = replace(config.data, descriptors="none")
    config = replace(config, data=data, training=replace(QUICK, **options))
    whole = train(config)
    assert (len(whole.histories[0].epochs) < QUICK.epochs) == ("patience" in options)
    steps = 7 * len(whole.histories[0].epochs)
    for step in {8, 11, steps} | ({1, 7, 14} if not options else set()):
        folder = tmp_path / str(step)
        folder.mkdir()
        interrupted(monkeypatch, config, folder, step)
        assert_same(train(config, folder=folder), whole)


def test_a_training_interrupted_again_and_again_comes_to_the_same_weights(
    config, tmp_path, monkeypatch
):
    config = replace(config, training=replace(QUICK, checkpoint_steps=2))
    for step in (9, 3, 12, 1):
        interrupted(monkeypatch, config, tmp_path, step)
    assert_same(train(config, folder=tmp_path), train(config))


def test_an_ensemble_goes_on_within_and_between_members_bit_for_bit(config, tmp_path, monkeypatch):
    config = replace(config, training=replace(QUICK, ensemble=3, epochs=2, checkpoint_steps=3))
    whole = train(config)
    assert whole.model.config.members == len(whole.histories) == 3
    for step in (5, 14, 15, 20, 42):  # within the first, at its last step, the second, the last
        folder = tmp_path / str(step)
        folder.mkdir()
        interrupted(monkeypatch, config, folder, step)
        done = sorted(path.parent.name for path in folder.rglob(CHECKPOINT_FILE))
        assert done == [f"member_{n + 1}" for n in range(-(-(step - 3) // 14))]
        shown = io.StringIO()
        assert_same(train(config, Console(file=shown, width=200), folder=folder), whole)
        assert "Member 3 of 3 (seed 2)" in shown.getvalue()
        assert "Resuming after epoch" in shown.getvalue()
        started = sum(
            "Starting from random weights" in line for line in shown.getvalue().split("\n")
        )
        assert started == (len(done) < 3)  # members that start alike say so once
    assert len((folder / "member_3" / "history.csv").read_text().splitlines()) == 3
    other = replace(config, training=replace(config.training, ensemble=2))
    with pytest.raises(InputError, match=r"ensemble: got 2, but the run in .* has 3"):
        train(other, folder=folder)


def test_the_checkpoints_of_all_members_are_checked_before_training(config, tmp_path, monkeypatch):
    config = replace(config, training=replace(QUICK, ensemble=2, epochs=2))
    interrupted(monkeypatch, config, tmp_path, 25)  # in the second epoch of the second member
    path = tmp_path / "member_2" / CHECKPOINT_FILE
    path.write_bytes(path.read_bytes()[:-1])
    monkeypatch.setattr(run_module, "fit_model", None)  # not reached
    with pytest.raises(InputError, match=rf"{path}: not a readable checkpoint"):
        train(config, folder=tmp_path)


def test_at_most_20000_validation_rows_of_a_target_calibrate(tmp_path, monkeypatch):
    lines = bundled_dataset().read_text(encoding="utf-8").splitlines()
    path = tmp_path / "table.csv"
    path.write_text("\n".join([*lines[:20], *lines[-200:]]) + "\n")
    config = TrainConfig(
        str(path),
        replace(DATA, split_column=None, validation_size=0.2),
        SMALL,
        replace(QUICK, checkpoint="last", epochs=1),
        gaussian_process=GaussianProcessConfig(predictor="network"),
    )
    whole = run_module.train(config)
    assert len(whole.parts.val) > 35
    monkeypatch.setattr(run_module, "_MOST_CALIBRATION", 35)
    some = run_module.train(config).model.uncertainty
    rows = run_module._calibration_rows(whole.table.targets[whole.parts.val], 0)
    assert len(rows) == 35
    expected = Uncertainty.fit(
        whole.model.config,
        whole.model.uncertainty.molecules,
        whole.table.fingerprints(whole.parts.val[rows]),
        whole.validation_outputs[:, rows],
        whole.table.targets[whole.parts.val[rows]],
    )
    assert some.calibration == expected.calibration != whole.model.uncertainty.calibration


def test_a_rare_label_calibrates_always(monkeypatch):
    monkeypatch.setattr(run_module, "_MOST_CALIBRATION", 10)
    targets = np.full((1000, 3), np.nan)
    targets[:, 0] = 1.0
    targets[5:900:100, 1] = 2.0
    rows = run_module._calibration_rows(targets, seed=3)
    assert len(rows) in range(10, 20)
    assert {*range(5, 900, 100)} <= {*rows.tolist()}
    assert run_module._calibration_rows(targets[:, 2:], seed=3).tolist() == []


def test_rows_of_weight_0_do_not_count_in_the_calibration(tmp_path):
    smiles = ["C" * n + end for n in range(1, 31) for end in "ONF"]
    parts = ["train", "val", "val", "test"]
    rows = [(text, n, n % 3, parts[n % 4]) for n, text in enumerate(smiles)]

    def calibration(kept, scale):
        path = tmp_path / "t.csv"
        lines = [
            f"{text},{scale if not weight else 1.0}e{number % 2},{weight},{part}"
            for text, number, weight, part in rows
            if weight or part != "val" or kept
        ]
        path.write_text("\n".join(["smiles,y,w,part", *lines]) + "\n")
        data = DataConfig(target_columns=("y",), split_column="part", weight_column="w")
        options = replace(QUICK, epochs=1, checkpoint="last", patience=None)
        uncertainty = train(TrainConfig(str(path), data, SMALL, options)).model.uncertainty
        return uncertainty.calibration.parts[0]

    found, expected = calibration(True, 99.0), calibration(False, 1.0)
    assert found.count == expected.count
    np.testing.assert_allclose(found.kept, expected.kept, rtol=1e-5)


@pytest.mark.parametrize("mean", [1e9, -1e6])
def test_a_large_mean_of_a_target_and_a_feature_costs_no_digit(tmp_path, mean):
    numbers = np.random.default_rng(0).integers(-2048, 2048, (60, 2)) / 1024
    smiles = ["C" * n + end for n in range(1, 21) for end in "ONF"]
    parts = ["train", "train", "val", "test"]
    found = []
    for shift in (0.0, mean):  # the numbers are exact with each
        path, output = tmp_path / f"{shift}.csv", tmp_path / "out.csv"
        rows = zip(smiles, (numbers + shift).tolist(), itertools.cycle(parts), strict=False)
        lines = [f"{text},{y!r},{x!r},{part}" for text, (y, x), part in rows]
        path.write_text("\n".join(["smiles,y,x,part", *lines]) + "\n")
        data = DataConfig(target_columns=("y",), split_column="part", feature_columns=("x",))
        model = train(TrainConfig(str(path), data, SMALL, replace(QUICK, epochs=1))).model
        model.save_pretrained(tmp_path / "model")
        predict_table(tmp_path / "model", path, output, PredictConfig(interval=0.5))
        columns = ("y_predicted", "y_low", "y_high")
        found.append([[float(row[name]) - shift for name in columns] for row in rows_of(output)])
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-6)


def test_a_member_is_the_model_that_its_seed_alone_gives(config, tmp_path):
    lines = Path(config.file).read_text().splitlines()
    path = tmp_path / "parts.csv"  # a split that no seed decides
    path.write_text("\n".join(line.replace(",test", ",val", n % 2) for n, line in enumerate(lines)))
    config = replace(config, file=str(path))
    two = train(replace(config, training=replace(QUICK, ensemble=2, epochs=2, seed=4)))
    for net, seed in zip(two.model.nets, (4, 5), strict=True):
        alone = train(replace(config, training=replace(QUICK, epochs=2, seed=seed)))
        (own,) = alone.model.nets
        for name, weight in own.state_dict().items():
            assert torch.equal(net.state_dict()[name], weight)


def test_the_history_is_kept_up_to_date(config, tmp_path, monkeypatch):
    interrupted(monkeypatch, config, tmp_path, 16)
    state = read_checkpoint(tmp_path / CHECKPOINT_FILE)
    assert epochs_done(state) == 2
    # Runs of earlier versions are resumed, so this name in the file must not change.
    assert list(state["callbacks"]) == ["Kept"]
    assert len((tmp_path / "history.csv").read_text().splitlines()) == 3
    run = train(config, folder=tmp_path)
    assert len((tmp_path / "history.csv").read_text().splitlines()) == 6
    assert run.histories[0].seconds > state["molattn_state"]["seconds"]


def test_keeping_checkpoints_changes_nothing_and_a_finished_training_trains_no_more(
    config, tmp_path, monkeypatch
):
    whole, kept = train(config), train(config, folder=tmp_path)
    assert_same(kept, whole)
    monkeypatch.setattr("molattn.training.lightning.loop._run", None)
    assert_same(train(config, folder=tmp_path), whole)


def calls_of(monkeypatch, owner, name):
    """The arguments of each call of a function to come."""
    calls, function = [], getattr(owner, name)

    def counted(*args, **options):
        calls.append(args)
        return function(*args, **options)

    monkeypatch.setattr(owner, name, counted)
    return calls


def test_a_checkpoint_is_read_once(config, tmp_path, monkeypatch):
    interrupted(monkeypatch, config, tmp_path, 9)
    opened = calls_of(monkeypatch, checkpoint, "safe_open")
    train(config, folder=tmp_path)
    assert opened == [(tmp_path / CHECKPOINT_FILE,)]


def test_validation_rows_are_predicted_once(config, monkeypatch):
    predicted = calls_of(monkeypatch, MolAttn, "network_outputs")
    two = replace(config, training=replace(QUICK, ensemble=2, epochs=1))
    run = train(replace(two, report=ReportConfig(baselines=False)))
    scores = score_run(run)
    # The Gaussian process reads the training rows with the validation rows.
    parts = [len(run.parts.train) + len(run.parts.val), len(run.parts.test)]
    assert [len(records) for _, records, *_ in predicted] == parts
    error = run.validation_outputs.mean(axis=0) - run.table.molecules(run.parts.val).targets
    rmse = scores.validation.tasks["logS"]["rmse"]
    assert rmse == pytest.approx(float(np.sqrt(np.mean(error**2))))


def test_a_single_model_is_not_copied_to_an_ensemble(config, monkeypatch):
    monkeypatch.setattr(MolAttn, "ensemble", None)
    fitted = calls_of(monkeypatch, run_module, "fit_model")
    run = train(replace(config, training=replace(QUICK, epochs=1)))
    assert [args[0] for args in fitted] == [run.model]
    assert not run.model.training


def test_another_option_or_table_is_refused_by_name(config, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    folder.mkdir()
    interrupted(monkeypatch, config, folder, 9)
    before = (folder / CHECKPOINT_FILE).read_bytes()
    for section, option, value, words in (
        ("training", "batch_size", 5, "batch_size: got 5,.* has 4"),
        ("network", "width", 16, "width: got 16,.* has 8"),
        ("data", "split", "scaffold", "split: got 'scaffold',.* has None"),
    ):
        changed = replace(getattr(config, section), **{option: value})
        with pytest.raises(InputError, match=words):
            train(replace(config, **{section: changed}), folder=folder)
    table = Path(config.file)
    moved = tmp_path / "moved.csv"
    moved.write_bytes(table.read_bytes() + b",C,1.0,train\n")
    with pytest.raises(InputError, match=r"moved\.csv: the file has changed"):
        train(replace(config, file=str(moved)), folder=folder)
    assert (folder / CHECKPOINT_FILE).read_bytes() == before
    moved.write_bytes(table.read_bytes())
    assert_same(train(replace(config, file=str(moved)), folder=folder), train(config))


def test_a_resumed_run_may_have_another_time_limit(config, tmp_path, monkeypatch):
    interrupted(monkeypatch, config, tmp_path, 9)
    hurried = replace(config, training=replace(config.training, max_hours=1e-9))
    shown = io.StringIO()
    run = train(hurried, Console(file=shown, width=200), folder=tmp_path)
    assert "time limit reached (--max-hours)" in shown.getvalue()
    assert run.config.training.max_hours == 1e-9


def test_another_version_is_told(config, tmp_path, monkeypatch):
    interrupted(monkeypatch, config, tmp_path, 9)
    monkeypatch.setattr("molattn.version.version", lambda package: "9.9")
    shown = io.StringIO()
    train(config, Console(file=shown, width=200), folder=tmp_path)
    assert f"Run started with torch {torch.__version__.split('+')[0]}" in shown.getvalue()
    assert "resuming with 9.9" in shown.getvalue()


def test_tensorboard_logs_each_epoch_once(config, tmp_path, monkeypatch):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    config = replace(config, training=replace(QUICK, tensorboard=True))
    interrupted(monkeypatch, config, tmp_path, 18)
    run = train(config, folder=tmp_path)
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    logged = events.Scalars("validation_loss")
    assert [event.step for event in logged] == [1, 2, 3, 4, 5]
    assert [event.value for event in logged] == pytest.approx(
        [epoch.validation_loss for epoch in run.histories[0].epochs]
    )


def test_tensorboard_that_is_not_there_is_one_line(config, tmp_path, monkeypatch):
    monkeypatch.setattr("molattn.training.lightning.loop.find_spec", lambda name: None)
    config = replace(config, training=replace(QUICK, tensorboard=True))
    with pytest.raises(
        InputError, match=r"tensorboard needs .* pip install 'molattn\[tensorboard\]'"
    ):
        train(config, folder=tmp_path)


def test_row_and_task_weights_enter_the_loss_alone(tmp_path):
    rows = "".join(f"{'C' * n},{n},{-n},train,{n % 3}\n" for n in range(1, 25))
    rest = "CO,1,1,val,1\nCCO,2,2,test,1\n"
    path = tmp_path / "t.csv"
    path.write_text(f"smiles,y,z,part,w\n{rows}{rest}")
    data = DataConfig(target_columns=("y", "z"), split_column="part")
    plain = train(TrainConfig(str(path), data, SMALL, QUICK))
    same = train(TrainConfig(str(path), replace(data, task_weights=(1.0, 1.0)), SMALL, QUICK))
    other = train(TrainConfig(str(path), replace(data, task_weights=(1.0, 0.0)), SMALL, QUICK))
    assert_same(plain, same)
    assert torch.equal(plain.model.target_mean, other.model.target_mean)
    ours, others = (run.model.nets[0].head.mlp[-1].weight for run in (plain, other))
    assert not torch.equal(ours, others)


def test_a_training_row_of_weight_zero_is_as_if_it_were_not_there(tmp_path):
    rows = [f"{'C' * n},{n}.5,{3.0 if n % 2 else 1.5}" for n in range(1, 25)]
    parts = ["train"] * 20 + ["val"] * 2 + ["test"] * 2
    lines = [f"{row},{part}" for row, part in zip(rows, parts, strict=True)]
    (tmp_path / "less.csv").write_text("\n".join(["smiles,y,w,split", *lines]) + "\n")
    lines.insert(7, "c1ccccc1,100000,0,train")
    (tmp_path / "more.csv").write_text("\n".join(["smiles,y,w,split", *lines]) + "\n")
    data = DataConfig(target_columns=("y",), weight_column="w", split_column="split")
    told = io.StringIO()
    less, more = (
        train(TrainConfig(str(tmp_path / name), data, SMALL, QUICK), Console(file=told))
        for name in ("less.csv", "more.csv")
    )
    assert told.getvalue().count("20 training, 2 validation, 2 test rows") == 2
    assert told.getvalue().count("1 of weight 0 unused") == 1
    assert_same(less, more)
    scores = [score_run(run).baselines["random_forest"].tasks for run in (less, more)]
    assert scores[0] == scores[1]


def test_small_differences_of_large_numbers_are_learned(tmp_path):
    parts = ["train"] * 18 + ["test"] * 2
    lines = [f"{'C' * n},{1e8 + n},{1.7e9 + n},{part}" for n, part in enumerate(parts, start=1)]
    (tmp_path / "t.csv").write_text("\n".join(["smiles,y,time,split", *lines]) + "\n")
    data = DataConfig(target_columns=("y",), feature_columns=("time",), split_column="split")
    run = train(TrainConfig(str(tmp_path / "t.csv"), data, SMALL, QUICK))
    model, rows = run.model, run.table.molecules(run.parts.train)
    batch = LabeledLoader(model, rows, 64).batch(np.arange(len(rows.records)), (0, 0))
    scaled = model.scale(batch.targets)[:, 0]
    assert scaled.dtype == torch.float32
    expected = (rows.targets[:, 0] - rows.targets.mean()) / rows.targets.std()
    np.testing.assert_allclose(scaled, expected, atol=1e-5)
    torch.testing.assert_close(
        ((batch.features - model.feature_mean[:1]) / model.feature_scale[:1]).float()[:, 0], scaled
    )
    predicted = model.predict_records(rows.records, features=rows.features)
    assert len(np.unique(predicted)) == len(predicted)  # in single precision steps would be of 8


@pytest.mark.parametrize("weights", [{"task_weights": (0.0, 1.0)}, {"weight_column": "w"}])
def test_a_part_without_a_label_that_counts_is_refused(tmp_path, weights):
    lines = ["smiles,y,z,w,split"]
    lines += [f"{'C' * n},{n}.5,{n}.5,1,{'test' if n > 8 else 'train'}" for n in range(1, 11)]
    lines += ["CO,1.5,,1,val", "CCO,,2.5,0,val"]
    if "task_weights" in weights:
        lines[-1] = "CCO,2.5,,1,val"
    else:
        lines[-2] = "CO,1.5,,0,val"
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    data = DataConfig(target_columns=("y", "z"), split_column="split", **weights)
    words = (
        "no validation row has a label of a target with a nonzero weight"
        if "task_weights" in weights
        else "the weight of every validation row is 0"
    )
    with pytest.raises(InputError, match=words):
        train(TrainConfig(str(tmp_path / "t.csv"), data, SMALL, QUICK))


def test_options_without_effect_on_a_split_column_are_named(tmp_path):
    path = tmp_path / "t.csv"
    parts = ["train", "train", "val", "test"]
    path.write_text(
        "smiles,y,s\n" + "".join(f"{'C' * n},{n},{parts[n % 4]}\n" for n in range(1, 9))
    )
    data = DataConfig(target_columns=("y",), split_column="s")
    for changed, told in (
        (data, "test set from column 's'"),
        (
            replace(data, split="scaffold", validation_size=0.2),
            "test set from column 's', which marks the validation rows too: no effect of --split, "
            "--validation-size",
        ),
    ):
        table = run_module.read_rows(TrainConfig(str(path), changed, SMALL, QUICK), None)
        split = split_rows(table, changed, 0)
        assert [*run_module._part_lines(split, table, changed)][1] == told
