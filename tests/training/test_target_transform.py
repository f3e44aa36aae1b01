"""The choice of a target's transform, and training with it."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console
from scipy import stats

from molattn.config import (
    DataConfig,
    FineTuningConfig,
    GaussianProcessConfig,
    NetworkConfig,
    ReportConfig,
    SupervisedConfig,
    TrainConfig,
)
from molattn.errors import InputError
from molattn.evaluation.run_files import write_run
from molattn.evaluation.scoring import score_run
from molattn.inference.predict import predict_table
from molattn.model.model import MolAttn
from molattn.model.target_transform import LogTransform, TargetTransform, YeoJohnsonTransform
from molattn.task import Task
from molattn.training.run import train
from molattn.training.target_transform import select_transform, target_transforms

from ..conftest import rows_of

SMALL = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
QUICK = SupervisedConfig(epochs=2, batch_size=16, device="cpu")
NAN = np.nan


def draw(count=400, seed=0):
    return np.random.default_rng(seed).normal(size=count)


@pytest.mark.parametrize(
    "labels, kind",
    [
        (draw(), "none"),
        (1e9 + draw(), "none"),
        (np.exp(draw()), "log"),
        (1e-9 * np.exp(draw()), "log"),
        (np.maximum(0.0, np.exp(draw()) - 0.5), "yeo_johnson"),
        (-np.exp(draw()), "yeo_johnson"),
        (np.where(draw(seed=1) > 1, NAN, np.exp(draw())), "log"),
        (np.full(50, 0.1), "none"),
        (np.array([1.0, 1000.0]), "none"),
        (np.full(50, NAN), "none"),
        (np.append(np.zeros(49), 1e30), "yeo_johnson"),
        (1e-300 * np.arange(50), "none"),
    ],
)
def test_the_transform_that_the_labels_ask_for_is_chosen(labels, kind):
    assert select_transform(labels)[0].kind == kind


def test_log_likelihoods_are_those_of_the_labels():
    labels = np.exp(draw() + 1.0)
    chosen, found = select_transform(labels)
    assert chosen == LogTransform()
    logs = np.log(labels)
    expected = {
        "none": stats.norm.logpdf(labels, labels.mean(), labels.std()).sum(),
        "log": stats.lognorm.logpdf(labels, logs.std(), scale=np.exp(logs.mean())).sum(),
    }
    assert {kind: found[kind] for kind in expected} == pytest.approx(expected)
    transform = YeoJohnsonTransform.fit(labels)
    x = (labels - transform.center) / transform.scale
    concentrated = stats.yeojohnson_llf(transform.power, x)
    constant = -0.5 * len(x) * (1.0 + np.log(2.0 * np.pi)) - len(x) * np.log(transform.scale)
    assert found["yeo_johnson"] == pytest.approx(concentrated + constant)


def test_missing_labels_do_not_count_in_the_choice():
    labels = np.exp(draw())
    holes = np.insert(labels, [0, 7, len(labels)], np.nan)
    assert select_transform(holes) == select_transform(labels)


def test_a_small_gain_changes_nothing():
    gains = {"none": [], "yeo_johnson": []}
    for skew in np.linspace(0.1, 0.8, 29):
        chosen, found = select_transform(np.expm1(skew * draw()) - 0.3)
        assert [*found] == ["none", "yeo_johnson"]
        gains[chosen.kind].append(found["yeo_johnson"] - found["none"])
    limit = 2.0 + 0.1 * 400
    assert 0.5 * limit < max(gains["none"]) <= limit < min(gains["yeo_johnson"]) < 1.5 * limit


def test_validation_labels_without_a_logarithm_exclude_log():
    tasks, labels = (Task("y"), Task("b", "binary", ("no", "yes"))), np.exp(draw())
    training = np.column_stack([labels, labels > 1])
    for least, kind in ((0.0, "yeo_johnson"), (0.1, "log"), (NAN, "log")):
        validation = np.array([[1.0, 1.0], [least, 0.0]])
        found, (line,) = target_transforms(tasks, ("auto",), training, validation)
        assert [one.kind for one in found] == [kind, "none"]
        assert line.startswith(f"'y': {kind} transform")
        assert ", none -" in line
    # A bound is no label of which the transform is chosen, but has to have a logarithm too.
    bounds = np.array([[-1.0, NAN], [5.0, NAN]])
    found, _ = target_transforms(tasks, ("auto",), training, bounds)
    assert found[0].kind == "yeo_johnson"
    found, lines = target_transforms(tasks, ("ranks", "auto"), training, validation)
    assert [one.kind for one in found] == ["ranks", "none"]
    assert lines == ["'y': ranks transform"]


def table(path, least=0.01):
    """Molecules, a log-normal label that their size determines, and one without a skew."""
    rng = np.random.default_rng(0)
    lines = ["smiles,half_life,y,part"]
    for n in range(1, 61):
        part = "train" if n % 3 else ("val", "test")[n % 2]
        size = (n * 7) % 25 + 1
        label = max(least, np.exp(0.3 * size + 0.1 * rng.normal()))
        lines.append(f"{'C' * size}O,{label:.6g},{rng.normal():.4f},{part}")
    path.write_text("\n".join(lines) + "\n")
    return path


def config_of(path, *choices, **options):
    data = DataConfig(
        target_columns=("half_life", "y"),
        split_column="part",
        **({"target_transform": choices} if choices else {}),
    )
    report = ReportConfig(baselines=False, bootstrap=0, interval=0.8)
    return TrainConfig(str(path), data, SMALL, replace(QUICK, **options), report)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    console = Console(file=io.StringIO(), width=200)
    config = config_of(table(folder / "t.csv"), ensemble=2)
    network = GaussianProcessConfig(predictor="network")  # has not learned from validation rows
    run = train(replace(config, gaussian_process=network), console)
    return run, console.file.getvalue()


def test_training_chooses_on_the_training_rows_and_says_so(run):
    run, log = run
    labels = run.table.targets[run.parts.train]
    assert [one.kind for one in run.model.config.target_transforms] == ["log", "none"]
    logs = np.log(labels[:, 0])
    np.testing.assert_allclose(
        run.model.target_mean.numpy(), [logs.mean(), labels[:, 1].mean()], rtol=1e-6
    )
    np.testing.assert_allclose(run.model.target_scale.numpy(), [logs.std(), labels[:, 1].std()])
    _, found = select_transform(labels[:, 0])
    said = (
        f"'half_life': log transform (log-likelihood {found['log']:.1f}, none {found['none']:.1f}"
    )
    assert log.count(said) == 1


def test_files_and_scores_of_a_run_are_in_own_units(run, tmp_path):
    run, _ = run
    scores = score_run(run)
    write_run(run, scores, tmp_path / "run")
    labels = run.table.targets[run.parts.test][:, 0]
    smiles = [run.table.smiles[row] for row in run.parts.test]
    model = MolAttn.from_pretrained(tmp_path / "run")
    predicted = model.predict(smiles)[:, 0]
    members = model.predict(smiles, members=True)[:, :, 0]
    np.testing.assert_allclose(predicted, np.exp(np.log(members).mean(axis=0)))
    rmse = ((predicted - labels) ** 2).mean() ** 0.5
    assert scores.test.tasks["half_life"]["rmse"] == pytest.approx(rmse)
    rows = run.parts.val
    of_validation = model.predict([run.table.smiles[row] for row in rows])[:, 0]
    rmse = ((of_validation - run.table.targets[rows][:, 0]) ** 2).mean() ** 0.5
    assert scores.validation.tasks["half_life"]["rmse"] == pytest.approx(rmse)
    low, high = (ends[:, 0] for ends in model.predict_interval(smiles, 0.8))
    found = scores.uncertainty["half_life"]
    assert found["coverage"] == ((low <= labels) & (labels <= high)).mean()
    assert found["mean_width"] == pytest.approx((high - low).mean())
    middle = np.exp(0.5 * (np.log(low) + np.log(high)))  # symmetric on the transformed scale
    np.testing.assert_allclose(middle, predicted)
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["target_transforms"] == {"half_life": "log transform"}
    assert "half_life: log transform" in (tmp_path / "run" / "report.html").read_text()
    predict_table(tmp_path / "run", run.table.path, tmp_path / "o.csv")
    row = rows_of(tmp_path / "o.csv")[run.parts.test[0]]
    assert float(row["half_life_predicted"]) == pytest.approx(predicted[0], rel=1e-5)
    # A difference of predictions, whose rounding errors depend on the batch.
    rounding = 1e-5 * predicted[0]
    assert float(row["half_life_std"]) == pytest.approx(members[:, 0].std(ddof=1), abs=rounding)


def test_rows_of_labels_without_a_logarithm_are_skipped_for_log_alone(tmp_path):
    path = table(tmp_path / "t.csv")
    rows = train(config_of(path, "log")).table
    assert rows.skipped
    assert {row.code for row in rows.skipped} == {"invalid_label"}
    assert rows.targets.min() > 0.0
    run = train(config_of(path, "log", "ranks"))
    assert [one.kind for one in run.model.config.target_transforms] == ["log", "ranks"]
    assert np.isfinite(run.model.predict(["CCO"])).all()


def test_a_head_that_is_kept_keeps_its_transform(run, tmp_path):
    run, _ = run
    run.model.save_pretrained(tmp_path / "model")
    start = FineTuningConfig(str(tmp_path / "model"))
    again = train(replace(config_of(run.table.path), fine_tuning=start))
    assert again.model.config.target_transforms == run.model.config.target_transforms
    assert torch.equal(again.model.target_mean, run.model.target_mean)
    other = train(replace(config_of(run.table.path, "none"), fine_tuning=start))
    assert other.model.config.target_transforms == (TargetTransform(),) * 2
    path = table(tmp_path / "zero.csv")
    path.write_text(path.read_text().replace(",train\n", ",train\nCCN,0,1,train\n", 1))
    with pytest.raises(InputError, match=r"line 3, column 'half_life': got 0, but the model"):
        train(replace(config_of(path), fine_tuning=start))


def test_an_unknown_transform_or_number_of_them_is_refused():
    with pytest.raises(InputError, match="target_transform: got 'square'"):
        DataConfig(target_columns=("y",), target_transform=("square",))
    with pytest.raises(InputError, match="target_transform: got 2 values for 3 target columns"):
        DataConfig(target_columns=("x", "y", "z"), target_transform=("log", "none"))
