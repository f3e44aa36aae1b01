"""The training loop: what is learned, kept, stopped and logged, without waiting for a device."""

import io
import signal
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lightning.pytorch.callbacks import Timer
from rich.console import Console
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from molattn.config import NetworkConfig, SupervisedConfig
from molattn.data.dataset import Molecules
from molattn.errors import InputError, MolattnError
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.target_transform import IdentityTransform, YeoJohnsonTransform
from molattn.nn import LAYERS
from molattn.nn.prediction_head import MLPFourierHead
from molattn.nn.readout import READOUTS
from molattn.task import Task
from molattn.training.batches import LabeledLoader
from molattn.training.fine_tuning import FineTuningPlan
from molattn.training.module import TrainingModule, learning_rate_factor, new_optimizer

from .fitting import QUICK, fitted, molecules, new_model, objective_of

LABELS = [[float(n)] for n in range(12)]
FAST = replace(QUICK, learning_rate=0.01)


def losses(history):
    return [epoch.validation_loss for epoch in history.curve]


def test_training_learns_and_keeps_its_best_epoch():
    model = new_model()
    rows = molecules(model, LABELS)
    best = replace(FAST, epochs=40, checkpoint="best", warmup=0.4)
    history = fitted(model, rows, rows, best)
    found = losses(history)
    assert min(found) < 0.3 * found[0]
    assert found[history.kept_epoch - 1] == min(found)
    error = model.predictor.values(model.predictor.predict_outputs(rows.records)) - rows.targets
    assert np.mean((error / rows.targets.std()) ** 2) == pytest.approx(min(found), rel=1e-4)
    assert not model.training
    rates = [epoch.learning_rate for epoch in history.curve]
    assert rates[:16] == sorted(rates[:16])
    assert rates[16:] == sorted(rates[16:], reverse=True)
    assert rates[-1] == pytest.approx(0.0, abs=1e-12)


def test_the_last_weights_are_kept_and_training_stops_without_improvement():
    model = new_model()
    rows = molecules(model, LABELS)
    contrary = Molecules(rows.records, rows.targets[::-1].copy())
    config = replace(FAST, epochs=60, patience=3)
    history = fitted(model, rows, contrary, config)
    found = losses(history)
    assert len(found) == history.kept_epoch < 60
    assert np.argmin(found) == len(found) - 4
    error = (
        model.predictor.values(model.predictor.predict_outputs(contrary.records)) - contrary.targets
    ) / rows.targets.std()
    assert np.mean(error**2) == pytest.approx(found[-1], rel=1e-4)


@pytest.mark.parametrize("where", ["training", "validation"])
def test_a_diverging_training_is_stopped(where):
    model = new_model()
    rows = molecules(model, LABELS[:6])
    if where == "training":
        with torch.no_grad():
            next(p for p in model.nets[0].head.parameters() if p.ndim == 1).fill_(torch.nan)
    bad = replace(rows, targets=rows.targets * 1e38) if where == "validation" else rows
    with pytest.raises(MolattnError, match="diverged") as error:
        fitted(model, rows, bad)
    assert not isinstance(error.value, InputError)


def test_an_interrupt_restores_handlers_and_weights(monkeypatch):
    handler = signal.getsignal(signal.SIGINT)

    def interrupt(*args):
        raise KeyboardInterrupt

    model = new_model()
    rows = molecules(model, LABELS)
    monkeypatch.setattr(MolAttn, "forward", interrupt)
    names = [name for name, _ in model.named_parameters() if "encoder" in name]
    with pytest.raises(KeyboardInterrupt):
        fitted(model, rows, rows, plan=FineTuningPlan(dict.fromkeys(names, 1.0), head_steps=9))
    assert signal.getsignal(signal.SIGINT) is handler
    assert all(weight.requires_grad for weight in model.parameters())


