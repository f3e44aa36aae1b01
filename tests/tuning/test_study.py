import csv
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import matplotlib.pyplot as plt
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from molattn.cli import main
from molattn.config import FineTuningConfig, NetworkConfig, TrainConfig, TuneConfig
from molattn.config.yaml_file import read_config_file
from molattn.errors import InputError, MolattnError
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.training.run import train
from molattn.tuning import study as module
from molattn.tuning.study import run_study

pytestmark = pytest.mark.usefixtures("without_figures")

SPACE = {
    "width": CategoricalDistribution((4, 8)),
    "learning_rate": FloatDistribution(1e-3, 1e-1, log=True),
    "layers": IntDistribution(1, 2),
}
SPACE_TEXT = """width: [4, 8]
learning_rate: {low: 0.001, high: 0.1, log: true}
layers: {low: 1, high: 2}
"""
QUICK = {"heads": 2, "epochs": 2, "edge_width": 4, "device": "cpu", "target_columns": "y"}


class Killed(BaseException):
    """What no code of ours catches."""


@pytest.fixture
def config(tmp_path):
    rows = "".join(f"{'C' * n}{end},{n}\n" for n in range(1, 11) for end in ("O", "N", "Cl"))
    (tmp_path / "table.csv").write_text(f"smiles,y\n{rows}")
    return TrainConfig.from_options(str(tmp_path / "table.csv"), QUICK)


def searched(config, folder, trials, space=SPACE, **options):
    folder.mkdir(exist_ok=True)
    return run_study(config, TuneConfig(trials, **options), space, folder)


def outcome(tuned):
    return [(trial.params, trial.state, trial.intermediate_values) for trial in tuned.trials]


