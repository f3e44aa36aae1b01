"""A table of molecules to a table of what a model makes of them: in order, in constant memory."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple, Union

from rich.console import Console

from molattn.chem.reader import MoleculeReader
from molattn.config import TableConfig
from molattn.data.labels import LabelError, is_missing, number
from molattn.data.table import (
    Row,
    Table,
    check_output,
    no_formula,
    open_table,
    output_schema,
    write_table,
)
from molattn.errors import InputError, ReasonCode, SmilesError, quoted
from molattn.model.artefact import is_packaged
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.record import MoleculeRecord
from molattn.utils.console import print_line
from molattn.utils.progress import RowProgress
from molattn.utils.reproducibility import threads, without_onednn

__all__ = [
    "ERROR_COLUMN",
    "ROW_COLUMN",
    "ReadRow",
    "OutputSpec",
    "RowCounts",
    "molecule_batches",
    "open_with_model",
    "say_refused",
    "say_remarks",
    "stream_table",
]

ERROR_COLUMN = "error"
ROW_COLUMN = "row"
_PAIRS_IN_BATCH = 2**20  # a molecule of 1,000 atoms has nearly as many
_ROWS_AT_ONCE = 64
_PARTNERS_KEPT = 256
_MOST_TOLD = 3

Cells = Sequence[Union[float, int, str, None]]


class RowCounts(NamedTuple):
    """How many rows of the input were read, and how many have a reason why not."""

    done: int
    refused: int


class ReadRow(NamedTuple):
    """A row and the molecule in it.

    Args:
        number: The row's place in the table, counted from 1.
        row: The row.
        smiles: Its SMILES.
        record: The molecule, with its second one if the model reads one; None where there is none.
        features: Its further numbers.
        code: Why there is no molecule, or empty.
    """

    number: int
    row: Row
    smiles: str
    record: MoleculeRecord | None
    features: list[float]
    code: ReasonCode | Literal[""]


@dataclass(frozen=True)
class OutputSpec:
    """What is written of each molecule.

    Args:
        verb: What it does, for the progress bar.
        columns: The columns it writes, each with its Arrow type, such as ``float64``.
        read: Gives for each molecule of a batch its rows of these columns, or the reason code of
            there being none.
        reads_numbers: Whether it needs the numbers that join the readout: feature columns of the
            table, descriptors and fingerprints.
        reads_similarity: Whether it needs the fingerprints of similarity, of records.
        keeps_columns: Whether the input's own columns come before its own; else the row's number
            does. It is for readings that write one row for each molecule.
        remarks: What a person should know of it beforehand, in sentences.
    """

    verb: str
    columns: Mapping[str, str]
    read: Callable[[Sequence[ReadRow]], Iterable[Sequence[Cells] | ReasonCode]]
    reads_numbers: bool = True
    reads_similarity: bool = False
    keeps_columns: bool = True
    remarks: Sequence[str] = ()


def stream_table(
    model_folder: str | Path,
    source: str | Path,
    output: str | Path,
    reading: Callable[[MolAttn], OutputSpec],
    config: TableConfig,
    console: Console | None = None,
) -> RowCounts:
    """Read every row of a table by a saved model.

    Each row leads to one or more rows, in order, which end in a column ``error``: a short reason
    code where there is nothing else. The output is there whole or not at all.

    Args:
        model_folder: A run folder, or the folder of a saved model.
        source: The table, of any kind that :func:`molattn.data.table.open_table` reads.
        output: The table to write, of the kind its name says; one that is there is replaced.
        reading: What the model makes of a molecule.
        config: How to read the table.
        console: Where to show progress; silent without one.

    Raises:
        InputError: If the model, the table or the output cannot be used so.
    """
    source, output = Path(source), Path(output)
    check_output(output)
    if output.exists() and source.exists() and output.samefile(source):
        raise InputError(f"{output}: --output is the input itself, expected another file")
    table, model = open_with_model(source, model_folder, config)
    how = reading(model)
    places = _find_columns(table, config, model.config, how.reads_numbers)
    kept = table if how.keeps_columns else None
    columns = {**({} if kept else {ROW_COLUMN: "int64"}), **how.columns, ERROR_COLUMN: "string"}
    header = [*(kept.header if kept else ()), *columns]
    for name in columns if kept else ():
        if name in table.header:
            raise InputError(
                f"{source}: there is a column {quoted(name)} already, and one of the output's "
                "would overwrite it; rename or remove it"
            )
    schema = output_schema(output, kept, columns)
    done, refused = 0, Counter[str]()
    console = console or Console(quiet=True)
    say_remarks(table, console)
    for remark in how.remarks:
        print_line(console, remark)
    progress = RowProgress(console, how.verb)
    # Rows of atoms are few enough: 12,000 molecules through the default model took 503 MB with
    # oneDNN and 483 MB without, and 14 % less time. Maps of all pairs are not: 8,000 molecules
    # through a small model that updates pairs took 803 MB and 535 MB, and as much time.
    updates_pairs = model.config.network.update_edges
    code = without_onednn() if updates_pairs else nullcontext()
    with (
        threads(config.threads),
        code,
        write_table(output, header, schema) as write,
        progress,
    ):
        batches = molecule_batches(
            table,
            model,
            config,
            reads_numbers=how.reads_numbers,
            reads_similarity=how.reads_similarity,
        )
        for batch in batches:
            for molecule, rows, code in _read(how, batch):
                own: Sequence[object] = [molecule.number]
                if kept:
                    own = _own_cells(molecule.row, places, code, schema)
                for cells in rows:
                    new = cells if schema is not None else map(_text, cells)
                    write([*own, *new, code])
                done += not code
                refused.update([code] if code else [])
            progress.advance(len(batch))
    say_refused(refused, console)
    return RowCounts(done, refused.total())


def open_with_model(
    source: Path, model_folder: str | Path, config: TableConfig
) -> tuple[Table, MolAttn]:
    """Open a table and load the model that is to read it.

    Args:
        source: The table.
        model_folder: A run folder, the folder of a saved model, or a model of the package by its
            name; a path is a name where there is no such folder.
        config: How to read the table.

    Raises:
        InputError: A table without that column of SMILES, or no model.
    """
    table = open_table(source)
    table.column(config.smiles_column, "--smiles-column")  # before a model is read
    if not Path(model_folder).exists():
        model_folder = str(model_folder)
        if not is_packaged(model_folder):  # no look at a hub
            raise InputError(f"{model_folder}: no such folder, expected one with a saved model")
    return table, MolAttn.from_pretrained(model_folder)


def say_refused(refused: Counter[str], console: Console) -> None:
    """Tell what most rows were refused for, if any were.

    Args:
        refused: How many rows there are of each reason code.
        console: Where to tell it.
    """
    if refused:
        told = refused.most_common(_MOST_TOLD)
        others = refused.total() - sum(count for _, count in told)
        some = [f"{count} {code}" for code, count in told]
        print_line(
            console, "refused: " + ", ".join(some + [f"{others} for other reasons"] * (others > 0))
        )


def say_remarks(table: Table, console: Console) -> None:
    """Print what was found out about a table."""
    for remark in table.remarks:
        print_line(console, f"{table.path}: {remark}")


def molecule_batches(
    table: Table,
    model: MolAttn,
    config: TableConfig,
    *,
    reads_numbers: bool = True,
    reads_similarity: bool = False,
) -> Iterator[list[ReadRow]]:
    """Read the rows of a table as molecules, in batches that fit into memory.

    Args:
        table: The table.
        model: What is to read them.
        config: How to read the table.
        reads_numbers: Whether it needs the numbers that join the readout.
        reads_similarity: Whether it needs the fingerprints of similarity, of records.

    Raises:
        InputError: A column that the model reads is not there.
    """
    places = _find_columns(table, config, model.config, reads_numbers)
    calculator = model.config.calculator if reads_numbers else None
    reader = MoleculeReader(
        model.config.featurizer,
        calculator,
        fingerprints=reads_similarity,
        remember=_PARTNERS_KEPT,
    )
    return _batches(_molecules(table, places, reader), config.batch_size)


class _Places(NamedTuple):
    """Where in a row to find what."""

    smiles: int
    partner: int | None
    features: list[int]


def _find_columns(
    table: Table, asked: TableConfig, model: MolAttnConfig, reads_numbers: bool
) -> _Places:
    if asked.partner_column is not None and not model.has_partner:
        raise InputError(
            f"--partner-column: got {quoted(asked.partner_column)}, but the model reads one "
            "molecule; expected no such option"
        )
    partner = asked.partner_column or model.partner_column
    features = model.features if reads_numbers else ()
    return _Places(
        table.column(asked.smiles_column, "--smiles-column"),
        None if partner is None else table.column(partner, "--partner-column"),
        [table.column(name, "a feature of the model") for name in features],
    )


def _molecules(table: Table, places: _Places, reader: MoleculeReader) -> Iterator[ReadRow]:
    rows = enumerate(table, start=1)
    while block := list(islice(rows, _ROWS_AT_ONCE)):
        whole = [row for _, row in block if row.fault is None]
        texts, partners = (
            None if place is None else [row.cells[place] for row in whole]
            for place in (places.smiles, places.partner)
        )
        records = reader(texts or (), partners)
        for place, row in block:
            if row.fault is not None:
                yield ReadRow(place, row, "", None, [], row.code)
                continue
            smiles, record = row.cells[places.smiles], next(records)
            features, code = _features(row, places.features)
            if isinstance(record, SmilesError):
                yield ReadRow(place, row, smiles, None, [], record.code)
            elif code:
                yield ReadRow(place, row, smiles, None, [], code)
            else:
                yield ReadRow(place, row, smiles, record, features, "")


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


def _batches(molecules: Iterable[ReadRow], size: int) -> Iterator[list[ReadRow]]:
    """Group molecules by ``size``, and earlier where large ones would take too much memory."""
    batch: list[ReadRow] = []
    pairs = first = second = 0
    for molecule in molecules:
        atoms, others = _num_atoms(molecule.record)
        more = atoms**2 + others**2
        # Two molecules that attend to each other are padded to the largest of the batch.
        across = (len(batch) + 1) * max(first, atoms) * max(second, others)
        if batch and (len(batch) == size or max(pairs + more, across) > _PAIRS_IN_BATCH):
            yield batch
            batch, pairs, first, second = [], 0, 0, 0
        batch.append(molecule)
        pairs, first, second = pairs + more, max(first, atoms), max(second, others)
    if batch:
        yield batch


def _num_atoms(record: MoleculeRecord | None) -> tuple[int, int]:
    if record is None:
        return 0, 0
    return record.num_atoms, 0 if record.partner is None else record.partner.num_atoms


def _read(
    how: OutputSpec, batch: Sequence[ReadRow]
) -> Iterator[tuple[ReadRow, Sequence[Cells], str]]:
    readable = [molecule for molecule in batch if molecule.record is not None]
    results = iter(how.read(readable) if readable else ())
    nothing = [[None] * len(how.columns)]
    for molecule in batch:
        result = molecule.code if molecule.record is None else next(results)
        yield (molecule, nothing, result) if isinstance(result, str) else (molecule, result, "")


def _own_cells(row: Row, places: _Places, code: str, schema: object) -> Sequence[object]:
    if schema is not None and row.values is not None:
        return row.values
    if not code:
        return row.cells
    texts = (places.smiles, places.partner)
    return [no_formula(cell) if place in texts else cell for place, cell in enumerate(row.cells)]


def _text(cell: float | int | str | None) -> str:
    if cell is None:
        return ""
    return f"{cell:.7g}" if isinstance(cell, float) else str(cell)
