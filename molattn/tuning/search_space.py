"""The options that a search varies, and how far."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from molattn.config import TrainConfig, option_places
from molattn.errors import InputError, quoted

__all__ = [
    "DEFAULT_SPACE",
    "Choice",
    "Range",
    "Space",
    "check_space",
    "default_space",
    "read_space",
    "write_space",
]

DEFAULT_SPACE: dict[str, Any] = {
    "width": [64, 128, 256],
    "heads": [4, 8, 16],
    "layers": {"low": 2, "high": 6},
    "dropout": {"low": 0.0, "high": 0.4},
    "readout": ["attentional+variance_preserving", "mean", "attentional", "mean+max"],
    "gate": [False, True],
    "batch_size": [16, 32, 64, 128],
    "learning_rate": {"low": 1e-4, "high": 5e-3, "log": True},
    "weight_decay": {"low": 1e-4, "high": 0.1, "log": True},
    "backbone_lr_scale": {"low": 0.03, "high": 1.0, "log": True},
    "descriptors": [True, False],
}
"""What is varied where nothing else is asked for; an option that is set otherwise is not."""
_OF_NEW = ("width", "heads", "layers", "readout", "gate")
_OF_PRETRAINED = ("backbone_lr_scale",)

_SECTIONS = ("network", "training", "fine_tuning")
_DATA_OPTIONS = ("descriptors", "morgan_counts")
# What changes the yardstick, so that losses cannot be compared, or nothing of what is learned.
_FIXED = (
    "balance_classes",
    "checkpoint_steps",
    "device",
    "ensemble",
    "huber_delta",
    "init_from",
    "checkpoint",
    "label_smoothing",
    "loss",
    "positive_weight",
    "seed",
    "tensorboard",
    "threads",
)
_RANGE_KEYS = ("low", "high", "log")


@dataclass(frozen=True)
class Choice:
    """One of several values."""

    values: tuple[Any, ...]

    @property
    def bounds(self) -> tuple[Any, ...]:
        """Values that must be possible for all others to be."""
        return self.values

    def suggest(self, trial: Any, name: str) -> Any:
        """Ask an Optuna trial for a value."""
        return trial.suggest_categorical(name, self.values)


@dataclass(frozen=True)
class Range:
    """A number from ``low`` to ``high``, both possible; with ``log``, evenly in its logarithm."""

    low: float
    high: float
    log: bool = False

    @property
    def bounds(self) -> tuple[Any, ...]:
        """Values that must be possible for all others to be."""
        return self.low, self.high

    def suggest(self, trial: Any, name: str) -> Any:
        """Ask an Optuna trial for a value."""
        suggest = trial.suggest_int if isinstance(self.low, int) else trial.suggest_float
        return suggest(name, self.low, self.high, log=self.log)


Space = Mapping[str, Choice | Range]


def default_space(config: TrainConfig) -> Space:
    """Return the default search space, less options that a run has set or its layer does not take.

    Args:
        config: The run, as :func:`molattn.training.fine_tuning.load_pretrained` returns it.

    Raises:
        InputError: If nothing is left to vary.
    """
    plain = TrainConfig.from_options("", {})
    is_given = config.fine_tuning.init_from != "none"  # and with it the network
    space = {}
    for name, value in DEFAULT_SPACE.items():
        section = option_places()[name][0]
        if name in (_OF_PRETRAINED if not is_given else _OF_NEW):
            continue
        if name in config.network.unused:
            continue
        if getattr(getattr(config, section), name) == getattr(getattr(plain, section), name):
            space[name] = _read(name, name, value)
    if not space:
        raise InputError("every option of the default search space is set, expected one to vary")
    return space


def read_space(path: Path) -> Space:
    """Read a search space.

    The file gives each option either a list of values, or ``{low: ..., high: ...}`` for a range of
    numbers, to which ``log: true`` may be added.

    Args:
        path: A YAML file.

    Raises:
        InputError: If it cannot be read, or holds what is no option or cannot be one's value.
    """
    content = _load(path)
    if not isinstance(content, dict) or not content:
        raise InputError(f"{path}: got {quoted(content)}, expected options with their values")
    return {name: _read(f"{path}, {name}", name, value) for name, value in content.items()}


def write_space(path: Path, space: Space) -> None:
    """Write a search space as :func:`read_space` reads it."""
    content = {
        name: list(of.values)
        if isinstance(of, Choice)
        else {key: getattr(of, key) for key in _RANGE_KEYS}
        for name, of in space.items()
    }
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


def check_space(space: Space, chosen: Callable[[Mapping[str, Any]], TrainConfig]) -> None:
    """Refuse a space with a value that its option cannot have.

    Args:
        space: The space.
        chosen: Makes a run's configuration with other values of some options.

    Raises:
        InputError: Names the option.
    """
    for name, of in space.items():
        for value in of.bounds:
            chosen({name: value})


def _load(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a YAML file: {' '.join(str(error).split())}") from error


def _read(where: str, name: Any, value: Any) -> Choice | Range:
    places = option_places()
    able = {
        option: kind
        for option, (section, kind) in places.items()
        if option in _DATA_OPTIONS or section in _SECTIONS
    }
    for option in _FIXED:
        able.pop(option, None)
    if name not in able:
        close = get_close_matches(str(name), able, n=1)
        hint = f", did you mean {quoted(close[0])}?" if close else ""
        what = "is not to be searched for" if name in places else "is no option"
        raise InputError(f"{where}: {what}{hint or '; expected one of ' + ', '.join(sorted(able))}")
    kind = able[name]
    if isinstance(value, dict):
        return _range(where, kind, value)
    if not isinstance(value, list) or not value:
        raise InputError(f"{where}: got {quoted(value)}, expected a list, or low and high")
    values = tuple(_number(where, kind, item) if kind in (int, float) else item for item in value)
    if len(set(values)) != len(values):
        raise InputError(f"{where}: got {quoted(value)}, expected each value once")
    return Choice(values)


def _range(where: str, kind: Any, value: Mapping[str, Any]) -> Range:
    if kind not in (int, float):
        raise InputError(f"{where}: got a range, expected a list, as it is no number")
    if unknown := sorted(map(str, value.keys() - {*_RANGE_KEYS})):
        raise InputError(f"{where}: got {quoted(unknown[0])}, expected {', '.join(_RANGE_KEYS)}")
    if missing := sorted({"low", "high"} - value.keys()):
        raise InputError(f"{where}: got no {missing[0]!r}, expected low and high")
    low, high = (_number(where, kind, value[end]) for end in ("low", "high"))
    log = value.get("log", False)
    if not isinstance(log, bool):
        raise InputError(f"{where}, log: got {quoted(log)}, expected true or false")
    if not low < high or (log and low <= 0):
        least = "0 < low < high" if log else "low < high"
        raise InputError(f"{where}: got {low} to {high}, expected {least}")
    return Range(low, high, log)


def _number(where: str, kind: Any, value: Any) -> Any:
    try:
        number = float(value)  # YAML takes 1e-4 for a text
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number):
        raise InputError(f"{where}: got {quoted(value)}, expected numbers")
    if kind is float:
        return number
    if not number.is_integer():
        raise InputError(f"{where}: got {quoted(value)}, expected whole numbers")
    return int(number)