def table(folder):
    with open(folder / "trials.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_study_killed_within_a_trial_goes_on_as_if_it_had_not_been(config, tmp_path, monkeypatch):
    whole = searched(config, tmp_path / "whole", 6)
    fit, folder = module.train_model, tmp_path / "study"

    def dies(config, *args, on_epoch):
        def once(epoch):
            on_epoch(epoch)
            raise Killed

        return fit(config, *args, on_epoch=once)

    for trials_before in (0, 3):
        if trials_before:
            searched(config, folder, trials_before)
        folder.mkdir(exist_ok=True)
        with monkeypatch.context() as patch:
            patch.setattr(module, "train_model", dies)
            with pytest.raises(Killed):
                searched(config, folder, 6)
    resumed = run_study(config, TuneConfig(), SPACE, folder)  # as many as were asked for
    assert outcome(resumed) == outcome(whole)
    assert resumed.config == whole.config
    assert len(table(folder)) == 6


def test_the_best_trains_again_to_the_same_loss(config, tmp_path):
    tuned = searched(config, tmp_path, 3)
    losses = [trial.value for trial in tuned.trials if trial.value is not None]
    assert tuned.loss == min(losses)
    best = TrainConfig.from_dict(read_config_file(tmp_path / "best.yaml"))
    assert best == tuned.config
    (history,) = train(best).histories
    assert history.epochs[history.best - 1].validation_loss == tuned.loss
    assert float(min(row["validation_loss"] for row in table(tmp_path))) == pytest.approx(
        tuned.loss, rel=1e-6
    )
    assert (tmp_path / "study.png").read_bytes().startswith(b"\x89PNG")


def test_the_test_rows_are_not_looked_at(config, tmp_path, monkeypatch):
    first = searched(config, tmp_path / "a", 2)
    split_rows = module.split_rows

    def spoiled(table, *args):
        parts = split_rows(table, *args)
        assert len(parts.test)
        table.targets[parts.test] = float("nan")
        return parts

    monkeypatch.setattr(module, "split_rows", spoiled)
    assert outcome(searched(config, tmp_path / "b", 2)) == outcome(first)


def test_failed_trials_are_told_and_count(config, tmp_path, monkeypatch):
    fit, calls = module.train_model, []

    def diverges(*args, **options):
        calls.append(1)
        if len(calls) == 2:
            raise MolattnError("training diverged: the loss became nan")
        return fit(*args, **options)

    monkeypatch.setattr(module, "train_model", diverges)
    tuned = searched(config, tmp_path, 3)
    assert len(calls) == len(tuned.trials) == 3
    assert [row["error"] for row in table(tmp_path)] == [
        "",
        "training diverged: the loss became nan",
        "",
    ]


def test_a_study_of_failures_says_why(config, tmp_path):
    space = {"heads": CategoricalDistribution((3,)), "width": CategoricalDistribution((4,))}
    words = (
        r"none of 2 trials .*--heads: got 3, .*; --resume \S+ --trials N with N above 2 continues"
    )
    with pytest.raises(InputError, match=words):
        searched(config, tmp_path, 2, space)


def test_values_that_do_not_go_together_fail_as_trials(config, tmp_path, monkeypatch):
    def fit(config, *args, on_epoch):
        on_epoch(module.Epoch(1, 1.0, 1.0, 0.0, 0.0))

    monkeypatch.setattr(module, "train_model", fit)
    space = {
        "layer": CategoricalDistribution(("gaan", "edge_attention")),
        "gate": CategoricalDistribution((True, False)),
    }
    tuned = searched(config, tmp_path, 8, space)
    assert len(tuned.trials) == 8
    for trial, row in zip(tuned.trials, table(tmp_path), strict=True):
        fails = trial.params == {"layer": "gaan", "gate": True}
        assert ("cannot be used with --layer gaan" in row["error"]) == fails
    assert 0 < sum(bool(row["error"]) for row in table(tmp_path)) < 8


def test_all_trials_begin_alike(config, tmp_path, monkeypatch):
    begun = []

    def fit(config, *args, on_epoch):
        begun.append((config.network.width, config.fine_tuning.init_from))
        on_epoch(module.Epoch(1, 1.0, 1.0, 0.0, 0.0))

    monkeypatch.setattr(module, "train_model", fit)
    whole = replace(config, network=NetworkConfig())
    for space, begins in (("width", "none"), ("dropout", "base")):
        values = {
            "width": CategoricalDistribution((64, 128)),
            "dropout": CategoricalDistribution((0.0, 0.1)),
        }[space]
        begun.clear()
        tuned = searched(whole, tmp_path / space, 6, {space: values})
        assert {beginning for _, beginning in begun} == {begins}
        assert tuned.config.fine_tuning.init_from == begins


def test_trials_share_one_initial_model(config, tmp_path, monkeypatch):
    MolAttn(MolAttnConfig("y", config.network)).save_pretrained(tmp_path / "model")
    load, loaded = MolAttn.from_files, []

    def from_files(files):
        loaded.append(files.folder)
        return load(files)

    monkeypatch.setattr(MolAttn, "from_files", from_files)
    begins = replace(config, fine_tuning=FineTuningConfig(str(tmp_path / "model")))
    searched(begins, tmp_path / "study", 3, {"dropout": CategoricalDistribution((0.0, 0.1))})
    assert loaded == [tmp_path / "model"]


def test_hopeless_trials_are_pruned(config, tmp_path, monkeypatch):
    losses = iter([1.0] * 5 + [9.0, 1.0])

    def fit(config, *args, on_epoch):
        loss = next(losses)
        for epoch in (1, 2, 3):
            on_epoch(module.Epoch(epoch, loss, loss, 0.0, 0.0))

    monkeypatch.setattr(module, "train_model", fit)
    tuned = searched(config, tmp_path, 7)
    assert [trial.state.name for trial in tuned.trials] == [
        *["COMPLETE"] * 5,
        "PRUNED",
        "COMPLETE",
    ]
    losses = iter([1.0] * 5 + [9.0, 1.0])
    kept = searched(config, tmp_path / "kept", 7, prune=False)
    assert all(trial.state.name == "COMPLETE" for trial in kept.trials)


def test_losses_and_importances_are_plotted(config, tmp_path, monkeypatch):
    losses = iter([float(n) for n in range(1, 31)])

    def fit(config, *args, on_epoch):
        on_epoch(module.Epoch(1, 1.0, next(losses), 0.0, 0.0))

    monkeypatch.setattr(module, "train_model", fit)
    style = dict(plt.rcParams)
    searched(config, tmp_path / "few", 9, prune=False)
    assert dict(plt.rcParams) == style
    assert not (tmp_path / "few" / "importance.png").exists()
    searched(config, tmp_path / "many", 10, prune=False)
    for name in ("study.png", "importance.png"):
        assert (tmp_path / "many" / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("space", [SPACE, {"heads": CategoricalDistribution((2,))}])
def test_equal_losses_have_no_importances(config, tmp_path, monkeypatch, space):
    monkeypatch.setattr(
        module, "train_model", lambda *_, on_epoch: on_epoch(module.Epoch(1, 1.0, 1.0, 0.0, 0.0))
    )
    before = plt.get_fignums()
    searched(config, tmp_path, 10, space, prune=False)
    assert (tmp_path / "study.png").exists()
    assert not (tmp_path / "importance.png").exists()
    assert plt.get_fignums() == before


def test_no_trial_begins_after_the_time_is_over(config, tmp_path):
    with pytest.raises(
        InputError, match=r"no trial started before the time limit .*; resume \S+ continues"
    ):
        searched(config, tmp_path, 3, timeout=1e-6)


def test_another_table_is_refused(config, tmp_path):
    searched(config, tmp_path, 1)
    (tmp_path / "table.csv").write_text(
        "smiles,y\n" + "".join(f"{'C' * n},{n}\n" for n in range(1, 21))
    )
    with pytest.raises(InputError, match=r"table\.csv: the file has changed since"):
        searched(config, tmp_path, 2)


def test_another_model_to_begin_with_is_refused(config, tmp_path, monkeypatch):
    monkeypatch.setattr(
        module, "train_model", lambda *_, on_epoch: on_epoch(module.Epoch(1, 1.0, 1.0, 0.0, 0.0))
    )
    begun = MolAttn(MolAttnConfig("y", config.network))
    begun.save_pretrained(tmp_path / "model")
    fine_tuning = FineTuningConfig(str(tmp_path / "model"))
    begins = replace(config, fine_tuning=fine_tuning)
    space = {"dropout": CategoricalDistribution((0.0, 0.1))}
    searched(begins, tmp_path / "study", 1, space)
    searched(begins, tmp_path / "study", 2, space)
    begun.set_target_scaling([1.0], [2.0])
    begun.save_pretrained(tmp_path / "model")
    with pytest.raises(InputError, match=r"init_from: the model .* has changed since the run in"):
        searched(begins, tmp_path / "study", 3, space)


# The command.


def command(tmp_path, *more):
    words = ["tune", str(tmp_path / "table.csv"), "--target-columns", "y", "--heads", "2"]
    words += ["--epochs", "2", "--edge-width", "4", "--device", "cpu"]
    return [*words, "--space", str(tmp_path / "space.yaml"), *more]


def test_a_command_killed_within_a_trial_is_resumed(config, tmp_path, capsys):
    (tmp_path / "space.yaml").write_text(SPACE_TEXT)
    study = tmp_path / "study"
    words = command(tmp_path, "--output", str(study), "--trials", "500")
    process = subprocess.Popen([sys.executable, "-m", "molattn", *words])
    try:
        deadline = time.monotonic() + 120
        while not (study / "trials.csv").exists() and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.1)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    before = len(table(study))
    assert 0 < before < 500
    assert main(["tune", "--resume", str(study), "--trials", str(before + 2)]) == 0
    shown = capsys.readouterr().out
    assert f"{before + 2}/{before + 2}  validation loss" in shown
    assert "1/500" not in shown
    rows = table(study)
    assert [row["trial"] for row in rows] == [str(n + 1) for n in range(before + 2)]
    whole = searched(config, tmp_path / "whole", before + 2)
    assert [float(row["validation_loss"]) for row in rows] == pytest.approx(
        [trial.value for trial in whole.trials], rel=1e-6
    )
    assert (
        main(
            [
                "train",
                "--config",
                str(study / "best.yaml"),
                "--no-baselines",
                "--output",
                str(tmp_path / "run"),
                "--bootstrap",
                "0",
            ]
        )
        == 0
    )
    assert main(["tune", "--resume", str(study), "--epochs", "3"]) == 2
    assert "epochs: got 3, but the run in" in capsys.readouterr().err


def test_what_the_command_refuses(config, tmp_path, capsys):
    (tmp_path / "space.yaml").write_text(SPACE_TEXT)
    study = tmp_path / "study"
    assert main(command(tmp_path, "--output", str(study), "--trials", "1")) == 0
    for words, told in (
        (command(tmp_path, "--output", str(study)), "contains a study; --resume"),
        (command(tmp_path, "--output", str(tmp_path)), "the folder is not empty"),
        (command(tmp_path, "--trials", "0"), "trials: got '0'"),
        (
            ["tune", "--resume", str(study), "--overwrite"],
            "resume: cannot be used with --overwrite",
        ),
        (
            ["tune", "--resume", str(tmp_path / "none")],
            "none: no study, expected the folder of one",
        ),
        (command(tmp_path, "--folds", "3", "--output", str(tmp_path / "f")), "--folds"),
    ):
        assert main(words) == 2
        assert told in capsys.readouterr().err
    assert not (tmp_path / "f").exists()
    (study / "study.db").write_bytes(b"something else")
    assert main(["tune", "--resume", str(study)]) == 2
    assert "study.db: not a readable study" in capsys.readouterr().err
    (study / "study.db").unlink()
    assert main(["tune", "--resume", str(study)]) == 2
    assert "study.db: no such file; it holds the trials" in capsys.readouterr().err


def test_a_package_that_is_not_there_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr("molattn.cli.tune.find_spec", lambda name: None)
    assert main(["tune"]) == 2
    assert "pip install 'molattn[tune]'" in capsys.readouterr().err


def test_a_refused_study_leaves_the_former_one(config, tmp_path, capsys):
    (tmp_path / "space.yaml").write_text(SPACE_TEXT)
    study = tmp_path / "study"
    assert main(command(tmp_path, "--output", str(study), "--trials", "1")) == 0
    former = (study / "study.db").read_bytes()
    again = ("--output", str(study), "--overwrite")
    assert main(command(tmp_path, *again, "--init-from", "missing")) == 2
    assert (study / "study.db").read_bytes() == former
    (study / "importance.png").touch()
    assert main(command(tmp_path, *again, "--trials", "1")) == 0
    assert not (study / "importance.png").exists()
    assert len(table(study)) == 1
