"""Things by name, to which other packages may add their own."""

import sys
from collections import UserDict
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, TypeVar

from molattn.errors import InputError, MolattnError, check_one_of, quoted

_PLUGINS = "molattn.plugins"

T = TypeVar("T")
Item = TypeVar("Item")  # a subtype of T, which Python's typing cannot express


class Registry(UserDict[str, T]):
    """Objects of one kind by name, in the order in which they were registered.

    An unknown name is an :class:`molattn.errors.InputError` that lists the known ones and says of
    what ``kind`` they are, such as ``layer``.

    Example:
        >>> READERS = Registry("file format")
        >>> @READERS.register("xyz")
        ... def read_xyz(path):
        ...     ...
        >>> list(READERS)
        ['xyz']
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def register(self, name: str) -> Callable[[Item], Item]:
        """Return a decorator, or a function, that registers its argument and returns it.

        Raises:
            ValueError: The name is taken.
        """

        def add(item: Any) -> Any:
            if name in self:
                raise ValueError(f"{self.kind} {name!r} is registered already")
            self[name] = item
            return item

        return add

    def __repr__(self) -> str:
        return f"<Registry of {self.kind}: {', '.join(self)}>"

    def __missing__(self, name: str) -> Any:
        check_one_of(self.kind, name, self)


IMPORTED: dict[str, Path] = {}
"""Files that :func:`import_files` has run, by name."""


def import_files(files: Iterable[str | Path]) -> None:
    """Run Python files that register one's own layers, readouts or featurizers, each once.

    Worker processes run them too. A saved model has their names alone: it never runs code.

    Raises:
        InputError: No such file, or it cannot be run.
    """
    for path in map(Path, files):
        if IMPORTED.get(path.name) == path.absolute():
            continue
        spec = spec_from_file_location(path.stem, path)
        if not path.is_file() or spec is None or path.stem in sys.modules:
            what = "of a name that no module has" if path.is_file() else "that exists"
            raise InputError(f"got {path}, expected a Python file {what}", option="import")
        sys.modules[path.stem] = module = module_from_spec(spec)
        try:
            spec.loader.exec_module(module)  # pyright: ignore[reportOptionalMemberAccess]
        except Exception as error:
            del sys.modules[path.stem]
            message = f"{path} cannot be run ({type(error).__name__}: {error})"
            raise InputError(message, option="import") from error
        IMPORTED[path.name] = path.absolute()


def load_plugins() -> None:
    """Load the entry points of other packages, which register their extensions."""
    for plugin in entry_points(group=_PLUGINS):
        try:
            plugin.load()
        except Exception as error:
            raise MolattnError(
                f"{plugin.value}: the plugin {quoted(plugin.name)} of the entry points "
                f"{_PLUGINS} cannot be loaded ({type(error).__name__}: {error})"
            ) from error
