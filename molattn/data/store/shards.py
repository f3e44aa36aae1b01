"""Arrays of variable length in memory-mapped files.

A shard is a safetensors file of the arrays of a range of rows. What has no fixed number of values
for each row or molecule is in two arrays: ``NAME``, the values of all, and ``NAME_starts``, where
each begins and the last one ends.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from molattn.utils.files import write_file

__all__ = [
    "Arrays",
    "join_arrays",
    "map_arrays",
    "ragged_rows",
    "read_texts",
    "text_arrays",
    "write_arrays",
]

Arrays = Mapping[str, NDArray[Any]]

_DTYPES = {"U8": "u1", "U16": "<u2", "U32": "<u4", "U64": "<u8", "F16": "<f2", "F32": "<f4"}
_ENCODING_ERRORS = "surrogateescape"  # as tables are read


def text_arrays(name: str, texts: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return texts as arrays to join: their UTF-8 bytes, and the number of bytes of each."""
    content = [text.encode(errors=_ENCODING_ERRORS) for text in texts]
    lengths = np.fromiter(map(len, content), np.int64, len(content))
    return {name: np.frombuffer(b"".join(content), np.uint8), f"{name}_lengths": lengths}


def join_arrays(parts: Sequence[Arrays]) -> dict[str, NDArray[Any]]:
    """Return arrays one after another; lengths become starts."""
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    for name in [name for name in joined if name.endswith("_lengths")]:
        ends = np.cumsum(joined.pop(name))
        total = int(ends[-1]) if len(ends) else 0
        starts = np.zeros(len(ends) + 1, dtype="<u4" if total < 2**32 else "<u8")
        starts[1:] = ends
        joined[name.replace("_lengths", "_starts")] = starts
    return joined


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write a file, whole or not at all.

    Raises:
        OSError: Names the file, also if the disk is full.
    """
    from safetensors.numpy import save

    write_file(path, save({name: np.ascontiguousarray(one) for name, one in arrays.items()}))


def map_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Map the arrays of a file into memory; what is not used is not read.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not such a file. So are KeyError and TypeError.
    """
    whole = np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))
    start = 8 + int.from_bytes(whole[:8].tobytes(), "little")
    header = json.loads(whole[8:start].tobytes())
    arrays = {}
    for name, about in header.items():
        begin, end = about["data_offsets"]
        values = whole[start + begin : start + end].view(_DTYPES[about["dtype"]])
        arrays[name] = values.reshape(about["shape"])
    return arrays


def read_texts(arrays: Arrays, name: str, first: int, last: int) -> list[str]:
    """Return some of the texts, by their numbers from ``first`` to before ``last``."""
    starts = arrays[f"{name}_starts"][first : last + 1].astype(np.int64)
    content = arrays[name][starts[0] : starts[-1]].tobytes()
    places = (starts - starts[0]).tolist()
    return [content[a:b].decode(errors=_ENCODING_ERRORS) for a, b in pairwise(places)]


def ragged_rows(
    arrays: Arrays, name: str, first: int, last: int
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the values of some rows, one after another, and the number of values of each."""
    starts = arrays[f"{name}_starts"][first : last + 1].astype(np.int64)
    return arrays[name][starts[0] : starts[-1]], np.diff(starts)
