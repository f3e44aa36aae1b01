"""``molattn predict``."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from molattn.cli.shared import OUTPUT, PREDICTION, make_console, section
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
    output: Annotated[Path, Parameter(group=OUTPUT)],
    config: Annotated[PredictConfig, section(PREDICTION)] = PredictConfig(),
) -> None:
    """Predict every molecule of a table.

    Args:
        model: Folder of a run or of a saved model, or base, which comes with the package.
        table: CSV, TSV, Parquet, SDF or SMILES file.
        output: CSV, TSV or Parquet file to write: every row of the input in order, with its
            columns, the predictions (of classes the likeliest, and probabilities), and the column
            error, a reason code where there is none (molattn/errors.py lists them).
    """
    from molattn.inference.predict import predict_table

    console = make_console()
    counts = predict_table(model, table, output, config, console)
    print_line(console, f"{counts.done} predicted, {counts.refused} refused; written to {output}")
