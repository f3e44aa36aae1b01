"""Application of a model to a table, row by row, in constant memory."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from hashlib import sha256
from itertools import chain, groupby, islice
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, Union

from rich.console import Console

from molattn.chem.reader import MoleculeReader
from molattn.config import WORKER_OPTIONS, StreamConfig, TableConfig
from molattn.data.labels import LabelError, is_missing, number
from molattn.data.table import (
    Row,
    Structure,
    Table,
    check_output,
    check_resumable,
    escape_formula,
    free_name,
    is_resumable,
    open_table,
    output_schema,
    row_writer,
    runs_formulas,
    write_table,
)
from molattn.errors import InputError, ReasonCode, SmilesError, is_out_of_memory
from molattn.inference.unfinished import Entry, UnfinishedRun, unfinished_table
from molattn.model.artefact import ModelFiles, find_local_model
from molattn.model.batching import batches
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.prediction_columns import (
    number_text,
    standardized_cells,
    standardized_columns,
)
from molattn.record import MoleculeRecord
from molattn.utils.console import print_errors, print_line
from molattn.utils.progress import row_progress
from molattn.utils.ray_workers import check_ray, ray_map
from molattn.utils.reproducibility import threads, without_onednn
from molattn.utils.workers import parallel_map
from molattn.version import package_versions

__all__ = [
    "OutputRows",
    "OutputSpec",
    "ReadRow",
    "RowCounts",
    "computed",
    "computing",
    "molecule_batches",
    "open_with_model",
    "stream_table",
]

_ROWS_AT_ONCE = 64
_PARTNERS_KEPT = 256
_ROWS_PER_ENTRY = 64  # an interrupted run loses no more than these and a batch
_ROWS_PER_BLOCK = 4096  # or a few less, a whole number of batches
_NOT_OF_THE_OUTPUT = (*WORKER_OPTIONS, "resume")

Cells = Sequence[Union[float, int, str, None]]
_Part = tuple[int, Iterable[Sequence[object]], Counter[str]]


class RowCounts(NamedTuple):
    """Number of input rows with an output, and of those with an error."""

    done: int
    errors: int


class ReadRow(NamedTuple):
    """A row and the molecule in it.

    Args:
        number: The row's number in the table, counted from 1.
        row: The row.
        smiles: Its SMILES.
        record: The molecule, with its second one if the model takes two; None if it is invalid.
        features: Its extra features from the table.
        code: The reason code of a row with an error; "" otherwise.
    """

    number: int
    row: Row
    smiles: str
    record: MoleculeRecord | None
    features: list[float]
    code: ReasonCode | Literal[""]


@dataclass(frozen=True)
class OutputSpec:
    """The output of a model for each molecule of a table.

    Args:
        verb: Label of the progress bar, such as ``predicting``.
        columns: The output columns, each with its Arrow type, such as ``float64``.
        compute: Returns the output rows of each molecule of a batch, or a reason code.
        reads_numbers: Whether extra molecule features are needed: feature columns of the table,
            descriptors and Morgan counts.
        reads_similarity: Whether records need the fingerprints that similarity is computed from.
        reads_symbols: Whether records need the element symbols of the atoms.
        keeps_columns: Whether the output begins with the columns of the input; otherwise with the
            row number, as when molecules have several output rows.
        remarks: Lines to print before the first row.
        take_found: Returns what was found since the last call, as JSON types that are kept with the
            rows.
        restore_found: Takes what such a call returned before an interruption.
        add_found: Takes what such a call returned in another process, as if found in this one.
    """

    verb: str
    columns: Mapping[str, str]
    compute: Callable[[Sequence[ReadRow]], Iterable[Sequence[Cells] | ReasonCode]]
    reads_numbers: bool = True
    reads_similarity: bool = False
    reads_symbols: bool = False
    keeps_columns: bool = True
    remarks: Sequence[str] = ()
    take_found: Callable[[], Any] = lambda: None
    restore_found: Callable[[Any], None] = lambda found: None
    add_found: Callable[[Any], None] = lambda found: None

    @property
    def reads(self) -> dict[str, bool]:
        """What :func:`molecule_batches` reads for it."""
        names = ("reads_numbers", "reads_similarity", "reads_symbols")
        return {name: getattr(self, name) for name in names}


class OutputRows:
    """The rows of an output: those of the table with what is computed for them.

    Args:
        table: The table.
        model: The model.
        spec: The output.
        config: How the table is read.
        output: Where the rows go; a binary stream gets CSV.

    Attributes:
        header: The columns.
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
        places = _find_columns(table, config, model.config, spec.reads_numbers)
        self._model = model.config
        self._smiles, self._molecules = places.smiles, (places.smiles, places.partner)
        self._keeps_columns = spec.keeps_columns
        kept = table if spec.keeps_columns else None
        own = kept.header if kept else []
        standardized = dict.fromkeys(standardized_columns(model.config), "string")
        columns = {} if kept else {"row": "int64"}
        columns |= {**spec.columns, **standardized, "error": "string"}
        columns = _renamed(columns, own)
        self.schema = output_schema(output, kept, columns)
        self._escape = escape_formula if config.escape_formulas and runs_formulas(output) else str
        self.header = [self._escape(name) for name in (*own, *columns)]

    def __call__(
        self, molecule: ReadRow, rows: Sequence[Cells], code: str
    ) -> Iterator[list[object]]:
        """Yield the rows of a molecule, given what :func:`computed` yields."""
        own = self._own(molecule, code)
        forms = standardized_cells(molecule.record, self._model)
        for cells in rows:
            new: Iterable[object] = [*cells, *forms]
            if self.schema is None:
                new = [self._escape(_text(cell)) for cell in (*cells, *forms)]
            yield [*own, *new, code]

    def _own(self, molecule: ReadRow, code: str) -> Sequence[object]:
        if not self._keeps_columns:
            return [molecule.number]
        if self.schema is not None:
            return molecule.row.values or molecule.row.cells
        own = [
            cell
            if isinstance(cell, Structure) or (place in self._molecules and not code)
            else self._escape(cell)
            for place, cell in enumerate(molecule.row.cells)
        ]
        if not code and not isinstance(own[self._smiles], Structure):
            own[self._smiles] = Structure(own[self._smiles])
        return own


