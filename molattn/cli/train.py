"""``molattn train``, ``molattn pretrain`` and ``molattn tune``."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from os.path import abspath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from molattn.cli.options import Imports, group, make_console, section
from molattn.cli.processes import needs_processes
from molattn.config import (
    DataConfig,
    FineTuningConfig,
    GaussianProcessConfig,
    MoleculesConfig,
    NetworkConfig,
    PretrainConfig,
    PretrainLoopConfig,
    PretrainNetworkConfig,
    ReportConfig,
    SupervisedConfig,
    TrainConfig,
    TuneConfig,
)
from molattn.config.base import COMMON
from molattn.data.table import BUNDLED_TARGET, BUNDLED_UNIT, bundled_dataset, open_table
from molattn.errors import InputError
from molattn.utils.console import print_line
from molattn.utils.registry import import_files

if TYPE_CHECKING:
    from rich.console import Console

DataTable = Annotated[
    Path | None,
    Parameter(
        name="DATA",
        help="CSV, TSV, Parquet, Excel, SDF or SMILES file, or a store of molattn prepare; by "
        "default the bundled data.",
    ),
]


@dataclass(frozen=True)
class RunOptions:
    """The folder of a run, and the file of its options.

    Args:
        output: Folder for the results; by default a new one in runs/.
        config: YAML file of options, such as config.yaml of a run.
        resume: Resume the interrupted run in this folder, with its options.
        overwrite: Replace a run in --output.
    """

    output: Path | None = None
    config: Path | None = None
    resume: Path | None = None
    overwrite: Annotated[bool, Parameter(negative=(), show_default=False)] = False

    def __post_init__(self) -> None:
        if self.resume is not None and (self.output is not None or self.overwrite):
            raise InputError("cannot be used with --output or --overwrite", option="resume")

    @contextmanager
    def open_folder(self, command: str, name: str) -> Iterator[tuple[Path, Path]]:
        """Fill the folder of a run, by default one of a name in ``runs/``, in the first process.

        Yields the final folder, and the one to write to.
        """
        from molattn.training import run_folder as folders
        from molattn.utils.process_group import process_rank

        if process_rank():
            yield Path(), Path()
            return
        path = self.resume or self.output or folders.free_folder(Path("runs") / name)
        path = folders.final_folder(path)
        is_resumed = self.resume is not None
        try:
            with folders.run_folder(path, resume=is_resumed, overwrite=self.overwrite) as folder:
                yield path, folder
        except (KeyboardInterrupt, OSError) as error:
            if folders.has_checkpoint(path):
                error.add_note(f"to resume: molattn {command} --resume {path}")
            raise


@dataclass(frozen=True)
class TrainOptions:
    """The options of a training run, and the name of a dataset to train on instead of a table.

    Args:
        dataset: MoleculeNet dataset to download, such as ESOL.
    """

    dataset: Annotated[str | None, group("Data")] = field(default=None, metadata=COMMON)
    data: Annotated[DataConfig, section("Data")] = DataConfig()
    network: Annotated[NetworkConfig, section("Network")] = NetworkConfig()
    fine_tuning: Annotated[FineTuningConfig, section("Fine-tuning")] = FineTuningConfig()
    gaussian_process: Annotated[GaussianProcessConfig, section("Gaussian process")] = (
        GaussianProcessConfig()
    )
    training: Annotated[SupervisedConfig, section("Training")] = SupervisedConfig()
    report: Annotated[ReportConfig, section("Report")] = ReportConfig()

    def train_config(self, table: Path | None) -> TrainConfig:
        """Return the run on a table, a named dataset, or else the bundled solubility data."""
        from molattn.data.auxiliary import AuxiliaryTable
        from molattn.data.labels import find_columns, with_target

        sections = {name: getattr(self, name) for name in TrainConfig.sections()}
        config = TrainConfig(str(table or ""), **sections)
        if self.dataset is not None:
            config = _with_named_dataset(config, self.dataset)
        elif not config.file:
            config = _with_bundled_data(config)
        opened = open_table(config.file, options=config.data)
        config = replace(config, data=with_target(opened, config.data))
        find_columns(opened, config.data)  # before torch and RDKit are loaded
        if config.data.auxiliary_columns:
            find_columns(AuxiliaryTable(opened, config.data), config.data.auxiliary)
        return config

    def print_target(self, config: TrainConfig, console: "Console") -> None:
        """Print which column is the target where none is given."""
        if not self.data.target_columns and config.data.target_columns:
            names = ", ".join(config.data.target_columns)
            print_line(console, f"target: {names} (others: --target-columns)")

    def run_name(self, file: str) -> str:
        """Return the default name of the folder of a run on a table."""
        name = self.dataset.lower() if self.dataset else Path(file).stem[:60]
        return re.sub(r"[^\w.+-]+", "_", name, flags=re.ASCII)


def _with_bundled_data(config: TrainConfig) -> TrainConfig:
    data = config.data
    if [column.lower() for column in data.target_columns] in ([], [BUNDLED_TARGET.lower()]):
        units = data.target_units or (BUNDLED_UNIT,)
        data = replace(data, target_columns=(BUNDLED_TARGET,), target_units=units)
    split_options = {data.split, data.split_column, data.folds, data.test_size}
    if split_options == {None, DataConfig.test_size}:
        data = replace(data, split_column="split")
    return replace(config, file=str(bundled_dataset()), data=data)


def _with_named_dataset(config: TrainConfig, name: str) -> TrainConfig:
    if config.file:
        raise InputError(f"cannot be used with a table ({config.file})", option="dataset")
    from molattn.data.moleculenet import named_dataset

    dataset = named_dataset(name)
    data = replace(config.data, smiles_column=dataset.smiles_column)
    if not data.target_columns:
        targets = dataset.target_columns
        units = dataset.target_units
        data = replace(data, target_columns=targets, target_units=units)
    return replace(config, file=str(dataset.path), data=data)


def train(
    table: DataTable = None,
    /,
    *,
    run: Annotated[RunOptions, section("Run")] = RunOptions(),
    options: Annotated[TrainOptions, Parameter(name="*")] = TrainOptions(),
    imports: Imports = (),
) -> SupervisedConfig | None:
    """Train a model on a table of molecules and their properties."""
    import_files(imports)
    console = make_console()
    config = options.train_config(table)
    if needs_processes(config.training):
        return config.training  # to be launched in several processes
    options.print_target(config, console)
    with run.open_folder("train", options.run_name(config.file)) as (output, folder):
        if config.data.folds is not None and config.data.only_fold is None:
            _cross_validate(config, folder, console)
        else:
            _train_once(config, folder, console)
    print_line(console, f"Results written to {output}")
    return None


def _cross_validate(config: TrainConfig, folder: Path, console: "Console") -> None:
    from molattn.evaluation.cross_validation import cross_validate
    from molattn.evaluation.report.tables import print_scores

    summary = cross_validate(config, folder, console)
    if summary is None:  # in another process than the first
        return
    print_scores(summary, config, console)
    if summary.final is not None:
        print_line(console, "These are scores of the folds; the final model has none of its own")


def _train_once(config: TrainConfig, folder: Path, console: "Console") -> None:
    from molattn.evaluation.report.run_files import write_run
    from molattn.evaluation.report.tables import print_scores
    from molattn.evaluation.scores.scoring import score_run
    from molattn.training.run import train
    from molattn.utils.console import step_progress
    from molattn.utils.process_group import process_rank

    run = train(config, console, folder)
    if process_rank():
        return
    with step_progress(console, "scoring"):
        scores = score_run(run, console)
    with step_progress(console, "writing the results"):
        write_run(run, scores, folder)
    print_scores(scores.metrics, config, console)
    seconds = f"{run.seconds:.0f} s"
    if forest := scores.metrics.baseline_seconds.get("random_forest"):
        seconds += f" (random forest: {forest:.0f} s)"
    epochs = ", ".join(f"{history.kept_epoch} of {len(history.curve)}" for history in run.histories)
    weights = f"; weights of epoch {epochs} saved" if epochs else ""
    print_line(console, f"Trained in {seconds}{weights}")


def pretrain(
    *inputs: Annotated[Path, Parameter(name="INPUT")],
    run: Annotated[RunOptions, section("Run")] = RunOptions(),
    num_workers: Annotated[int, group("Run"), Parameter(validator=Number(gte=0))] = 0,
    molecules: Annotated[MoleculesConfig, section("Data")] = MoleculesConfig(),
    network: Annotated[PretrainNetworkConfig, section("Network")] = PretrainNetworkConfig(),
    training: Annotated[PretrainLoopConfig, section("Training")] = PretrainLoopConfig(),
) -> PretrainLoopConfig | None:
    """Pretrain a network on molecules without labels, for molattn train --init-from.

    It learns to predict descriptors, fingerprints, and masked atoms and bonds.
    See "Pretraining" in the documentation.

    Args:
        inputs: One or more tables of molecules (CSV, TSV, Parquet, Excel, SDF or SMILES files, or
            stores of molattn prepare).
        num_workers: Worker processes that prepare the molecules; 0 prepares them in the main
            process.
    """
    # Absolute paths, so that the run can be resumed from anywhere.
    molecules = replace(molecules, exclude=tuple(map(abspath, molecules.exclude)))
    config = PretrainConfig(tuple(map(str, inputs)), molecules, network, training)
    console = make_console()
    if not config.files:
        raise InputError("INPUT is missing: expected one or more tables of molecules")
    if needs_processes(training):
        return training  # to be launched in several processes
    with run.open_folder("pretrain", "pretrained") as (output, folder):
        from molattn.pretraining import describe_scores, write_pretraining
        from molattn.pretraining import pretrain as run_pretraining
        from molattn.utils.process_group import process_rank

        pretraining = run_pretraining(config, folder, console, num_workers=num_workers)
        if not process_rank():
            write_pretraining(pretraining, folder)
    scores = pretraining.metrics["validation"]
    seconds = 3600.0 * pretraining.metrics["hours"]
    print_line(console, f"Validation: {', '.join(describe_scores(scores))}")
    print_line(console, f"Trained in {seconds:.0f} s ({pretraining.history.steps} steps)")
    print_line(console, f"Results written to {output}")
    return None


def tune(
    table: DataTable = None,
    /,
    *,
    run: Annotated[RunOptions, section("Run")] = RunOptions(),
    space: Annotated[Path | None, group("Search")] = None,
    tuning: Annotated[TuneConfig, section("Search")] = TuneConfig(),
    options: Annotated[TrainOptions, Parameter(name="*")] = TrainOptions(),
) -> None:
    """Search for the options with the best validation loss; test rows are not used.

    The output folder contains best.yaml (the best options), trials.csv and plots.
    See "Hyperparameter search" in the documentation.

    Args:
        space: YAML file with the options to vary and their values.
    """
    if find_spec("optuna") is None:
        raise InputError(
            "molattn tune needs the package optuna, which is not installed: "
            "pip install 'molattn[tune]'"
        )
    if run.resume is not None and space is not None:
        raise InputError("cannot be used with --resume, which keeps it", option="space")
    config = options.train_config(table)

    from molattn.training.run_folder import free_folder
    from molattn.tuning.search_space import read_space
    from molattn.tuning.study import BEST_FILE, run_study, trials_table

    console = make_console()
    options.print_target(config, console)
    name = f"{options.run_name(config.file)}-study"
    folder = run.resume or run.output or free_folder(Path("runs") / name)
    searched = None if space is None else read_space(space)
    with _study_folder(folder, run):
        study = run_study(config, tuning, searched, folder, console, overwrite=run.overwrite)
    console.print(trials_table(study), markup=False)
    best = f"molattn train --config {folder / BEST_FILE}"
    print_line(console, f"Results written to {folder}; to train with the best options: {best}")


@contextmanager
def _study_folder(folder: Path, run: RunOptions) -> Iterator[None]:
    """Lock the folder of a study; add to errors how to resume it, and remove it if it is empty."""
    from molattn.training.run_folder import CONFIG_FILE
    from molattn.tuning.study import STUDY_FILE
    from molattn.utils.files import locked

    is_new = not folder.exists()
    replaces = run.resume is not None or (run.overwrite and (folder / STUDY_FILE).exists())
    if not is_new and not replaces and any(folder.iterdir()):
        raise InputError(
            f"{folder}: expected a new or empty folder; --resume {folder} continues a study, "
            "--overwrite replaces it"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        try:
            yield
        except KeyboardInterrupt as interrupt:
            if (folder / CONFIG_FILE).exists():
                interrupt.add_note(f"to resume: molattn tune --resume {folder}")
            raise
        except InputError:
            if is_new and not (folder / "trials.csv").exists():
                shutil.rmtree(folder, ignore_errors=True)
            raise
