"""Train a small model on molecules in memory."""

import numpy as np
import pytest
import torch

from molattn.config import NetworkConfig, SupervisedConfig
from molattn.data.dataset import Molecules
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.networks import Networks
from molattn.training.batches import LabeledLoader
from molattn.training.fine_tuning import FineTuningPlan
from molattn.training.loop import fit
from molattn.training.losses import LabeledObjective, TaskLoss
from molattn.training.run import train
from molattn.training.scaling import scale_by

TINY = NetworkConfig(width=8, heads=2, layers=1, edge_width=4, dropout=0.1)
QUICK = SupervisedConfig(epochs=2, batch_size=8, device="cpu", precision="fp32")


def new_model(tasks=("y",), network=TINY):
    torch.manual_seed(0)
    return MolAttn(MolAttnConfig(tasks, network))


def molecules(model, targets):
    smiles = ["C" * (n + 1) for n in range(len(targets))]
    return Molecules([model.featurize(text) for text in smiles], np.array(targets))


def objective_of(model, rows, config=QUICK, plan=FineTuningPlan()):
    loss = TaskLoss(model.config.tasks, config, torch.from_numpy(rows.targets))
    return LabeledObjective(model, loss, plan)


def fitted(model, rows, validation, config=QUICK, plan=FineTuningPlan(), **options):
    """Train a model, and return its history."""
    scale_by(model, rows)
    loaders = (
        LabeledLoader(model, rows, config.batch_size, config.seed),
        LabeledLoader(model, validation, config.batch_size) if validation else None,
    )
    return fit(objective_of(model, rows, config, plan), *loaders, config, **options)


class Killed(BaseException):
    """What no code of ours catches."""


def interrupted(monkeypatch, config, folder, step):
    """Train into a folder, dying at a training step counted from 1 over all members."""
    compute, steps = Networks.outputs_and_embedding, 0

    def counted(self, *args):
        nonlocal steps
        steps += self.nets.training
        if steps == step:
            raise Killed
        return compute(self, *args)

    folder.mkdir(exist_ok=True)
    with monkeypatch.context() as patch:
        patch.setattr(Networks, "outputs_and_embedding", counted)
        with pytest.raises(Killed):
            train(config, folder=folder)
