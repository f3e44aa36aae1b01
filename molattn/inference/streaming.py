"""Application of a model to a table, row by row, in constant memory."""

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, Union

import torch
from rich.console import Console

from molattn.chem.limits import read_mol_block
from molattn.chem.parse import Molecule, mol_of_mol_block
from molattn.chem.reader import Fields, MoleculeReader
from molattn.config import WORKER_OPTIONS, StreamConfig, TableConfig
from molattn.data.labels import LabelError, is_missing, number
from molattn.data.store.table import is_store
from molattn.data.table import (
    FORMATS,
    Row,
    Table,
    escape_formula,
    free_name,
    listed,
    open_table,
    output_format,
    output_schema,
)
from molattn.errors import InputError, ReasonCode, SmilesError, is_out_of_memory
from molattn.inference.parts import Tally, open_output
from molattn.model.artefact import find_local_model
from molattn.model.inputs import batches
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.prediction_columns import (
    number_text,
    standardized_cells,
    standardized_columns,
)
from molattn.record import MoleculeRecord
from molattn.utils.console import print_errors, print_groups, print_line
from molattn.utils.progress import row_progress
from molattn.utils.ray_workers import check_ray, ray_map
from molattn.utils.reproducibility import threads, without_onednn
from molattn.utils.workers import parallel_map
from molattn.version import package_versions

__all__ = [
    "OutputRows",
    "OutputSpec",
    "ReadRow",
    "Reads",
    "RowCounts",
    "check_stream",
    "computed",
    "molecule_batches",
    "open_with_model",
    "stream_table",
]

_BLOCK = 64  # rows of a block, or more: whole batches

Cells = Sequence[Union[float, int, str, None]]


class RowCounts(NamedTuple):
    """Number of input rows with an output, and of those with an error."""

    done: int
    errors: int

    @classmethod
    def of(cls, tally: Tally) -> "RowCounts":
        """Return those that :func:`stream_table` has counted."""
        return cls(tally.number("done"), tally.number("error"))


class ReadRow(NamedTuple):
    """A row and the molecule in it.

    Args:
        number: The row's number in the table, counted from 1.
        row: The row.
        smiles: Its SMILES.
        record: The molecule, with its second one if the model takes two; None if it is invalid.
        features: Its extra features from the table.
        code: The reason code of a row with an error; "" otherwise.
        molecule: What was read: the SMILES, or the RDKit molecule of a mol block.
    """

    number: int
    row: Row
    smiles: str
    record: MoleculeRecord | None
    features: list[float]
    code: ReasonCode | Literal[""]
    molecule: Molecule = ""


class Reads(NamedTuple):
    """What is read of a molecule.

    Args:
        numbers: Whether extra molecule features are needed: feature columns of the table,
            descriptors and Morgan counts.
        similarity: Whether records need the fingerprints that similarity is computed from.
        atoms: Whether the output is by atom: records then have the symbols and numbers of the
            atoms, which are in the order of the SMILES or of the mol block.
    """

    numbers: bool = True
    similarity: bool = False
    atoms: bool = False


_READS = Reads()


@dataclass(frozen=True)
class OutputSpec:
    """The output of a model for each molecule of a table.

    Args:
        verb: Label of the progress bar, such as ``predicting``.
        columns: The output columns, each with its Arrow type, such as ``float64``.
        compute: Returns the output rows of each molecule of a batch, or a reason code.
        reads: What it is computed from.
        keeps_columns: Whether the output begins with the columns of the input; otherwise with the
            row number, as when molecules have several output rows.
        remarks: Lines to print before the first row.
    """

    verb: str
    columns: Mapping[str, str]
    compute: Callable[[Sequence[ReadRow]], Iterable[Sequence[Cells] | ReasonCode]]
    reads: Reads = _READS
    keeps_columns: bool = True
    remarks: Sequence[str] = ()


