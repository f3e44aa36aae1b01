"""The options of a run in a YAML file."""

from collections.abc import Iterator
from contextlib import contextmanager
from os.path import abspath
from pathlib import Path
from typing import Any

import yaml

from molattn.config import RunConfig, TrainConfig, check_same_options
from molattn.errors import InputError, did_you_mean, quoted
from molattn.utils.files import write_file


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
    options, sections, key = run.options(), run.sections(), run.file_key()
    for section in content.keys() - {key}:
        values = content[section] = {} if content[section] is None else content[section]
        if section not in sections:
            hint = did_you_mean(section, [*sections, key])
            raise InputError(f"{path}: unknown section {quoted(section)}{hint}")
        if not isinstance(values, dict):
            raise InputError(f"{path}, {section}: got {quoted(values)}, expected options")
        for name in values:
            hint = did_you_mean(name, options)
            if name in options:
                hint = f"; it belongs in section {quoted(options[name].section)}"
            if name not in options or options[name].section != section:
                raise InputError(f"{path}, {section}: unknown option {quoted(name)}{hint}")
    return content


def load_yaml(path: Path) -> Any:
    """Return the content of a YAML file; raise an ``InputError`` if there is none."""
    if not path.is_file():
        raise InputError(f"{path}: no such file, expected a YAML file")
    try:
        return yaml.safe_load(path.read_text("utf-8"))
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a YAML file: {' '.join(str(error).split())}") from error


def write_config_file(path: Path, config: RunConfig) -> None:
    """Write all options of a run, with absolute paths of its tables."""
    content = config.to_dict()
    key = config.file_key()
    if files := content.pop(key):
        content[key] = abspath(files) if isinstance(files, str) else [*map(abspath, files)]
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
