"""``molattn predict``."""

import shutil
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from molattn.cli.inputs import input_table
from molattn.cli.shared import (
    STREAM,
    ModelFolder,
    group,
    make_console,
    report_same_name,
    resume_told,
    section,
    standard_output,
)
from molattn.config import PredictConfig
from molattn.data.table import SMILESList
from molattn.errors import quoted
from molattn.utils.console import aligned, counted, print_line, rate_text
from molattn.utils.memory import reuse_memory

if TYPE_CHECKING:
    from rich.console import Console

    from molattn.inference.predict import Screening

__all__ = ["EXAMPLE", "predict"]

_RESAMPLES = 1000  # of the bootstrap
_MOST_RESAMPLED = 4000  # rows of a target, more if labels are rare; fewer of several, but at least
_FEWEST_RESAMPLED = 1000
_MOST_TARGETS = 5  # whose molecules beyond the domain are listed

EXAMPLE = """Examples:
  molattn predict runs/solubility molecules.csv --output predictions.csv
  molattn predict runs/solubility "CCO" "c1ccccc1O"
  molattn predict runs/solubility - < molecules.csv | head
"""


def predict(
    model: ModelFolder,
    inputs: Annotated[list[str], Parameter(name="INPUT")],
    /,
    *,
    output: Annotated[Path | None, group("Output")] = None,
    config: Annotated[PredictConfig, section("Prediction")] = PredictConfig(),
) -> None:
    """Predict the properties of each molecule in a table.

    Args:
        model: See ``ModelFolder``.
        inputs: CSV, TSV, Parquet, Excel, SDF or SMILES file, or a store of molattn prepare; - for
            standard input; or one or more SMILES. If there is a column of a target of the model,
            the predictions are scored.
        output: CSV, TSV, Parquet, Excel, SDF or SMILES file: all rows and columns of the input, the
            predictions (for classification, the most probable class and the class probabilities),
            and error, the reason code of a row without a prediction (see "Reason codes" in the
            documentation). A column that the input has already gets an underscore. An existing file
            is replaced. An interrupted CSV, TSV, SDF or SMILES file is kept in FILE.unfinished:
            --resume goes on with it, without --resume it is replaced. By default, and as -, CSV on
            standard output; predictions of SMILES are aligned if it is a terminal, with a line for
            each column if the lines would be too long.
    """
    console = make_console(stderr=True)
    with ExitStack() as stack:
        table = stack.enter_context(input_table(inputs, config))
        table.column(config.smiles_column, "--smiles-column")  # checked before torch is loaded
        report_same_name(console, model)
        reuse_memory()
        from molattn.inference.predict import screen_table

        if output is not None and str(output) != STREAM:
            with resume_told(output):
                screening = screen_table(model, table, output, config, console)
            place = f"; written to {output}"
        else:
            stream = stack.enter_context(standard_output())
            is_shown = isinstance(table, SMILESList) and stream.isatty()
            written = BytesIO() if is_shown else stream
            screening = screen_table(model, table, written, config, console)
            if isinstance(written, BytesIO):
                text = written.getvalue().decode(errors="surrogateescape")
                width = shutil.get_terminal_size().columns
                stream.write(aligned(text, width).encode(errors="replace"))
            place = ""
    _print_summary(console, screening, place)


def _print_summary(console: "Console", screening: "Screening", place: str) -> None:
    """Print the molecules beyond the domain, the scores if there are labels, counts and time."""
    from molattn.inference.predict import DOMAIN_SIMILARITY

    if screening.outside:
        print_line(
            console,
            f"{counted(screening.outside, 'molecule')} beyond the domain of the model "
            f"(training_similarity below {DOMAIN_SIMILARITY})",
        )
    if outside := +screening.outside_by_task:
        most, others = outside.most_common(_MOST_TARGETS), len(outside) - _MOST_TARGETS
        counts = [f"{name} {count:,}" for name, count in most]
        counts += [f"and {counted(others, 'more target')}"] if others > 0 else []
        molecules = counted(screening.counts.done, "molecule")
        print_line(
            console,
            f"of {molecules}, beyond the domain of a target (NAME_training_similarity below "
            f"{DOMAIN_SIMILARITY}): {', '.join(counts)}",
        )
    for name, count in screening.unusable.items():
        are = "cell is no label" if count == 1 else "cells are no labels"
        first = screening.first_unusable.get(name)
        example = f" (first: {first})" if first else ""
        print_line(console, f"{quoted(name)}: {count:,} {are} of this target{example}")
    for name, count in screening.censored.items():
        are = "censored label is" if count == 1 else "censored labels are"
        print_line(console, f"{quoted(name)}: {count:,} {are} not scored")
    if len(screening.target):
        from molattn.evaluation.metrics import representative_rows, score_tasks
        from molattn.evaluation.terminal_tables import label_score_table

        most = max(_FEWEST_RESAMPLED, _MOST_RESAMPLED // len(screening.tasks))
        most = representative_rows(screening.target, screening.tasks, most)
        scores = score_tasks(
            screening.prediction,
            screening.target,
            screening.tasks,
            resamples=_RESAMPLES,
            most_resampled=most,
        )
        words = f"{counted(screening.labeled, 'row')} with labels"
        if (scored := len(screening.target)) < screening.labeled:
            words += f", scored on {scored:,} of them at random"
        if scored > most:
            words += f", intervals by the bootstrap of {most:,} of them at random"
        if screening.trained:
            have = "has" if screening.trained == 1 else "have"
            words += (
                f"; {screening.trained:,} {have} the fingerprint of a training molecule, whose "
                "errors are smaller than those of new molecules"
            )
        print_line(console, f"{words}:")
        console.print(label_score_table(screening.tasks, scores))
    (done, errors), seconds = screening.counts, screening.seconds
    print_line(
        console,
        f"{counted(done, 'row')} predicted, {errors:,} with an error{place}, "
        f"in {seconds:.1f} s ({rate_text((done + errors) / seconds)} a second)",
    )
