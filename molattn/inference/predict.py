"""A saved model and a table of molecules to a table of predictions."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from molattn.config import PredictConfig
from molattn.errors import ReasonCode
from molattn.inference.streaming import Cells, OutputSpec, ReadRow, RowCounts, stream_table
from molattn.model.model import MolAttn
from molattn.model.prediction_columns import PredictionColumns

__all__ = ["predict_table"]


def predict_table(
    model_folder: str | Path,
    source: str | Path,
    output: str | Path,
    config: PredictConfig | None = None,
    console: Console | None = None,
) -> RowCounts:
    """Predict every row of a table.

    Every row comes out, in order, with its own columns, those of the prediction (see
    :class:`molattn.model.prediction_columns.PredictionColumns`), and a column ``error`` with a short reason code where there
    is no prediction. The output is there whole or not at all.

    Args:
        model_folder: A run folder, or the folder of a saved model.
        source: The table, of any kind that :func:`molattn.data.table.open_table` reads, with the columns
            of the model's second molecule and further features if it has any.
        output: The table to write, of the kind its name says; one that is there is replaced.
        config: The SMILES column and the batch size.
        console: Where to show progress; silent without one.

    Raises:
        InputError: If the model, the table or the output cannot be used so.
    """
    config = config or PredictConfig()
    reading = partial(_reading, level=config.interval)
    return stream_table(model_folder, source, output, reading, config, console)


def _reading(model: MolAttn, level: float) -> OutputSpec:
    answers = PredictionColumns(model, level)

    def read(molecules: Sequence[ReadRow]) -> Iterator[Sequence[Cells] | ReasonCode]:
        features = [molecule.features for molecule in molecules] if model.config.features else None
        records = [molecule.record for molecule in molecules if molecule.record is not None]
        members = model.predict_records(
            records, batch_size=len(records), features=features, members=True
        )
        is_finite: NDArray[np.bool_] = np.asarray(np.isfinite(members).all(axis=(0, 2)))
        # Of None, which nobody reads, where the model knows no training molecules.
        fingerprints = np.array([record.fingerprint for record in records])
        said = answers.predict_with_uncertainty(members[:, is_finite], fingerprints[is_finite])
        rows = iter(range(len(said.prediction)))
        for good in is_finite:
            yield [answers.cells(said, next(rows))] if good else "not_finite"

    return OutputSpec(
        verb="predicting",
        columns={
            name: "float64" if name in answers.numbers else "string" for name in answers.columns
        },
        read=read,
        reads_similarity=model.uncertainty is not None,
        remarks=answers.lines(),
    )