def stream_table(
    model_folder: str | Path | MolAttn,
    source: str | Path | Table,
    output: str | Path | IO[bytes],
    make_spec: Callable[[MolAttn], OutputSpec],
    config: StreamConfig,
    console: Console | None = None,
) -> RowCounts:
    """Apply a model to every row of a table.

    Each row gives one or more output rows, in order. The last column, ``error``, is the reason code
    of a row without output; a column with the name of one of the table gets an underscore. The file
    is written completely or not at all. If that is interrupted, ``config.resume`` goes on with it,
    see :mod:`molattn.inference.unfinished`. The arguments other than ``make_spec`` are those of
    :func:`molattn.inference.predict_table`.

    Returns:
        The counts of all rows, those before an interruption included.

    Raises:
        InputError: The model, the table or the output cannot be used.
    """
    output = Path(output) if isinstance(output, str) else output
    path = source.path if isinstance(source, Table) else Path(source)
    if config.engine == "ray":
        check_ray(config.ray_address)
    if config.resume:
        check_resumable(output)
    if isinstance(output, Path):
        check_output(output)
        if output.exists() and path.exists() and output.samefile(path):
            raise InputError(f"{output}: --output is the input file; expected another file")
    console = console or Console(quiet=True)
    table, model = open_with_model(source, model_folder, config, console)
    spec = make_spec(model)
    rows_of = OutputRows(table, model, spec, config, output)

    def run() -> UnfinishedRun:
        options = {
            name: list(value) if isinstance(value, tuple) else value  # as JSON has them
            for name, value in asdict(config).items()
            if name not in _NOT_OF_THE_OUTPUT
        }
        return UnfinishedRun(
            _digest(model), table.digest(), options, rows_of.header, package_versions()
        )

    def parts(start: int) -> Generator[_Part, None, None]:
        """Yield numbers of rows, their output, and their errors once that is read."""
        block_rows = _block_rows(spec, config)
        if config.engine == "ray":
            reader = _row_reader(table, model, config, **spec.reads)
            work = _BlockPredictor(model.to_files(Path()), make_spec, reader, rows_of, config)
            for size, rows, refused, found in ray_map(
                work,
                _Blocks(table, start, block_rows),
                config.num_workers,
                address=config.ray_address,
                threads=config.threads,
                report=partial(print_line, console),
            ):
                spec.add_found(found)
                yield size, rows, refused
            return
        for batch in molecule_batches(
            table,
            model,
            config,
            start=start,
            num_workers=config.num_workers,
            block_rows=block_rows,
            **spec.reads,
        ):
            refused = Counter[str]()
            yield len(batch), _output(spec, rows_of, batch, refused), refused

    for remark in spec.remarks:
        print_line(console, remark)
    with (
        computing(model, config.threads),
        _open_output(output, rows_of, run, config.resume, console) as sink,
        row_progress(
            console, spec.verb, None if console.quiet else table.count(), done=sink.rows
        ) as advance,
        closing(parts(sink.rows)) as computed_parts,
    ):
        for entry in sink.entries:
            spec.restore_found(entry["found"])
        done, errors = 0, Counter[str]()
        if sink.entries:
            done, errors = sink.entries[-1]["done"], Counter(sink.entries[-1]["errors"])

        def commit() -> None:
            found = {"done": done, "errors": errors, "found": spec.take_found()}
            sink.commit(done + errors.total(), found)

        open_rows = 0
        for size, rows, refused in computed_parts:
            for cells in rows:
                sink.write(cells)
            done += size - refused.total()
            errors.update(refused)
            open_rows += size
            if open_rows >= _ROWS_PER_ENTRY:
                commit()
                open_rows = 0
            advance(size, refused.total())
        commit()
    print_errors(errors, console)
    return RowCounts(done, errors.total())


