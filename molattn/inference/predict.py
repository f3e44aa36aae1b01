"""Predictions for the molecules in a table."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from molattn.config import PredictConfig
from molattn.errors import ReasonCode
from molattn.data.table import Table
from molattn.errors import InputError, ReasonCode
from molattn.inference.streaming import Cells, OutputSpec, ReadRow, RowCounts, stream_table
from molattn.model.model import MolAttn
from molattn.model.prediction_columns import PredictionColumns

__all__ = ["predict_table"]


def predict_table(
    model_folder: str | Path | MolAttn,
    source: str | Path | Table,
    output: str | Path | IO[bytes],
    config: PredictConfig | None = None,
    console: Console | None = None,
) -> RowCounts:
    """Predict every row of a table.

    The output has all rows and columns of the table, in order, the columns of the prediction (see
    :class:`molattn.model.prediction_columns.PredictionColumns`), and ``error``, the reason code of
    a row without a prediction. The file is written completely or not at all.

    With ``config.neighbors`` it has for each task NAME and so many training rows, those that
    contribute most to its prediction (:meth:`molattn.MolAttn.neighbors`), the columns
    ``NAME_neighbor_1_row``, ``NAME_neighbor_1_similarity``, ``NAME_neighbor_1_contribution`` and,
    if the model keeps SMILES, ``NAME_neighbor_1_smiles``.

    Args:
        model_folder: The folder of a run or of a saved model, or a model.
        source: The table, in any format that :func:`molattn.data.table.open_table` reads or an
            open one, with the columns of the model's second molecule and extra features if it has
            any.
        output: The file to write, in the format of its name; an existing file is replaced. A binary
            stream gets CSV, row by row.
        config: The options.
        console: Where to show progress; None = nowhere.

    Raises:
        InputError: The model, the table or the output cannot be used.
    """
    config = config or PredictConfig()
    spec = partial(_prediction_spec, level=config.interval, neighbors=config.neighbors)
    return stream_table(model_folder, source, output, spec, config, console)


def _prediction_spec(model: MolAttn, level: float, neighbors: int | None) -> OutputSpec:
    columns = PredictionColumns(model, level)
    of_neighbors: dict[str, str] = {}
    fields = {"row": "int64", "similarity": "float64", "contribution": "float64"}
    if neighbors is not None:
        if model.check_neighbors(neighbors, "--neighbors").smiles:
            fields["smiles"] = "string"
        of_neighbors = {
            f"{task.name}_neighbor_{number}_{name}": kind
            for task in model.config.tasks
            for number in range(1, neighbors + 1)
            for name, kind in fields.items()
        }

    def compute(molecules: Sequence[ReadRow]) -> Iterator[Sequence[Cells] | ReasonCode]:
        features = [molecule.features for molecule in molecules] if model.config.features else None
        records = [molecule.record for molecule in molecules if molecule.record is not None]
        outputs = model.predict_outputs(records, len(records), features=features)
        is_finite: NDArray[np.bool_] = np.asarray(np.isfinite(outputs).all(axis=(0, 2)))
        # An array of None, which is not used, if the model has no training fingerprints.
        fingerprints = np.array([record.fingerprint for record in records])
        prediction = columns.predict_with_uncertainty(
            outputs[:, is_finite], fingerprints[is_finite]
        )
        rows = iter(range(len(prediction.prediction)))
        near = {}
        if neighbors is not None:
            near = model.neighbors_of_records(records, neighbors, len(records), features=features)
        for number, good in enumerate(is_finite):
            if not good:
                yield "not_finite"
                continue
            found = [one for of_task in near.values() for one in of_task[number]]
            cells: list[Any] = [getattr(one, name) for one in found for name in fields]
            yield [[*columns.cells(prediction, next(rows)), *cells]]

    return OutputSpec(
        verb="predicting",
        columns={**columns.columns, **of_neighbors},
        compute=compute,
        reads_similarity=model.uncertainty is not None,
        remarks=columns.lines(),
    )
