"""``molattn tune``."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from molattn.cli.shared import RunOptions, group, make_console, section
from molattn.cli.train import TrainOptions
from molattn.config import TuneConfig
from molattn.errors import InputError
from molattn.utils.console import print_line

__all__ = ["EXAMPLES", "tune"]

EXAMPLES = """Examples:
  molattn tune assay.csv --target-columns pIC50 --output runs/search
  molattn tune assay.csv --target-columns pIC50 --space space.yaml
  molattn tune --resume runs/search --trials 200
  molattn train --config runs/search/best.yaml
"""


def tune(
    table: Annotated[Path | None, Parameter(name="DATA")] = None,
    /,
    *,
    run: Annotated[RunOptions, section("Run")] = RunOptions(),
    space: Annotated[Path | None, group("Search")] = None,
    tuning: Annotated[TuneConfig, section("Search")] = TuneConfig(),
    options: Annotated[TrainOptions, Parameter(name="*")] = TrainOptions(),  # noqa: B008
) -> None:
    """Search for the options with the best validation loss; test rows are not used.

    The output folder contains best.yaml (the best options), trials.csv and plots.
    See "Hyperparameter search" in the documentation.

    Args:
        table: CSV, TSV, Parquet, Excel, SDF or SMILES file, or a store of molattn prepare; by
            default the bundled data.
        space: YAML file with the options to vary and their values.
    """
    if find_spec("optuna") is None:
        raise InputError(
            "molattn tune needs the package optuna, which is not installed: "
            "pip install 'molattn[tune]'"
        )
    if run.resume is not None and space is not None:
        raise InputError("--resume cannot be used with --space: a study keeps its search space")
    config = options.train_config(table)

    from molattn.training.run_folder import free_folder
    from molattn.tuning.search_space import read_space
    from molattn.tuning.study import BEST_FILE, STUDY_FILE, run_study, trials_table

    console = make_console()
    name = f"{options.run_name(config.file)}-study"
    folder = run.resume or run.output or free_folder(Path("runs") / name)
    searched = None if space is None else read_space(space)
    if run.resume is None:
        _check_free(folder, STUDY_FILE, run.overwrite)
    with _study_folder(folder):
        result = run_study(config, tuning, searched, folder, console, overwrite=run.overwrite)
    console.print(trials_table(result), markup=False)
    print_line(
        console,
        f"Results written to {folder}; to train with the best options: "
        f"molattn train --config {folder / BEST_FILE}",
    )


@contextmanager
def _study_folder(folder: Path) -> Iterator[None]:
    """Lock the folder of a study; report how to resume it, and remove a new one if it is empty."""
    from molattn.training.run_folder import CONFIG_FILE
    from molattn.utils.files import locked

    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        try:
            yield
        except KeyboardInterrupt as interrupt:
            if (folder / CONFIG_FILE).exists():
                hint = f"to resume: molattn tune --resume {folder}"
                interrupt.args = (f"{interrupt or 'interrupted'}; {hint}",)
            raise
        except InputError:
            if is_new and not (folder / "trials.csv").exists():
                shutil.rmtree(folder, ignore_errors=True)
            raise


def _check_free(folder: Path, study: str, overwrite: bool) -> None:
    """Check that a new study may be written to a folder."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file, expected a folder")
    if (folder / study).exists():
        if not overwrite:
            raise InputError(
                f"{folder}: contains a study; --resume {folder} continues it, --overwrite "
                "replaces it"
            )
    elif folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder}: the folder is not empty, expected a new or empty folder")
