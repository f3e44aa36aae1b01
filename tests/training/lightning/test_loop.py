import io
import re
import signal
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console

from molattn.config import DataConfig, NetworkConfig, SupervisedConfig, TrainConfig
from molattn.data.dataset import Molecules
from molattn.data.table import bundled_dataset
from molattn.errors import InputError, MolattnError
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.training.lightning.loop import _precision
from molattn.training.losses import TaskLoss
from molattn.training.optimizer import FineTuningPlan
from molattn.training.run import train
from molattn.training.supervised import fit_model

SMALL = NetworkConfig(width=8, heads=2, layers=1, edge_width=4, dropout=0.1)
QUICK = SupervisedConfig(checkpoint="best", epochs=2, batch_size=8, device="cpu")
DATA = DataConfig(target_columns=("logS",), split_column="split")


@pytest.fixture(scope="module")
def small_table(tmp_path_factory):
    lines = bundled_dataset().read_text(encoding="utf-8").splitlines()
    path = tmp_path_factory.mktemp("fit") / "small.csv"
    # The file holds its training rows first.
    path.write_text("\n".join([*lines[:31], *lines[-10:]]) + "\n")
    return path


def small_config(small_table, **training):
    return TrainConfig(str(small_table), DATA, SMALL, replace(QUICK, **training))


def molecules(model, targets):
    smiles = ["C" * (n + 1) for n in range(len(targets))]
    return Molecules([model.featurize(text) for text in smiles], np.array(targets))


def one_target():
    torch.manual_seed(0)
    return MolAttn(MolAttnConfig(("y",), SMALL))


def test_the_same_seed_gives_the_same_weights_bit_for_bit(small_table):
    first, second, other = (
        train(small_config(small_table, seed=seed)).model.state_dict() for seed in (5, 5, 6)
    )
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_training_leaves_the_random_state_and_threads_of_others_alone(small_table):
    threads = torch.get_num_threads()
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    train(small_config(small_table, epochs=1, threads=threads + 1))
    assert torch.equal(torch.rand(3), expected)
    assert torch.get_num_threads() == threads


def test_training_learns_and_keeps_its_best_epoch():
    model = one_target()
    rows = molecules(model, [[float(n)] for n in range(12)])
    history = fit_model(model, rows, rows, replace(QUICK, epochs=40, learning_rate=0.01))
    losses = [epoch.validation_loss for epoch in history.epochs]
    assert min(losses) < 0.3 * losses[0]
    assert losses[history.best - 1] == min(losses)
    # The weights left behind are those that had the best loss.
    error = model.predict_records(rows.records) - rows.targets
    assert np.mean((error / rows.targets.std()) ** 2) == pytest.approx(min(losses), rel=1e-4)
    assert not model.training


def test_the_learning_rate_rises_then_falls_to_zero():
    model = one_target()
    rows = molecules(model, [[float(n)] for n in range(8)])
    config = replace(QUICK, epochs=10, warmup=0.4, patience=10, learning_rate=0.01)
    rates = [epoch.learning_rate for epoch in fit_model(model, rows, rows, config).epochs]
    assert rates[:4] == sorted(rates[:4])
    assert max(rates) == pytest.approx(0.01)
    assert rates[4:] == sorted(rates[4:], reverse=True)
    assert rates[-1] == pytest.approx(0.0, abs=1e-12)


def test_training_stops_when_validation_does_not_improve():
    model = one_target()
    train_rows = molecules(model, [[float(n)] for n in range(12)])
    contrary = Molecules(train_rows.records, train_rows.targets[::-1].copy())
    config = replace(QUICK, epochs=60, patience=3, learning_rate=0.01)
    history = fit_model(model, train_rows, contrary, config)
    assert len(history.epochs) == history.best + 3 < 60


def test_the_last_weights_are_kept_where_they_are_asked_for():
    model = one_target()
    train_rows = molecules(model, [[float(n)] for n in range(12)])
    contrary = Molecules(train_rows.records, train_rows.targets[::-1].copy())
    config = replace(QUICK, epochs=8, learning_rate=0.01, checkpoint="last")
    history = fit_model(model, train_rows, contrary, config)
    assert history.best == len(history.epochs) == 8
    error = model.predict_records(contrary.records) - contrary.targets
    scale = train_rows.targets.std()
    last = history.epochs[-1].validation_loss
    assert np.mean((error / scale) ** 2) == pytest.approx(last, rel=1e-4)
    assert last > min(epoch.validation_loss for epoch in history.epochs)
    again = fit_model(one_target(), train_rows, contrary, replace(config, patience=3))
    assert again.best == len(again.epochs) < 8


def test_missing_labels_stay_out_of_scaling_and_loss():
    targets = np.array([[1.0, np.nan], [2.0, np.nan], [np.nan, 5.0], [4.0, 6.0]] * 2)
    torch.manual_seed(0)
    model = MolAttn(MolAttnConfig(("y", "z"), SMALL))
    history = fit_model(model, molecules(model, targets), molecules(model, targets), QUICK)
    assert all(np.isfinite(epoch[1:]).all() for epoch in history.epochs)
    mean, scale = np.nanmean(targets, axis=0), np.nanstd(targets, axis=0)
    np.testing.assert_allclose(model.target_mean.numpy(), mean, rtol=1e-6)
    np.testing.assert_allclose(model.target_scale.numpy(), scale, rtol=1e-6)
    assert np.isfinite(model.predict_records(molecules(model, targets).records)).all()


