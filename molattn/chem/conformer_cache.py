"""Conformers on disk: one small file each, written whole, recomputed when damaged."""

import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from molattn.errors import InputError

__all__ = ["read_entry", "write_entry"]


def read_entry(folder: Path, key: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what was written under a key, or None where nothing whole is.

    Args:
        folder: The cache.
        key: What the entry depends on; JSON types.
    """
    try:
        digest, _, content = _path(folder, key).read_bytes().partition(b"\n")
        if digest.decode() != hashlib.sha256(content).hexdigest():
            return None
        entry = json.loads(content)
        return entry["value"] if entry["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_entry(folder: Path, key: Mapping[str, Any], value: Mapping[str, Any]) -> None:
    """Write an entry; other processes see the old one or the new one, never a part.

    Args:
        folder: The cache; made if it does not exist.
        key: What the entry depends on; JSON types.
        value: JSON types.

    Raises:
        InputError: The folder cannot be written.
    """
    content = json.dumps({"key": key, "value": value}, allow_nan=False).encode()
    path = _path(folder, key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
            part = Path(file.name)
            try:
                file.write(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
                file.close()
                part.replace(path)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise InputError(f"cache {str(folder)!r}: cannot be written: {error.strerror}") from error


def _path(folder: Path, key: Mapping[str, Any]) -> Path:
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
    return folder / name[:2] / f"{name}.json"
