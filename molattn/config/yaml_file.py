"""The options of a run in a YAML file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from molattn.config import RunConfig, TrainConfig, check_same_options
from molattn.config.base import close_match
from molattn.errors import InputError, quoted
from molattn.utils.files import write_file

__all__ = [
    "check_unchanged",
    "load_yaml",
    "read_config_file",
    "write_config_file",
    "writing_config",
]


def read_config_file(path: str | Path, run: type[RunConfig] = TrainConfig) -> dict[str, Any]:
    """Read options from a file, as sections that ``run.from_dict`` takes.

    The file holds sections of a run's config, each with some of its options, and ``file``, the
    table (for a pretraining ``files``).

    Raises:
        InputError: The file cannot be read, or has an unknown section or option.
    """
    content = load_yaml(Path(path)) or {}
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected sections of options")
    options = run.options()
    for section, values in content.items():
        if section in run.file_keys():
            continue
        if section in options:
            place = options[section].section
            raise InputError(f"{path}: option {quoted(section)} belongs in section {quoted(place)}")
        if section not in run.sections():
            hint = close_match(section, [*run.sections(), *run.file_keys(), *options])
            raise InputError(f"{path}: unknown section {quoted(section)}{hint}")
        content[section] = values = {} if values is None else values
        if not isinstance(values, dict):
            raise InputError(f"{path}, {section}: got {quoted(values)}, expected options")
        for name in values:
            if name not in options:
                hint = close_match(name, options)
                raise InputError(f"{path}, {section}: unknown option {quoted(name)}{hint}")
            if (place := options[name].section) != section:
                raise InputError(f"{path}: option {quoted(name)} belongs in section {place!r}")
    return content


def load_yaml(path: Path) -> Any:
    """Return the content of a YAML file.

    Raises:
        InputError: The file cannot be read, or is not such a file.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file, expected a YAML file")
    try:
        return yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a YAML file: {' '.join(str(error).split())}") from error


def write_config_file(path: Path, config: RunConfig) -> None:
    """Write all options of a run, with absolute paths of its tables."""
    content = config.to_dict()
    for key in config.file_keys():
        if files := content.pop(key):
            whole = _absolute(files) if isinstance(files, str) else [*map(_absolute, files)]
            content = {key: whole, **content}
    write_file(path, yaml.safe_dump(content, sort_keys=False, allow_unicode=True).encode())


@contextmanager
def writing_config(path: Path, config: RunConfig) -> Iterator[None]:
    """Write the options of a new or resumed run; restore the former file after an input error.

    Raises:
        InputError: The resumed run was started with other options.
    """
    former = path.read_bytes() if path.exists() else None
    if former is not None:
        check_unchanged(path, config)
    write_config_file(path, config)
    try:
        yield
    except InputError:
        if former is not None:
            write_file(path, former)
        raise


def check_unchanged(path: Path, config: RunConfig) -> None:
    """Check that a resumed run has the options that it was started with.

    Raises:
        InputError: Names the first option that differs.
    """
    former = type(config).from_dict(read_config_file(path, type(config)))
    check_same_options(former, config, path.parent)


def _absolute(file: str) -> str:
    return str(Path(file).absolute())
