"""Fine-tuning: training from the weights of a trained model."""

import copy
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TypeVar

from molattn.chem.featurizer import FEATURIZERS, Featurizer
from molattn.chem.fingerprint_index import FingerprintIndex
from molattn.config import FineTuningConfig, NetworkConfig, PretrainConfig, TrainConfig
from molattn.errors import InputError, quoted
from molattn.model.artefact import ModelFiles, find_model, is_packaged
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.target_transform import TargetTransform
from molattn.nn.registry import check_heads, check_network
from molattn.task import Task
from molattn.training.optimizer import FineTuningPlan

__all__ = ["NO_MODEL", "PretrainedWeights", "load_pretrained"]

NO_MODEL = "none"
"""Value of ``init_from`` for random initial weights."""
_AUTO = "auto"
_DEFAULT_MODEL = "base"
_MAX_NAMED_TASKS = 3
_BACKBONE = ("atom_embedding", "pair_embedding", "encoder", "readout")
_HEAD = ("head", "cross")

_Run = TypeVar("_Run", TrainConfig, PretrainConfig)


@dataclass(frozen=True)
class PretrainedWeights:
    """A trained model whose weights initialize new models."""

    name: str
    model: MolAttn
    digest: str

    @classmethod
    def load(
        cls, name: str, featurizer: Featurizer, files: ModelFiles | None = None
    ) -> "PretrainedWeights":
        """Load a model by its name or folder; ``files`` are its files if they have been read.

        Raises:
            InputError: If there is no such model, or its featurizer is another one.
        """
        files = files or ModelFiles.read(find_model(name))
        files.check()
        model = MolAttn.from_files(files)
        for setting in fields(featurizer):
            got = getattr(model.config.featurizer, setting.name)
            expected = getattr(featurizer, setting.name)
            if got != expected:
                if isinstance(got, tuple):
                    got, expected = _others(got, expected), _others(expected, got)
                raise InputError(
                    f"--init-from: the featurizer of {name} differs in {setting.name}: "
                    f"got {quoted(got)}, expected {quoted(expected)}; select its "
                    "featurizer with --featurizer"
                )
        # A path is made absolute, so that the run can be repeated from anywhere.
        is_path = Path(name).exists() and not is_packaged(name)
        return cls(str(Path(name).absolute()) if is_path else name, model, files.digest)

    @property
    def molecules(self) -> FingerprintIndex | None:
        """Fingerprints of its training molecules, if saved."""
        return self.model.uncertainty and self.model.uncertainty.molecules

    def apply(
        self,
        model: MolAttn,
        member: int,
        options: FineTuningConfig,
        *,
        with_head: bool = True,
        transforms: Sequence[str] = ("auto",),
        few_classes: bool = False,
    ) -> tuple[FineTuningPlan, str]:
        """Copy the weights into a new model of one network, and freeze some of them.

        Embeddings, encoder, readout and projection are copied. The head, the target transforms and
        the scaling of targets and features are copied too, if the tasks and the inputs of the head
        are the same and no other transforms are asked for.

        Args:
            model: The new model.
            member: Number of the network in its ensemble, from 0. If the pretrained model is an
                ensemble itself, its members are used in turn.
            options: What to freeze, and how to train the rest.
            with_head: Whether the head may be copied.
            transforms: Target transforms asked for: one for all tasks, or one for each.
            few_classes: Whether the table has only classes, and few labels.

        Returns:
            How to train the model, and a log message.

        Raises:
            InputError: If there are fewer blocks than to be frozen, or either model has a custom
                encoder or readout.
        """
        for one in (model, self.model):
            for part, kind in one.config.custom_parts:
                if part != "head":
                    raise InputError(
                        f"--init-from {self.name} cannot be used with a custom {part} ({kind}); "
                        "use --init-from none"
                    )
        place = member % len(self.model.nets)
        (new,), old = model.nets, self.model.nets[place]
        keeps_head = with_head and self._fits_head(model, transforms)
        children = dict(old.named_children())
        names = [*_BACKBONE, *(name for name in _HEAD if keeps_head and name in children)]
        for name in names:
            new.get_submodule(name).load_state_dict(children[name].state_dict())
        new.register_buffer("projection", copy.deepcopy(old.get_buffer("projection")))
        if keeps_head:
            for name, buffer in model.named_buffers(recurse=False):
                buffer.copy_(self.model.get_buffer(name))
            known = self.model.config.target_transforms
            model.config = replace(model.config, target_transforms=known)
        model.freeze(options.frozen(few_classes and not keeps_head))
        copied = tuple(f"nets.0.{name}." for name in names)
        trained = (name for name, _ in model.named_parameters() if name.startswith(copied))
        plan = FineTuningPlan(
            dict.fromkeys(trained, options.backbone_lr_scale),
            keeps_head,
            0 if keeps_head else options.head_steps,
        )
        message = f"Starting from the pretrained model {self.name}"
        if len(self.model.nets) > 1:
            message += f", member {place + 1}"
        if keeps_head:
            message += " (with its head)"
        elif not with_head:
            message += " (new head)"
        else:
            head, old_head = quoted(model.config.network.head), _describe_head(self.model.config)
            message += f" with a new head {head} (before: {old_head})"
            if options.head_steps:
                message += f"; first only the head is trained (--head-steps {options.head_steps})"
        sizes = [(weight.numel(), weight.requires_grad) for weight in model.parameters()]
        if frozen := sum(size for size, is_trained in sizes if not is_trained):
            message += f"; {frozen:,} of {sum(size for size, _ in sizes):,} weights frozen"
            if options.freeze == "auto":
                message += ", as there are only classes and few labels (--freeze none trains all)"
        return plan, message

    def _fits_head(self, model: MolAttn, transforms: Sequence[str]) -> bool:
        new, old = model.config, self.model.config
        wanted = [*transforms] * len(new.tasks) if len(transforms) == 1 else transforms
        return (
            len(new.tasks) == len(old.tasks)
            and all(map(_same_task, new.tasks, old.tasks))
            and all(map(_same_transform, old.tasks, old.target_transforms, wanted))
            and _head_inputs(new) == _head_inputs(old)
            and not self.model.has_untrained_head
        )


