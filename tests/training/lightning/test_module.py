"""A training step without a wait for the device: on ``meta``, whose tensors have no values to read.

An operation that would wait for a GPU, such as ``item`` or ``nonzero``, raises an error there.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from molattn.config import NetworkConfig, SupervisedConfig
from molattn.data.dataset import Molecules
from molattn.errors import MolattnError
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.target_transform import RankTransform, TargetTransform, YeoJohnsonTransform
from molattn.nn import LAYERS
from molattn.nn.readout import READOUTS
from molattn.task import Task
from molattn.training.batches import LabeledLoader
from molattn.training.lightning import module as lightning_module
from molattn.training.lightning.loop import fit
from molattn.training.lightning.module import TrainingModule
from molattn.training.losses import TaskLoss
from molattn.training.optimizer import FineTuningPlan
from molattn.training.supervised import _LabeledObjective

SMILES = ["CCO", "c1ccccc1C", "C", "CC(=O)NC1CC1", "CCN.Cl"]
NET = NetworkConfig(width=16, heads=2, layers=1)
TASKS = (
    Task("y"),
    Task("ranked"),
    Task("b", "binary", classes=("0", "1")),
    Task("c", "multiclass", classes=("x", "y", "z")),
)
# PyG reads back the sizes of graphs in these.
WAITING = {"median", "set_transformer"}
NETWORKS = [
    {"attention_dropout": 0.1},
    {"self_loops": False},
    {"pairs": "bonds", "gate": True},
    {"update_edges": True},
    {"score": "additive"},
    {"head": "mlp", "readout": "+".join(name for name in READOUTS if name not in WAITING)},
    *({"layer": layer, "pairs": pairs} for layer in LAYERS for pairs in ("all", "bonds")),
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


def labeled(smiles, model, partner=None):
    reader = model.reader(None if partner is None else smiles)
    records = reader.all(smiles, None if partner is None else [partner, "O"] * 2 + ["CCCC"])
    targets = np.zeros((len(smiles), len(model.config.tasks)))
    targets[0] = np.nan
    bounds = np.full((2, *targets.shape), np.nan)
    bounds[0, 0, 0] = 1.0
    return Molecules(records, targets, np.ones(len(smiles)), None, bounds)


def module_and_batch(config, smiles=SMILES, partner=None):
    model = MolAttn(config)
    scaling = np.zeros(len(config.tasks)), np.ones(len(config.tasks))
    transforms = [RankTransform((0.0, 1.0), (-1.0, 1.0)), YeoJohnsonTransform(0.5)]
    transforms = [*transforms, *(TargetTransform(),) * 2] if len(config.tasks) == 4 else ()
    model.set_target_scaling(*scaling, transforms)
    molecules = labeled(smiles, model, partner)
    training = SupervisedConfig()
    loss = TaskLoss(config.tasks, training, torch.from_numpy(molecules.targets))
    objective = _LabeledObjective(model, loss)
    loader = LabeledLoader(model, molecules, len(smiles))
    module = TrainingModule(objective, loader, training, FineTuningPlan(), {})
    return module.to("meta").train(), next(iter(loader))


def step(module, batch):
    """Train on a batch as Lightning does, and return the operations on tensors of the CPU."""
    batch = module.transfer_batch_to_device(batch, torch.device("meta"), 0)
    with Devices() as seen:
        module.training_step(batch, 0).backward()
        optimizer = torch.optim.SGD(module.objective.trained.parameters(), lr=0.1)
        module.configure_gradient_clipping(optimizer, 1.0)
        optimizer.step()
        module.validation_step(batch, 0)
    return seen.on_cpu


@pytest.mark.parametrize(
    "options", NETWORKS, ids=lambda options: "-".join(map(str, options.values()))
)
def test_a_step_does_not_wait_for_the_device(options):
    config = MolAttnConfig(TASKS, replace(NET, **options))
    assert step(*module_and_batch(config)) == []


@pytest.mark.parametrize("partner", ["concat", "cross_attention"])
def test_a_step_with_second_molecules_does_not_wait_for_the_device(partner):
    config = MolAttnConfig(("y",), replace(NET, partner=partner), partner_column="solvent")
    assert step(*module_and_batch(config, partner="CCO")) == []


def test_a_step_of_several_processes_does_not_wait_for_the_device(monkeypatch):
    monkeypatch.setattr(lightning_module, "num_processes", lambda: 2)
    monkeypatch.setattr(lightning_module, "process_rank", lambda: 0)
    monkeypatch.setattr(lightning_module, "summed", lambda values: values)
    assert step(*module_and_batch(MolAttnConfig(("y",), NET))) == []


@pytest.mark.parametrize("is_read", [True, False])
def test_several_processes_stop_at_a_step_whose_loss_is_read(monkeypatch, is_read):
    module, _ = module_and_batch(MolAttnConfig(("y",), NET))
    monkeypatch.setattr(lightning_module, "num_processes", lambda: 2)
    monkeypatch.setattr(lightning_module, "process_rank", lambda: 1)
    monkeypatch.setattr(lightning_module, "summed", lambda values: values + 2)
    monkeypatch.setattr(lightning_module, "_is_read", lambda part, index: is_read)
    assert module._agree(torch.tensor(5.0), 7) == 7
    assert getattr(module.interrupt(), "signum", None) == (2 if is_read else None)
    assert module.is_time_over() is is_read


def test_a_decision_of_the_last_step_does_not_end_the_validation(monkeypatch):
    module, _ = module_and_batch(MolAttnConfig(("y",), NET))
    monkeypatch.setattr(lightning_module, "num_processes", lambda: 2)
    module._agreed = 15, True
    module.on_validation_epoch_start()
    assert module.interrupt(5.0) is None
    assert not module.is_time_over()


WAITS = {"_local_scalar_dense", "nonzero", "is_nonzero", "equal", "_unique2", "masked_select"}


class Waits(TorchDispatchMode):
    """Counts the operations that would wait for a GPU, other than ``tolist``."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func.overloadpacket.__name__ in WAITS
        return func(*args, **(kwargs or {}))


