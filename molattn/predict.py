"""A saved model, a table of molecules, a table of predictions: row by row, in constant memory."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console

from molattn.chem.features import Featurizer
from molattn.config import PredictConfig
from molattn.dataset import featurize
from molattn.errors import InputError, SmilesError, quoted
from molattn.model import MolAttn
from molattn.progress import RowProgress
from molattn.record import MoleculeRecord
from molattn.table import Row, Table, write_table

__all__ = ["ERROR_COLUMN", "PredictionCounts", "predict_table"]

ERROR_COLUMN = "error"
_PAIRS_IN_BATCH = 2**20  # a molecule of 1,000 atoms has nearly as many


class PredictionCounts(NamedTuple):
    """How many rows got a prediction, and how many a reason why not."""

    predicted: int
    refused: int


class _Molecule(NamedTuple):
    row: Row
    record: MoleculeRecord | None
    code: str


def predict_table(
    model_folder: str | Path,
    source: str | Path,
    output: str | Path,
    config: PredictConfig | None = None,
    console: Console | None = None,
) -> PredictionCounts:
    """Predict every row of a table.

    Every row comes out, in order, with its own columns, a column ``<target>_predicted`` for each
    target, and a column ``error`` with a short reason code where there is no prediction. The
    output is there whole or not at all.

    Args:
        model_folder: A run folder, or the folder of a saved model.
        source: The table.
        output: The table to write; one that is there is replaced.
        config: The SMILES column and the batch size.
        console: Where to show progress; silent without one.

    Raises:
        InputError: If the model, the table or the output cannot be used so.
    """
    config = config or PredictConfig()
    source, output = Path(source), Path(output)
    table = Table(source)
    smiles_index = table.column(config.smiles_column, "--smiles-column")
    if output.exists() and output.samefile(source):
        raise InputError(f"{output}: --output is the input itself, expected another file")
    model = MolAttn.from_pretrained(_saved_model(Path(model_folder)))
    new_columns = [*model.config.output_names, ERROR_COLUMN]
    for name in new_columns:
        if name in table.header:
            raise InputError(
                f"{source}: there is a column {quoted(name)} already, and a prediction would "
                "overwrite it; rename or remove it"
            )
    predicted = refused = 0
    progress = RowProgress(console or Console(quiet=True))
    with write_table(output, [*table.header, *new_columns]) as write, progress:
        molecules = _molecules(table, smiles_index, model.config.featurizer)
        for batch in _batches(molecules, config.batch_size):
            for cells, is_predicted in _predicted_rows(model, batch):
                write(cells)
                predicted += is_predicted
                refused += not is_predicted
            progress.advance(len(batch))
    return PredictionCounts(predicted, refused)


def _saved_model(path: Path) -> Path:
    folder = path.parent if path.is_file() else path
    if not folder.is_dir():  # before its name is looked for on a hub
        raise InputError(f"{path}: no such folder, expected one with a saved model")
    return folder / "model" if (folder / "model").is_dir() else folder


def _molecules(table: Table, smiles_index: int, featurizer: Featurizer) -> Iterator[_Molecule]:
    for row in table:
        if row.fault is not None:
            yield _Molecule(row, None, "ragged")
            continue
        record = featurize(row.cells[smiles_index], featurizer)
        if isinstance(record, SmilesError):
            yield _Molecule(row, None, record.code)
        else:
            yield _Molecule(row, record, "")


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


def _predicted_rows(model: MolAttn, batch: list[_Molecule]) -> Iterator[tuple[list[str], bool]]:
    records = [molecule.record for molecule in batch if molecule.record is not None]
    empty = [""] * len(model.config.output_names)
    predictions = iter(model.predict_records(records, batch_size=len(records)) if records else [])
    for molecule in batch:
        values, code = empty, molecule.code
        if molecule.record is not None:
            prediction = next(predictions)
            if np.isfinite(prediction).all():
                values = [f"{value:.7g}" for value in prediction]
            else:
                code = "not_finite"
        yield [*molecule.row.cells, *values, code], not code
