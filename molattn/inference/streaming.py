"""Application of a model to a table, row by row, in constant memory."""

import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
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
    Row,
    Structure,
    Table,
    check_output,
    check_resumable,
    escape_formula,
    free_name,
    has_stereo_groups,
    is_resumable,
    listed,
    open_table,
    output_schema,
    row_writer,
    runs_formulas,
    write_table,
)
from molattn.errors import InputError, ReasonCode, SmilesError, is_out_of_memory
from molattn.inference.unfinished import Entry, UnfinishedRun, unfinished_table
from molattn.model.artefact import find_local_model
from molattn.model.batching import batches
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
    "RowCounts",
    "Streamed",
    "computed",
    "molecule_batches",
    "open_with_model",
    "stream_table",
]

_ROWS_AT_ONCE = 64
_ROWS_PER_ENTRY = 64  # or as many batches as have more
_NOT_OF_THE_OUTPUT = (*WORKER_OPTIONS, "resume")  # options

Cells = Sequence[Union[float, int, str, None]]


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
        molecule: What was read: the SMILES, or the RDKit molecule of a mol block.
    """

    number: int
    row: Row
    smiles: str
    record: MoleculeRecord | None
    features: list[float]
    code: ReasonCode | Literal[""]
    molecule: Molecule = ""


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
        reads_atoms: Whether the output is by atom: records then have the symbols and numbers of
            the atoms, which are in the order of the SMILES or of the mol block.
        keeps_columns: Whether the output begins with the columns of the input; otherwise with the
            row number, as when molecules have several output rows.
        remarks: Lines to print before the first row.
        take_found: Returns what was found since the last call, as JSON types.
    """

    verb: str
    columns: Mapping[str, str]
    compute: Callable[[Sequence[ReadRow]], Iterable[Sequence[Cells] | ReasonCode]]
    reads_numbers: bool = True
    reads_similarity: bool = False
    reads_atoms: bool = False
    keeps_columns: bool = True
    remarks: Sequence[str] = ()
    take_found: Callable[[], Any] = lambda: None

    @property
    def reads(self) -> dict[str, bool]:
        """What :func:`molecule_batches` reads for it."""
        names = ("reads_numbers", "reads_similarity", "reads_atoms")
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
        forms = standardized_cells(molecule.record, self._model)
        return self.joined(molecule.number, molecule.row, rows, forms, code)

    def joined(
        self, number: int, row: Row, rows: Sequence[Cells], forms: Sequence[str | None], code: str
    ) -> Iterator[list[object]]:
        """Yield the rows of a row of the table, given its number and the standardized SMILES."""
        own = self._own(number, row, code)
        for cells in rows:
            new: Iterable[object] = [*cells, *forms]
            if self.schema is None:
                new = [self._escape(_text(cell)) for cell in (*cells, *forms)]
            yield [*own, *new, code]

    def _own(self, number: int, row: Row, code: str) -> Sequence[object]:
        if not self._keeps_columns:
            return [number]
        if self.schema is not None:
            return row.values or row.cells
        own = [
            cell
            if isinstance(cell, Structure) or (place in self._molecules and not code)
            else self._escape(cell)
            for place, cell in enumerate(row.cells)
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
    take_found: Callable[[Any], None] = lambda found: None,
) -> "Streamed":
    """Apply a model to every row of a table.

    Each row gives one or more output rows, in order. The last column, ``error``, is the reason code
    of a row without output; a column with the name of one of the table gets an underscore. The file
    is written completely or not at all. If that is interrupted, ``config.resume`` goes on with it,
    see :mod:`molattn.inference.unfinished`.

    The table is divided into blocks of rows, each of whole batches, which are read and computed in
    ``config.num_workers`` processes that have a copy of the model each, with the same result. The
    arguments that are not listed are those of :func:`molattn.inference.predict_table`.

    Args:
        model_folder: See there.
        source: See there.
        output: See there.
        make_spec: Makes the output of a model, also in the other processes: with these it must be
            possible to pickle it.
        config: See there.
        console: See there.
        take_found: Takes what ``take_found`` of the output returned for each block, those before an
            interruption included.

    Returns:
        The counts of all rows and the time, those before an interruption included.

    Raises:
        InputError: The model, the table or the output cannot be used.
        MolattnError: A worker process was killed.
    """
    start = time.perf_counter()
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
    if isinstance(output, Path) and path.resolve() in output.resolve().parents and is_store(path):
        raise InputError(f"{output}: --output is in the store that is read; expected another place")
    spec = make_spec(model)
    rows_of = OutputRows(table, model, spec, config, output)
    places = _find_columns(table, config, model.config, spec.reads_numbers)
    table.check_featurizer(model.config.featurizer)

    def run() -> UnfinishedRun:
        options = {
            name: list(value) if isinstance(value, tuple) else value  # as JSON has them
            for name, value in asdict(config).items()
            if name not in _NOT_OF_THE_OUTPUT
        }
        return UnfinishedRun(
            _digest(model), table.digest(), options, rows_of.header, package_versions()
        )

    for remark in spec.remarks:
        print_line(console, remark)
    done, errors, seconds, groups = 0, Counter[str](), 0.0, 0
    with (
        _open_output(output, rows_of, run, config.resume, console) as sink,
        row_progress(
            console, spec.verb, None if console.quiet else table.count(), done=sink.rows
        ) as advance,
        ExitStack() as stack,
    ):
        for entry in sink.entries:
            take_found(entry["found"])
            done, errors = entry["done"], Counter(entry["errors"])
            # Earlier versions kept the seconds of each entry, with what was found.
            seconds = entry.get("seconds", seconds + (entry["found"] or {}).get("seconds", 0.0))
        start -= seconds

        def commit(found: Any) -> None:
            entry = {"done": done, "errors": errors, "found": found, "seconds": seconds}
            sink.commit(done + errors.total(), entry)

        size = config.batch_size * -(-_ROWS_PER_ENTRY // config.batch_size)
        apply = _Application(model, make_spec, config, places)
        blocks = _applied(apply, _Blocks(table, sink.rows, size), console)
        for block, computed_block in stack.enter_context(closing(blocks)):
            refused = errors.total()
            for (number, row), molecule in zip(block, computed_block.rows, strict=True):
                for cells in rows_of.joined(number, row, *molecule):
                    sink.write(cells)
                done += not molecule.code
                groups += not molecule.code and has_stereo_groups(row.cells[places.smiles])
                errors.update([molecule.code] if molecule.code else [])
            take_found(computed_block.found)
            seconds = time.perf_counter() - start
            commit(computed_block.found)
            advance(len(block), errors.total() - refused)
        if not done + errors.total():
            commit(spec.take_found())  # the header alone
    print_errors(errors, console)
    print_groups(groups, console)
    if errors and not done:
        hint = "if the SMILES are in another column, name it with --smiles-column"
        if errors.most_common(1)[0][0] in ("bad_feature", "missing_feature"):
            hint = f"expected a number in each column {listed(model.config.features)}"
        print_line(console, f"every row has an error; {hint}")
    return Streamed(RowCounts(done, errors.total()), time.perf_counter() - start, model)


def _applied(
    apply: "_Application", blocks: "_Blocks", console: Console
) -> Generator[tuple[list[tuple[int, Row]], "_ComputedBlock"], None, None]:
    """Yield each block with what is computed for it, in this process or by workers."""
    config = apply.config
    if config.engine == "ray":
        computed_blocks = ray_map(
            apply,
            replace(blocks, keeps_values=False),
            config.num_workers,
            address=config.ray_address,
            threads=config.threads,
            report=partial(print_line, console),
        )
        with closing(computed_blocks):
            yield from zip(blocks, computed_blocks, strict=True)
        return
    sent: deque[list[tuple[int, Row]]] = deque()

    def send() -> Iterator[list[tuple[int, Row]]]:
        for block in blocks:
            sent.append(block)
            yield _without_values(block)

    with closing(parallel_map(apply, send(), config.num_workers)) as computed_blocks:
        for computed_block in computed_blocks:
            yield sent.popleft(), computed_block


class Streamed(NamedTuple):
    """What :func:`stream_table` has done, the seconds that it took, and the model."""

    counts: RowCounts
    seconds: float
    model: MolAttn


class _ComputedRow(NamedTuple):
    """The output rows of a row of a table, its standardized SMILES and its reason code."""

    rows: Sequence[Cells]
    forms: Sequence[str | None]
    code: str


class _ComputedBlock(NamedTuple):
    """The rows of a block, and what was found in them."""

    rows: list[_ComputedRow]
    found: Any


@dataclass
class _Application:
    """Applies a model to blocks of rows, in any process."""

    model: MolAttn
    make_spec: Callable[[MolAttn], OutputSpec]
    config: StreamConfig
    places: "_Places"

    def __call__(self, block: Sequence[tuple[int, Row]]) -> _ComputedBlock:
        # oneDNN saves 14% of the time of the default model, and costs 20 MB (12,000 molecules).
        # Where all pairs are updated too it saves no time, and costs 270 MB (8,000 molecules, a
        # small model).
        in_bf16 = self.config.precision == "bf16"
        updates_pairs = self.model.config.network.update_edges and not in_bf16
        with (
            threads(self.config.threads),
            without_onednn() if updates_pairs else nullcontext(),
            torch.autocast(self._device, torch.bfloat16, enabled=in_bf16),
        ):
            rows = [
                _ComputedRow([*rows], standardized_cells(molecule.record, self.model.config), code)
                for batch in batches(
                    self._read(block), self.config.batch_size, lambda row: row.record
                )
                for molecule, rows, code in computed(self._spec, batch)
            ]
        return _ComputedBlock(rows, self._spec.take_found())

    @cached_property
    def _device(self) -> str:
        return next(self.model.parameters()).device.type

    @cached_property
    def _spec(self) -> OutputSpec:
        return self.make_spec(self.model)

    @cached_property
    def _read(self) -> "_RowReader":
        return _row_reader(self.model, self.config, self.places, **self._spec.reads)


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
    table: Table,
    model: MolAttn,
    config: TableConfig,
    *,
    reads_numbers: bool = True,
    reads_similarity: bool = False,
    reads_atoms: bool = False,
) -> Iterator[list[ReadRow]]:
    """Read the rows of a table for a model, in batches that fit into memory.

    The other arguments are those of :class:`OutputSpec`.

    Raises:
        InputError: A column that the model needs is missing.
    """
    places = _find_columns(table, config, model.config, reads_numbers)
    table.check_featurizer(model.config.featurizer)
    reads = {"reads_similarity": reads_similarity, "reads_atoms": reads_atoms}
    read = _row_reader(model, config, places, reads_numbers=reads_numbers, **reads)
    rows = chain.from_iterable(map(read, _Blocks(table, 0, _ROWS_AT_ONCE)))
    return batches(rows, config.batch_size, lambda row: row.record)