@contextmanager
def computing(model: MolAttn, num_threads: int) -> Iterator[None]:
    """Set threads and oneDNN as a model predicts with them within the block."""
    # oneDNN saves 14% of the time of the default model, and costs 20 MB (12,000 molecules). Where
    # all pairs are updated too it saves no time, and costs 270 MB (8,000 molecules, a small model).
    with (
        threads(num_threads),
        without_onednn() if model.config.network.update_edges else nullcontext(),
    ):
        yield


def _output(
    spec: OutputSpec, rows_of: OutputRows, batch: Sequence[ReadRow], refused: Counter[str]
) -> Iterator[Sequence[object]]:
    """Yield the output rows of a batch, and count the errors."""
    for molecule, rows, code in computed(spec, batch):
        yield from rows_of(molecule, rows, code)
        refused.update([code] if code else [])


def _block_rows(spec: OutputSpec, config: TableConfig) -> int:
    """Return the number of rows of a block, a multiple of which no batch goes beyond.

    So a worker that gets a block makes the same batches of it.
    """
    at_least = _ROWS_PER_BLOCK if spec.keeps_columns else 1  # else there are many rows of each
    return config.batch_size * max(1, at_least // config.batch_size)


@dataclass
class _BlockPredictor:
    """Computes the output of blocks of rows, in any process."""

    files: ModelFiles
    make_spec: Callable[[MolAttn], OutputSpec]
    reader: "_RowReader"
    rows_of: OutputRows
    config: StreamConfig

    def __call__(
        self, block: Sequence[tuple[int, Row]]
    ) -> tuple[int, list[Sequence[object]], Counter[str], Any]:
        """Return the number of rows, their output, their errors, and what else was found."""
        model, spec = self._loaded
        refused = Counter[str]()
        with computing(model, self.config.threads):
            read = self.reader(block)
            rows = [
                cells
                for batch in batches(read, self.config.batch_size, lambda row: row.record)
                for cells in _output(spec, self.rows_of, batch, refused)
            ]
        return len(block), rows, refused, spec.take_found()

    @cached_property
    def _loaded(self) -> tuple[MolAttn, OutputSpec]:
        model = MolAttn.from_files(self.files)
        return model, self.make_spec(model)


class _Sink(NamedTuple):
    """Where the rows of an output go.

    Args:
        write: Writes a row.
        commit: Keeps the rows so far, given the number of rows of the input, with an entry.
        rows: Number of rows of the input that were kept before an interruption.
        entries: Their entries.
    """

    write: Callable[[Sequence[object]], None]
    commit: Callable[[int, Entry], None]
    rows: int = 0
    entries: Sequence[Entry] = ()


@contextmanager
def _open_output(
    output: Path | IO[bytes],
    rows_of: OutputRows,
    run: Callable[[], UnfinishedRun],
    resume: bool,
    console: Console,
) -> Iterator[_Sink]:
    if not (isinstance(output, Path) and is_resumable(output)):
        with write_table(output, rows_of.header, rows_of.schema) as write:
            yield _Sink(write, lambda rows, entry: None)
        return
    with unfinished_table(output, run(), resume=resume, console=console) as table:
        write = row_writer(output, table, rows_of.header, has_header=table.has_header)
        yield _Sink(write, table.commit, table.rows, table.entries)


def _digest(model: MolAttn) -> str:
    """Return a SHA-256 of all that a model predicts with, in hexadecimal."""
    digest = sha256()
    for name, content in sorted(model.to_files(Path()).content.items()):
        digest.update(f"{name} {len(content)} ".encode() + content)
    return digest.hexdigest()


def _renamed(columns: Mapping[str, str], taken: Sequence[str]) -> dict[str, str]:
    """Return columns with an underscore after each name that a column before them has."""
    names, renamed = list(taken), dict[str, str]()
    for name, kind in columns.items():
        names.append(free_name(name, names))
        renamed[names[-1]] = kind
    return renamed


def open_with_model(
    source: str | Path | Table,
    model_folder: str | Path | MolAttn,
    config: TableConfig,
    console: Console,
) -> tuple[Table, MolAttn]:
    """Open a table and load a model; print remarks on the table, such as the detected separator.

    Raises:
        InputError: The table has no such SMILES column, or there is no such model.
    """
    table = open_table(source)
    table.column(config.smiles_column, "--smiles-column")  # before a model is loaded
    for remark in table.remarks:
        print_line(console, f"{table.path}: {remark}")
    if isinstance(model_folder, MolAttn):
        return table, model_folder
    return table, MolAttn.from_pretrained(find_local_model(model_folder))


def molecule_batches(
    table: Table,
    model: MolAttn,
    config: TableConfig,
    *,
    start: int = 0,
    num_workers: int = 0,
    block_rows: int | None = None,
    **reads: bool,
) -> Iterator[list[ReadRow]]:
    """Read the rows of a table for a model, in batches that fit into memory.

    The first ``start`` rows are left out. The rows are read in ``num_workers`` processes, or for 0
    in this one. No batch goes beyond a multiple of ``block_rows``. The other arguments are those of
    :class:`OutputSpec`.

    Raises:
        InputError: A column that the model needs is missing.
        MolattnError: A worker process was killed.
    """
    reader = _row_reader(table, model, config, **reads)
    blocks = parallel_map(reader, _Blocks(table, start, _ROWS_AT_ONCE), num_workers)
    rows = chain.from_iterable(blocks)
    for _, part in groupby(rows, lambda row: block_rows and (row.number - 1) // block_rows):
        yield from batches(part, config.batch_size, lambda row: row.record)


def _row_reader(
    table: Table,
    model: MolAttn,
    config: TableConfig,
    *,
    reads_numbers: bool = True,
    reads_similarity: bool = False,
    reads_symbols: bool = False,
) -> "_RowReader":
    places = _find_columns(table, config, model.config, reads_numbers)
    table.check_featurizer(model.config.featurizer)
    options = {
        "featurizer": model.config.featurizer,
        "calculator": model.config.calculator if reads_numbers else None,
        "fingerprints": reads_similarity,
        "counter": model.config.counter if reads_numbers else None,
        "symbols": reads_symbols,
        "remember": _PARTNERS_KEPT,
        "limits": config,
        "standardize": model.config.standardize,
    }
    return _RowReader(places, options)


class _Places(NamedTuple):
    """Column numbers of a model's inputs."""

    smiles: int
    partner: int | None
    features: list[int]


def _find_columns(
    table: Table, config: TableConfig, model: MolAttnConfig, reads_numbers: bool
) -> _Places:
    if config.partner_column is not None and not model.has_partner:
        raise InputError(
            "--partner-column cannot be used with this model, which takes one molecule per row"
        )
    partner = config.partner_column or model.partner_column
    features = model.features if reads_numbers else ()
    return _Places(
        table.column(config.smiles_column, "--smiles-column"),
        None if partner is None else table.column(partner, "--partner-column"),
        [table.column(name, "a feature of the model") for name in features],
    )


@dataclass
class _Blocks:
    """The rows of a table after the first ``start``, up to each multiple of ``size``."""

    table: Table
    start: int
    size: int

    def __iter__(self) -> Iterator[list[tuple[int, Row]]]:
        rows = islice(enumerate(self.table, start=1), self.start, None)
        done = self.start
        while block := list(islice(rows, self.size - done % self.size)):
            yield block
            done += len(block)


@dataclass
class _RowReader:
    """Reads the molecules of blocks of rows, in any process."""

    places: _Places
    options: dict[str, Any]

    def __call__(self, block: Sequence[tuple[int, Row]]) -> list[ReadRow]:
        return [*self._rows(block)]

    @cached_property
    def _reader(self) -> MoleculeReader:  # which cannot be pickled
        return MoleculeReader(**self.options)

    def _rows(self, block: Sequence[tuple[int, Row]]) -> Iterator[ReadRow]:
        whole = [row for _, row in block if row.fault is None]
        texts, partners = (
            None if place is None else [row.cells[place] for row in whole]
            for place in (self.places.smiles, self.places.partner)
        )
        records = self._reader(texts or (), partners)
        for place, row in block:
            if row.fault is not None:
                yield ReadRow(place, row, "", None, [], row.code)
                continue
            smiles, record = row.cells[self.places.smiles], next(records)
            features, code = _features(row, self.places.features)
            if isinstance(record, SmilesError):
                record, code = None, record.code
            yield ReadRow(place, row, smiles, None if code else record, features, code)


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
