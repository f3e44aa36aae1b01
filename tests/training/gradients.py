"""Train for two epochs, here or in two processes, and keep all gradients; the first writes them."""

import os
import sys
from unittest.mock import patch

import numpy as np
import torch

from molattn.config import NetworkConfig, SupervisedConfig
from molattn.data.dataset import Molecules
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.task import Task
from molattn.training.batches import LabeledLoader
from molattn.training.fine_tuning import FineTuningPlan
from molattn.training.loop import fit
from molattn.training.losses import LabeledObjective, TaskLoss
from molattn.training.module import TrainingModule
from molattn.utils.process_group import joined_group

SMALL = NetworkConfig(
    width=8,
    heads=2,
    layers=1,
    edge_width=4,
    norm="layer",  # each process has batch statistics of its own
    dropout=0.0,
    head_dropout=0.0,
    head="mlp",
)
# So slow that the weights stay as they are, and gradients of all steps can be compared.
LOOP = {"epochs": 2, "learning_rate": 1e-12, "weight_decay": 0.0, "device": "cpu"}
LOOP |= {"batch_size": 5, "precision": "fp32"}  # the last batch has one molecule


def fitted(*given):
    """Return the gradients of each step, summed over the processes, and the losses."""
    steps = []

    def keep(module, optimizer, *args, **kwargs):
        found = [weight.grad for weight in module.parameters()]
        known = [grad.flatten().double() for grad in found if grad is not None]
        steps.append(torch.cat(known).numpy())

    with patch.object(TrainingModule, "configure_gradient_clipping", keep):
        history = fit(*given)
    return [*steps, np.array([epoch[1:3] for epoch in history.curve])]


def supervised(network=SMALL):
    """Two targets with missing and censored labels, weights, and weights frozen at first."""
    torch.manual_seed(0)
    model = MolAttn(MolAttnConfig((Task("y"), Task("z", "binary", ("no", "yes"))), network))
    random = np.random.default_rng(0)
    records = [model.featurize("C" * (1 + n % 13) + "O" * (n % 2)) for n in range(21)]
    targets = np.stack([random.normal(size=21), random.integers(2, size=21)], axis=1)
    targets[random.random((21, 2)) < 0.4] = np.nan
    bounds = np.full((2, 21, 2), np.nan)
    bounds[0, np.flatnonzero(np.isnan(targets[:, 0]))[:3], 0] = 0.5
    weights = random.random(21)
    rows = Molecules(records, targets, weights / weights.mean(), None, bounds)
    names = [name for name, _ in model.named_parameters() if "encoder" in name]
    plan = FineTuningPlan(dict.fromkeys(names, 1.0), head_steps=3)
    config = SupervisedConfig(loss="huber", positive_weight=2.0, **LOOP)
    loss = TaskLoss(model.config.tasks, config, torch.from_numpy(targets))
    loaders = [LabeledLoader(model, rows, 5, seed) for seed in (0, None)]
    return fitted(LabeledObjective(model, loss, plan), *loaders, config)


def compute():
    return {str(n): one for n, one in enumerate(supervised())}


if __name__ == "__main__":  # as two processes, of which the second is a copy of the first
    child = os.fork()
    os.environ |= dict.fromkeys(("RANK", "LOCAL_RANK"), "0" if child else "1")
    with joined_group():
        found = compute()
    if child:
        np.savez(sys.argv[1], **found)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
