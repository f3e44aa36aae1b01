"""The options that a search varies, and their values."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import yaml
from optuna import Trial
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from molattn.config import TrainConfig
from molattn.config.yaml_file import load_yaml
from molattn.errors import InputError, did_you_mean, quoted
from molattn.nn.registry import check_heads, check_network, unused_options
from molattn.utils.files import write_file

__all__ = [
    "DEFAULT_SPACE",
    "Space",
    "check_space",
    "default_space",
    "read_space",
    "suggest",
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
    "freeze": ["none", "encoder"],
    "descriptors": ["none", "lipinski", "all"],
}
"""What a search varies by default, except options that are set to a value."""
_RANGE_KEYS = ("low", "high", "log")
_OF_HEADS = ("width", "heads", "combine", "layer")
"""Options on which it depends whether the heads must divide the width."""


Distribution = CategoricalDistribution | FloatDistribution | IntDistribution
Space = Mapping[str, Distribution]


def default_space(config: TrainConfig) -> Space:
    """Return the default search space for a run.

    Left out are options that are set, that the layer does not take, and, of a run from a pretrained
    model, those that the model determines, or of a run from scratch, those of fine-tuning.

    Raises:
        InputError: No option is left.
    """
    is_pretrained = config.fine_tuning.init_from != "none"
    unused = unused_options(config.network)
    space = {}
    for name, value in DEFAULT_SPACE.items():
        option = TrainConfig.options()[name]
        section = option.section
        if section == "network" and option.from_pretrained and is_pretrained:
            continue
        if section == "fine_tuning" and not is_pretrained:
            continue
        if name == "descriptors" and name in config.gaussian_process.kernels:
            value = [one for one in value if one != "none"]  # which the kernel needs
        is_set = getattr(getattr(config, section), name) != option.default
        if not is_set and name not in unused:
            space[name] = _read(name, name, value)
    if not space:
        raise InputError(
            "every option of the default search space has been set; select others with --space"
        )
    return space


def read_space(path: Path) -> Space:
    """Read a search space.

    The file has for each option a list of values, or ``{low: ..., high: ...}`` for a range of
    numbers, optionally with ``log: true``.

    Raises:
        InputError: The file cannot be read, or has an unknown option or an invalid value.
    """
    content = load_yaml(path)
    if not isinstance(content, dict) or not content:
        raise InputError(
            f"{path}: got {quoted(content)}, expected names of options with their values"
        )
    return {name: _read(f"{path}, {name}", name, value) for name, value in content.items()}


def write_space(path: Path, space: Space) -> None:
    """Write a search space as :func:`read_space` reads it."""
    content = {
        name: list(of.choices)
        if isinstance(of, CategoricalDistribution)
        else {key: getattr(of, key) for key in _RANGE_KEYS}
        for name, of in space.items()
    }
    write_file(path, yaml.safe_dump(content, sort_keys=False).encode())


def suggest(trial: Trial, name: str, of: Distribution) -> Any:
    """Return the value of an option that a trial suggests."""
    if isinstance(of, CategoricalDistribution):
        return trial.suggest_categorical(name, of.choices)
    if isinstance(of, IntDistribution):
        return trial.suggest_int(name, of.low, of.high, log=of.log)
    return trial.suggest_float(name, of.low, of.high, log=of.log)


def check_space(space: Space, chosen: Callable[[Mapping[str, Any]], TrainConfig]) -> None:
    """Check that every value of a space is valid for its option.

    If only one of width, heads and the options that relate them is varied, each of its values must
    fit the others.

    Raises:
        InputError: Names the option.
    """
    try:
        _check_values(space, chosen)
    except InputError as error:
        raise InputError(f"search space: {error}") from error


def _check_values(space: Space, chosen: Callable[[Mapping[str, Any]], TrainConfig]) -> None:
    varied = [name for name in _OF_HEADS if name in space]
    for name, of in space.items():
        bounds = of.choices if isinstance(of, CategoricalDistribution) else (of.low, of.high)
        for value in bounds:  # if these are valid, so are all others
            check_network(chosen({name: value}).network)
        if varied == [name]:
            is_range = isinstance(of, IntDistribution)
            for value in range(of.low, of.high + 1) if is_range else bounds:
                check_heads(chosen({name: value}).network)


def _read(where: str, name: Any, value: Any) -> Distribution:
    options = TrainConfig.options()
    kinds = {name: option.kind for name, option in options.items() if option.tunable}
    if name not in kinds:
        hint = did_you_mean(name, kinds)
        what = "cannot be varied" if name in options else "unknown option"
        hint = hint or f"; expected one of {', '.join(sorted(kinds))}"
        raise InputError(f"{where}: {what}{hint}")
    kind = kinds[name]
    if type(None) in (kinds_or_none := get_args(kind)):
        kind = next(one for one in kinds_or_none if one is not type(None))
    if isinstance(value, dict):
        return _range(where, kind, value)
    if not isinstance(value, list) or not value:
        raise InputError(
            f"{where}: got {quoted(value)}, expected a list of values, or low and high"
        )
    if any(isinstance(item, list | dict) for item in value):
        raise InputError(f"{where}: got {quoted(value)}, expected numbers, strings, true or false")
    values = tuple(_number(where, kind, item) if kind in (int, float) else item for item in value)
    if len(set(values)) != len(values):
        raise InputError(f"{where}: got {quoted(value)}, expected no value more than once")
    return CategoricalDistribution(values)


def _range(where: str, kind: Any, value: Mapping[str, Any]) -> Distribution:
    if kind not in (int, float):
        raise InputError(
            f"{where}: got a range for an option that is not a number, expected a list of values"
        )
    if unknown := sorted(map(str, value.keys() - {*_RANGE_KEYS})):
        raise InputError(f"{where}: got {quoted(unknown[0])}, expected {', '.join(_RANGE_KEYS)}")
    if missing := sorted({"low", "high"} - value.keys()):
        raise InputError(f"{where}: {missing[0]!r} is missing, expected low and high")
    low, high = (_number(where, kind, value[end]) for end in ("low", "high"))
    log = value.get("log", False)
    if not isinstance(log, bool):
        raise InputError(f"{where}, log: got {quoted(log)}, expected true or false")
    if not low < high or (log and low <= 0):
        least = "0 < low < high" if log else "low < high"
        raise InputError(f"{where}: got {low} to {high}, expected {least}")
    return (IntDistribution if kind is int else FloatDistribution)(low, high, log)


def _number(where: str, kind: Any, value: Any) -> Any:
    try:
        number = float(value)  # YAML reads 1e-4 as a string
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number):
        raise InputError(f"{where}: got {quoted(value)}, expected a number")
    if kind is float:
        return number
    if not number.is_integer():
        raise InputError(f"{where}: got {quoted(value)}, expected a whole number")
    return int(number)
