"""Things by name, to which other packages may add their own."""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar, cast

from molattn.errors import check_one_of

__all__ = ["Registry"]

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