class OutputRows:
    """The rows of an output: those of the table with what is computed for them.

    Args:
        table: The table.
        model: The model.
        spec: The output.
        config: How the table is read.
        output: Where the rows go; a binary stream gets CSV.

    Attributes:
        columns: The columns of the table that the model reads.
        header: The columns of the output.
        schema: Their types, if the format of the output has types.

    Raises:
        InputError: A column that the model needs is missing.
    """

    def __init__(
        self,
        table: Table,
        model: MolAttn,
        spec: OutputSpec,
        config: StreamConfig,
        output: Path | IO[bytes],
    ) -> None:
        self.columns = _find_columns(table, config, model.config, spec.reads)
        self._model = model.config
        self._keeps_columns = spec.keeps_columns
        names = [] if spec.keeps_columns else ["row"]
        names += [*spec.columns, *standardized_columns(model.config), "error"]
        types = {"row": "int64", **spec.columns}
        header = list(table.header) if spec.keeps_columns else []
        new: dict[str, str] = {}
        for name in names:
            header.append(free_name(name, header))
            new[header[-1]] = types.get(name, "string")
        self.schema = output_schema(output, table if spec.keeps_columns else None, new)
        escapes = config.escape_formulas and output_format(output).runs_formulas
        self._escape = escape_formula if escapes else str
        self.header = [self._escape(name) for name in header]

    def __call__(
        self, molecule: "ReadRow", rows: Sequence[Cells], code: str
    ) -> Iterator[tuple[list[object], str]]:
        """Yield the rows of a molecule, given what :func:`computed` yields, each with a structure.

        The structure is what :meth:`molattn.data.table.TableWriter.write` takes.
        """
        return self.joined(molecule, _with_standardized(self._model, molecule, rows), code)

    def joined(
        self, molecule: "ReadRow", rows: Sequence[Cells], code: str
    ) -> Iterator[tuple[list[object], str]]:
        """Yield the rows of a molecule, given those with the standardized SMILES."""
        own = self._own(molecule.number, molecule.row, code)
        structure = ""
        if self._keeps_columns:
            structure = molecule.row.block or ("" if code else molecule.smiles)
        for cells in rows:
            texts = cells if self.schema is not None else [self._escape(_text(x)) for x in cells]
            yield [*own, *texts, code], structure

    def _own(self, number: int, row: Row, code: str) -> Sequence[object]:
        if not self._keeps_columns:
            return [number]
        if self.schema is not None:
            return row.values or row.cells
        return [
            cell if index in self.columns[:2] and not code else self._escape(cell)
            for index, cell in enumerate(row.cells)
        ]


def _with_standardized(
    model: MolAttnConfig, molecule: "ReadRow", rows: Sequence[Cells]
) -> Sequence[Cells]:
    forms = standardized_cells(molecule.record, model)
    return [[*cells, *forms] for cells in rows] if forms else rows


def stream_table(
    table: Table,
    model: MolAttn,
    output: str | Path | IO[bytes],
    spec: OutputSpec,
    config: StreamConfig,
    console: Console | None = None,
    count: Callable[[Tally, Row, Cells], None] = lambda *_: None,
) -> Tally:
    """Apply a model to every row of a table.

    Each row gives one or more output rows, in order. The last column, ``error``, is the reason code
    of a row without output; a column with the name of one of the table gets an underscore. The file
    is written completely or not at all. If that is interrupted, ``config.resume`` goes on with it,
    see :mod:`molattn.inference.parts`.

    The table is divided into blocks of rows, each of whole batches, which are read and computed in
    ``config.num_workers`` processes that have a copy of the model each, with the same result.

    Args:
        table: The table.
        model: The model.
        output: The file to write, in the format of its name, or a binary stream, which gets CSV.
        spec: What is computed.
        config: How the table is read, and the workers.
        console: Where to show progress; None = nowhere.
        count: Counts more of a row with an output, given its cells and those of its output.

    Returns:
        The numbers of ``done`` rows and of each ``error``, and the time, those before an
        interruption included.

    Raises:
        InputError: The table or the output cannot be used.
        MolattnError: A worker process was killed.
    """
    start = time.perf_counter()
    output = Path(output) if isinstance(output, str) else output
    console = console or Console(quiet=True)
    rows_of = OutputRows(table, model, spec, config, output)
    apply = _Application(model, spec, config, rows_of.columns)
    for remark in spec.remarks:
        print_line(console, remark)
    run = partial(_run, model, table, config)
    total = None if console.quiet else table.count()
    with (
        open_output(output, rows_of.header, rows_of.schema, run, config.resume, console) as file,
        row_progress(console, spec.verb, total, done=file.rows) as advance,
        closing(_map_blocks(apply, table, file.rows, console)) as blocks,
    ):
        for block in blocks:
            tally = Tally()
            for molecule, rows, code in block:
                for cells, structure in rows_of.joined(molecule, rows, code):
                    file.write(cells, structure)
                if code:
                    tally.count("error", code)
                    continue
                tally.count("done")
                if molecule.row.has_stereo_groups(molecule.smiles):
                    tally.count("groups")
                count(tally, molecule.row, rows[0])
            tally.seconds, start = time.perf_counter() - start, time.perf_counter()
            file.commit(len(block), tally)
            advance(len(block), tally.number("error"))
    file.tally.seconds += time.perf_counter() - start
    _print_counts(file.tally, model, console)
    return file.tally


