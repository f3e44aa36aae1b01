"""Memory of the process."""

import ctypes

__all__ = ["reuse_memory"]

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
