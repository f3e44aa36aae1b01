"""Decide what the options leave open: initial model, epochs, precision, frozen weights, head.

Decided elsewhere: task and positive class by the cells of a column, in :mod:`molattn.data.labels`;
transforms by training labels, in ``scaling.py``; whether a kernel compares descriptors, by
embeddings of the trained network, in ``gaussian_process.py``; a new head by
:class:`MolAttnConfig`.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch

from molattn._torch_compat import has_amx
from molattn.chem.featurizer import FEATURIZERS, Featurizer
from molattn.chem.split import Split
from molattn.config import (
    FineTuningConfig,
    NetworkConfig,
    PretrainConfig,
    SupervisedConfig,
    TrainConfig,
    TrainingLoopConfig,
)
from molattn.config.training import Precision
from molattn.data.auxiliary_rows import learned_molecules
from molattn.data.dataset import TrainingTable, table_calculator
from molattn.errors import InputError
from molattn.model.artefact import PACKAGED, ModelFiles, is_packaged
from molattn.model.model import MolAttnConfig
from molattn.model.target_transform import TargetTransform
from molattn.nn.registry import check_head_width, check_network
from molattn.task import Task
from molattn.training.batches import rows_of_epoch
from molattn.training.fine_tuning import PretrainedWeights
from molattn.utils.registry import IMPORTED

NO_MODEL = "none"
"""Value of ``init_from`` for random initial weights."""
_DEFAULT_MODEL = "base"
_NO_TERM = "attn_bias=null"  # as each layer is without this option
_PRETRAINED_OPTIONS = {
    name: option.default
    for name, option in TrainConfig.options().items()
    if option.section == "network" and option.from_pretrained
}
"""Default of each option of the network on which pretrained weights depend."""

# After more, classifications of some thousand rows overfit (docs/accuracy.md).
_CLASSIFICATION_STEPS = 1_500
_MIN_EPOCHS = 10
_FEW_LABELS = 2_500  # of classes: training the encoder does not pay (docs/accuracy.md)
_MIN_WIDTH_OF_BF16 = 256  # narrower networks gain little, see docs/speed.md


_Run = TypeVar("_Run", TrainConfig, PretrainConfig)


def load_pretrained(
    config: _Run, varied: Collection[str] = ()
) -> tuple[_Run, PretrainedWeights | None]:
    """Select and load the model that a run starts from (``init_from``).

    Options of the network that the run leaves at their defaults are taken from that model, except
    those declared with ``from_pretrained: False`` in :class:`molattn.config.NetworkConfig`. In the
    run that is returned, ``init_from`` is an absolute path, a name, or ``none``, with which there
    is no model.

    Raises:
        InputError: Another option of the network differs from the model's.
    """
    section = "fine_tuning" if isinstance(config, TrainConfig) else "training"
    options = getattr(config, section)
    network = config.network
    check_network(network)
    if not {"heads", "width", "combine"} & set(varied):
        check_head_width(network)
    molecules = config.data if isinstance(config, TrainConfig) else config.molecules
    featurizer = FEATURIZERS[molecules.featurizer]()
    name = options.init_from
    if name == "auto":
        name = _DEFAULT_MODEL if _default_fits(network, featurizer, varied) else NO_MODEL
    if name == NO_MODEL:
        return replace(config, **{section: replace(options, init_from=name)}), None
    weights = PretrainedWeights.load(name, featurizer)
    pretrained = weights.model.config.network
    for key, value, expected in _differences(network, pretrained, varied):
        raise InputError(
            f"got {_words(value)}, but the model of --init-from {name} has {_words(expected)}; "
            f"use {_words(expected)}, leave it out, or use --init-from none",
            option=key,
        )
    copied = {name: getattr(pretrained, name) for name in _PRETRAINED_OPTIONS}
    inherited = [
        f"{name} {_words(value)}"
        for name, value in copied.items()
        if value not in (getattr(network, name), ())
    ]
    if inherited:
        weights = replace(weights, inherited=f" with its {', '.join(inherited)}")
    options = replace(options, init_from=weights.name)
    return replace(config, network=replace(network, **copied), **{section: options}), weights


def differences_from_default(network: NetworkConfig) -> str:
    """Return why the default pretrained model cannot be used, for the log; nothing if it can."""
    default = _default_config()
    differences = () if default is None else _differences(network, default.network, ())
    names = ", ".join(name for name, *_ in differences)
    return names and f": the pretrained model {_DEFAULT_MODEL} differs in {names}"


def _words(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _default_fits(network: NetworkConfig, featurizer: Featurizer, varied: Collection[str]) -> bool:
    """Return whether the default model is installed and fits the network and the featurizer."""
    default = _default_config()
    if default is None or featurizer != default.featurizer:
        return False
    return not any(_differences(network, default.network, varied))


def _default_config() -> MolAttnConfig | None:
    """The config of the default model; None if it is not installed."""
    if not is_packaged(_DEFAULT_MODEL):
        return None
    return MolAttnConfig.from_dict(ModelFiles.read(PACKAGED / _DEFAULT_MODEL).config)


def _differences(
    network: NetworkConfig, pretrained: NetworkConfig, varied: Collection[str]
) -> Iterator[tuple[str, object, object]]:
    """Yield the options that are neither at their default nor as in the pretrained model."""
    for name, default in _PRETRAINED_OPTIONS.items():
        value = getattr(network, name)
        expected = getattr(pretrained, name)
        if name == "layer_options":
            value = tuple(text for text in value if text != _NO_TERM)
        if name in varied:
            value = "multiple values"
        if value not in (default, expected):
            yield name, value, expected


@dataclass(frozen=True)
class ResolvedConfig:
    """The decisions of :func:`resolve`."""

    training: SupervisedConfig  # how networks are trained
    fine_tuning: FineTuningConfig  # what is frozen, and how the rest is trained
    model: MolAttnConfig  # the config of a new model, with the auxiliary columns as its last tasks
    keeps_head: bool  # whether the head of the initial model is kept, with its scaling of targets
    remarks: tuple[str, ...]  # log lines on what was decided


def resolve(
    config: TrainConfig, table: TrainingTable, split: Split, base: PretrainedWeights | None
) -> ResolvedConfig:
    """Decide what a run leaves open.

    - epochs: 30, or for tables that have only classes as many as 1,500 steps take, from 10 to 30;
    - precision: see :func:`resolve_precision`;
    - head: the initial model's head is kept if its tasks and inputs are the same, and its target
      transforms are not excluded by the options or the labels;
    - freeze: the encoder below a new head if there are only classes and at most 2,500 labels;
    - head steps and learning rate: by default, pretrained weights of a model of numbers of atoms
      or bonds alone learn as a new head does, because they were trained to predict molecules.
    """
    remarks = []
    learned_tasks = {*table.learned_tasks, *table.all_tasks}
    only_classes = all(task.kind != "regression" for task in learned_tasks)
    training = config.training
    epochs = training.num_epochs
    if training.epochs is None and only_classes:
        learned = learned_molecules(table, split)[0]
        rows = rows_of_epoch(learned, len(learned.records) - len(split.train))
        steps = -(-rows // training.batch_size)
        epochs = min(epochs, max(_MIN_EPOCHS, -(-_CLASSIFICATION_STEPS // steps)))
        if epochs < training.num_epochs:
            remarks.append(f"training for {epochs} epochs, as there are only classes (--epochs)")
    precision = resolve_precision(training, config.network.width)
    if precision != training.precision == "auto" and precision == "bf16":
        remarks.append("Precision: bf16, as this CPU has AMX (--precision)")
    model = _model_config(config, table)
    keeps_head = (
        base is not None
        and not table.sites
        and _fits_head(model, base, config.data.target_transform)
    )
    if base and keeps_head and not _have_logarithms(base.model.config, table, split):
        keeps_head = False
        remarks.append("new head, as a label lacks the logarithm that the initial model predicts")
    has_new_head = base is not None and not keeps_head
    tuning, remark = _resolve_tuning(config.fine_tuning, table, only_classes, has_new_head)
    remarks += [remark] * bool(remark)
    training = replace(training, epochs=epochs, precision=precision)
    return ResolvedConfig(training, tuning, model, keeps_head, tuple(remarks))


def _resolve_tuning(
    tuning: FineTuningConfig, table: TrainingTable, only_classes: bool, has_new_head: bool
) -> tuple[FineTuningConfig, str]:
    """Return how pretrained weights are trained, and a remark on what was decided."""
    is_default = tuning.backbone_lr_scale == FineTuningConfig.backbone_lr_scale
    remark = ""
    if tuning.freeze == "auto":
        tables = (table,) if table.auxiliary is None else (table, table.auxiliary)
        labels = sum(np.count_nonzero(~np.isnan(source.targets)) for source in tables)
        few = only_classes and labels <= _FEW_LABELS and not table.sites
        freezes = has_new_head and few and is_default
        tuning = replace(tuning, freeze="encoder" if freezes else "none")
        if freezes:
            remark = "only the head is trained, as there are few labels (--freeze none)"
    is_default = is_default and tuning.head_steps == FineTuningConfig.head_steps
    if has_new_head and is_default and table.sites and not table.tasks and not only_classes:
        tuning = replace(tuning, backbone_lr_scale=1.0, head_steps=0)
        remark = "all weights learn at one rate, as atoms or bonds alone are predicted"
    return tuning, remark


def _model_config(config: TrainConfig, table: TrainingTable) -> MolAttnConfig:
    data = config.data
    calculator = table_calculator(data)
    return MolAttnConfig(
        table.learned_tasks,
        config.network,
        FEATURIZERS[data.featurizer](),
        features=data.feature_columns,
        descriptors=calculator.descriptors,
        morgan_counts=calculator.morgan_counts,
        partner_column=data.partner_column,
        relation_columns=data.relation_columns[: len(table.tasks)],
        interval_columns=data.interval_columns,
        standardize=data.standardize,
        imports=tuple(IMPORTED),
        auxiliary_columns=data.auxiliary_columns,
        hydrogens=table.hydrogens,
        charge_tasks=data.charge_columns,
        atom_tasks=table.sites["atom"].tasks if "atom" in table.sites else (),
        bond_tasks=table.sites["bond"].tasks if "bond" in table.sites else (),
    )


def resolve_precision(config: TrainingLoopConfig, width: int) -> Precision:
    """Return the precision for a network of this width: bf16 pays on a CPU with AMX if wide."""
    if config.precision != "auto":
        return config.precision
    on_cpu = config.device == "cpu" or not (
        torch.cuda.is_available() or torch.backends.mps.is_available()
    )
    return "bf16" if on_cpu and width >= _MIN_WIDTH_OF_BF16 and has_amx() else "fp32"


def _fits_head(new: MolAttnConfig, base: PretrainedWeights, transforms: Sequence[str]) -> bool:
    old = base.model.config
    wanted = [*transforms] * len(new.tasks) if len(transforms) == 1 else transforms
    return (
        len(new.tasks) == len(old.tasks)
        and all(map(_same_task, new.tasks, old.tasks))
        and all(map(_same_transform, old.tasks, old.target_transforms, wanted))
        and _head_inputs(new) == _head_inputs(old)
        and not base.model.predictor.has_untrained_head
    )


def _have_logarithms(config: MolAttnConfig, table: TrainingTable, split: Split) -> bool:
    """Return whether all labels whose logarithm a model predicts are positive."""
    is_log = [transform.kind == "log" for transform in config.target_transforms]
    return not any(
        (molecules.labels_or_bounds[:, is_log] <= 0.0).any()
        for molecules in learned_molecules(table, split)
    )


def _same_task(new: Task, old: Task) -> bool:
    is_same = (new.name, new.kind, new.classes) == (old.name, old.kind, old.classes)
    return is_same and len({new.unit, old.unit} - {""}) < 2


def _same_transform(task: Task, transform: TargetTransform, wanted: str) -> bool:
    return task.kind != "regression" or wanted in ("auto", transform.kind)


def _head_inputs(config: MolAttnConfig) -> tuple[object, ...]:
    """Return the kind of the head, and its inputs besides the readout of one molecule."""
    return (
        config.network.head,
        config.custom_parts,
        config.features,
        config.descriptors,
        config.morgan_counts,
        config.has_partner,
    )