def check_stream(table: Table, output: str | Path | IO[bytes], config: StreamConfig) -> None:
    """Check an output before a model is loaded.

    Raises:
        InputError: It cannot be written, or is part of what is read; Ray is not there.
    """
    output = Path(output) if isinstance(output, str) else output
    if config.engine == "ray":
        check_ray(config.ray_address)
    file_format = output_format(output)
    if config.resume and not (isinstance(output, Path) and file_format.is_resumable):
        names = ", ".join(one.name for one in FORMATS.values() if one.write and one.is_resumable)
        raise InputError(f"--resume needs a file to write to (--output) in one of {names}")
    if not isinstance(output, Path):
        return
    path = table.path
    if output.exists() and path.exists() and output.samefile(path):
        raise InputError(f"{output}: --output is the input file; expected another file")
    if path.resolve() in output.resolve().parents and is_store(path):
        raise InputError(
            f"{output}: --output is in the store that is read; expected another folder"
        )


def _print_counts(tally: Tally, model: MolAttn, console: Console) -> None:
    errors = Counter(tally.counts.get("error", {}))
    print_errors(errors, console)
    print_groups(tally.number("groups"), console)
    if errors and "done" not in tally.counts:
        hint = "if the SMILES are in another column, name it with --smiles-column"
        if errors.most_common(1)[0][0] in ("bad_feature", "missing_feature"):
            hint = f"expected a number in each column {listed(model.config.features)}"
        print_line(console, f"every row has an error; {hint}")


_Computed = tuple["ReadRow", Sequence[Cells], str]


