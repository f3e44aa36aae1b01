"""A training that begins with the weights of a trained model."""

from collections.abc import Collection, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import TypeVar

from molattn.chem.featurizer import Featurizer
from molattn.chem.fingerprint_index import FingerprintIndex
from molattn.config import FineTuningConfig, NetworkConfig, PretrainConfig, TrainConfig
from molattn.errors import InputError, quoted
from molattn.model.artefact import (
    FINGERPRINTS_FILE,
    find_model,
    is_packaged,
    model_digest,
    read_config,
)
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.nn.registry import check_network
from molattn.task import Task
from molattn.training.optimizer import FineTuningPlan

__all__ = [
    "NO_MODEL",
    "PretrainedWeights",
    "check_same_model",
    "pretrained_digest",
    "pretrained_molecules",
    "with_former_network",
    "with_pretrained_network",
]

NO_MODEL = "none"
"""What a run begins with that begins with nothing."""
_AUTO = "auto"
_MOST_NAMED = 3
_DEFAULT_MODEL = "base"
_SHARED = ("atom_embedding", "pair_embedding", "encoder", "readout")
_WITH_HEAD = ("head", "cross")
# Weights fit any dropout; how a second molecule joins, and the head, come after the encoder.
_OWN_OPTIONS = ("dropout", "head", "head_dropout", "attention_dropout", "partner")

_Network = TypeVar("_Network", bound=NetworkConfig)


class PretrainedWeights:
    """A trained model for others to begin with.

    Args:
        config: Names it.

    Raises:
        InputError: If there is no such model, or it reads molecules in another way.
    """

    def __init__(self, config: FineTuningConfig) -> None:
        self._config = config
        self._model = MolAttn.from_pretrained(config.init_from)
        theirs, ours = self._model.config.featurizer, Featurizer.default()
        for option in fields(ours):
            if getattr(theirs, option.name) != getattr(ours, option.name):
                raise InputError(
                    f"--init-from: {config.init_from} has another featurizer: its {option.name} "
                    f"{quoted(getattr(theirs, option.name))}, expected "
                    f"{quoted(getattr(ours, option.name))}"
                )

    def begin(
        self, model: MolAttn, number: int, *, with_head: bool = True
    ) -> tuple[FineTuningPlan, str]:
        """Give a new model of one network the weights, and freeze some of them.

        Embeddings, encoder and readout are taken over; the head, with the scaling of what it reads
        and gives, where tasks and what joins the readout are the same.

        Args:
            model: The new model.
            number: Which member of an ensemble it will be, counted from 0. One pretrained network
                is the beginning of all; of several each gives one in turn.
            with_head: Whether the head may be taken over, with that scaling.

        Returns:
            What the training has to know of it, and what was done, in words.

        Raises:
            InputError: If more blocks are to be frozen than there are.
        """
        place = number % len(self._model.nets)
        (new,), old = model.nets, self._model.nets[place]
        told = f"beginning with {self._config.init_from}"
        if len(self._model.nets) > 1:
            told += f", its member {place + 1}"
        keeps = with_head and self._fits_head(model)
        there = dict(old.named_children())
        names = [*_SHARED, *(name for name in _WITH_HEAD if keeps and name in there)]
        for name in names:
            new.get_submodule(name).load_state_dict(old.get_submodule(name).state_dict())
        if keeps:
            for name, buffer in model.named_buffers(recurse=False):
                buffer.copy_(self._model.get_buffer(name))
            told += ", its head too"
        elif not with_head:
            told += ", with a new head"
        else:
            head = quoted(model.config.network.head)
            told += f", with a new head {head} (its own is {_described(self._model.config)})"
            if self._config.head_steps:
                told += " that learns alone at first (--head-steps)"
        model.freeze(self._config.freeze)
        weights = [weight for weight in model.parameters() if not weight.requires_grad]
        frozen, count = (sum(w.numel() for w in some) for some in (weights, [*model.parameters()]))
        if frozen:
            told += f"; {frozen:,} of {count:,} weights are frozen"
        factor = self._config.backbone_lr_scale
        taken = tuple(f"nets.0.{name}." for name in names)
        learned = (name for name, _ in model.named_parameters() if name.startswith(taken))
        wait = 0 if keeps else self._config.head_steps
        return FineTuningPlan(dict.fromkeys(learned, factor), keeps, wait), told

    def _fits_head(self, model: MolAttn) -> bool:
        ours, theirs = model.config, self._model.config
        return (
            len(ours.tasks) == len(theirs.tasks)
            and all(map(_same, ours.tasks, theirs.tasks))
            and _inputs(ours) == _inputs(theirs)
        )


