"""Things by name, to which other packages may add their own."""

from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import TypeVar, cast

from molattn.errors import MolattnError, check_one_of, quoted

__all__ = ["Registry", "load_plugins"]

_PLUGINS = "molattn.plugins"

T = TypeVar("T")
Item = TypeVar("Item")  # a subtype of T, which Python's typing cannot express


class Registry(Mapping[str, T]):
    """Objects of one kind by name, in the order in which they were registered.

    Args:
        kind: What it holds, for errors: ``layer``.

    Example:
        >>> READERS = Registry("file format")
        >>> @READERS.register("xyz")
        ... def read_xyz(path):
        ...     ...
        >>> list(READERS)
        ['xyz']
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._items: dict[str, T] = {}

    def register(self, name: str) -> Callable[[Item], Item]:
        """Return a decorator, or a function, that registers its argument and returns it.

        Args:
            name: What options, config files and saved models call it.

        Raises:
            ValueError: The name is taken.
        """

        def add(item: Item) -> Item:
            if name in self._items:
                raise ValueError(f"{self.kind} {name!r} is registered already")
            self._items[name] = cast(T, item)
            return item

        return add

    def __getitem__(self, name: str) -> T:
        check_one_of(self.kind, name, self._items)
        return self._items[name]

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"<Registry of kind {self.kind!r}: {', '.join(self)}>"


def load_plugins() -> None:
    """Load the entry points of other packages, which register their extensions.

    Raises:
        MolattnError: One cannot be loaded.
    """
    for plugin in entry_points(group=_PLUGINS):
        try:
            plugin.load()
        except Exception as error:
            raise MolattnError(
                f"{plugin.value}: the plugin {quoted(plugin.name)} of the entry points "
                f"{_PLUGINS} cannot be loaded ({type(error).__name__}: {error}); "
                "repair or uninstall its package"
            ) from error
