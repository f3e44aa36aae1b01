"""The options that a search varies, and their values."""

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, get_args

import yaml
from annotated_types import MinLen
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from molattn.config import NetworkConfig, TrainConfig
from molattn.config.yaml_file import load_yaml
from molattn.errors import InputError, did_you_mean, quoted
from molattn.nn.registry import check_network, unused_options
from molattn.utils.files import write_file

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
_TUNABLE = {field.name for field in fields(NetworkConfig)} - {"radius"}
_TUNABLE |= {"epochs", "patience", "batch_size", "learning_rate", "warmup", "schedule", "precision"}
_TUNABLE |= {"weight_decay", "gradient_clip", "freeze", "backbone_lr_scale", "head_steps"}
_TUNABLE |= {"descriptors", "morgan_counts"}

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
        is_fixed = option.section == "network" and option.from_pretrained and is_pretrained
        if is_fixed or (option.section == "fine_tuning" and not is_pretrained) or name in unused:
            continue
        if name == "descriptors" and name in config.gaussian_process.kernels:
            value = [choice for choice in value if choice != "none"]  # which the kernel needs
        if getattr(getattr(config, option.section), name) == option.default:
            space[name] = _read(name, name, value)
    if not space:
        raise InputError(
            "every option of the default search space has been set; select others with --space",
            option="space",
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
        raise InputError(f"{path}: got {quoted(content)}, expected options with their values")
    return {name: _read(f"{path}, {name}", name, value) for name, value in content.items()}


def write_space(path: Path, space: Space) -> None:
    """Write a search space as :func:`read_space` reads it."""
    content = {
        name: list(distribution.choices)
        if isinstance(distribution, CategoricalDistribution)
        else {key: getattr(distribution, key) for key in ("low", "high", "log")}
        for name, distribution in space.items()
    }
    write_file(path, yaml.safe_dump(content, sort_keys=False).encode())


def with_options(config: TrainConfig, options: Mapping[str, Any]) -> TrainConfig:
    """Return the run with other values of some options."""
    sections: dict[str, dict[str, Any]] = {}
    for name, value in options.items():
        sections.setdefault(TrainConfig.options()[name].section, {})[name] = value
    changed = {
        name: replace(getattr(config, name), **changes) for name, changes in sections.items()
    }
    return replace(config, **changed)


def check_space(space: Space, config: TrainConfig) -> None:
    """Raise an ``InputError`` for a value of a space that its option cannot have."""
    try:
        for name, distribution in space.items():
            bounds = (
                distribution.choices
                if isinstance(distribution, CategoricalDistribution)
                else (distribution.low, distribution.high)
            )
            for value in bounds:  # if these are valid, so are all others
                check_network(with_options(config, {name: value}).network)
    except InputError as error:
        raise InputError(f"search space: {error}") from error


@dataclass(config=ConfigDict(extra="forbid"))
class _Range:
    low: float
    high: float
    log: bool = False


_VALUES: TypeAdapter[_Range | list[Any]] = TypeAdapter(
    _Range | Annotated[list[bool | int | float | str], MinLen(1)]
)


def _read(where: str, name: Any, value: Any) -> Distribution:
    """Return the distribution of an option from the content of a file."""
    options = TrainConfig.options()
    kinds_of_options = {name: options[name].kind for name in _TUNABLE}
    if name not in kinds_of_options:
        what = "cannot be varied" if name in options else "unknown option"
        hint = (
            did_you_mean(name, kinds_of_options)
            or f"; expected one of {', '.join(sorted(kinds_of_options))}"
        )
        raise InputError(f"{where}: {what}{hint}")
    try:
        choices = _VALUES.validate_python(value)
        if isinstance(choices, list):
            return CategoricalDistribution(choices)
        kinds = {kinds_of_options[name], *get_args(kinds_of_options[name])}
        if int in kinds:
            return IntDistribution(int(choices.low), int(choices.high), choices.log)
        if float in kinds:
            return FloatDistribution(choices.low, choices.high, choices.log)
        raise ValueError("expected a list of values")
    except ValidationError as error:
        reason = "; ".join(f"{fault['loc'][-1]}: {fault['msg']}" for fault in error.errors())
        raise InputError(f"{where}: got {quoted(value)}: {reason}") from error
    except ValueError as error:
        raise InputError(f"{where}: got {quoted(value)}: {error}") from error
