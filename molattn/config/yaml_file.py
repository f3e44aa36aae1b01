"""Options of a training run in a YAML file, and a run's options back into one."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_type_hints

import yaml

from molattn.config import RunConfig, TrainConfig, check_same_options
from molattn.errors import InputError, quoted

__all__ = ["check_unchanged", "read_config_file", "write_config_file", "writing_config"]


def read_config_file(path: str | Path, run: type[RunConfig] = TrainConfig) -> dict[str, Any]:
    """Read the options that a file gives.

    The file holds the sections of a run's config, each with some of its options, and ``file``, the
    table (``files`` of a pretraining).

    Args:
        path: A YAML file.
        run: The kind of run.

    Returns:
        Its content: sections of options as ``run.from_dict`` takes them.

    Raises:
        InputError: If the file cannot be read, or holds a key that is no option or a value that
            cannot be one.
    """
    path = Path(path)
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8", errors="surrogateescape"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a YAML file: {' '.join(str(error).split())}") from error
    content = {} if content is None else content
    if not isinstance(content, dict):
        raise InputError(f"{path}: got {type(content).__name__}, expected sections of options")
    for key, value in content.items():
        if key in run.file_keys():
            _check_value(path, key, value, get_type_hints(run)[key])
            continue
        if key not in run.sections():
            raise InputError(f"{path}: unknown key {quoted(key)}{_hint(key, _top_level(run))}")
        kinds = get_type_hints(run.sections()[key])
        content[key] = _section(path, key, kinds, {} if value is None else value)
    return content


def write_config_file(path: Path, config: RunConfig) -> None:
    """Write all options of a run, with the whole paths of its tables if they are files."""
    content = config.to_dict()
    for key in config.file_keys():
        if files := content.pop(key):
            whole = _absolute(files) if isinstance(files, str) else [*map(_absolute, files)]
            content = {key: whole, **content}
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    part = path.with_name(path.name + ".part")  # so that a killed process leaves no half a file
    part.write_text(text, encoding="utf-8", errors="surrogateescape")
    part.replace(path)


@contextmanager
def writing_config(path: Path, config: RunConfig) -> Iterator[None]:
    """Write the options of a run that begins or goes on; one that is refused leaves the former.

    Args:
        path: The file; if it is there, the run goes on.
        config: The options.

    Raises:
        InputError: The run began with other options.
    """
    former = path.read_bytes() if path.exists() else None
    if former is not None:
        check_unchanged(path, config)
    write_config_file(path, config)
    try:
        yield
    except InputError:
        if former is not None:
            path.write_bytes(former)
        raise


def check_unchanged(path: Path, config: RunConfig) -> None:
    """Refuse options other than those that a run began with.

    Args:
        path: The file of its options.
        config: The options now.

    Raises:
        InputError: Names the first that differs.
    """
    former = type(config).from_dict(read_config_file(path, type(config)))
    check_same_options(former, config, path.parent)


def _absolute(file: str) -> str:
    return str(Path(file).absolute())


def _section(path: Path, section: str, kinds: dict[str, Any], content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise InputError(f"{path}, {section}: got {quoted(content)}, expected options")
    for key, value in content.items():
        if key not in kinds:
            hint = _hint(key, {name: name for name in kinds})
            raise InputError(f"{path}, {section}: unknown option {quoted(key)}{hint}")
        _check_value(path, f"{section}, {key}", value, kinds[key])
    return content


def _check_value(path: Path, where: str, value: Any, kind: Any) -> None:
    if isinstance(value, bool) and kind is not bool:
        word = str(value).lower()
        raise InputError(f"{path}, {where}: got {word}; if this is a text, put it into quotes")
    items = value if isinstance(value, list) else [value]
    if isinstance(value, list) and getattr(kind, "__origin__", None) is not tuple:
        raise InputError(f"{path}, {where}: got a list, expected one value")
    for item in items:
        if isinstance(item, dict | list) or (item is None and isinstance(value, list)):
            raise InputError(f"{path}, {where}: got {quoted(value)}, expected plain values")


def _top_level(run: type[RunConfig]) -> dict[str, str]:
    """What each known word should be called at the top level of a file."""
    places = {
        option.name: f"{section}: {option.name}"
        for section, kind in run.sections().items()
        for option in fields(kind)
    }
    return places | {name: name for name in (*run.sections(), *run.file_keys())}


def _hint(key: Any, places: Mapping[str, str]) -> str:
    word = str(key).replace("-", "_").lower()
    close = get_close_matches(word, places, n=1)
    if close:
        return f", did you mean {quoted(places[close[0]])}?"
    return f", expected one of {', '.join(places)}" if len(places) < 10 else ""
