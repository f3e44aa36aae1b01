"""The options of a run in a YAML file."""

from collections.abc import Iterator
from contextlib import contextmanager
from os.path import abspath
from pathlib import Path
from typing import Any

import yaml

from molattn.config import RunConfig, check_same_options
from molattn.errors import InputError
from molattn.utils.files import write_file


def load_yaml(path: Path) -> Any:
    """Return the content of a YAML file; raise an ``InputError`` if there is none."""
    if not path.is_file():
        raise InputError(f"{path}: no such file, expected a YAML file")
    try:
        return yaml.safe_load(path.read_text("utf-8"))
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a YAML file: {' '.join(str(error).split())}") from error


def read_config_file(path: str | Path) -> dict[str, Any]:
    """Return the options of a file: sections of a run's config, and its table or tables."""
    content = load_yaml(Path(path)) or {}
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected sections of options")
    return {str(key): {} if value is None else value for key, value in content.items()}


def write_config_file(path: Path, config: RunConfig) -> None:
    """Write all options of a run, with absolute paths of its tables."""
    content = config.to_dict()
    if files := content.pop(key := config.file_key()):
        content[key] = abspath(files) if isinstance(files, str) else [*map(abspath, files)]
    write_file(path, yaml.safe_dump(content, sort_keys=False, allow_unicode=True).encode())


@contextmanager
def writing_config(path: Path, config: RunConfig) -> Iterator[None]:
    """Write the options of a run: of a new one before the block, of a resumed one after it.

    Raises:
        InputError: The resumed run was started with other options.
    """
    is_resumed = path.exists()
    if is_resumed:
        check_unchanged(path, config)
    else:
        write_config_file(path, config)
    yield
    if is_resumed:
        write_config_file(path, config)


def check_unchanged(path: Path, config: RunConfig) -> None:
    """Raise an ``InputError`` for the first option that differs from the resumed run's."""
    check_same_options(type(config)(**read_config_file(path)), config, path.parent)
