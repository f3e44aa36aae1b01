from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import matplotlib.pyplot as plt
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from molattn.cli import main
from molattn.config import FineTuningConfig, NetworkConfig, TrainConfig, TuneConfig
from molattn.config.yaml_file import read_config_file
from molattn.errors import InputError, MolattnError
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.training.run import train
from molattn.training.run_folder import Epoch
from molattn.tuning import study as module
from molattn.tuning.study import run_study

from ..conftest import rows_of

SPACE = {
    "width": CategoricalDistribution((4, 8)),
    "learning_rate": FloatDistribution(1e-3, 1e-1, log=True),
    "layers": IntDistribution(1, 2),
}
DROPOUT = {"dropout": CategoricalDistribution((0.0, 0.1))}
QUICK = {"heads": 2, "epochs": 2, "edge_width": 4, "device": "cpu", "target_columns": "y"}
PNG = b"\x89PNG"


class Killed(BaseException):
    """What no code of ours catches."""


@pytest.fixture
def config(tmp_path):
    rows = "".join(f"{'C' * n}{end},{n}\n" for n in range(1, 11) for end in ("O", "N", "Cl"))
    (tmp_path / "table.csv").write_text(f"smiles,y\n{rows}")
    return TrainConfig.from_options(str(tmp_path / "table.csv"), QUICK)


@pytest.fixture(autouse=True)
def _without_figures(request, monkeypatch):
    """Do not draw what only one test looks at."""
    if "plotted" not in request.node.name:
        monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *_, **__: None)


@pytest.fixture
def jobs():
    """The trainings whose losses were given."""
    return []


@pytest.fixture
def losses(monkeypatch, jobs):
    """Losses that trials have in each of their three epochs, instead of a training."""
    found = []

    def fit(job, resolved, on_epoch):
        jobs.append(job)
        loss = found.pop(0) if found else 1.0
        if isinstance(loss, Exception):
            raise loss
        for epoch in (1, 2, 3):
            on_epoch(Epoch(epoch, loss, loss, 0.0, 0.0))

    monkeypatch.setattr(module, "fit_networks", fit)
    return found


def searched(config, folder, trials, space=SPACE, **options):
    folder.mkdir(exist_ok=True)
    return run_study(config, TuneConfig(trials, **options), space, folder)


def outcome(result):
    return [(trial.params, trial.state, trial.intermediate_values) for trial in result.trials]


def table(folder):
    return rows_of(folder / "trials.csv")


def test_a_killed_study_is_resumed_as_if_it_had_not_been(config, tmp_path, monkeypatch):
    whole = searched(config, tmp_path / "whole", 4)
    fit, folder = module.fit_networks, tmp_path / "study"

    def dies(job, resolved, on_epoch):
        def once(epoch):
            on_epoch(epoch)
            raise Killed

        return fit(job, resolved, once)

    searched(config, folder, 2)
    with monkeypatch.context() as patch:
        patch.setattr(module, "fit_networks", dies)
        with pytest.raises(Killed):
            searched(config, folder, 4)
    resumed = run_study(config, TuneConfig(), SPACE, folder)  # as many as were asked for
    assert outcome(resumed) == outcome(whole)
    assert len(table(folder)) == 4
    # The best options give the same loss again.
    best = TrainConfig(**read_config_file(folder / "best.yaml"))
    assert best == resumed.config == whole.config
    assert resumed.loss == min(trial.value for trial in resumed.trials)
    (history,) = train(best).histories
    assert history.curve[history.kept_epoch - 1].validation_loss == resumed.loss
    assert min(float(row["validation_loss"]) for row in table(folder)) == resumed.loss
    with pytest.raises(InputError) as error:
        searched(replace(config, training=replace(config.training, epochs=3)), folder, 5)
    assert error.value.option == "epochs"


def test_test_rows_are_not_used(config, tmp_path, monkeypatch):
    first = searched(config, tmp_path / "a", 2)
    split_rows = module.split_rows

    def spoiled(table, *args):
        split = split_rows(table, *args)
        table.targets[split.test] = float("nan")
        return split

    monkeypatch.setattr(module, "split_rows", spoiled)
    assert outcome(searched(config, tmp_path / "b", 2)) == outcome(first)


