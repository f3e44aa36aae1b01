"""``molattn predict``."""

from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from molattn.cli.shared import (
    STREAM,
    group,
    make_console,
    report_same_name,
    section,
    standard_input,
    standard_output,
)
from molattn.config import PredictConfig
from molattn.utils.console import aligned, print_line

__all__ = ["EXAMPLE", "predict"]

EXAMPLE = """Examples:
  molattn predict runs/solubility molecules.csv --output predictions.csv
  molattn predict runs/solubility "CCO" "c1ccccc1O"
  molattn predict runs/solubility - < molecules.csv | head
"""


def predict(
    model: Path,
    inputs: Annotated[list[str], Parameter(name="INPUT")],
    /,
    *,
    output: Annotated[Path | None, group("Output")] = None,
    config: Annotated[PredictConfig, section("Prediction")] = PredictConfig(),
) -> None:
    """Predict the properties of each molecule in a table.

    Args:
        model: Folder of a run or of a saved model, or base, the pretrained model that comes with
            molattn.
        inputs: CSV, TSV, Parquet, Excel, SDF or SMILES file; - for standard input; or one or more SMILES.
        output: CSV, TSV, Parquet, Excel or SDF file: all rows and columns of the input, the predictions (for
            classification, the most probable class and the class probabilities), and error, the
            reason code of a row without a prediction (see "Reason codes" in the documentation). By
            default, and as -, CSV on standard output; predictions of SMILES are aligned if it is a
            terminal.
    """
    from molattn.data.table import SMILESList
    from molattn.inference.inputs import open_inputs, open_stream
    from molattn.inference.predict import predict_table

    console = make_console(stderr=True)
    report_same_name(console, model)
    with ExitStack() as stack:
        if inputs == [STREAM]:
            table = stack.enter_context(open_stream(standard_input(), config))
        else:
            table = open_inputs(["-" if word == STREAM else word for word in inputs], config)
        if output is not None and str(output) != STREAM:
            counts = predict_table(model, table, output, config, console)
            place = f"; written to {output}"
        else:
            stream = stack.enter_context(standard_output())
            is_shown = isinstance(table, SMILESList) and stream.isatty()
            written = BytesIO() if is_shown else stream
            counts = predict_table(model, table, written, config, console)
            if isinstance(written, BytesIO):
                stream.write(aligned(written.getvalue().decode()).encode(errors="replace"))
            place = ""
    print_line(console, f"{counts.done} rows predicted, {counts.errors} with an error{place}")
