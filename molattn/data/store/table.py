"""The index of a store, and a store as a table."""

import hashlib
import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from molattn.data.table.base import Row, Table
from molattn.errors import InputError, quoted
from molattn.utils.files import read_json, write_json

if TYPE_CHECKING:
    from molattn.chem.featurizer import Featurizer

__all__ = [
    "INDEX_FILE",
    "REJECTED_FILE",
    "StoreIndex",
    "StoreTable",
    "is_store",
    "read_index",
    "write_index",
]

INDEX_FILE = "index.json"
REJECTED_FILE = "rejected.csv"
_FORMAT = 1


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
    path = folder / INDEX_FILE
    if not is_store(folder):
        raise InputError(
            f"{folder}: got a folder, expected a file, or a folder written by molattn prepare"
        )
    content = read_json(path)
    known = {"format": _FORMAT, "sha256": _digest(content)}
    if {name: content.pop(name, None) for name in known} != known:
        raise InputError(f"{path}: damaged, or of another release; prepare the molecules again")
    return StoreIndex(**content)


def write_index(folder: Path, index: StoreIndex) -> None:
    """Write the index of a store, which is finished then."""
    content = {"format": _FORMAT, **index._asdict()}
    write_json(folder / INDEX_FILE, {**content, "sha256": _digest(content)})


def _digest(content: dict[str, Any]) -> str:
    rest = {name: value for name, value in content.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


class StoreTable(Table):
    """The rows of a store of prepared molecules, as texts.

    The rows are those of the tables that it was made of, with the columns that were kept, so that
    it is read like them. A SMILES brings its molecule along (see
    :class:`molattn.chem.prepared.PreparedMolecule`).

    Raises:
        InputError: The index is missing or damaged, or of another release.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.index = read_index(path)
        self.header = self.index.columns
        self.unit = self.index.unit
        if (was := self.index.versions["rdkit"]) != (now := version("rdkit")):
            self.remarks = (f"prepared with RDKit {was}, read with {now}: results may differ",)
        self.check_header()

    def count(self) -> int:
        """Return the number of rows."""
        return self.index.rows

    def digest(self) -> str:
        """Return the SHA-256 of the index, which has those of all files, in hexadecimal."""
        return hashlib.sha256((self.path / INDEX_FILE).read_bytes()).hexdigest()

    def check_featurizer(self, featurizer: "Featurizer") -> None:
        """Check that the molecules were prepared with this featurizer.

        Raises:
            InputError: They were not.
        """
        from molattn.data.store.shards import store_featurizer

        if store_featurizer(self.path, self.index) != featurizer:
            name = quoted(self.index.options["featurizer"])
            raise InputError(
                f"{self.path}: contains molecules prepared with --featurizer {name}, which is "
                "another featurizer than is expected here; prepare them again with that one"
            )

    def __iter__(self) -> Iterator[Row]:
        """Read the rows.

        Raises:
            InputError: A file is damaged.
        """
        from molattn.data.store.shards import (  # RDKit is slow to import
            open_shard,
            store_featurizer,
        )

        featurizer = store_featurizer(self.path, self.index)
        is_counted = len(self.index.inputs) > 1  # lines of several tables would be ambiguous
        number = 0
        for shard in range(len(self.index.shards)):
            for row in open_shard(self.path, self.index, shard, featurizer).rows():
                number += 1
                yield row._replace(line=number) if is_counted else row
