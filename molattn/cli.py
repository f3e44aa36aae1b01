"""The commands.

Exit codes: 0 done, 2 the user's input is wrong, 130 interrupted, 1 anything else; whatever is not 0
comes with one line on stderr that begins with ``error:``. Heavy imports happen inside the commands,
so that ``--help`` answers at once.
"""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, ArgumentCollection, CycloptsError, Group, Parameter, Token
from cyclopts.config import Dict

from molattn.config import (
    ArchitectureConfig,
    DataConfig,
    OptimisationConfig,
    PredictConfig,
    ReportConfig,
    TrainConfig,
    changed_options,
)
from molattn.errors import InputError, MolattnError, quoted
from molattn.help_format import print_group
from molattn.version import __version__

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["app", "main", "run"]

_TRACEBACK_VARIABLE = "MOLATTN_TRACEBACK"
_LONGEST_MESSAGE = 2000
_LONGEST_NAME = 60

_TRAIN_EXAMPLES = """Examples:
  molattn train
  molattn train assay.csv --target-columns pIC50 --split scaffold --epochs 100
  molattn train --config runs/assay/config.yaml --seed 1
  molattn train --resume runs/assay
"""
_PREDICT_EXAMPLE = """Example:
  molattn predict runs/solubility molecules.csv --output predictions.csv
"""


