"""A list whose items are in memory up to a number, and beyond it in a temporary file."""

import io
import pickle
import tempfile
import zlib
from array import array
from collections.abc import Sequence
from typing import IO, Any, TypeVar

Item = TypeVar("Item")


class SpooledList(Sequence[Item]):
    """A list of which only the first items are in memory; the others are pickled to a file.

    The file is a temporary one without a name, in the folder that ``TMPDIR`` names, and ends with
    the list. An item from the file is a new object each time, but its parts of ``shared`` types
    stay in memory, each object once.
    """

    def __init__(self, most_in_memory: int, *, shared: type | tuple[type, ...] = ()) -> None:
        self._most = most_in_memory
        self._types = shared
        self._file: IO[bytes] | None = None
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
        pickler = pickle.Pickler(buffer, pickle.HIGHEST_PROTOCOL)
        pickler.persistent_id = lambda value: None if value is item else self._share(value)
        pickler.dump(item)
        self._file.seek(self._ends[-1])
        size = self._file.write(zlib.compress(buffer.getbuffer(), level=1))
        self._ends.append(self._ends[-1] + size)

    def _share(self, value: Any) -> int | None:
        if not isinstance(value, self._types):
            return None
        self._shared[id(value)] = value
        return id(value)

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()

    def __len__(self) -> int:
        return len(self._items) + len(self._ends) - 1

    def __getitem__(self, index: Any) -> Any:
        """Return an item, or a list of those of a slice."""
        if isinstance(index, slice):
            return [self[position] for position in range(len(self))[index]]
        index = range(len(self))[index]
        if self._file is None or index < len(self._items):
            return self._items[index]
        index -= len(self._items)
        start = self._ends[index]
        end = self._ends[index + 1]
        self._file.seek(start)
        unpickler = pickle.Unpickler(io.BytesIO(zlib.decompress(self._file.read(end - start))))
        unpickler.persistent_load = self._shared.__getitem__
        return unpickler.load()


class Selection(Sequence[Item]):
    """The items of a sequence at some indices, which are looked up when they are asked for."""

    def __init__(self, items: Sequence[Item], indices: Any) -> None:
        self._items = items
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: Any) -> Any:
        """Return an item, or the selection of a slice."""
        if isinstance(index, slice):
            return Selection(self._items, self._indices[index])
        return self._items[self._indices[index]]


class Joined(Sequence[Item]):
    """Two sequences one after the other, whose items are looked up when they are asked for."""

    def __init__(self, first: Sequence[Item], second: Sequence[Item]) -> None:
        self._first = first
        self._second = second

    def __len__(self) -> int:
        return len(self._first) + len(self._second)

    def __getitem__(self, index: Any) -> Any:
        """Return an item, or a list of those of a slice."""
        if isinstance(index, slice):
            return [self[position] for position in range(len(self))[index]]
        index = range(len(self))[index]
        size = len(self._first)
        return self._first[index] if index < size else self._second[index - size]