def load_pretrained(
    config: _Run, varied: Collection[str] = ()
) -> tuple[_Run, PretrainedWeights | None]:
    """Select and load the model that a run starts from (``init_from``).

    Options of the network that the run leaves at their defaults are taken from that model, except
    those declared with ``from_pretrained: False`` in :class:`molattn.config.NetworkConfig`.

    Returns:
        The run with the network of the model; its ``init_from`` is an absolute path, a name, or
        ``none``, no longer ``auto``. And the model, or None with ``none``.

    Raises:
        InputError: If there is no such model, or an option of the network is neither the default
            nor that of the model.
    """
    section = "fine_tuning" if isinstance(config, TrainConfig) else "training"
    options, network = getattr(config, section), config.network
    check_network(network)
    if not {"heads", "width", "combine"} & set(varied):
        check_heads(network)
    molecules = config.data if isinstance(config, TrainConfig) else config.molecules
    featurizer = FEATURIZERS[molecules.featurizer]()
    name, files = options.init_from, None
    if name == _AUTO:
        files = _default_model(network, featurizer, varied)
        name = NO_MODEL if files is None else _DEFAULT_MODEL
    if name == NO_MODEL:
        return replace(config, **{section: replace(options, init_from=name)}), None
    weights = PretrainedWeights.load(name, featurizer, files)
    pretrained = weights.model.config.network
    for key, got, expected in _differences(network, pretrained, varied):
        raise InputError(
            f"got {got}, but the model of --init-from {name} has {expected}; use {expected}, leave "
            "it out, or use --init-from none",
            option=key,
        )
    copied = {key: getattr(pretrained, key) for key, _ in _network_options()}
    config = replace(
        config,
        network=replace(network, **copied),
        **{section: replace(options, init_from=weights.name)},
    )
    return config, weights


def _others(ours: tuple[object, ...], theirs: tuple[object, ...]) -> tuple[object, ...]:
    """Return the items of the first that the second lacks; all items if only the order differs."""
    return tuple(item for item in ours if item not in theirs) or ours


def _default_model(
    network: NetworkConfig, featurizer: Featurizer, varied: Collection[str]
) -> ModelFiles | None:
    """Return the files of the default model if it fits the network and the featurizer."""
    if not is_packaged(_DEFAULT_MODEL):
        return None
    files = ModelFiles.read(find_model(_DEFAULT_MODEL))
    default = MolAttnConfig.from_dict(files.config)
    differs = any(_differences(network, default.network, varied))
    return files if featurizer == default.featurizer and not differs else None


def _network_options() -> Iterator[tuple[str, object]]:
    """Yield name and default of each option of the network on which pretrained weights depend."""
    for known in fields(NetworkConfig):
        if known.metadata.get("from_pretrained", True):
            yield known.name, known.default


def _differences(
    network: NetworkConfig, pretrained: NetworkConfig, varied: Collection[str]
) -> Iterator[tuple[str, object, object]]:
    """Yield the options that are neither at their default nor as in the pretrained model."""
    for name, default in _network_options():
        got, expected = getattr(network, name), getattr(pretrained, name)
        if name in varied:
            got = "several values"
        if got not in (default, expected):
            yield name, got, expected


def _same_task(one: Task, other: Task) -> bool:
    units = {one.unit, other.unit} - {""}
    return (one.name, one.kind, one.classes) == (other.name, other.kind, other.classes) and (
        len(units) < 2
    )


def _same_transform(task: Task, known: TargetTransform, wanted: str) -> bool:
    if task.kind != "regression":
        return True
    # Ranks have no value beyond the labels that they were fitted to.
    return wanted in ("auto", known.kind) and known.kind != "ranks"


def _head_inputs(config: MolAttnConfig) -> tuple[object, ...]:
    """Return the kind of the head, and its inputs besides the readout of one molecule."""
    network = config.network
    partner = network.partner if config.has_partner else None
    return (
        network.head,
        config.custom_parts,
        config.features,
        config.descriptors,
        config.morgan_counts,
        partner,
    )


def _describe_head(config: MolAttnConfig) -> str:
    if (count := len(config.tasks)) > _MAX_NAMED_TASKS:
        tasks = f"{count} other tasks"
    else:
        tasks = ", ".join(f"{quoted(task.name)} ({task.kind})" for task in config.tasks)
    numbers = f", with {config.num_numbers} extra features" if config.num_numbers else ""
    partner = " and a second molecule" if config.has_partner else ""
    return f"{quoted(config.network.head)} for {tasks}{numbers}{partner}"