def _row_reader(
    model: MolAttn,
    config: TableConfig,
    places: "_Places",
    *,
    reads_numbers: bool,
    reads_similarity: bool,
    reads_atoms: bool,
) -> "_RowReader":
    reader = MoleculeReader(
        model.config.featurizer,
        Fields(
            numbers=model.config.calculator if reads_numbers else None,
            counts=model.config.counter if reads_numbers else None,
            fingerprint=reads_similarity,
            symbols=reads_atoms,
        ),
        limits=config,
        standardize=model.config.standardize,
        radius=model.config.network.radius,
    )
    return _RowReader(places, reader, reads_atoms)


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
    """The rows of a table after the first ``start``, with their numbers, ``size`` at a time."""

    table: Table
    start: int
    size: int
    keeps_values: bool = True

    def __iter__(self) -> Iterator[list[tuple[int, Row]]]:
        rows = islice(enumerate(self.table, start=1), self.start, None)
        while block := list(islice(rows, self.size)):
            yield block if self.keeps_values else _without_values(block)


def _without_values(block: Sequence[tuple[int, Row]]) -> list[tuple[int, Row]]:
    return [(number, row._replace(values=None)) for number, row in block]


@dataclass
class _RowReader:
    """Reads the molecules of blocks of rows."""

    places: _Places
    read: MoleculeReader
    in_order: bool

    def __call__(self, block: Sequence[tuple[int, Row]]) -> Iterator[ReadRow]:
        whole = [row for _, row in block if row.fault is None]
        texts, partners = (
            None if place is None else [row.cells[place] for row in whole]
            for place in (self.places.smiles, self.places.partner)
        )
        molecules = [_in_order(text) if self.in_order else text for text in texts or ()]
        records, read = self.read(molecules, partners), iter(molecules)
        for place, row in block:
            if row.fault is not None:
                yield ReadRow(place, row, "", None, [], row.code)
                continue
            smiles, record = row.cells[self.places.smiles], next(records)
            features, code = _features(row, self.places.features)
            if isinstance(record, SmilesError):
                record, code = None, record.code
            found = None if code else record
            yield ReadRow(place, row, smiles, found, features, code, next(read))


def _in_order(cell: str) -> Molecule:
    """Return the molecule of a mol block, its atoms in order; the cell if it has none."""
    block = cell.block if isinstance(cell, Structure) else None
    return (block and read_mol_block(block, mol_of_mol_block)) or cell


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
