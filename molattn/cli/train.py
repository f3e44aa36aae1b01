"""``molattn train``."""

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from molattn.cli.processes import needs_processes
from molattn.cli.shared import RunOptions, group, make_console, report_same_name, section
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
from molattn.errors import InputError
from molattn.utils.console import print_line

if TYPE_CHECKING:
    from rich.console import Console

_LONGEST_NAME = 60

EXAMPLES = """Examples:
  molattn train
  molattn train assay.csv --target-columns pIC50 --split scaffold --epochs 100
  molattn train --config runs/assay/config.yaml --seed 1
  molattn train small.csv --target-columns logS --init-from runs/assay
"""


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
            raise InputError("needs --dataset", option="dataset_folder")
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
        units = data.target_units or (BUNDLED_UNIT,)
        data = replace(data, target_columns=(BUNDLED_TARGET,), target_units=units)
    chosen = {data.split, data.split_column, data.folds, data.test_size}
    if chosen == {None, DataConfig.test_size}:
        data = replace(data, split_column="split")
    return replace(config, file=str(bundled_dataset()), data=data)


def _with_named_dataset(config: TrainConfig, name: str, folder: Path | None) -> TrainConfig:
    if config.file:
        raise InputError(f"cannot be used with a table ({config.file})", option="dataset")
    from molattn.data.moleculenet import named_dataset

    found = named_dataset(name, folder)
    data = replace(config.data, smiles_column=found.smiles_column)
    if not data.target_columns:
        data = replace(data, target_columns=found.target_columns, target_units=found.target_units)
    return replace(config, file=str(found.path), data=data)


def train(
    table: Annotated[Path | None, Parameter(name="DATA")] = None,
    /,
    *,
    run: Annotated[RunOptions, section("Run")] = RunOptions(),
    options: Annotated[TrainOptions, Parameter(name="*")] = TrainOptions(),
) -> SupervisedConfig | None:
    """Train a model on a table of molecules and their properties.

    Args:
        table: A table or a prepared store; by default the bundled data.
    """
    console = make_console()
    if run.report_finished(console):
        return None
    config = options.train_config(table)
    report_same_name(console, config.fine_tuning.init_from)
    if needs_processes(config.training):
        return config.training
    with run.open_folder("train", options.run_name(config.file)) as (output, folder):
        if config.data.folds is not None and config.data.only_fold is None:
            _cross_validate(config, folder, console)
        else:
            _train_once(config, folder, console)
    print_line(console, f"Results written to {output}")
    return None


def _cross_validate(config: TrainConfig, folder: Path, console: "Console") -> None:
    from molattn.evaluation.cross_validation import cross_validate
    from molattn.evaluation.tables import print_scores

    summary = cross_validate(config, folder, console)
    if not summary:  # in another process than the first
        return
    print_scores(summary, config, console)
    if "final" in summary:
        print_line(
            console,
            "These are scores of the models of the folds; the final model, of all rows, has no "
            "score of its own",
        )


def _train_once(config: TrainConfig, folder: Path, console: "Console") -> None:
    from molattn.evaluation.run_files import write_run
    from molattn.evaluation.scoring import score_run
    from molattn.evaluation.tables import print_scores
    from molattn.training.run import train
    from molattn.utils.process_group import process_rank
    from molattn.utils.progress import step_progress

    run = train(config, console, folder)
    if process_rank():
        return
    with step_progress(console, "scoring"):
        scores = score_run(run, console)
    with step_progress(console, "writing the results"):
        write_run(run, scores, folder)
    print_scores(scores.metrics, config, console)
    forest = scores.metrics.get("random_forest_seconds")
    epochs = ", ".join(f"{history.best} of {len(history.epochs)}" for history in run.histories)
    print_line(
        console,
        f"Trained in {run.seconds:.0f} s{f' (random forest: {forest:.0f} s)' if forest else ''}"
        + (f"; weights of epoch {epochs} saved" if epochs else ""),
    )
