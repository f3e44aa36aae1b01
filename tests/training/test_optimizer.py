import csv

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from molattn.config import SupervisedConfig
from molattn.nn.prediction_head import MLPFourierHead
from molattn.training.history import Epoch, RunningMean, write_history
from molattn.training.lightning.module import TrainingModule
from molattn.training.optimizer import learning_rate_factor, new_optimizer


@given(st.sampled_from(["cosine", "linear", "constant"]), st.floats(0, 1), st.integers(2, 60))
def test_the_learning_rate_rises_then_follows_its_schedule(schedule, warmup, steps):
    config = SupervisedConfig(schedule=schedule, warmup=warmup)
    factor = learning_rate_factor(config, steps)
    rates = [factor(step) for step in range(steps + 1)]
    rising = sum(step < warmup * steps for step in range(steps + 1))
    assert all(0.0 <= rate <= 1.0 for rate in rates)
    assert rates[:rising] == sorted(rates[:rising])
    assert rates[rising:] == sorted(rates[rising:], reverse=True)
    if schedule == "constant":
        assert set(rates[rising:]) <= {1.0}
    elif warmup * steps <= steps - 1:
        assert rates[-1] == pytest.approx(0.0, abs=1e-9)


def test_schedules_pass_half_way_through_half():
    for schedule in ("cosine", "linear"):
        factor = learning_rate_factor(SupervisedConfig(schedule=schedule, warmup=0.5), 100)
        assert factor(50) == 1.0
        assert factor(75) == pytest.approx(0.5)


def test_biases_and_gains_do_not_decay():
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2))
    model[0].weight.requires_grad_(False)
    decayed, plain = new_optimizer(model, SupervisedConfig(weight_decay=0.3)).param_groups
    assert (len(decayed["params"]), decayed["weight_decay"]) == (0, 0.3)
    assert (len(plain["params"]), plain["weight_decay"]) == (3, 0.0)


def test_directions_of_fourier_features_do_not_decay():
    head = MLPFourierHead(5, 3, 2, 1, dropout=0.0)
    decayed, plain = new_optimizer(head, SupervisedConfig(weight_decay=0.3)).param_groups
    matrices = {head.mlp[0].weight, head.mlp[3].weight, head.fourier.out.weight}
    assert set(decayed["params"]) == matrices
    assert set(plain["params"]) == set(head.parameters()) - matrices


def test_a_running_mean_weighs_its_parts():
    mean = RunningMean()
    assert mean.pop() == 0.0
    mean.add(torch.tensor(6.0), torch.tensor(2))
    mean.add(torch.tensor(3.0), torch.tensor(1))
    assert mean.read() == [3.0, 3.0]
    assert mean.read() == []
    again = RunningMean(mean.total, mean.weight)
    assert mean.pop() == again.pop() == 3.0
    assert mean.weight == 0.0


def test_the_history_is_a_table(tmp_path):
    epochs = [Epoch(1, 0.9, 0.8, 1e-3, 1.0), Epoch(2, 0.5, 0.6, 1e-3, 1.0)]
    write_history(tmp_path, epochs)
    with open(tmp_path / "history.csv", newline="") as file:
        rows = [Epoch(*map(float, row.values())) for row in csv.DictReader(file)]
    assert rows == epochs


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_gradients_are_clipped_to_their_norm_with_a_fused_optimizer(precision):
    net = torch.nn.Linear(2, 2)
    config = SupervisedConfig(precision=precision)
    optimizer = new_optimizer(net, config)
    assert optimizer.defaults["fused"]
    for weight in net.parameters():
        weight.grad = torch.full_like(weight, 3.0)
    module = TrainingModule.__new__(TrainingModule)
    module.configure_gradient_clipping(optimizer, 0.5)
    total = sum(weight.grad.square().sum() for weight in net.parameters()).sqrt()
    assert total.item() == pytest.approx(0.5, rel=1e-5)
    module.configure_gradient_clipping(optimizer, None)
    assert sum(weight.grad.square().sum() for weight in net.parameters()).sqrt() == total
