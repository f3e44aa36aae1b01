"""``molattn tune``."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from molattn.cli.shared import (
    DATA,
    FINE_TUNING,
    NETWORK,
    REPORT,
    RUN,
    SEARCH,
    TRAINING,
    make_console,
    section,
)
from molattn.cli.source import folder_name, with_source
from molattn.config import (
    DataConfig,
    FineTuningConfig,
    NetworkConfig,
    ReportConfig,
    SupervisedConfig,
    TrainConfig,
    TuneConfig,
)
from molattn.errors import InputError
from molattn.utils.console import print_line

__all__ = ["EXAMPLES", "tune"]

EXAMPLES = """Examples:
  molattn tune assay.csv --target-columns pIC50 --trials 100 --output runs/search
  molattn tune assay.csv --target-columns pIC50 --space space.yaml --timeout 3600
  molattn tune --resume runs/search --trials 200
  molattn train --config runs/search/best.yaml
"""


def tune(
    table: Annotated[Path | None, Parameter(name="DATA")] = None,
    /,
    *,
    output: Annotated[Path | None, Parameter(group=RUN)] = None,
    config_file: Annotated[Path | None, Parameter(name="--config", group=RUN)] = None,
    resume: Annotated[Path | None, Parameter(group=RUN)] = None,
    overwrite: Annotated[bool, Parameter(group=RUN, negative=(), show_default=False)] = False,
    space: Annotated[Path | None, Parameter(group=SEARCH)] = None,
    tuning: Annotated[TuneConfig, section(SEARCH)] = TuneConfig(),
    dataset: Annotated[str | None, Parameter(group=DATA)] = None,
    dataset_folder: Annotated[Path | None, Parameter(group=DATA)] = None,
    data: Annotated[DataConfig, section(DATA)] = DataConfig(),
    network: Annotated[NetworkConfig, section(NETWORK)] = NetworkConfig(),
    training: Annotated[SupervisedConfig, section(TRAINING)] = SupervisedConfig(),
    fine_tuning: Annotated[FineTuningConfig, section(FINE_TUNING)] = FineTuningConfig(),
    report: Annotated[ReportConfig, section(REPORT)] = ReportConfig(),
) -> None:
    """Search for the options whose training validates best; the test rows are not looked at.

    Args:
        table: CSV, TSV, Parquet, SDF or SMILES file; without one, 1,282 measured solubilities.
        output: Folder for the study: study.db, trials.csv, study.png, and best.yaml, which molattn
            train takes as --config; by default runs/NAME-study after the table.
        config_file: YAML file of the options that are not varied. The command line wins.
        resume: Go on with a study, interrupted or not, by its folder, with the same options and
            table; more --trials may be asked for.
        overwrite: Begin anew where a study is in --output.
        space: YAML file of the options to vary, each with a list of values, or with low, high and,
            for steps in proportion, log: true; by default the usual ones of the training and,
            from scratch, of the network (docs/tune.md), but those that are set here.
        dataset: Set of MoleculeNet to download in place of DATA, such as ESOL, Lipo or Tox21.
        dataset_folder: Where such sets are kept, by default in the user's cache folder.
    """
    if find_spec("optuna") is None:
        raise InputError(
            "molattn tune: the package optuna is not installed, expected it: "
            "pip install 'molattn[tune]'"
        )
    if resume is not None and (output, overwrite, space) != (None, False, None):
        raise InputError(
            "--resume: a study goes on in its folder and space, expected no --output, --overwrite "
            "or --space"
        )
    config = TrainConfig(str(table or ""), data, network, training, report, fine_tuning)
    config = with_source(config, dataset, dataset_folder)

    from molattn.training.run_folder import CONFIG_FILE, free_folder
    from molattn.tuning.search_space import read_space
    from molattn.tuning.study import BEST_FILE, SPACE_FILE, STUDY_FILE, trials_table
    from molattn.tuning.study import tune as search

    console = make_console()
    name = f"{dataset.lower() if dataset else folder_name(config.file)}-study"
    folder = resume or output or free_folder(Path("runs") / name)
    searched = None if space is None else read_space(space)
    if resume is None:
        _check_free(folder, STUDY_FILE, overwrite)
    with _study_folder(folder):
        if resume is None:
            for former in (STUDY_FILE, CONFIG_FILE, SPACE_FILE):
                (folder / former).unlink(missing_ok=True)
        tuned = search(config, tuning, searched, folder, console)
    console.print(trials_table(tuned), markup=False)
    print_line(console, f"written to {folder}; molattn train --config {folder / BEST_FILE}")


@contextmanager
def _study_folder(folder: Path) -> Iterator[None]:
    """Keep a folder for a study to this process; say how to go on, and leave no empty one."""
    from molattn.training.run_folder import locked_folder

    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    with locked_folder(folder):
        try:
            yield
        except KeyboardInterrupt as interrupt:
            raise KeyboardInterrupt(
                f"interrupted; molattn tune --resume {folder} goes on"
            ) from interrupt
        except InputError:
            if is_new and not (folder / "trials.csv").exists():
                _remove(folder)
            raise


def _check_free(folder: Path, study: str, overwrite: bool) -> None:
    """Refuse a folder that holds a study, unless it may be replaced, or anything else."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: there is a file of that name, expected a folder")
    if (folder / study).exists():
        if not overwrite:
            raise InputError(
                f"{folder}: a study is there; --resume {folder} goes on with it, and --overwrite "
                "begins anew"
            )
    elif folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder}: the folder is not empty, expected a new or empty one")


def _remove(folder: Path) -> None:
    for entry in folder.iterdir():
        entry.unlink()
    with suppress(OSError):
        folder.rmdir()
