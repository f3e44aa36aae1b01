"""Fine-tuning: training from the weights of a trained model."""

import copy
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from molattn.chem.featurizer import FEATURIZERS, Featurizer
from molattn.chem.fingerprint_index import FingerprintIndex
from molattn.config import FineTuningConfig, NetworkConfig, PretrainConfig, TrainConfig
from molattn.errors import InputError
from molattn.model.artefact import ModelFiles, find_model, is_packaged
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.nn.registry import check_head_width, check_network
from molattn.training.optimizer import FineTuningPlan

__all__ = ["NO_MODEL", "PretrainedWeights", "load_pretrained"]

NO_MODEL = "none"
"""Value of ``init_from`` for random initial weights."""
_DEFAULT_MODEL = "base"
_BACKBONE = ("atom_embedding", "pair_embedding", "encoder", "readout")
_HEAD = ("head", "cross")
_OPTIONS = {
    name: option.default
    for name, option in TrainConfig.options().items()
    if option.section == "network" and option.from_pretrained
}
"""Default of each option of the network on which pretrained weights depend."""

_Run = TypeVar("_Run", TrainConfig, PretrainConfig)


@dataclass(frozen=True)
class PretrainedWeights:
    """A trained model whose weights initialize new models."""

    name: str
    model: MolAttn
    digest: str
    inherited: str = ""  # for the log: options of the network that the run has from it

    @classmethod
    def load(cls, name: str, featurizer: Featurizer) -> "PretrainedWeights":
        """Load a model by its name or folder; it must have this featurizer."""
        files = ModelFiles.read(find_model(name))
        files.check()
        model = MolAttn.from_files(files)
        if model.config.featurizer != featurizer:
            reason = f"{name} has another featurizer; select it with --featurizer"
            raise InputError(reason, option="init_from")
        # A path is made absolute, so that the run can be repeated from anywhere.
        is_path = Path(name).exists() and not is_packaged(name)
        return cls(str(Path(name).absolute()) if is_path else name, model, files.digest)

    @property
    def fingerprints(self) -> FingerprintIndex | None:
        """Fingerprints of its training molecules, if saved."""
        return self.model.uncertainty and self.model.uncertainty.fingerprints

    def apply(
        self, model: MolAttn, member: int, options: FineTuningConfig, *, keeps_head: bool = False
    ) -> tuple[FineTuningPlan, str]:
        """Copy the weights into a new model of one network, and freeze some of them.

        Embeddings, encoder, readout and projection are copied; with the head also the target
        transforms and the scaling of targets and features. The members of an ensemble start from
        those of the pretrained model in turn.

        Returns:
            How to train the model, and a log message.

        Raises:
            InputError: There are fewer blocks than to be frozen, or a custom encoder or readout.
        """
        for one in (model, self.model):
            for part, kind in one.config.custom_parts:
                if part != "head":
                    reason = f"{self.name} cannot be used with a custom {part} ({kind})"
                    raise InputError(reason, option="init_from")
        index = member % len(self.model.nets)
        (new,), old = model.nets, self.model.nets[index]
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
        assert options.freeze != "auto"  # resolved before
        model.freeze(options.freeze)
        copied = tuple(f"nets.0.{name}." for name in names)
        trained = (name for name, _ in model.named_parameters() if name.startswith(copied))
        factors = dict.fromkeys(trained, options.backbone_lr_scale)
        plan = FineTuningPlan(factors, keeps_head, 0 if keeps_head else options.head_steps)
        message = f"Starting from the pretrained model {self.name}{self.inherited}"
        if len(self.model.nets) > 1:
            message += f", member {index + 1}"
        message += " (with its head)" if keeps_head else " (new head)"
        if plan.head_steps:
            message += f"; first only the head is trained (--head-steps {options.head_steps})"
        weights = [*model.parameters()]
        if frozen := sum(one.numel() for one in weights if not one.requires_grad):
            message += f"; {frozen:,} of {sum(one.numel() for one in weights):,} weights frozen"
        return plan, message


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
    for key, got, expected in _differences(network, pretrained, varied):
        raise InputError(
            f"got {got}, but the model of --init-from {name} has {expected}; use {expected}, leave "
            "it out, or use --init-from none",
            option=key,
        )
    copied = {name: getattr(pretrained, name) for name in _OPTIONS}
    other = [f"{name} {value}" for name, value in copied.items() if value != getattr(network, name)]
    if other:
        weights = replace(weights, inherited=f" with its {', '.join(other)}")
    options = replace(options, init_from=weights.name)
    return replace(config, network=replace(network, **copied), **{section: options}), weights


def _default_fits(network: NetworkConfig, featurizer: Featurizer, varied: Collection[str]) -> bool:
    """Return whether the default model is installed and fits the network and the featurizer."""
    if not is_packaged(_DEFAULT_MODEL):
        return False
    default = MolAttnConfig.from_dict(ModelFiles.read(find_model(_DEFAULT_MODEL)).config)
    differs = any(_differences(network, default.network, varied))
    return featurizer == default.featurizer and not differs


def _differences(
    network: NetworkConfig, pretrained: NetworkConfig, varied: Collection[str]
) -> Iterator[tuple[str, object, object]]:
    """Yield the options that are neither at their default nor as in the pretrained model."""
    for name, default in _OPTIONS.items():
        got, expected = getattr(network, name), getattr(pretrained, name)
        if name in varied:
            got = "multiple values"
        if got not in (default, expected):
            yield name, got, expected
