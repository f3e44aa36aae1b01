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
        raise InputError("cannot be used with --resume, which keeps it", option="space")
    config = options.train_config(table)

    from molattn.training.run_folder import free_folder
    from molattn.tuning.search_space import read_space
    from molattn.tuning.study import BEST_FILE, run_study, trials_table

    console = make_console()
    name = f"{options.run_name(config.file)}-study"
    folder = run.resume or run.output or free_folder(Path("runs") / name)
    searched = None if space is None else read_space(space)
    with _study_folder(folder, run):
        result = run_study(config, tuning, searched, folder, console, overwrite=run.overwrite)
    print_line(console, trials_table(result))
    print_line(
        console,
        f"Results written to {folder}; to train with the best options: "
        f"molattn train --config {folder / BEST_FILE}",
    )


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
