"""Epochs, precision, frozen weights and head of a run, which depend on its table.

Decided elsewhere: ``init_from``, by whose network the table is read, in ``fine_tuning.py``; task
and positive class by the cells of a column, in :mod:`molattn.data.labels`; transforms by training
labels, in ``scaling.py``; whether a kernel compares descriptors, by embeddings of the trained
network, in ``gaussian_process.py``; a new head by :class:`MolAttnConfig`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from molattn._torch_compat import has_amx
from molattn.chem.featurizer import FEATURIZERS
from molattn.chem.split import Split
from molattn.config import FineTuningConfig, SupervisedConfig, TrainConfig, TrainingLoopConfig
from molattn.config.training import Precision
from molattn.data.dataset import TrainingTable, table_calculator
from molattn.model.model import MolAttnConfig
from molattn.model.target_transform import TargetTransform
from molattn.task import Task
from molattn.training.fine_tuning import PretrainedWeights

__all__ = ["ResolvedConfig", "resolve", "resolve_precision"]

# After more, classifications of some thousand rows overfit (docs/accuracy.md).
_CLASSIFICATION_STEPS = 1_500
_LEAST_EPOCHS = 10
_FEW_LABELS = 2_500  # of classes: training the encoder does not pay (docs/accuracy.md)
_LEAST_WIDTH_OF_BF16 = 256  # narrower networks gain little, see docs/speed.md


@dataclass(frozen=True)
class ResolvedConfig:
    """What :func:`resolve` decides.

    Args:
        training: How networks are trained.
        fine_tuning: What of the initial model is frozen, and how the rest is trained.
        model: The config of a new model.
        keeps_head: Whether the head of the initial model is kept, with its scaling of targets.
        remarks: Log lines on what was decided.
    """

    training: SupervisedConfig
    fine_tuning: FineTuningConfig
    model: MolAttnConfig
    keeps_head: bool
    remarks: tuple[str, ...]


def resolve(
    config: TrainConfig, table: TrainingTable, split: Split, base: PretrainedWeights | None
) -> ResolvedConfig:
    """Decide what a run leaves open.

    - epochs: 30, or for tables that have only classes as many as 1,500 steps take, from 10 to 30;
    - precision: see :func:`resolve_precision`;
    - head: that of the model to start from is kept if the tasks and the inputs of the head are the
      same and no other target transforms are asked for;
    - freeze: the encoder below a new head if there are only classes and at most 2,500 labels.
    """
    remarks = []
    only_classes = all(task.kind != "regression" for task in table.tasks)
    training, tuning = config.training, config.fine_tuning
    epochs = training.num_epochs
    if training.epochs is None and only_classes:
        steps = -(-len(split.train) // training.batch_size)
        epochs = min(epochs, max(_LEAST_EPOCHS, -(-_CLASSIFICATION_STEPS // steps)))
        if epochs < training.num_epochs:
            remarks.append(f"training for {epochs} epochs, as there are only classes (--epochs)")
    precision = resolve_precision(training, config.network.width)
    if precision != training.precision == "auto" and precision == "bf16":
        remarks.append("Precision: bf16, as this CPU has AMX (--precision)")
    calculator = table_calculator(config.data)
    model = MolAttnConfig(
        table.tasks,
        config.network,
        FEATURIZERS[config.data.featurizer](),
        features=config.data.feature_columns,
        descriptors=calculator.descriptors,
        morgan_counts=calculator.morgan_counts,
        partner_column=config.data.partner_column,
        relation_columns=config.data.relation_columns,
        standardize=config.data.standardize,
    )
    keeps_head = base is not None and _fits_head(model, base, config.data.target_transform)
    if tuning.freeze == "auto":
        few = only_classes and np.count_nonzero(~np.isnan(table.targets)) <= _FEW_LABELS
        is_default = tuning.backbone_lr_scale == FineTuningConfig.backbone_lr_scale
        freezes = base is not None and few and is_default and not keeps_head
        tuning = replace(tuning, freeze="encoder" if freezes else "none")
        if freezes:
            remarks.append("only the head is trained, as there are few labels (--freeze none)")
    training = replace(training, epochs=epochs, precision=precision)
    return ResolvedConfig(training, tuning, model, keeps_head, tuple(remarks))


def resolve_precision(config: TrainingLoopConfig, width: int) -> Precision:
    """Return the precision for a network of this width: bf16 pays on a CPU with AMX if wide."""
    if config.precision != "auto":
        return config.precision
    on_cpu = config.device == "cpu" or not (
        torch.cuda.is_available() or torch.backends.mps.is_available()
    )
    return "bf16" if on_cpu and width >= _LEAST_WIDTH_OF_BF16 and has_amx() else "fp32"


def _fits_head(new: MolAttnConfig, base: PretrainedWeights, transforms: Sequence[str]) -> bool:
    old = base.model.config
    wanted = [*transforms] * len(new.tasks) if len(transforms) == 1 else transforms
    return (
        len(new.tasks) == len(old.tasks)
        and all(map(_same_task, new.tasks, old.tasks))
        and all(map(_same_transform, old.tasks, old.target_transforms, wanted))
        and _head_inputs(new) == _head_inputs(old)
        and not base.model.has_untrained_head
    )


def _same_task(one: Task, other: Task) -> bool:
    is_same = (one.name, one.kind, one.classes) == (other.name, other.kind, other.classes)
    return is_same and len({one.unit, other.unit} - {""}) < 2


def _same_transform(task: Task, known: TargetTransform, wanted: str) -> bool:
    if task.kind != "regression":
        return True
    # Ranks have no value beyond the labels that they were fitted to.
    return wanted in ("auto", known.kind) and known.kind != "ranks"


def _head_inputs(config: MolAttnConfig) -> tuple[object, ...]:
    """Return the kind of the head, and its inputs besides the readout of one molecule."""
    return (
        config.network.head,
        config.custom_parts,
        config.features,
        config.descriptors,
        config.morgan_counts,
        config.network.partner if config.has_partner else None,
    )
