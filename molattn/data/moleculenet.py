"""Named datasets: MoleculeNet, downloaded to where PyG looks for it, and read as tables."""

import gzip
import os
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

from torch_geometric.datasets import MoleculeNet

from molattn.data.table import open_table
from molattn.errors import MolattnError, check_one_of
from molattn.utils.files import write_file

_NAMES = "ESOL FreeSolv Lipo PCBA MUV HIV BACE BBBP Tox21 ToxCast SIDER ClinTox".split()
DATASETS = {name.lower(): name for name in _NAMES}
"""Names of the sets in PyG's ``MoleculeNet``, each with its usual spelling."""
_UNITS = {"esol": "log mol/L", "freesolv": "kcal/mol"}
_SECONDS = 30


class NamedDataset(NamedTuple):
    """A table and the meaning of its columns."""

    path: Path
    smiles_column: str
    target_columns: tuple[str, ...]
    target_units: tuple[str, ...]


def named_dataset(name: str, folder: str | Path | None = None) -> NamedDataset:
    """Return a set of MoleculeNet, downloading it on first use.

    Args:
        name: A name of :data:`DATASETS`; case is ignored.
        folder: The folder of downloads, as the ``root`` of PyG's ``MoleculeNet``; by default
            ``molattn/moleculenet`` in the user's cache folder.

    Raises:
        InputError: There is no such set.
        MolattnError: It cannot be downloaded, or the file has other columns than expected.

    Source: Wu et al., Chem. Sci. 2018, 9, 513.
    """
    key = name.strip().lower()
    check_one_of("dataset", key, DATASETS)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    root = cache / "molattn" / "moleculenet" if folder is None else Path(folder)
    _, file, stem, smiles, targets = MoleculeNet.names[key]
    path = root / key / "raw" / f"{stem}.csv"
    url = MoleculeNet.url.format(file)
    if not path.is_file():
        try:
            with urlopen(url, timeout=_SECONDS) as response:
                content = response.read()
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, gzip.decompress(content) if url.endswith(".gz") else content)
        except (OSError, EOFError, HTTPException) as error:
            raise MolattnError(
                f"--dataset {DATASETS[key]}: cannot be downloaded from {url} to {root}: {error}"
            ) from error
    header = open_table(path).header
    columns = range(targets.start, targets.stop) if isinstance(targets, slice) else [targets]
    try:
        smiles_column, *target_columns = (header[column] for column in (smiles, *columns))
    except IndexError:
        raise MolattnError(
            f"{path}: got {len(header)} columns, which is not the table of {DATASETS[key]}"
        ) from None
    units = (_UNITS[key],) if key in _UNITS else ()
    return NamedDataset(path, smiles_column, tuple(target_columns), units)
