"""Named datasets: MoleculeNet as downloaded by PyG, read as tables."""

import io
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from difflib import get_close_matches
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

from torch_geometric.datasets import MoleculeNet

from molattn.data.table import open_table
from molattn.errors import InputError, MolattnError, quoted

__all__ = ["DATASETS", "NamedDataset", "default_folder", "named_dataset"]

_NAMES = "ESOL FreeSolv Lipo PCBA MUV HIV BACE BBBP Tox21 ToxCast SIDER ClinTox".split()
DATASETS = {name.lower(): name for name in _NAMES}
"""Names of the sets in PyG's ``MoleculeNet``, each with its usual spelling."""
_UNITS = {"esol": "log mol/L", "freesolv": "kcal/mol"}
_SECONDS = 30


class NamedDataset(NamedTuple):
    """A table and the meaning of its columns.

    Args:
        path: The CSV file.
        smiles_column: Column that holds the SMILES.
        target_columns: Target columns.
        target_units: Their units, or empty.
    """

    path: Path
    smiles_column: str
    target_columns: tuple[str, ...]
    target_units: tuple[str, ...]


def default_folder() -> Path:
    """Return the folder of downloads: ``molattn/moleculenet`` in the user's cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "molattn" / "moleculenet"


def named_dataset(name: str, folder: str | Path | None = None) -> NamedDataset:
    """Return a set of MoleculeNet, downloading it on first use.

    Args:
        name: A name of :data:`DATASETS`; case is ignored.
        folder: The folder of downloads, as the ``root`` of PyG's ``MoleculeNet``; by default
            :func:`default_folder`.

    Raises:
        InputError: There is no such set.
        MolattnError: It cannot be downloaded, or the file has other columns than expected.

    Source: Wu et al., Chem. Sci. 2018, 9, 513.
    """
    key = name.strip().lower()
    if key not in DATASETS:
        close = get_close_matches(key, DATASETS, n=1)
        hint = f"; did you mean {DATASETS[close[0]]}? Expected" if close else ", expected"
        raise InputError(
            f"--dataset: got {quoted(name)}{hint} one of {', '.join(DATASETS.values())}"
        )
    root = Path(folder) if folder is not None else default_folder()
    _, _, stem, smiles, targets = MoleculeNet.names[key]
    path = root / key / "raw" / f"{stem}.csv"
    if not path.is_file():
        _download(key, root, path)
    header = open_table(path).header
    places = [*range(targets.start, targets.stop)] if isinstance(targets, slice) else [targets]
    try:
        chosen, smiles_column = tuple(header[place] for place in places), header[smiles]
    except IndexError:
        raise MolattnError(
            f"{path}: got {len(header)} columns, which is not the table of {DATASETS[key]}"
        ) from None
    unit = _UNITS.get(key)
    return NamedDataset(path, smiles_column, chosen, (unit,) if unit else ())


class _Download(MoleculeNet):
    """Downloads without processing, which stops at a molecule that RDKit cannot read."""

    def _process(self) -> None: ...

    def load(self, path: str, data_cls: object = None) -> None: ...


def _download(key: str, root: Path, path: Path) -> None:
    """Download to a temporary folder and move the file, so that it is never incomplete."""
    url = MoleculeNet.url.format(MoleculeNet.names[key][1])
    partial = root / f".{key}.{os.getpid()}.partial"
    new_parents = [parent for parent in (root, *root.parents) if not parent.exists()]
    try:
        with _time_limit(), redirect_stderr(io.StringIO()):  # PyG prints each download
            _Download(str(partial), key)
        path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(partial / key / "raw" / path.name, path)
    except (OSError, EOFError, HTTPException) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise MolattnError(
            f"--dataset {DATASETS[key]}: cannot be downloaded from {url} to {root}: {reason}"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        for parent in new_parents:  # those that are still empty
            if parent.is_dir() and not any(parent.iterdir()):
                parent.rmdir()


@contextmanager
def _time_limit() -> Iterator[None]:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_SECONDS)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