def with_pretrained_network(config: TrainConfig, varied: Collection[str] = ()) -> TrainConfig:
    """Return a run with the network of the model that it begins with, if it begins with one.

    An option of the network is taken from the model where the run has its default; the dropouts,
    the head and ``partner`` are always the run's. A folder gets its whole path, and ``auto``
    becomes the name of a model or ``none``.

    Args:
        config: The run.
        varied: Options that will be given other values yet.

    Raises:
        InputError: If there is no such model, or an option of the network is neither its default
            nor the model's.
    """
    name, network = config.fine_tuning.init_from, config.network
    if name == _AUTO:
        name = _DEFAULT_MODEL if is_packaged(_DEFAULT_MODEL) else NO_MODEL
        if name != NO_MODEL and any(_differences(network, _network(name), varied)):
            name = NO_MODEL
    name, network = _found(name, network, varied)
    fine_tuning = replace(config.fine_tuning, init_from=name)
    return replace(config, network=network, fine_tuning=fine_tuning)


def with_former_network(config: PretrainConfig) -> PretrainConfig:
    """Return a pretraining with the network of the model that it goes on from, if it does.

    What is said of :func:`with_pretrained_network` goes for it, but for ``auto``.
    """
    name, network = _found(config.training.init_from, config.network)
    return replace(config, network=network, training=replace(config.training, init_from=name))


def _found(name: str, network: _Network, varied: Collection[str] = ()) -> tuple[str, _Network]:
    """Return a model's name, of a folder its whole path, and a network with its options."""
    check_network(network)
    if name == NO_MODEL:
        return name, network
    theirs = _network(name)
    for option, got, has in _differences(network, theirs, varied):
        raise InputError(
            f"--{option.replace('_', '-')}: got {got}, but the model of --init-from {name} has "
            f"{has}; expected the same, to leave it out, or --init-from none"
        )
    taken = {name: value for name, value in vars(theirs).items() if name not in _OWN_OPTIONS}
    is_place = Path(name).exists() and not is_packaged(name)
    return str(Path(name).absolute()) if is_place else name, replace(network, **taken)


def _network(name: str) -> NetworkConfig:
    return MolAttnConfig.from_dict(read_config(find_model(name))).network


def _differences(
    ours: NetworkConfig, theirs: NetworkConfig, varied: Collection[str]
) -> Iterator[tuple[str, object, object]]:
    """Yield the options that weights depend on, and that are set to something else than theirs."""
    for option in fields(NetworkConfig):
        got, has = getattr(ours, option.name), getattr(theirs, option.name)
        if option.name in varied:
            got = "several values"
        if option.name not in _OWN_OPTIONS and got not in (option.default, has):
            yield option.name, got, has


def pretrained_digest(name: str) -> str | None:
    """Return the SHA-256 of the model that a run begins with, or None if it begins with none."""
    return None if name == NO_MODEL else model_digest(find_model(name))


def pretrained_molecules(config: TrainConfig) -> FingerprintIndex | None:
    """Return what the model that a run begins with was trained on, or None if it does not know."""
    if (name := config.fine_tuning.init_from) == NO_MODEL:
        return None
    path = find_model(name) / FINGERPRINTS_FILE
    return FingerprintIndex.load(path) if path.is_file() else None


def check_same_model(name: str, now: str | None, former: str | None, folder: Path) -> None:
    """Refuse to go on where the model that a run began with is another one now.

    Args:
        name: The model.
        now: What :func:`pretrained_digest` gives.
        former: What it gave when the run began.
        folder: The run's folder.

    Raises:
        InputError: If they differ.
    """
    if now != former:
        raise InputError(
            f"--init-from: the model {name} has changed since the run in {folder} began "
            f"(SHA-256 {str(now)[:12]}..., was {str(former)[:12]}...); expected the same"
        )


def _same(one: Task, other: Task) -> bool:
    units = {one.unit, other.unit} - {""}
    return (one.name, one.kind, one.classes) == (other.name, other.kind, other.classes) and (
        len(units) < 2
    )


def _inputs(config: MolAttnConfig) -> tuple[object, ...]:
    """Return which head it is, and what it reads besides the readout of one molecule."""
    net = config.network
    partner = net.partner if config.has_partner else None
    return net.head, config.features, config.descriptors, config.morgan_counts, partner


def _described(config: MolAttnConfig) -> str:
    if (count := len(config.tasks)) > _MOST_NAMED:
        tasks = f"{count} other tasks"
    else:
        tasks = ", ".join(f"{quoted(task.name)} ({task.kind})" for task in config.tasks)
    numbers = f", with {config.num_numbers} numbers beside the atoms" if config.num_numbers else ""
    partner = " and a second molecule" if config.has_partner else ""
    return f"{quoted(config.network.head)} for {tasks}{numbers}{partner}"
