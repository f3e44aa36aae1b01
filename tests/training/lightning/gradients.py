"""Train for an epoch in this process, or in the group that the environment describes, and keep all
gradients; the first process writes them to a file."""

import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

from molattn.config import MoleculesConfig, NetworkConfig, PretrainLoopConfig, SupervisedConfig
from molattn.data.dataset import Molecules
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.pretraining.batches import MaskedLoader, PretrainingData
from molattn.pretraining.objective import GROUPS, PretrainingObjective
from molattn.pretraining.prepare import prepare_molecules
from molattn.pretraining.scaling import descriptor_scaling
from molattn.task import Task
from molattn.training.lightning.loop import fit
from molattn.training.lightning.module import TrainingModule
from molattn.training.optimizer import FineTuningPlan
from molattn.training.supervised import fit_model
from molattn.utils.process_group import joined_group

SMALL = NetworkConfig(
    width=8, heads=2, layers=1, edge_width=4, dropout=0.0, head_dropout=0.0, head="mlp"
)
# So slow that the weights stay as they are, and gradients of all steps can be compared.
LOOP = {"epochs": 2, "learning_rate": 1e-12, "weight_decay": 0.0, "device": "cpu"}
BATCH = 5  # the last batch has one molecule


class Gradients:
    """The gradients of each step, after those of all processes were added up."""

    def __init__(self):
        self.steps = []

    def __enter__(self):
        def keep(module, optimizer, *args, **kwargs):
            found = [weight.grad for weight in module.parameters()]
            known = [grad.flatten().double() for grad in found if grad is not None]
            self.steps.append(torch.cat(known).numpy())

        self._patch = patch.object(TrainingModule, "configure_gradient_clipping", keep)
        self._patch.__enter__()
        return self

    def __exit__(self, *exception):
        self._patch.__exit__(*exception)


def supervised():
    """Two targets with missing and censored labels, weights, and weights frozen at first."""
    torch.manual_seed(0)
    model = MolAttn(MolAttnConfig((Task("y"), Task("z", "binary", ("no", "yes"))), SMALL))
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
    config = SupervisedConfig(batch_size=BATCH, loss="huber", positive_weight=2.0, **LOOP)
    with Gradients() as found:
        history = fit_model(model, rows, rows, config, plan=plan)
    return found.steps, history


def pretraining(folder):
    """All losses of pretraining."""
    config = MoleculesConfig(masked_molecules=0.4)
    store = prepare_molecules([str(folder / "some.smi")], config, folder / "store")
    rows = np.arange(21)
    scaling = descriptor_scaling(store, rows)
    torch.manual_seed(0)
    model = MolAttn(MolAttnConfig(tuple(map(Task, scaling.names)), SMALL))
    objective = PretrainingObjective(
        model, dict.fromkeys(GROUPS, 1.0), torch.zeros(model_counts(store)), GROUPS
    )
    data = PretrainingData(store, scaling, config)
    loaders = [MaskedLoader(model, data, rows, BATCH, mask_seed=3, order_seed=s) for s in (1, None)]
    with Gradients() as found:
        history = fit(objective, *loaders, PretrainLoopConfig(batch_size=BATCH, **LOOP))
    return found.steps, history


def model_counts(store):
    return store.log_counts(np.arange(1)).shape[1]


def compute(folder):
    """Return the gradients and losses of both, by name."""
    found = {}
    for name, (steps, history) in (("train", supervised()), ("pretrain", pretraining(folder))):
        found |= {f"{name}_{place}": one for place, one in enumerate(steps)}
        found[f"{name}_losses"] = [epoch[1:3] for epoch in history.epochs]
    return found


if __name__ == "__main__":
    with joined_group() as is_first:
        if is_first:
            np.savez(sys.argv[2], **compute(Path(sys.argv[1])))
