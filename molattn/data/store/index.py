"""The index of a store: what is in it, and what it was made from."""

import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from molattn.errors import InputError
from molattn.utils.files import read_json, write_json

__all__ = [
    "INDEX_FILE",
    "REJECTED_FILE",
    "StoreIndex",
    "check_content",
    "is_store",
    "read_index",
    "write_content",
    "write_index",
]

INDEX_FILE = "index.json"
REJECTED_FILE = "rejected.csv"
_FORMAT = 1
_DIGEST = "sha256"


class StoreIndex(NamedTuple):
    """What is in a store, as JSON types.

    Args:
        columns: The columns of a row; the first has the SMILES.
        unit: What the line numbers of its rows count, ``line`` or ``row``.
        rows: Number of rows.
        molecules: Number of rows with a molecule.
        rejected: Number of the other rows by reason code, the most common first.
        shards: ``name``, ``rows``, ``molecules``, ``bytes`` and ``sha256`` of each file.
        inputs: ``name``, ``sha256`` and ``rows`` of each table.
        options: The options that decide the content.
        featurizer: :meth:`molattn.chem.Featurizer.to_dict` of its featurizer.
        versions: Versions of the packages that decide the content.
        descriptors: Names of the descriptors among the targets of pretraining, if there are any.
    """

    columns: list[str]
    unit: str
    rows: int
    molecules: int
    rejected: dict[str, int]
    shards: list[dict[str, Any]]
    inputs: list[dict[str, Any]]
    options: dict[str, Any]
    featurizer: dict[str, Any]
    versions: dict[str, str]
    descriptors: list[str]

    @property
    def num_bytes(self) -> int:
        """Size of all shards in bytes."""
        return sum(shard["bytes"] for shard in self.shards)


def is_store(folder: Path) -> bool:
    """Return whether there is a finished store."""
    return (folder / INDEX_FILE).is_file()


def read_index(folder: Path) -> StoreIndex:
    """Read the index of a store.

    Raises:
        InputError: There is none, it is damaged or of another release.
    """
    content = read_json(folder / INDEX_FILE)
    if content.get("format") != _FORMAT:
        raise InputError(
            f"{folder}: a store of format {content.get('format')}, expected {_FORMAT}; another "
            "release of molattn wrote it, prepare the molecules again"
        )
    hints = StoreIndex.__annotations__
    check_content(folder / INDEX_FILE, content, {"format", *hints})
    for name, kind in hints.items():
        kind = getattr(kind, "__origin__", kind)
        if not isinstance(content.get(name), kind):
            raise InputError(f"{folder / INDEX_FILE}: damaged, {name} is not a {kind.__name__}")
    return StoreIndex(**{name: content[name] for name in hints})


def write_index(folder: Path, index: StoreIndex) -> None:
    """Write the index of a store, which is finished then."""
    content: Mapping[str, Any] = {"format": _FORMAT, **index._asdict()}
    write_content(folder / INDEX_FILE, content)


def write_content(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON types with their SHA-256."""
    write_json(path, {**content, _DIGEST: _digest(content)})


def check_content(path: Path, content: dict[str, Any], keys: Collection[str]) -> None:
    """Check that the content of a file is as :func:`write_content` wrote it.

    Args:
        path: The file.
        content: Its content.
        keys: The keys that it has. With these and no digest it is of an earlier version.

    Raises:
        InputError: It is not.
    """
    rest = {key: value for key, value in content.items() if key != _DIGEST}
    if rest.keys() != {*keys} or content.get(_DIGEST) not in (None, _digest(rest)):
        raise InputError(f"{path}: damaged, or of another release of molattn")


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