def _map_blocks(
    apply: "_Application", table: Table, start: int, console: Console
) -> Generator[list[_Computed], None, None]:
    """Yield what is computed for each block of rows, in this process or by workers."""
    config = apply.config
    blocks = _Blocks(table, start, config.batch_size * -(-_BLOCK // config.batch_size))
    if config.engine == "local":
        return parallel_map(apply, blocks, config.num_workers)
    return ray_map(
        apply,
        blocks,
        config.num_workers,
        address=config.ray_address,
        threads=config.threads,
        report=partial(print_line, console),
    )


@dataclass
class _Application:
    """Applies a model to blocks of rows, in any process."""

    model: MolAttn
    spec: OutputSpec
    config: StreamConfig
    columns: "_Columns"

    def __call__(self, block: Sequence[tuple[int, Row]]) -> list[_Computed]:
        # oneDNN saves 14% of the time of the default model, and costs 20 MB (12,000 molecules).
        # Where all pairs are updated too it saves no time, and costs 270 MB (8,000 molecules, a
        # small model).
        in_bf16 = self.config.precision == "bf16"
        updates_pairs = self.model.config.network.update_edges and not in_bf16
        device = next(self.model.parameters()).device.type
        with (
            threads(self.config.threads),
            without_onednn() if updates_pairs else nullcontext(),
            torch.autocast(device, torch.bfloat16, enabled=in_bf16),
        ):
            rows = batches(self._read(block), self.config.batch_size, lambda row: row.record)
            found = [one for batch in rows for one in computed(self.spec, batch)]
        return [
            (
                molecule._replace(record=None, molecule=""),
                _with_standardized(self.model.config, molecule, rows),
                code,
            )
            for molecule, rows, code in found
        ]

    @cached_property
    def _read(self) -> "_RowReader":
        return _RowReader(self.columns, self.model.config, self.config, self.spec.reads)


def _run(model: MolAttn, table: Table, config: StreamConfig) -> dict[str, Any]:
    """Return what identifies a run, see :func:`molattn.inference.parts.open_output`."""
    digest = sha256()
    for name, content in sorted(model.to_files().content.items()):
        digest.update(f"{name} {len(content)} ".encode() + content)
    options = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in asdict(config).items()
        if name not in (*WORKER_OPTIONS, "resume")
    }
    return {
        "model": digest.hexdigest(),
        "input": table.digest(),
        "options": options,
        "versions": package_versions(),
    }


def open_with_model(
    source: str | Path | Table,
    model_folder: str | Path | MolAttn,
    config: TableConfig,
    console: Console | None,
) -> tuple[Table, MolAttn]:
    """Open a table and load a model; print remarks on both, such as the detected separator.

    Raises:
        InputError: The table has no such SMILES column, or there is no such model.
    """
    table = open_table(source)
    table.column(config.smiles_column, "--smiles-column")  # before a model is loaded
    for remark in table.remarks:
        print_line(console, f"{table.path}: {remark}")
    model = model_folder
    if not isinstance(model, MolAttn):
        model = MolAttn.from_pretrained(find_local_model(model))
    if remark := model.inputs_remark():
        print_line(console, remark)
    return table, model


def molecule_batches(
    table: Table, model: MolAttn, config: TableConfig, reads: Reads
) -> Iterator[list[ReadRow]]:
    """Read the rows of a table for a model, in batches that fit into memory.

    Raises:
        InputError: A column that the model needs is missing.
    """
    columns = _find_columns(table, config, model.config, reads)
    read = _RowReader(columns, model.config, config, reads)
    rows = chain.from_iterable(map(read, _Blocks(table, 0, _BLOCK)))
    return batches(rows, config.batch_size, lambda row: row.record)


class _Columns(NamedTuple):
    """Indices of the columns of a model's inputs."""

    smiles: int
    partner: int | None
    features: list[int]


def _find_columns(
    table: Table, config: TableConfig, model: MolAttnConfig, reads: Reads
) -> _Columns:
    if config.partner_column is not None and not model.has_partner:
        raise InputError(
            "--partner-column cannot be used with this model, which takes one molecule per row"
        )
    table.check_featurizer(model.featurizer)
    partner = config.partner_column or model.partner_column
    features = model.features if reads.numbers else ()
    return _Columns(
        table.column(config.smiles_column, "--smiles-column"),
        None if partner is None else table.column(partner, "--partner-column"),
        [table.column(name, "a feature of the model") for name in features],
    )


@dataclass
class _Blocks:
    """The rows of a table after the first ``start``, with their numbers, ``size`` at a time."""

    table: Table
    start: int
    size: int

    def __iter__(self) -> Iterator[list[tuple[int, Row]]]:
        rows = islice(enumerate(self.table, start=1), self.start, None)
        while block := list(islice(rows, self.size)):
            yield block


class _RowReader:
    """Reads the molecules of blocks of rows."""

    def __init__(
        self, columns: _Columns, model: MolAttnConfig, config: TableConfig, reads: Reads
    ) -> None:
        self._columns, self._in_order = columns, reads.atoms
        self._reader = MoleculeReader(
            model.featurizer,
            Fields(
                numbers=model.calculator if reads.numbers else None,
                counts=model.counter if reads.numbers else None,
                fingerprint=reads.similarity,
                symbols=reads.atoms,
            ),
            limits=config,
            standardize=model.standardize,
            radius=model.network.radius,
        )

    def __call__(self, block: Sequence[tuple[int, Row]]) -> Iterator[ReadRow]:
        whole = [row for _, row in block if not row.code]
        column, partner = self._columns.smiles, self._columns.partner
        molecules = [row.structure(column) for row in whole]
        if self._in_order:
            molecules = [
                (row.block and read_mol_block(row.block, mol_of_mol_block)) or row.cells[column]
                for row in whole
            ]
        partners = None if partner is None else [row.cells[partner] for row in whole]
        records, read = self._reader(molecules, partners), iter(molecules)
        for index, row in block:
            if row.code:
                yield ReadRow(index, row, "", None, [], row.code)
                continue
            smiles, record = row.cells[self._columns.smiles], next(records)
            features, code = _features(row, self._columns.features)
            if isinstance(record, SmilesError):
                record, code = None, record.code
            found = None if code else record
            yield ReadRow(index, row, smiles, found, features, code, next(read))


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


def computed(
    spec: OutputSpec, batch: Sequence[ReadRow]
) -> Iterator[tuple[ReadRow, Sequence[Cells], str]]:
    """Yield each row of a batch with its output rows and reason code."""
    readable = [molecule for molecule in batch if molecule.record is not None]
    results = iter(_results(spec, readable) if readable else ())
    nothing = [[None] * len(spec.columns)]
    for molecule in batch:
        result = molecule.code if molecule.record is None else next(results)
        yield (molecule, nothing, result) if isinstance(result, str) else (molecule, result, "")


def _results(spec: OutputSpec, molecules: Sequence[ReadRow]) -> list[Sequence[Cells] | ReasonCode]:
    """Compute a batch; in halves if there is too little memory for the whole."""
    try:
        return [*spec.compute(molecules)]
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    if len(molecules) == 1:
        return ["out_of_memory"]
    half = len(molecules) // 2
    return _results(spec, molecules[:half]) + _results(spec, molecules[half:])


def _text(cell: float | int | str | None) -> str:
    if cell is None:
        return ""
    return number_text(cell) if isinstance(cell, float) else str(cell)
