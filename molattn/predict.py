"""A saved model, a table of molecules, a table of predictions: row by row, in constant memory."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from molattn.chem.bulk import featurize_smiles
from molattn.chem.features import Featurizer
from molattn.config import PredictConfig
from molattn.errors import InputError, SmilesError, quoted
from molattn.labels import LabelError, is_missing, number
from molattn.model import MolAttn
from molattn.progress import RowProgress
from molattn.reasons import ReasonCode
from molattn.record import MoleculeRecord
from molattn.reproducible import threads
from molattn.table import (
    Row,
    Table,
    check_output,
    no_formula,
    open_table,
    output_schema,
    write_table,
)

__all__ = ["ERROR_COLUMN", "PredictionCounts", "predict_table"]

ERROR_COLUMN = "error"
_PAIRS_IN_BATCH = 2**20  # a molecule of 1,000 atoms has nearly as many
_ROWS_AT_ONCE = 64


class PredictionCounts(NamedTuple):
    """How many rows got a prediction, and how many a reason why not."""

    predicted: int
    refused: int


class _Molecule(NamedTuple):
    row: Row
    record: MoleculeRecord | None
    features: list[float]
    code: ReasonCode | Literal[""]


def predict_table(
    model_folder: str | Path,
    source: str | Path,
    output: str | Path,
    config: PredictConfig | None = None,
    console: Console | None = None,
) -> PredictionCounts:
    """Predict every row of a table.

    Every row comes out, in order, with its own columns, the columns of each task's prediction (see
    :attr:`molattn.task.Task.columns`), and a column ``error`` with a short reason code where there
    is no prediction. The output is there whole or not at all.

    Args:
        model_folder: A run folder, or the folder of a saved model.
        source: The table, of any kind that :func:`molattn.table.open_table` reads, with the columns
            of the model's further features if it has any.
        output: The table to write, of the kind its name says; one that is there is replaced.
        config: The SMILES column and the batch size.
        console: Where to show progress; silent without one.

    Raises:
        InputError: If the model, the table or the output cannot be used so.
    """
    config = config or PredictConfig()
    source, output = Path(source), Path(output)
    check_output(output)
    table = open_table(source)
    smiles_index = table.column(config.smiles_column, "--smiles-column")
    if output.exists() and output.samefile(source):
        raise InputError(f"{output}: --output is the input itself, expected another file")
    if not Path(model_folder).exists():  # before its name is looked for on a hub
        raise InputError(f"{model_folder}: no such folder, expected one with a saved model")
    model = MolAttn.from_pretrained(model_folder)
    feature_indices = [
        table.column(name, "a feature of the model") for name in model.config.features
    ]
    header = [*table.header, *model.config.columns, ERROR_COLUMN]
    for name in header[len(table.header) :]:
        if name in table.header:
            raise InputError(
                f"{source}: there is a column {quoted(name)} already, and a prediction would "
                "overwrite it; rename or remove it"
            )
    schema = output_schema(output, table, [*model.config.output_names], header)
    predicted = refused = 0
    console = console or Console(quiet=True)
    for remark in table.remarks:
        console.print(f"{source}: {remark}", highlight=False, markup=False, soft_wrap=True)
    progress = RowProgress(console)
    with threads(config.threads), write_table(output, header, schema) as write, progress:
        molecules = _molecules(table, smiles_index, feature_indices, model.config.featurizer)
        for batch in _batches(molecules, config.batch_size):
            for molecule, cells, code in _predictions(model, batch):
                own = _own_cells(molecule.row, smiles_index, code, schema)
                new = cells if schema is not None else map(_text, cells)
                write([*own, *new, code])
                predicted += not code
                refused += bool(code)
            progress.advance(len(batch))
    return PredictionCounts(predicted, refused)


def _molecules(
    table: Table, smiles_index: int, feature_indices: Sequence[int], featurizer: Featurizer
) -> Iterator[_Molecule]:
    rows = iter(table)
    while block := list(islice(rows, _ROWS_AT_ONCE)):
        whole = [row for row in block if row.fault is None]
        records = featurize_smiles((row.cells[smiles_index] for row in whole), featurizer)
        for row in block:
            if row.fault is not None:
                yield _Molecule(row, None, [], row.code)
                continue
            record = next(records)
            features, code = _features(row, feature_indices)
            if isinstance(record, SmilesError):
                yield _Molecule(row, None, [], record.code)
            elif code:
                yield _Molecule(row, None, [], code)
            else:
                yield _Molecule(row, record, features, "")


def _features(row: Row, indices: Sequence[int]) -> tuple[list[float], ReasonCode | Literal[""]]:
    values = []
    for index in indices:
        if is_missing(row.cells[index]):
            return [], "missing_feature"
        try:
            values.append(number(row.cells[index]))
        except LabelError:
            return [], "bad_feature"
    return values, ""


def _batches(molecules: Iterable[_Molecule], size: int) -> Iterator[list[_Molecule]]:
    """Group molecules by ``size``, and earlier where large ones would take too much memory."""
    batch: list[_Molecule] = []
    pairs = 0
    for molecule in molecules:
        more = 0 if molecule.record is None else molecule.record.num_atoms**2
        if batch and (len(batch) == size or pairs + more > _PAIRS_IN_BATCH):
            yield batch
            batch, pairs = [], 0
        batch.append(molecule)
        pairs += more
    if batch:
        yield batch


def _predictions(
    model: MolAttn, batch: list[_Molecule]
) -> Iterator[tuple[_Molecule, Sequence[float | str | None], str]]:
    outputs = iter(_outputs(model, [m for m in batch if m.record is not None]))
    nothing = [None] * len(model.config.columns)
    for molecule in batch:
        if molecule.record is None:
            yield molecule, [*nothing], molecule.code
        elif not np.isfinite(values := next(outputs)).all():
            yield molecule, [*nothing], "not_finite"
        else:
            yield molecule, model.config.cells(values), ""


def _outputs(model: MolAttn, molecules: Sequence[_Molecule]) -> NDArray[np.float64]:
    if not molecules:
        return np.zeros((0, len(model.config.output_names)))
    records = [molecule.record for molecule in molecules if molecule.record is not None]
    features = [molecule.features for molecule in molecules] if model.config.features else None
    return model.predict_records(records, batch_size=len(records), features=features)


def _own_cells(row: Row, smiles_index: int, code: str, schema: object) -> Sequence[object]:
    if schema is not None and row.values is not None:
        return row.values
    if not code:
        return row.cells
    text = no_formula(row.cells[smiles_index])
    return [*row.cells[:smiles_index], text, *row.cells[smiles_index + 1 :]]


def _text(cell: float | str | None) -> str:
    if cell is None:
        return ""
    return f"{cell:.7g}" if isinstance(cell, float) else str(cell)
