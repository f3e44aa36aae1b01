"""A list whose items are in memory up to a number, and beyond it in a temporary file."""

import io
import pickle
import tempfile
import zlib
from array import array
from collections.abc import Iterator, Sequence
from functools import partial
from typing import IO, Any, Generic, TypeVar, overload

__all__ = ["Selection", "SpooledList"]

Item = TypeVar("Item")

_LEVEL = 1  # of zlib


class SpooledList(Sequence[Item], Generic[Item]):
    """A list of which only the first items are in memory; the others are pickled to a file.

    The file is a temporary one without a name, in the folder that ``TMPDIR`` names, and ends with
    the list. An item from the file is a new object each time.

    Args:
        most_in_memory: Number of items that are kept in memory.
        shared: Types of parts of items that stay in memory, each object once.
    """

    def __init__(
        self,
        most_in_memory: int,
        *,
        shared: type | tuple[type, ...] = (),
    ) -> None:
        self._file: IO[bytes] | None = None
        self._most = most_in_memory
        self._types = shared
        self._shared: dict[int, Any] = {}
        self._items: list[Item] = []
        self._ends = array("Q", [0])

    def append(self, item: Item) -> None:
        """Add an item."""
        if len(self._items) < self._most:
            self._items.append(item)
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="molattn-")  # noqa: SIM115 (ends with self)
        buffer = io.BytesIO()
        _Pickler(buffer, item, self._types, self._shared).dump(item)
        self._file.seek(self._ends[-1])
        size = self._file.write(zlib.compress(buffer.getbuffer(), _LEVEL))
        self._ends.append(self._ends[-1] + size)

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()

    def __reduce__(self) -> Any:  # to pickle it as a list is, item by item
        return partial(SpooledList, self._most, shared=self._types), (), None, iter(self)

    def __len__(self) -> int:
        return len(self._items) + len(self._ends) - 1

    @overload
    def __getitem__(self, place: int) -> Item: ...

    @overload
    def __getitem__(self, place: slice) -> list[Item]: ...

    def __getitem__(self, place: int | slice) -> Item | list[Item]:
        """Return an item, or a list of some."""
        if isinstance(place, slice):
            return [self[one] for one in range(len(self))[place]]
        place = range(len(self))[place]
        if place < len(self._items):
            return self._items[place]
        at = place - len(self._items)
        assert self._file is not None
        self._file.seek(self._ends[at])
        data = zlib.decompress(self._file.read(self._ends[at + 1] - self._ends[at]))
        return _Unpickler(io.BytesIO(data), self._shared).load()


class _Pickler(pickle.Pickler):
    def __init__(
        self, file: IO[bytes], item: Any, types: type | tuple[type, ...], shared: dict[int, Any]
    ) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._item, self._types, self._shared = item, types, shared

    def persistent_id(self, obj: Any) -> int | None:
        if obj is self._item or not isinstance(obj, self._types):
            return None
        self._shared[id(obj)] = obj
        return id(obj)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: IO[bytes], shared: dict[int, Any]) -> None:
        super().__init__(file)
        self._shared = shared

    def persistent_load(self, pid: Any) -> Any:
        return self._shared[pid]


class Selection(Sequence[Item], Generic[Item]):
    """Some items of a sequence, which are looked up when they are asked for.

    Args:
        items: The sequence.
        places: Indices of the selected ones.
    """

    def __init__(self, items: Sequence[Item], places: Sequence[int] | Any) -> None:
        self._items, self._places = items, places

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, place: int) -> Item: ...

    @overload
    def __getitem__(self, place: slice) -> "Selection[Item]": ...

    def __getitem__(self, place: "int | slice") -> "Item | Selection[Item]":
        """Return an item, or a selection of some."""
        if isinstance(place, slice):
            return Selection(self._items, self._places[place])
        return self._items[self._places[place]]

    def __iter__(self) -> Iterator[Item]:
        return (self._items[place] for place in self._places)
