"""A saved model and a table of molecules to a table of predictions."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from molattn.config import PredictConfig
from molattn.model import MolAttn
from molattn.reasons import ReasonCode
from molattn.streaming import Cells, Molecule, Reading, RowCounts, stream_table

__all__ = ["predict_table"]


def predict_table(
    model_folder: str | Path,
    source: str | Path,
    output: str | Path,
    config: PredictConfig | None = None,
    console: Console | None = None,
) -> RowCounts:
    """Predict every row of a table.

    Every row comes out, in order, with its own columns, the columns of each task's prediction (see
    :attr:`molattn.task.Task.columns`), and a column ``error`` with a short reason code where there
    is no prediction. The output is there whole or not at all.

    Args:
        model_folder: A run folder, or the folder of a saved model.
        source: The table, of any kind that :func:`molattn.table.open_table` reads, with the columns
            of the model's second molecule and further features if it has any.
        output: The table to write, of the kind its name says; one that is there is replaced.
        config: The SMILES column and the batch size.
        console: Where to show progress; silent without one.

    Raises:
        InputError: If the model, the table or the output cannot be used so.
    """
    return stream_table(model_folder, source, output, _reading, config or PredictConfig(), console)


def _reading(model: MolAttn) -> Reading:
    def read(molecules: Sequence[Molecule]) -> Iterator[Sequence[Cells] | ReasonCode]:
        features = [molecule.features for molecule in molecules] if model.config.features else None
        records = [molecule.record for molecule in molecules if molecule.record is not None]
        outputs = model.predict_records(records, batch_size=len(records), features=features)
        for values in outputs:
            finite = np.isfinite(values).all()
            yield [model.config.cells(values)] if finite else "not_finite"

    numbers = model.config.output_names
    return Reading(
        verb="predicting",
        columns={name: "float64" if name in numbers else "string" for name in model.config.columns},
        read=read,
    )