@pytest.mark.parametrize("terminal", [True, False])
def test_only_our_own_progress_is_shown(capfd, terminal):
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=terminal, width=80)
    model, before = new_model(), torch.get_num_threads()
    rows = molecules(model, LABELS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.manual_seed(1)
        expected = torch.rand(3)
        torch.manual_seed(1)
        fitted(model, rows, rows, replace(QUICK, threads=before + 1), console=console)
    assert tuple(capfd.readouterr()) == ("", "")
    assert "epoch 2/2  train loss " in shown.getvalue()
    assert not terminal or "training" in shown.getvalue()  # else after some seconds alone
    assert torch.equal(torch.rand(3), expected)
    assert torch.get_num_threads() == before


@given(st.sampled_from(["cosine", "linear", "constant"]), st.floats(0, 1), st.integers(2, 60))
def test_the_learning_rate_rises_then_follows_its_schedule(schedule, warmup, steps):
    factor = learning_rate_factor(SupervisedConfig(schedule=schedule, warmup=warmup), steps)
    rates = [factor(step) for step in range(steps + 1)]
    rising = sum(step < warmup * steps for step in range(steps + 1))
    assert all(0.0 <= rate <= 1.0 for rate in rates)
    assert rates[:rising] == sorted(rates[:rising])
    assert rates[rising:] == sorted(rates[rising:], reverse=True)
    if schedule == "constant":
        assert set(rates[rising:]) <= {1.0}
    elif warmup * steps <= steps - 1:
        assert rates[-1] == pytest.approx(0.0, abs=1e-9)


def test_biases_gains_and_directions_do_not_decay():
    head = MLPFourierHead(5, 3, 2, 1, dropout=0.0)
    head.mlp[0].bias.requires_grad_(False)
    decayed, plain = new_optimizer(head, SupervisedConfig(weight_decay=0.3)).param_groups
    matrices = {head.mlp[0].weight, head.mlp[3].weight, head.fourier.out.weight}
    assert set(decayed["params"]) == matrices
    assert set(plain["params"]) == {*head.parameters()} - matrices - {head.mlp[0].bias}
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.3, 0.0)


# A step on ``meta``, whose tensors have no values to read: what would wait for a GPU is an error.

CLASSES = Task("b", "binary", ("0", "1")), Task("c", "multiclass", ("x", "y", "z"))
TASKS = (Task("y"), Task("z"), *CLASSES)
NET = NetworkConfig(width=16, heads=2, layers=1)
WAITING = {"median", "set_transformer"}  # PyG reads back the sizes of graphs in these
READERS = "+".join(name for name in READOUTS if name not in WAITING)
NETWORKS = [
    {"attention_dropout": 0.1, "self_loops": False, "score": "additive"},
    {"gate": True, "walk_length": 3},
    {"update_edges": True, "head": "mlp", "readout": READERS},
    {},
    *({"layer": layer} for layer in LAYERS),
]


class Devices(TorchDispatchMode):
    """Records the operations that read or write a tensor on the CPU."""

    def __init__(self):
        super().__init__()
        self.on_cpu = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        tensors = [x for x in tree_leaves((args, kwargs, out)) if isinstance(x, torch.Tensor)]
        if any(x.device.type == "cpu" for x in tensors):
            self.on_cpu.append(str(func))
        return out


@pytest.mark.parametrize("options", NETWORKS, ids=str)
def test_a_step_does_not_wait_for_the_device(options):
    column = None if options else "solvent"
    model = MolAttn(MolAttnConfig(TASKS, replace(NET, **options), partner_column=column))
    transforms = [YeoJohnsonTransform(0.5), *[IdentityTransform()] * 3]
    model.set_target_scaling(np.zeros(4), np.ones(4), transforms)
    smiles = ["CCO", "c1ccccc1C", "C", "CCN.Cl"]
    records = model.networks.reader(column and smiles).all(smiles, column and ["CCO", "O"] * 2)
    targets, bounds = np.zeros((4, 4)), np.full((2, 4, 4), np.nan)
    targets[0], bounds[0, 0, 0] = np.nan, 1.0
    rows = Molecules(records, targets, np.ones(4), None, bounds)
    loader = LabeledLoader(model, rows, 4)
    module = TrainingModule(objective_of(model, rows), loader, QUICK, Timer())
    module = module.to("meta").train()
    batch = module.transfer_batch_to_device(next(iter(loader)), torch.device("meta"), 0)
    with Devices() as seen:
        module.training_step(batch, 0).backward()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        module.configure_gradient_clipping(optimizer, 1.0)
        module.validation_step(batch, 0)
    assert seen.on_cpu == []
