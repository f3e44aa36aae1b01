"""Predictions for the molecules in a table."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from molattn.config import PredictConfig
from molattn.errors import InputError, ReasonCode
from molattn.inference.streaming import Cells, OutputSpec, ReadRow, RowCounts, stream_table
from molattn.model.model import MolAttn
from molattn.model.prediction_columns import PredictionColumns

__all__ = ["predict_table"]


def predict_table(
    model_folder: str | Path | MolAttn,
    source: str | Path,
    output: str | Path,
    config: PredictConfig | None = None,
    console: Console | None = None,
) -> RowCounts:
    """Predict every row of a table.

    The output has all rows and columns of the table, in order, the columns of the prediction (see
    :class:`molattn.model.prediction_columns.PredictionColumns`), and ``error``, the reason code of
    a row without a prediction. The file is written completely or not at all.

    With ``config.neighbors`` it has for each of so many training rows, those that contribute most
    to the prediction (:meth:`molattn.MolAttn.neighbors`), the columns ``neighbor_1_row``,
    ``neighbor_1_similarity``, ``neighbor_1_contribution`` and, if the model keeps SMILES,
    ``neighbor_1_smiles``.

    Args:
        model_folder: The folder of a run or of a saved model, or a model.
        source: The table, in any format that :func:`molattn.data.table.open_table` reads, with the
            columns of the model's second molecule and extra features if it has any.
        output: The file to write, in the format of its name; an existing file is replaced.
        config: The options.
        console: Where to show progress; None = nowhere.

    Raises:
        InputError: The model, the table or the output cannot be used.
    """
    config = config or PredictConfig()
    spec = partial(_prediction_spec, level=config.interval, neighbors=config.neighbors)
    return stream_table(model_folder, source, output, spec, config, console)


def _prediction_spec(model: MolAttn, level: float, neighbors: int) -> OutputSpec:
    columns = PredictionColumns(model, level)
    process = model.gaussian_process
    if neighbors and process is None:
        raise InputError("--neighbors cannot be used with this model: it has no Gaussian process")
    fields = {"row": "int64", "similarity": "float64", "contribution": "float64"}
    if process is not None and process.smiles:
        fields["smiles"] = "string"
    of_neighbors = {
        f"neighbor_{number}_{name}": kind
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
        near = [[]] * len(records)
        if neighbors:
            near = model.neighbors_of_records(records, neighbors, len(records), features=features)
        for good, found in zip(is_finite, near, strict=True):
            if not good:
                yield "not_finite"
                continue
            cells: list[Any] = [getattr(one, name) for one in found for name in fields]
            cells += [None] * (len(of_neighbors) - len(cells))  # of fewer training rows
            yield [[*columns.cells(prediction, next(rows)), *cells]]

    return OutputSpec(
        verb="predicting",
        columns={**columns.columns, **of_neighbors},
        compute=compute,
        reads_similarity=model.uncertainty is not None,
        remarks=columns.lines(),
    )
