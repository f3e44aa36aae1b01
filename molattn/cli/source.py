"""What a command learns from: a table of the user's, the bundled one, or a set with a name."""

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from molattn.config import DataConfig, TrainConfig
from molattn.errors import InputError, quoted
from molattn.utils.console import print_line

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["folder_name", "is_finished", "with_source"]

_LONGEST_NAME = 60


def with_source(config: TrainConfig, dataset: str | None, folder: Path | None) -> TrainConfig:
    """Take a set with a name, or the bundled solubilities where no table is named either.

    Args:
        config: Names the table, if any.
        dataset: Name of a set of MoleculeNet.
        folder: Where such sets are kept.

    Raises:
        InputError: Both are named, there is no such set, or a folder of none.
    """
    if dataset is not None:
        return _with_named_dataset(config, dataset, folder)
    if folder is not None:
        raise InputError(
            f"--dataset-folder: got {quoted(str(folder))}, expected it with --dataset alone"
        )
    return config if config.file else _with_bundled_data(config)


def _with_bundled_data(config: TrainConfig) -> TrainConfig:

    from molattn.data.table import BUNDLED_TARGET, BUNDLED_UNIT, bundled_dataset

    data = config.data
    if data.target_columns in ((), (BUNDLED_TARGET,)):
        data = replace(
            data,
            target_columns=(BUNDLED_TARGET,),
            target_units=data.target_units or (BUNDLED_UNIT,),
        )
    given = (data.split, data.split_column, data.folds)
    if given == (None, None, None) and data.test_size == DataConfig.test_size:
        data = replace(data, split_column="split")
    return replace(config, file=str(bundled_dataset()), data=data)


def _with_named_dataset(config: TrainConfig, name: str, folder: Path | None) -> TrainConfig:
    if config.file:
        raise InputError(f"--dataset: got {quoted(name)} and a table too, expected one of them")

    from molattn.data.moleculenet import named_dataset

    found = named_dataset(name, folder)
    if (column := config.data.smiles_column) not in (DataConfig.smiles_column, found.smiles_column):
        raise InputError(
            f"--smiles-column: got {quoted(column)}, but that of {name} is "
            f"{quoted(found.smiles_column)}; expected the same, or to leave it out"
        )
    data = replace(config.data, smiles_column=found.smiles_column)
    if not data.target_columns:
        data = replace(data, target_columns=found.target_columns, target_units=found.target_units)
    return replace(config, file=str(found.path), data=data)


def is_finished(resume: Path | None, console: "Console") -> bool:
    """Return whether the run to go on with is finished, and say so if it is.

    Args:
        resume: Its folder, if there is one to go on with.
        console: Where to say it.

    Raises:
        InputError: There is no such run.
    """
    if resume is None:
        return False

    from molattn.training.run_folder import unfinished_run

    if unfinished_run(resume) is not None:
        return False
    print_line(console, f"{resume} is finished: there is nothing to resume")
    return True


def folder_name(file: str) -> str:
    """Return what the folder of a run on a table is called by default."""
    return re.sub(r"[^\w.+-]+", "_", Path(file).stem, flags=re.ASCII)[:_LONGEST_NAME]
