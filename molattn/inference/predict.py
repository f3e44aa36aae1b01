"""Predictions and learned embeddings for the molecules in a table."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import compress
from pathlib import Path
from typing import IO, Any

import numpy as np
from rich.console import Console

from molattn.config import EmbedConfig, PredictConfig
from molattn.data.table import Table
from molattn.errors import ReasonCode
from molattn.inference.streaming import (
    Cells,
    OutputSpec,
    ReadRow,
    Reads,
    RowCounts,
    map_table,
    open_with_model,
)
from molattn.model.model import MolAttn
from molattn.model.prediction_columns import PredictionColumns
from molattn.utils.console import print_line

__all__ = [
    "DOMAIN_SIMILARITY",
    "fingerprint_table",
    "open_prediction",
    "predict_table",
    "prediction_spec",
]

DOMAIN_SIMILARITY = 0.4
"""A molecule less similar to the nearest training molecule is beyond the domain of the model."""


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
    a row without a prediction. One of these that has the name of a column of the table gets an
    underscore. The file is written completely or not at all; with ``config.resume``, that goes on
    after an interruption.

    With ``config.neighbors`` it has for each task NAME and that number of training rows, those that
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
    table, model, spec = open_prediction(model_folder, source, output, config, console)
    return RowCounts.of(map_table(table, model, output, spec, config, console))


def open_prediction(
    model_folder: str | Path | MolAttn,
    source: str | Path | Table,
    output: str | Path | IO[bytes],
    config: PredictConfig,
    console: Console | None,
) -> tuple[Table, MolAttn, OutputSpec]:
    """Return what :func:`map_table` takes for a prediction; print what it lacks."""
    table, model = open_with_model(source, model_folder, config, console, output)
    if model.uncertainty is not None:
        for line in model.uncertainty.calibration.shortfalls(config.interval):
            print_line(console, line)
    spec = prediction_spec(model, config.interval, config.neighbors, config.batch_size)
    return table, model, spec


def prediction_spec(
    model: MolAttn, level: float, neighbors: int | None = None, batch_size: int = 256
) -> OutputSpec:
    """Return the predictions of a model as an output; see :func:`predict_table`.

    Raises:
        InputError: A number of neighbors that the model does not have.
    """
    columns = PredictionColumns(model)
    fields, names = dict[str, str](), dict[str, str]()
    if neighbors is not None:
        model.check_neighbors(neighbors, "neighbors")
        fields = {"row": "int64", "similarity": "float64", "contribution": "float64"}
        if model.training_set and model.training_set.molecules:
            fields["smiles"] = "string"
        names = {
            f"{task.name}_neighbor_{number}_{name}": kind
            for task in model.config.tasks
            for number in range(1, neighbors + 1)
            for name, kind in fields.items()
        }
    return OutputSpec(
        "predicting",
        {**columns.columns, **names},
        partial(_predictions, model, columns, level, batch_size, neighbors, [*fields]),
        Reads(similarity=model.uncertainty is not None),
    )


def _predictions(
    model: MolAttn,
    columns: PredictionColumns,
    level: float,
    batch_size: int,
    neighbors: int | None,
    fields: Sequence[str],
    molecules: Sequence[ReadRow],
) -> Iterator[Sequence[Cells] | ReasonCode]:
    features = [molecule.features for molecule in molecules] if model.config.features else None
    records = [molecule.record for molecule in molecules if molecule.record is not None]
    networks, inputs = model.network_outputs(records, batch_size, features=features)
    outputs = model.combined(networks, inputs)
    is_finite = np.asarray(np.isfinite(outputs).all(axis=(0, 2)))
    # None, which is not used, if the model has no training fingerprints.
    fingerprints: list[Any] = [record.fingerprint for record in records]
    known = [*compress(fingerprints, is_finite)]
    prediction = model.prediction(outputs[:, is_finite], known, level)
    rows = iter(range(len(prediction.prediction)))
    near = {} if neighbors is None else model.neighbors_of_inputs(inputs, neighbors)
    for index, good in enumerate(is_finite):
        if not good:
            yield "not_finite"
            continue
        nearest = [one for by_row in near.values() for one in by_row[index]]
        cells: list[Any] = [getattr(one, name) for one in nearest for name in fields]
        yield [[*columns.cells(prediction, next(rows)), *cells]]


def fingerprint_table(
    model_folder: str | Path | MolAttn,
    source: str | Path | Table,
    output: str | Path,
    config: EmbedConfig | None = None,
    console: Console | None = None,
) -> RowCounts:
    """Embed every molecule of a table, as :meth:`molattn.MolAttn.embed` does.

    The output has all rows and columns of the table, in order, the columns ``embedding_0``,
    ``embedding_1``, ..., and ``error``, the reason code of a row without an embedding.

    With ``config.atoms`` it has a row for each atom, in the order of the input: ``row`` (number of
    the input row, from 1), ``atom`` (number in the molecule of the input, from 0), ``symbol`` (the
    element), ``smiles`` (of the molecule, standardized if the model does that), the embedding, and
    ``error``. A molecule without an embedding has one row, in which ``atom`` is empty.

    The arguments and errors are those of :func:`predict_table`.
    """
    config = config or EmbedConfig()
    table, model = open_with_model(source, model_folder, config, console, output)
    columns = {"atom": "int64", "symbol": "string", "smiles": "string"} if config.atoms else {}
    width = model.embedding_width(atoms=config.atoms)
    columns |= {f"embedding_{index}": "float32" for index in range(width)}
    spec = OutputSpec(
        "embedding atoms" if config.atoms else "embedding",
        columns,
        partial(_embeddings, model, config),
        Reads(numbers=False, atoms=config.atoms),
        keeps_columns=not config.atoms,
    )
    return RowCounts.of(map_table(table, model, output, spec, config, console))


def _embeddings(
    model: MolAttn, config: EmbedConfig, molecules: Sequence[ReadRow]
) -> Iterator[Sequence[Cells] | ReasonCode]:
    records = [molecule.record for molecule in molecules if molecule.record is not None]
    embeddings = model.embed_records(records, config.batch_size, atoms=config.atoms)
    ends = np.cumsum([record.num_atoms if config.atoms else 1 for record in records])
    for molecule, record, rows in zip(
        molecules, records, np.split(embeddings, ends[:-1]), strict=True
    ):
        if not np.isfinite(rows).all():
            yield "not_finite"
        elif config.atoms:
            smiles = record.standardized or str(molecule.smiles)
            named = zip(record.atom_numbers or (), record.symbols or (), rows.tolist(), strict=True)
            yield [[number, symbol, smiles, *row] for number, symbol, row in named]
        else:
            yield rows.tolist()
