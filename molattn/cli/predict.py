"""``molattn predict``."""

import shutil
import sys
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path
from typing import IO, Annotated

from molattn.cli.inputs import input_table
from molattn.cli.shared import (
    STREAM,
    Inputs,
    ModelFolder,
    group,
    make_console,
    resumable,
    section,
    warn_if_ambiguous,
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
    warn_if_ambiguous(console, model)
    reuse_memory()
    from molattn.evaluation.tables import print_label_scores
    from molattn.inference import predict_table
    from molattn.inference.parts import resume_hint

    written: Path | IO[bytes] = BytesIO()
    place, with_hint = "", nullcontext()
    if output is not None and str(output) != STREAM:
        written, with_hint = output, resumable(output, resume_hint)
        place = f"; written to {output}"
    elif sys.stdout is None:
        raise InputError("standard output is closed; use --output")
    elif not (isinstance(table, SMILESList) and sys.stdout.isatty()):
        written = sys.stdout.buffer
    with with_hint:
        predicted = predict_table(model, table, written, config, console)
    if isinstance(written, BytesIO):
        text = written.getvalue().decode(errors="replace")
        print(aligned(text, shutil.get_terminal_size().columns), end="")
    elif not isinstance(written, Path):
        written.flush()
    print_label_scores(predicted, console)
    (done, errors), seconds = predicted.counts, predicted.tally["seconds"]
    rows = f"{counted(done, 'row')} predicted, {errors:,} with an error{place}"
    rate = rate_text((done + errors) / seconds)
    print_line(console, f"{rows}, in {seconds:.1f} s ({rate} a second)")
