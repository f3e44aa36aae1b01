"""Options of ``molattn train`` and ``molattn tune``."""

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from molattn.cli.shared import group, section
from molattn.config import (
    DataConfig,
    FineTuningConfig,
    GaussianProcessConfig,
    NetworkConfig,
    ReportConfig,
    SupervisedConfig,
    TrainConfig,
)
from molattn.config.base import COMMON
from molattn.data.columns import find_columns
from molattn.data.table import BUNDLED_TARGET, BUNDLED_UNIT, bundled_dataset, open_table
from molattn.errors import InputError, quoted

__all__ = ["TrainOptions"]

_LONGEST_NAME = 60


@dataclass(frozen=True)
class TrainOptions:
    """The options of a training run, and the name of a dataset to train on instead of a table.

    Args:
        dataset: MoleculeNet dataset to download, such as ESOL.
        dataset_folder: Folder for downloaded datasets; by default in the user's cache.
    """

    dataset: Annotated[str | None, group("Data")] = field(default=None, metadata=COMMON)
    dataset_folder: Annotated[Path | None, group("Data")] = None
    data: Annotated[DataConfig, section("Data")] = DataConfig()
    network: Annotated[NetworkConfig, section("Network")] = NetworkConfig()
    fine_tuning: Annotated[FineTuningConfig, section("Fine-tuning")] = FineTuningConfig()
    gaussian_process: Annotated[GaussianProcessConfig, section("Gaussian process")] = (
        GaussianProcessConfig()
    )
    training: Annotated[SupervisedConfig, section("Training")] = SupervisedConfig()
    report: Annotated[ReportConfig, section("Report")] = ReportConfig()

    def train_config(self, table: Path | None) -> TrainConfig:
        """Return the run on a table, a named dataset, or else the bundled solubility data.

        Raises:
            InputError: The options do not agree with each other, or with the columns of the table.
        """
        sections = {name: getattr(self, name) for name in TrainConfig.sections()}
        config = TrainConfig(str(table or ""), **sections)
        if self.dataset is not None:
            config = _with_named_dataset(config, self.dataset, self.dataset_folder)
        elif self.dataset_folder is not None:
            raise InputError("--dataset-folder needs --dataset")
        elif not config.file:
            config = _with_bundled_data(config)
        find_columns(open_table(config.file), config.data)  # before torch and RDKit are loaded
        return config

    def run_name(self, file: str) -> str:
        """Return the default name of the folder of a run on a table."""
        if self.dataset is not None:
            return self.dataset.lower()
        return re.sub(r"[^\w.+-]+", "_", Path(file).stem, flags=re.ASCII)[:_LONGEST_NAME]


def _with_bundled_data(config: TrainConfig) -> TrainConfig:
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
        raise InputError(f"--dataset {name} cannot be used with a table ({config.file})")

    from molattn.data.moleculenet import named_dataset

    found = named_dataset(name, folder)
    if (column := config.data.smiles_column) not in (DataConfig.smiles_column, found.smiles_column):
        raise InputError(
            f"--smiles-column: got {quoted(column)}, but the SMILES column of {name} is "
            f"{quoted(found.smiles_column)}; leave out --smiles-column"
        )
    data = replace(config.data, smiles_column=found.smiles_column)
    if not data.target_columns:
        data = replace(data, target_columns=found.target_columns, target_units=found.target_units)
    return replace(config, file=str(found.path), data=data)
