"""Memory of the process."""

import ctypes
import gc
from typing import Any

__all__ = ["postpone_collection", "reuse_memory"]

_OBJECTS_AT_START = 500_000

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # of malloc.h
_LARGEST_BLOCK = 32 << 20  # the most that glibc takes
_MOST_KEPT = 1 << 30
_STEP = 64 << 20


def reuse_memory() -> bool:
    """Make glibc keep memory that is freed, instead of returning it to the system.

    Otherwise each batch gets its large arrays anew, page by page, which takes a tenth of the time
    of a prediction. It holds for the whole process, so that only commands call it.

    Returns:
        Whether the C library is glibc, or has the same function.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library; Windows
        return False
    options = {
        _MMAP_THRESHOLD: _LARGEST_BLOCK,
        _TRIM_THRESHOLD: _MOST_KEPT,
        _TOP_PAD: _STEP,
    }
    return all(mallopt(name, value) == 1 for name, value in options.items())


def postpone_collection() -> None:
    """Postpone the first garbage collection until there are half a million new objects.

    The objects of imported modules, of which none is garbage, would be searched again and again:
    a tenth of the time in which a command starts.
    """
    usual = gc.get_threshold()

    def restore(phase: str, info: dict[str, Any]) -> None:
        gc.set_threshold(*usual)
        gc.callbacks.remove(restore)

    gc.callbacks.append(restore)
    gc.set_threshold(_OBJECTS_AT_START, *usual[1:])