def test_failed_and_pruned_trials_are_recorded(config, tmp_path, losses):
    losses += [1.0, MolattnError("training diverged"), *[1.0] * 4, 9.0, 1.0]
    result = searched(config, tmp_path / "study", 8)
    states = [row["state"] for row in table(tmp_path / "study")]
    assert states == ["complete", "fail", *["complete"] * 4, "pruned", "complete"]
    assert [row["error"] for row in table(tmp_path / "study")][:2] == ["", "training diverged"]
    assert result.loss == 1.0
    losses += [1.0] * 5 + [9.0, 1.0]
    kept = searched(config, tmp_path / "kept", 7, prune=False)
    assert all(trial.state.name == "COMPLETE" for trial in kept.trials)
    # Values that are valid one by one may not fit together.
    space = {
        "layer": CategoricalDistribution(("gaan", "edge_attention")),
        "gate": CategoricalDistribution((True, False)),
    }
    result = searched(config, tmp_path / "space", 8, space)
    for trial, row in zip(result.trials, table(tmp_path / "space"), strict=True):
        assert bool(row["error"]) == (trial.params == {"layer": "gaan", "gate": True})
    losses += [MolattnError("no")] * 2
    with pytest.raises(InputError, match="none of 2 trials succeeded"):
        searched(config, tmp_path / "none", 2)


@pytest.mark.usefixtures("losses")
def test_no_trial_begins_after_the_time_limit(config, tmp_path, monkeypatch):
    clock = count().__next__  # seconds, one more at each look: at the start, before each trial
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=clock))
    assert len(searched(config, tmp_path / "study", 3, timeout=1.5).trials) == 1
    with pytest.raises(InputError, match="time limit"):
        searched(config, tmp_path / "late", 3, timeout=0.5)


@pytest.mark.usefixtures("losses")
def test_all_trials_start_from_the_same_model(config, tmp_path, jobs):
    whole = replace(config, network=NetworkConfig())
    space = {"width": CategoricalDistribution((64, 128))}
    for name, searching, initial in (("a", space, "none"), ("b", DROPOUT, "base")):
        jobs.clear()
        result = searched(whole, tmp_path / name, 4, searching)
        assert {job.config.fine_tuning.init_from for job in jobs} == {initial}
        assert result.config.fine_tuning.init_from == initial
        assert len({id(job.base) for job in jobs}) == 1
    model = MolAttn(MolAttnConfig("y", config.network))
    model.save_pretrained(tmp_path / "model")
    tuned = replace(config, fine_tuning=FineTuningConfig(str(tmp_path / "model")))
    searched(tuned, tmp_path / "study", 1, DROPOUT)
    model.set_target_scaling([1.0], [2.0])
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "table.csv").write_text(
        "smiles,y\n" + "".join(f"{'C' * n},{n}\n" for n in range(20))
    )
    for one, folder in ((tuned, "study"), (whole, "b")):
        with pytest.raises(InputError, match="changed since"):
            searched(one, tmp_path / folder, 5, DROPOUT)


def test_losses_are_plotted(config, tmp_path, losses):
    style, figures = dict(plt.rcParams), plt.get_fignums()
    searched(config, tmp_path / "study", 2)
    assert (tmp_path / "study" / "study.png").read_bytes().startswith(PNG)
    assert dict(plt.rcParams) == style
    assert plt.get_fignums() == figures


def test_the_command_resumes_replaces_and_refuses(config, tmp_path, losses, capsys, monkeypatch):
    (tmp_path / "space.yaml").write_text("width: [4, 8]\n")
    study = tmp_path / "study"
    words = ["tune", str(tmp_path / "table.csv"), "--target-columns", "y", "--heads", "2"]
    words += ["--edge-width", "4", "--device", "cpu", "--space", str(tmp_path / "space.yaml")]
    assert main([*words, "--output", str(study), "--trials", "1"]) == 0
    assert main(["tune", "--resume", str(study), "--trials", "2"]) == 0
    assert [row["trial"] for row in table(study)] == ["1", "2"]
    former = (study / "study.db").read_bytes()
    for more, named in (
        (["--output", str(study)], "--resume"),
        (["--output", str(study), "--overwrite", "--init-from", "missing"], "missing"),
    ):
        assert main([*words, *more]) == 2
        assert named in capsys.readouterr().err
    assert (study / "study.db").read_bytes() == former
    assert main([*words, "--output", str(study), "--overwrite", "--trials", "1"]) == 0
    assert len(table(study)) == 1
    (study / "study.db").write_bytes(b"something else")
    assert main(["tune", "--resume", str(study)]) == 2
    assert "study.db" in capsys.readouterr().err
    monkeypatch.setattr("molattn.cli.train.find_spec", lambda name: None)
    assert main(["tune"]) == 2
