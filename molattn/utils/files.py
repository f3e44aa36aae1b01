"""Files that are written whole or not at all."""

import json
from pathlib import Path
from typing import Any

from molattn.errors import InputError

__all__ = ["read_json", "write_file"]


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        InputError: A file that cannot be read or is not a JSON object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise InputError(f"{path}: not a JSON file: {error}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: got a JSON {type(content).__name__}, expected an object")
    return content


def write_file(path: Path, content: bytes) -> None:
    """Write a file, there whole or not at all."""
    part = path.with_name(path.name + ".part")
    part.write_bytes(content)
    part.replace(path)
