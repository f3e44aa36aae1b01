"""Things by name, to which other packages may add their own."""

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import TypeVar, cast

from molattn.errors import InputError, quoted

__all__ = ["Registry"]

T = TypeVar("T")
Item = TypeVar("Item")  # a subtype of T, which Python's typing cannot express


class Registry(Mapping[str, T]):
    """Things of one kind by name, in the order in which they were registered.

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
        if name in self._items:
            return self._items[name]
        close = get_close_matches(str(name), self._items, n=1)
        hint = f"did you mean {quoted(close[0])}?" if close else ""
        raise InputError(
            f"{self.kind}: got {quoted(name)}, expected one of {', '.join(self._items)}"
            + (f"; {hint}" if hint else "")
        )

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)