def test_lightning_and_the_optimizer_do_not_wait_in_a_step():
    counts = []
    for epochs in (1, 3):
        model = MolAttn(MolAttnConfig(("y",), NET))
        molecules = labeled(SMILES * 4, model)
        loss = TaskLoss(model.config.tasks, SupervisedConfig(), torch.from_numpy(molecules.targets))
        training = SupervisedConfig(epochs=epochs, batch_size=4, device="cpu")
        loader = LabeledLoader(model, molecules, 4)
        with Waits() as seen:
            fit(_LabeledObjective(model, loss), loader, None, training)
        counts.append(seen.count)
    assert counts[0] == counts[1] < 5


def test_a_loss_that_is_read_later_is_reported_with_its_step():
    module, _ = module_and_batch(MolAttnConfig(("y",), NET))
    for total in (1.0, torch.nan, 1.0):
        module._train.add(torch.tensor(total), torch.tensor(2.0))
    module._latest_step = 7
    with pytest.raises(MolattnError, match=r"the loss became nan in epoch 1, step 6"):
        module._read_losses()


def test_losses_of_the_cpu_are_read_at_once():
    config = MolAttnConfig(("y",), NET)
    model = MolAttn(config)
    loss = TaskLoss(config.tasks, SupervisedConfig(), torch.zeros(len(SMILES), 1))
    loader = LabeledLoader(model, labeled(SMILES, model), len(SMILES))
    objective = _LabeledObjective(model, loss)
    module = TrainingModule(objective, loader, SupervisedConfig(), FineTuningPlan(), {})
    module.training_step(next(iter(loader)), 0)
    assert module._train._unread == []
    assert module._train.weight == len(SMILES)
