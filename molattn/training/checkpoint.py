"""Checkpoints of a training: the nested state of Lightning as one safetensors file.

Tensors are stored as tensors and everything else as JSON in the header of the file; nothing is
pickled. The header has the SHA-256 of the file, in which a placeholder stands for it.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from molattn.errors import InputError
from molattn.utils.files import write_file

__all__ = ["CHECKPOINT_FILE", "read_checkpoint", "write_checkpoint"]

CHECKPOINT_FILE = "checkpoint.safetensors"
_HEADER = "molattn_checkpoint"
_PLACEHOLDER = "sha256-of-this-file".ljust(64, "-")


def write_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write a checkpoint atomically: the path holds the previous one or this one.

    Args:
        path: The file.
        state: Nested dictionaries (keys are strings or integers), lists and tuples of tensors,
            numbers, strings, booleans and None.

    Raises:
        TypeError: If the state holds anything else.
        OSError: If the file cannot be written.
    """
    tensors: dict[str, Tensor] = {}
    header = json.dumps([_PLACEHOLDER, _packed(dict(state), tensors)])
    content = safetensors.torch.save(tensors, {_HEADER: header})
    digest = sha256(content).hexdigest()
    write_file(path, content.replace(_PLACEHOLDER.encode(), digest.encode(), 1))


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read what :func:`write_checkpoint` wrote; tensors are on the CPU.

    Raises:
        InputError: If the file cannot be read, is no checkpoint or is damaged.
    """
    try:
        with safe_open(path, framework="pt") as file:
            header = (file.metadata() or {})[_HEADER]
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        digest, packed = json.loads(header)
        content = path.read_bytes().replace(str(digest).encode(), _PLACEHOLDER.encode(), 1)
        if sha256(content).hexdigest() != digest:
            raise ValueError("its content is not what was written")
        return _unpacked(packed, tensors)
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"{path}: not a readable checkpoint: {error}; to train that part again, remove the "
            "file, or the folder of a finished fold"
        ) from error


def _packed(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Return the value in JSON types, its tensors moved to ``tensors`` and referred to by name."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor):
        name = str(len(tensors))
        # A copy, as the format refuses tensors that share memory.
        tensors[name] = value.detach().cpu().clone().contiguous()
        return {"tensor": name}
    if isinstance(value, list):
        return [_packed(item, tensors) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [_packed(item, tensors) for item in value]}
    if isinstance(value, dict) and all(type(key) in (str, int) for key in value):
        return {"dict": [[key, _packed(item, tensors)] for key, item in value.items()]}
    raise TypeError(f"a checkpoint cannot hold {type(value).__name__}")


def _unpacked(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_unpacked(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "tuple":
        return tuple(_unpacked(item, tensors) for item in content)
    if kind == "dict":
        return {key: _unpacked(item, tensors) for key, item in content}
    raise ValueError(f"unknown kind {kind!r}")
