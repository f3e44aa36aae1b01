"""``molattn predict``."""

import shutil
import sys
from io import BytesIO
from pathlib import Path
from typing import Annotated

from molattn.cli.inputs import input_table
from molattn.cli.shared import (
    STREAM,
    Inputs,
    ModelFolder,
    group,
    make_console,
    report_same_name,
    resumable,
    section,
)
from molattn.config import PredictConfig
from molattn.data.table import SMILESList
from molattn.errors import InputError
from molattn.utils.console import aligned, counted, print_line, rate_text
from molattn.utils.workers import reuse_memory

EXAMPLES = """Examples:
  molattn predict runs/solubility molecules.csv --output predictions.csv
  molattn predict runs/solubility "CCO" "c1ccccc1O"
  molattn predict runs/solubility - < molecules.csv | head
"""


def predict(
    model: ModelFolder,
    inputs: Inputs,
    /,
    *,
    output: Annotated[Path | None, group("Output")] = None,
    config: Annotated[PredictConfig, section("Prediction")] = PredictConfig(),
) -> None:
    """Predict the properties of each molecule in a table.

    If there is a column of a target of the model, the predictions are scored.

    Args:
        output: CSV, TSV, Parquet, Excel, SDF or SMILES file: all rows and columns of the input, the
            predictions (for classification, the most probable class and the class probabilities),
            and error, the reason code of a row without a prediction (see "Reason codes" in the
            documentation). A column that the input has already gets an underscore. An existing file
            is replaced. An interrupted CSV, TSV, SDF or SMILES file is kept in FILE.unfinished:
            --resume goes on with it, without --resume it is replaced. By default, and as -, CSV on
            standard output; on a terminal, predictions of SMILES are aligned.
    """
    console = make_console(stderr=True)
    table = input_table(inputs, config)
    report_same_name(console, model)
    reuse_memory()
    from molattn.evaluation.label_scores import print_screening, screen_table
    from molattn.inference.parts import resume_hint
    from molattn.inference.streaming import RowCounts

    place = ""
    if output is not None and str(output) != STREAM:
        with resumable(output, resume_hint):
            screening = screen_table(model, table, output, config, console)
        place = f"; written to {output}"
    elif sys.stdout is None:
        raise InputError("standard output is closed; use --output")
    elif isinstance(table, SMILESList) and sys.stdout.isatty():
        screening = screen_table(model, table, written := BytesIO(), config, console)
        text = written.getvalue().decode(errors="replace")
        print(aligned(text, shutil.get_terminal_size().columns), end="")
    else:
        screening = screen_table(model, table, sys.stdout.buffer, config, console)
        sys.stdout.buffer.flush()
    print_screening(screening, console)
    (done, errors), seconds = RowCounts.of(screening.tally), screening.tally["seconds"]
    print_line(
        console,
        f"{counted(done, 'row')} predicted, {errors:,} with an error{place}, in {seconds:.1f} s "
        f"({rate_text((done + errors) / seconds)} a second)",
    )
