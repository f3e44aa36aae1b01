"""``molattn predict``."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from molattn.cli.shared import group, make_console, report_same_name, section
from molattn.config import PredictConfig
from molattn.utils.console import print_line

__all__ = ["EXAMPLE", "predict"]

EXAMPLE = """Example:
  molattn predict runs/solubility molecules.csv --output predictions.csv
"""


def predict(
    model: Path,
    table: Annotated[Path, Parameter(name="INPUT")],
    /,
    *,
    output: Annotated[Path, group("Output")],
    config: Annotated[PredictConfig, section("Prediction")] = PredictConfig(),
) -> None:
    """Predict the properties of each molecule in a table.

    Args:
        model: Folder of a run or of a saved model, or base, the pretrained model that comes with
            molattn.
        table: CSV, TSV, Parquet, SDF or SMILES file.
        output: CSV, TSV or Parquet file: all rows and columns of the input, the predictions (for
            classification, the most probable class and the class probabilities), and error, the
            reason code of a row without a prediction (see "Reason codes" in the documentation).
    """
    from molattn.inference.predict import predict_table

    console = make_console()
    report_same_name(console, model)
    counts = predict_table(model, table, output, config, console)
    print_line(
        console,
        f"{counts.done} rows predicted, {counts.errors} with an error; written to {output}",
    )
