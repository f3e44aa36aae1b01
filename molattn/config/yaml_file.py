"""The options of a run in a YAML file."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError

from molattn.config import RunConfig, TrainConfig, check_same_options
from molattn.config.base import update_config
from molattn.errors import InputError, quoted
from molattn.utils.files import write_file

__all__ = [
    "check_unchanged",
    "load_yaml",
    "read_config_file",
    "write_config_file",
    "writing_config",
]

_MOST_CHARACTERS = 2**20
_TOO_LARGE = 2**63


def read_config_file(path: str | Path, run: type[RunConfig] = TrainConfig) -> dict[str, Any]:
    """Read options from a file, as sections that ``run.from_dict`` takes.

    The file holds sections of a run's config, each with some of its options, and ``file``, the
    table (for a pretraining ``files``). Names of earlier versions are updated.

    Raises:
        InputError: The file cannot be read, or has an unknown key or a value of a wrong type.
    """
    path = Path(path)
    content = load_yaml(path)
    content = {} if content is None else content
    if not isinstance(content, dict):
        raise InputError(f"{path}: got {_kind(content)}, expected sections of options")
    content = update_config(content)
    for key, value in content.items():
        if key in run.file_keys():
            content[key] = _files(path, key, value, get_type_hints(run)[key])
            continue
        if key not in run.sections():
            if known := run.options().get(str(key)):
                raise InputError(
                    f"{path}: option {quoted(key)} belongs in section {quoted(known.section)}"
                )
            raise InputError(f"{path}: unknown key {quoted(key)}{_hint(key, _top_level(run))}")
        content[key] = _section(path, key, run, {} if value is None else value)
    return content


def load_yaml(path: Path) -> Any:
    """Return the content of a YAML file of at most 1 MB, without aliases; dates remain texts.

    Raises:
        InputError: The file cannot be read, or is not such a file.
    """
    if not path.exists():
        raise InputError(f"{path}: no such file")
    if not path.is_file():
        raise InputError(f"{path}: got a folder or a device, expected a YAML file")
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            text = file.read(_MOST_CHARACTERS + 1)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    if len(text) > _MOST_CHARACTERS:
        raise InputError(f"{path}: got more than {_MOST_CHARACTERS:,} characters of YAML")
    try:
        return yaml.load(text, _Loader)
    except RecursionError as error:
        raise InputError(f"{path}: the YAML is nested too deeply") from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise InputError(f"{path}: not a YAML file: {' '.join(str(error).split())}") from error


def write_config_file(path: Path, config: RunConfig) -> None:
    """Write all options of a run, with absolute paths of its tables."""
    content = config.to_dict()
    for key in config.file_keys():
        if files := content.pop(key):
            whole = _absolute(files) if isinstance(files, str) else [*map(_absolute, files)]
            content = {key: whole, **content}
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    write_file(path, text.encode("utf-8", errors="surrogateescape"))


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


class _Loader(yaml.SafeLoader):
    """Reads plain values, without aliases: a few nested ones can stand for gigabytes."""

    # A date and 1:30 are text, as in YAML 1.2.
    yaml_implicit_resolvers: ClassVar[dict[str, list[Any]]] = {
        first: [
            (tag, re.compile(f"(?!.*:){pattern.pattern}", pattern.flags))
            for tag, pattern in found
            if not tag.endswith(":timestamp")
        ]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose a node, unless it is an alias."""
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise ComposerError(
                problem=f"the alias '*{event.anchor}' is not supported",
                problem_mark=event.start_mark,
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Construct a mapping, unless it has a key twice."""
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if len(set(keys)) != len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ConstructorError(
                problem=f"the key {quoted(twice)} occurs more than once",
                problem_mark=node.start_mark,
            )
        return super().construct_mapping(node, deep)


def _integer(loader: _Loader, node: yaml.ScalarNode) -> int:
    number = loader.construct_yaml_int(node)
    str(number)  # a ValueError for more digits than Python prints, such as those of a hexadecimal
    return number


_Loader.add_constructor("tag:yaml.org,2002:int", _integer)


def _absolute(file: str) -> str:
    return str(Path(file).absolute())


def _files(path: Path, key: str, value: Any, kind: Any) -> Any:
    _check_value(path, key, value, kind)
    files = _items(value or [])
    if not all(isinstance(file, str) for file in files):
        raise InputError(f"{path}, {key}: got {quoted(value)}, expected a path, in quotes")
    return "".join(files) if kind is str else files


def _section(path: Path, section: str, run: type[RunConfig], content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise InputError(f"{path}, {section}: got {quoted(content)}, expected options")
    kinds = get_type_hints(run.sections()[section])
    for key, value in content.items():
        if key not in kinds:
            known = run.options().get(str(key))
            hint = _hint(key, {name: name for name in kinds})
            hint = f"; it belongs in section {quoted(known.section)}" if known else hint
            raise InputError(f"{path}, {section}: unknown option {quoted(key)}{hint}")
        _check_value(path, f"{section}, {key}", value, kinds[key])
    return content


def _check_value(path: Path, where: str, value: Any, kind: Any) -> None:
    if isinstance(value, bool) and kind is not bool:
        word = str(value).lower()
        raise InputError(f"{path}, {where}: got {word}; if it is text, put it in quotes")
    if isinstance(value, list) and getattr(kind, "__origin__", None) is not tuple:
        raise InputError(f"{path}, {where}: got a list, expected a single value")
    for item in _items(value):
        is_plain = isinstance(item, str | int | float) or (item is None and value is None)
        if not is_plain or (isinstance(item, int) and abs(item) >= _TOO_LARGE):
            raise InputError(
                f"{path}, {where}: got {_kind(item)}, expected text or a number below 2**63"
            )


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _top_level(run: type[RunConfig]) -> dict[str, str]:
    """Return how each section and option is written at the top level of a file."""
    places = {name: f"{option.section}: {name}" for name, option in run.options().items()}
    return places | {name: name for name in (*run.sections(), *run.file_keys())}


def _kind(value: Any) -> str:
    """Return what a value is, for a message: large ones are not printed."""
    names = {dict: "a mapping", list: "a list", int: "a larger whole number"}
    return names.get(type(value)) or quoted(value)


def _hint(key: Any, places: Mapping[str, str]) -> str:
    word = str(key).replace("-", "_").lower()
    close = get_close_matches(word, places, n=1)
    if close:
        return f", did you mean {quoted(places[close[0]])}?"
    return f"; expected one of {', '.join(places)}" if len(places) < 10 else ""