def test_a_target_that_does_not_vary_is_learned_without_nan():
    model = one_target()
    rows = molecules(model, [[3.5]] * 6)
    fit_model(model, rows, rows, QUICK)
    prediction = model.predict_records(rows.records)
    assert np.isfinite(prediction).all()
    assert model.target_scale.item() == 1.0


@pytest.mark.parametrize("where", ["training", "validation"])
def test_a_diverging_training_is_stopped_by_epoch(where):
    model = one_target()
    good = molecules(model, [[float(n)] for n in range(6)])
    bad = Molecules(good.records, good.targets * 1e38)
    with torch.no_grad():
        next(p for p in model.nets[0].head.parameters() if p.ndim == 1).fill_(
            torch.nan if where == "training" else 0.0
        )
    with pytest.raises(MolattnError, match=r"diverged.*epoch 1") as error:
        fit_model(model, good, good if where == "training" else bad, QUICK)
    assert not isinstance(error.value, InputError)


def test_a_target_without_a_training_label_is_refused(tmp_path):
    path = tmp_path / "t.csv"
    rows = "".join(f"{'C' * n},1,,train\n" for n in range(1, 20))
    path.write_text(f"smiles,y,z,part\n{rows}CCO,1,2,test\n")
    data = DataConfig(target_columns=("y", "z"), split_column="part")
    with pytest.raises(InputError, match=r"t\.csv, column 'z': no training row has a label"):
        train(TrainConfig(str(path), data, SMALL, QUICK))


@pytest.mark.parametrize("terminal", [True, False])
def test_only_our_own_progress_is_shown(small_table, capfd, terminal):
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=terminal, width=80)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(small_config(small_table), console)
    assert tuple(capfd.readouterr()) == ("", "")
    lines = shown.getvalue().splitlines()
    assert f"{small_table.name}: 40 rows used, 0 skipped" in shown.getvalue().replace("\n", "")
    if not terminal:
        epochs = [line for line in lines if line.startswith("epoch")]
        for number, line in enumerate(epochs, start=1):
            losses = r"train loss \d+\.\d{4}  val loss \d+\.\d{4}"
            assert re.fullmatch(rf"epoch {number}/2  {losses}", line)
        assert len(epochs) == 2
        assert "\x1b" not in shown.getvalue()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused(small_table):
    if torch.backends.mps.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(InputError, match="device gpu: PyTorch found no GPU"):
        train(small_config(small_table, device="gpu"))


def test_members_are_trained_one_at_a_time():
    model = MolAttn.ensemble([one_target(), one_target()])
    rows = molecules(model, [[1.0], [2.0]])
    with pytest.raises(ValueError, match="got 2 members, expected one at a time"):
        fit_model(model, rows, rows, QUICK)


def test_an_interrupt_stays_an_interrupt(small_table, monkeypatch):
    handler = signal.getsignal(signal.SIGINT)

    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(MolAttn, "forward", interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(small_config(small_table))
    assert signal.getsignal(signal.SIGINT) is handler


def test_an_interrupted_training_leaves_no_weights_frozen(monkeypatch):
    def fails(self, *batch):
        raise KeyboardInterrupt

    model = one_target()
    rows = molecules(model, [[0.0], [1.0]])
    names = [name for name, _ in model.named_parameters() if "encoder" in name]
    monkeypatch.setattr(TaskLoss, "forward", fails)
    with pytest.raises(KeyboardInterrupt):
        fit_model(
            model, rows, rows, QUICK, plan=FineTuningPlan(dict.fromkeys(names, 1.0), head_steps=9)
        )
    assert all(weight.requires_grad for weight in model.parameters())


def test_without_a_terminal_a_line_tells_how_fast_it_goes(small_table, monkeypatch):
    monkeypatch.setattr("molattn.training.lightning.callbacks._SECONDS_IN_LOG", 0.0)
    console = Console(file=io.StringIO(), width=200)
    train(small_config(small_table), console)
    lines = re.findall(
        r"step (\d+)/(\d+)  (\d+) molecules/s  (\d+:\d\d:\d\d) left", console.file.getvalue()
    )
    assert [int(step) for step, *_ in lines] == [*range(1, len(lines) + 1)]
    assert {int(steps) for _, steps, *_ in lines} == {len(lines)}
    assert lines[-1][-1] == "0:00:00"
    assert all(int(rate) > 0 for *_, rate, _ in lines)


@pytest.mark.parametrize(
    "amx, width, options, expected",
    [
        (True, 256, {}, "bf16"),
        (True, 255, {}, "fp32"),
        (False, 256, {}, "fp32"),
        (True, 256, {"precision": "fp32"}, "fp32"),
        (False, 8, {"precision": "bf16"}, "bf16"),
    ],
)
def test_the_precision_is_chosen_by_width_and_cpu(monkeypatch, amx, width, options, expected):
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    config = SupervisedConfig(device="cpu", **options)
    assert _precision(config, width) == expected


@pytest.mark.parametrize("width, expected", [(128, False), (256, True)])
def test_the_width_of_the_network_alone_determines_the_precision(
    small_table, monkeypatch, width, expected
):
    """Heads and inputs may have wider matrices."""
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    console = Console(file=io.StringIO(), width=200)
    network = NetworkConfig(width=width, heads=2, layers=1, edge_width=4, head="both")
    options = replace(QUICK, epochs=1)
    train(TrainConfig(str(small_table), DATA, network, options), console)
    assert ("Precision: bf16" in console.file.getvalue()) == expected