def _shown_default(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "" if value is None or value == () else str(value)


def _section(group: Group) -> Parameter:
    return Parameter(
        name="*",
        group=group,
        negative_iterable=(),
        consume_multiple=True,
        show_default=_shown_default,
    )


_RUN, _DATA, _TRAINING, _NETWORK, _REPORT, _PREDICTION, _OUTPUT = (
    Group(title, sort_key=place)
    for place, title in enumerate(
        ("Run", "Data", "Training", "Network", "Report", "Prediction", "Output")
    )
)


def _from_file(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Take what the command line leaves open from the file of --config or the run of --resume."""
    given = {name: argument for argument in arguments for name in argument.names}
    tokens = [given[name].tokens for name in ("--config", "--resume") if name in given]
    if not any(tokens):
        return
    if all(tokens):
        raise InputError("--resume: a run goes on with its own options, expected no --config")

    from molattn.config_file import read_config_file

    path = Path((tokens[0] or tokens[1])[0].value)
    if not tokens[0]:
        from molattn.run_folder import CONFIG_FILE, unfinished_run

        folder = unfinished_run(path)
        if folder is None:
            return
        path = folder / CONFIG_FILE
    content = read_config_file(path)
    file = content.pop("file", None)
    (table,) = (argument for argument in arguments if argument.field_info.name == "table")
    if file is not None and not table.tokens:
        table.append(Token(value=str(file), source=str(path)))
    options = {name: value for section in content.values() for name, value in section.items()}
    Dict(options, source=str(path), use_commands_as_keys=False)(app, commands, arguments)


app = App(
    name="molattn",
    help="Attention models of molecules: train one on a table, predict with it.",
    config=_from_file,
    help_format="plaintext",
    help_formatter=print_group,
    version=__version__,
    suppress_keyboard_interrupt=False,
)


@app.command(help_epilogue=_TRAIN_EXAMPLES)
def train(
    table: Annotated[Path | None, Parameter(name="DATA")] = None,
    /,
    *,
    output: Annotated[Path | None, Parameter(group=_RUN)] = None,
    config_file: Annotated[Path | None, Parameter(name="--config", group=_RUN)] = None,
    resume: Annotated[Path | None, Parameter(group=_RUN)] = None,
    overwrite: Annotated[bool, Parameter(group=_RUN, negative=(), show_default=False)] = False,
    dataset: Annotated[str | None, Parameter(group=_DATA)] = None,
    dataset_folder: Annotated[Path | None, Parameter(group=_DATA)] = None,
    data: Annotated[DataConfig, _section(_DATA)] = DataConfig(),
    architecture: Annotated[ArchitectureConfig, _section(_NETWORK)] = ArchitectureConfig(),
    optimisation: Annotated[OptimisationConfig, _section(_TRAINING)] = OptimisationConfig(),
    report: Annotated[ReportConfig, _section(_REPORT)] = ReportConfig(),
) -> None:
    """Train a model on a table of molecules and their properties.

    Args:
        table: CSV, TSV, Parquet, SDF or SMILES file; without one, 1,282 measured solubilities.
        output: Folder for the run: the model, its scores, plots and predictions; by default
            runs/NAME after the table. A former run in it is replaced.
        config_file: YAML file of options; config.yaml of a run repeats it. The command line wins.
        resume: Go on with an interrupted run, by the name of its --output, with the same options
            and table, to the very weights it would have had. Until a run is finished it is kept in
            OUTPUT.unfinished.
        overwrite: Begin anew where an unfinished run has the name of --output.
        dataset: Set of MoleculeNet to download in place of DATA, such as ESOL, Lipo or Tox21.
        dataset_folder: Where such sets are kept, by default in the user's cache folder.
    """
    config = TrainConfig(str(table or ""), data, architecture, optimisation, report)
    if dataset is None:
        config = _with_bundled_data(config)
    else:
        config = _with_named_dataset(config, dataset, dataset_folder)
    if resume is not None and (output is not None or overwrite):
        raise InputError("--resume: names the folder already, expected no --output or --overwrite")

    from molattn.run_folder import CONFIG_FILE, free_folder, run_folder, unfinished_run

    console = _console()
    if resume is not None:
        unfinished = unfinished_run(resume)
        if unfinished is None:
            _say(console, f"{resume} is finished: there is nothing to resume")
            return
        _check_unchanged(config, unfinished)
    name = dataset.lower() if dataset else _folder_name(config.file)
    output = resume or output or free_folder(Path("runs") / name)

    from molattn.config_file import write_config_file

    with (
        _resumable(output),
        run_folder(output, resume=resume is not None, overwrite=overwrite) as folder,
    ):
        write_config_file(folder / CONFIG_FILE, config)
        if config.data.folds is not None and config.data.fold is None:
            _cross_validate(config, folder, console)
        else:
            _train_once(config, folder, console)
    _say(console, f"written to {output}")


def _cross_validate(config: TrainConfig, folder: Path, console: "Console") -> None:
    from molattn.cross_validation import cross_validate, summary_table

    summary = cross_validate(config, folder, console)
    console.print(summary_table(summary), markup=False)


def _train_once(config: TrainConfig, folder: Path, console: "Console") -> None:
    from molattn.report import score_run, score_table, write_run
    from molattn.training import train

    run = train(config, console, folder)
    scores = score_run(run, console)
    write_run(run, scores, folder)
    console.print(score_table(scores, run), markup=False)
    forest = scores.seconds.get("random_forest")
    _say(
        console,
        f"best epoch {run.history.best} of {len(run.history.epochs)}, {run.seconds:.0f} s"
        f"{f' (the forest: {forest:.0f} s)' if forest else ''}",
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
    """Predict every molecule of a table.

    Args:
        model: Folder of a run, or of a saved model.
        table: CSV, TSV, Parquet, SDF or SMILES file.
        output: CSV, TSV or Parquet file to write: every row of the input in order, with its
            columns, the predictions (of classes the likeliest, and probabilities), and the column
            error, a short reason where there is none.
    """
    from molattn.predict import predict_table

    console = _console()
    counts = predict_table(model, table, output, config, console)
    _say(console, f"{counts.predicted} predicted, {counts.refused} refused; written to {output}")


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
    except KeyboardInterrupt as interrupt:
        return _fail(str(interrupt) or "interrupted", 130)
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


def _with_bundled_data(config: TrainConfig) -> TrainConfig:
    if config.file:
        return config

    from molattn.table import BUNDLED_TARGET, BUNDLED_UNIT, bundled_dataset

    data = config.data
    if data.target_columns in ((), (BUNDLED_TARGET,)):
        data = replace(
            data,
            target_columns=(BUNDLED_TARGET,),
            target_units=data.target_units or (BUNDLED_UNIT,),
        )
    if data.split is None and data.split_column is None:
        data = replace(data, split_column="split")
    return replace(config, file=str(bundled_dataset()), data=data)


def _with_named_dataset(config: TrainConfig, name: str, folder: Path | None) -> TrainConfig:
    if config.file:
        raise InputError(f"--dataset: got {quoted(name)} and a table too, expected one of them")

    from molattn.moleculenet import named_dataset

    found = named_dataset(name, folder)
    data = replace(config.data, smiles_column=found.smiles_column)
    if not data.target_columns:
        data = replace(data, target_columns=found.target_columns, target_units=found.target_units)
    return replace(config, file=str(found.path), data=data)


def _check_unchanged(config: TrainConfig, unfinished: Path) -> None:
    from molattn.config_file import read_config_file
    from molattn.run_folder import CONFIG_FILE

    former = TrainConfig.from_dict(read_config_file(unfinished / CONFIG_FILE))
    for option, was, now in changed_options(former.to_dict(), config.to_dict()):
        raise InputError(
            f"{option}: got {quoted(now)}, but the unfinished run in {unfinished} has "
            f"{quoted(was)}; expected the same, or a new run"
        )


@contextmanager
def _resumable(output: Path) -> Iterator[None]:
    """Say how to go on with a run that is interrupted."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        from molattn.run_folder import has_checkpoint

        if not has_checkpoint(output):
            raise
        raise KeyboardInterrupt(
            f"interrupted; molattn train --resume {output} goes on"
        ) from interrupt


def _folder_name(file: str) -> str:
    return re.sub(r"[^\w.+-]+", "_", Path(file).stem, flags=re.ASCII)[:_LONGEST_NAME]


def _say(console: "Console", line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)


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
