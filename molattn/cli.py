"""The commands.

Exit codes: 0 done, 2 the user's input is wrong, 130 interrupted, 1 anything else; whatever is not 0
comes with one line on stderr that begins with ``error:``. Heavy imports happen inside the commands,
so that ``--help`` answers at once.
"""

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, CycloptsError, Group, Parameter

from molattn.config import (
    ArchitectureConfig,
    DataConfig,
    OptimisationConfig,
    PredictConfig,
    TrainConfig,
)
from molattn.errors import InputError, MolattnError
from molattn.version import __version__

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["app", "main", "run"]

_TRACEBACK_VARIABLE = "MOLATTN_TRACEBACK"
_LONGEST_MESSAGE = 2000
_LONGEST_NAME = 60

_TRAIN_EXAMPLES = """
Examples:

  molattn train

  molattn train assay.csv --target-columns pIC50 --split scaffold --epochs 100
"""
_PREDICT_EXAMPLE = """
Example:

  molattn predict runs/solubility molecules.csv --output predictions.csv
"""


def _section(group: Group) -> Parameter:
    return Parameter(
        name="*",
        group=group,
        negative_iterable=(),
        consume_multiple=True,
        show_default=lambda value: value if value != () else "none",
    )


_DATA, _TRAINING, _NETWORK, _PREDICTION, _OUTPUT = (
    Group(title, sort_key=place)
    for place, title in enumerate(("Data", "Training", "Network", "Prediction", "Output"))
)


app = App(
    name="molattn",
    help="Attention models of molecules: train one on a table, predict with it.",
    version=__version__,
    suppress_keyboard_interrupt=False,
)


@app.command(help_epilogue=_TRAIN_EXAMPLES)
def train(
    table: Annotated[Path | None, Parameter(name="DATA")] = None,
    /,
    *,
    output: Annotated[Path | None, Parameter(group=_OUTPUT)] = None,
    data: Annotated[DataConfig, _section(_DATA)] = DataConfig(),
    architecture: Annotated[ArchitectureConfig, _section(_NETWORK)] = ArchitectureConfig(),
    optimisation: Annotated[OptimisationConfig, _section(_TRAINING)] = OptimisationConfig(),
) -> None:
    """Train a model on a CSV of SMILES and numbers.

    Args:
        table: Table with a header; without one, 1,282 measured aqueous solubilities.
        output: Folder for the run: the model, its scores, plots and predictions; by default
            runs/NAME after the table. A former run in it is replaced.
    """
    config = _with_bundled_data(table, data, architecture, optimisation)
    output = output or _new_folder(Path("runs"), Path(config.file).stem)

    from molattn.report import run_folder, score_run, score_table, target_label, write_run
    from molattn.training import train

    console = _console()
    with run_folder(output) as folder:
        run = train(config, console)
        scores = score_run(run)
        write_run(run, scores, folder)
    names, units = config.data.target_columns, config.data.target_units
    labels = map(target_label, names, units or [""] * len(names))
    console.print(score_table(scores, dict(zip(names, labels, strict=True))), markup=False)
    console.print(
        f"best epoch {run.history.best} of {len(run.history.epochs)}, {run.seconds:.0f} s; "
        f"written to {output}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


@app.command(help_epilogue=_PREDICT_EXAMPLE)
def predict(
    model: Path,
    table: Annotated[Path, Parameter(name="INPUT")],
    /,
    *,
    output: Annotated[Path, Parameter(group=_OUTPUT)],
    config: Annotated[PredictConfig, _section(_PREDICTION)] = PredictConfig(),
) -> None:
    """Predict every molecule of a CSV.

    Args:
        model: Folder of a run, or of a saved model.
        table: Table with a header.
        output: Table to write: every row of the input in order, with its columns, one more for
            each target, and the column error, a short reason where there is no prediction.
    """
    from molattn.predict import predict_table

    console = _console()
    counts = predict_table(model, table, output, config, console)
    console.print(
        f"{counts.predicted} predicted, {counts.refused} refused; written to {output}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Args:
        argv: The words after the program's name; by default those it was started with.
    """
    try:
        app(
            sys.argv[1:] if argv is None else list(argv),
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
    except (InputError, CycloptsError) as error:
        return _fail(str(error), 2)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except MolattnError as error:
        return _fail(str(error), 1)
    except Exception as error:
        if os.environ.get(_TRACEBACK_VARIABLE):
            raise
        return _fail(
            f"{type(error).__name__}: {error} (set {_TRACEBACK_VARIABLE}=1 to see where)", 1
        )
    return 0


def run() -> None:
    """Run a command and exit: the entry point of ``molattn``."""
    sys.exit(main())


def _with_bundled_data(
    table: Path | None,
    data: DataConfig,
    architecture: ArchitectureConfig,
    optimisation: OptimisationConfig,
) -> TrainConfig:
    if table is None:
        from molattn.table import BUNDLED_TARGET, BUNDLED_UNIT, bundled_dataset

        table = bundled_dataset()
        if data.target_columns in ((), (BUNDLED_TARGET,)):
            data = replace(
                data,
                target_columns=(BUNDLED_TARGET,),
                target_units=data.target_units or (BUNDLED_UNIT,),
            )
        if data.split is None and data.split_column is None:
            data = replace(data, split_column="split")
    return TrainConfig(str(table), data, architecture, optimisation)


def _new_folder(parent: Path, name: str) -> Path:
    name = re.sub(r"[^\w.+-]+", "_", name, flags=re.ASCII)[:_LONGEST_NAME]
    folder, number = parent / name, 1
    while folder.exists():
        number += 1
        folder = parent / f"{name}-{number}"
    return folder


def _console() -> "Console":
    from rich.console import Console

    return Console()


def _fail(message: str, code: int) -> int:
    line = "".join(
        char if char.isascii() and char.isprintable() else ascii(char)[1:-1]
        for char in " ".join(message.split())
    )
    if len(line) > _LONGEST_MESSAGE:
        line = f"{line[:_LONGEST_MESSAGE]}..."
    print(f"error: {line}", file=sys.stderr)
    return code
