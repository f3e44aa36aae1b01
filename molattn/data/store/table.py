"""A store as a table."""

import hashlib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from molattn.data.store.index import INDEX_FILE, read_index
from molattn.data.table.base import Row, Table
from molattn.errors import InputError, quoted
from molattn.utils.files import naming_path

if TYPE_CHECKING:
    from molattn.chem.featurizer import Featurizer

__all__ = ["StoreTable"]


class StoreTable(Table):
    """The rows of a store of prepared molecules, as texts.

    The rows are those of the tables that it was made of, with the columns that were kept, so that
    it is read like them. A SMILES brings its molecule along (see
    :class:`molattn.chem.prepared.PreparedSmiles`).

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
        with naming_path(self.path), open(self.path / INDEX_FILE, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def check_featurizer(self, featurizer: "Featurizer") -> None:
        """Check that the molecules were prepared with this featurizer.

        Raises:
            InputError: They were not.
        """
        from molattn.data.store.store import store_featurizer

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
        from molattn.data.store.store import open_shard, store_featurizer  # RDKit is slow to import

        featurizer = store_featurizer(self.path, self.index)
        is_counted = len(self.index.inputs) > 1  # lines of several tables would be ambiguous
        number = 0
        for place in range(len(self.index.shards)):
            for row in open_shard(self.path, self.index, place, featurizer).rows():
                number += 1
                yield row._replace(line=number) if is_counted else row
