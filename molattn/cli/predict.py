"""``molattn predict``."""

import shutil
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from typing import Annotated

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
from molattn.utils.console import aligned, counted, print_line, rate_text
from molattn.utils.memory import reuse_memory

__all__ = ["EXAMPLE", "predict"]

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
        from molattn.evaluation.label_scores import print_label_scores

        print_label_scores(screening, console)
    (done, errors), seconds = screening.counts, screening.tally.seconds
    print_line(
        console,
        f"{counted(done, 'row')} predicted, {errors:,} with an error{place}, in {seconds:.1f} s "
        f"({rate_text((done + errors) / seconds)} a second)",
    )
