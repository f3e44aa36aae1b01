"""A function mapped over a table, block by block, in constant memory."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, TypeVar, Union

import torch
from rich.console import Console

from molattn.chem.limits import read_mol_block
from molattn.chem.parse import Molecule, mol_of_mol_block
from molattn.chem.reader import Fields
from molattn.config import WORKER_OPTIONS, StreamConfig, TableConfig
from molattn.data.dataset import print_missing
from molattn.data.labels import LabelError, is_missing, number
from molattn.data.table import (
    FORMATS,
    Row,
    Table,
    escape_formula,
    free_name,
    listed,
    name_column,
    open_table,
    output_format,
    output_schema,
)
from molattn.errors import InputError, ReasonCode, SmilesError, reason_meaning
from molattn.inference.parts import Tally, open_output
from molattn.model.artefact import find_model
from molattn.model.columns import cell_text, standardized_cells, standardized_columns
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.networks import batches
from molattn.model.overview import Conversion, OverviewColumn, molar_mass
from molattn.model.readable import Heading
from molattn.record import MoleculeRecord
from molattn.utils.console import print_line, print_remarks, row_progress
from molattn.utils.devices import check_device, threads, torch_device, without_onednn
from molattn.utils.workers import check_ray, worker_map
from molattn.version import package_versions

_BLOCK_ROWS = 64  # rows of a block, or more: whole batches
_ROWS_FOR_WORKERS = 5000  # a worker starts in the time of 2,000 rows
_MOST_WORKERS = 8
_MOST_COLUMNS = 12  # of an overview, and of a table without one

Stream = TypeVar("Stream", bound=StreamConfig)
Cells = Sequence[Union[float, int, str, None]]


class RowCounts(NamedTuple):
    """Number of input rows with an output, and number of input rows with an error."""

    done: int
    errors: int

    @property
    def total(self) -> int:
        """The number of input rows."""
        return self.done + self.errors

    @classmethod
    def of(cls, tally: Tally) -> "RowCounts":
        """Return the row counts in a tally of :func:`map_table`."""
        return cls(tally.with_output, tally.errors.total())


class ReadRow(NamedTuple):
    """A row of a table, and the molecule in it.

    ``record`` is None if it is invalid, ``code`` then the reason; ``features`` are those of columns
    of the table, and ``molecule`` is what was read: the SMILES, or the molecule of a mol block.
    """

    table_row: Row
    smiles: str
    record: MoleculeRecord | None
    features: list[float]
    code: ReasonCode | Literal[""]
    molecule: Molecule = ""


@dataclass(frozen=True)
class OutputSpec:
    """What a model computes for each molecule of a table.

    ``columns`` have Arrow types, such as ``float64``. ``compute`` returns the output rows of each
    molecule or a reason code, given rows and their ``fields``; with ``numbers`` also the feature
    columns of the model. They come after the columns of the input, or else the ``line`` of the row.
    Tables for people have ``headings``, may begin with drawings of ``structures``, and have an
    ``overview``, whose first properties are chosen first, where they have many columns; and the
    predictions of some tasks in another unit, by ``conversions``.
    """

    verb: str
    columns: Mapping[str, str]
    compute: Callable[
        [Sequence[ReadRow], list[MoleculeRecord]], Iterable[Sequence[Cells] | ReasonCode]
    ]
    fields: Fields
    keeps_columns: bool = True
    headings: Mapping[str, Heading] = field(default_factory=dict[str, Heading])
    structures: bool = False
    overview: Sequence[OverviewColumn] = ()
    conversions: Mapping[str, Conversion] = field(default_factory=dict[str, Conversion])


TallyRows = Callable[[Sequence[tuple[ReadRow, Cells]]], Tally]
"""Counts more of rows with an output, given their cells and those of their output."""


def map_table(
    table: Table,
    model: MolAttn,
    output: str | Path | IO[bytes],
    spec: OutputSpec,
    config: StreamConfig,
    console: Console | None = None,
    count: TallyRows | None = None,
) -> Tally:
    """Apply a model to every row of a table.

    Each row gives one or more output rows, in order. The last column, ``error``, is the reason code
    of a row without output; a column with the name of one of the table gets an underscore. The file
    is written completely or not at all; if that is interrupted, ``config.resume`` goes on with it.
    Blocks of whole batches are computed by the workers that the options name, with the same result.

    Returns what was counted in all rows, also by ``count``, those before an interruption included.
    """
    start = time.perf_counter()
    output = Path(output) if isinstance(output, str) else output
    console = console or Console(quiet=True)
    reader = _RowReader(table, model.config, config, spec.fields, console)
    rows = OutputRows(table, model, spec, config, output)
    apply = partial(_apply, model, spec, config, reader, rows, count)
    size = config.batch_size * -(-_BLOCK_ROWS // config.batch_size)
    blocks = partial(_blocks, table, size)
    identity = partial(_identity, model, table, config)
    total = None if console.quiet else table.count()
    with (
        open_output(output, rows.header, rows.schema, identity, config.resume, console) as file,
        row_progress(console, spec.verb, total, done=file.rows) as advance,
        closing(worker_map(apply, blocks(file.rows), config, config.threads)) as output_blocks,
    ):
        for written, tally in output_blocks:
            for cells, structure in written:
                file.write(cells, structure)
            counts = RowCounts.of(tally)
            now = time.perf_counter()
            tally.seconds = now - start
            start = now
            file.commit(counts.total, tally)
            advance(counts.total, counts.errors)
    _print_counts(file.tally, model, console)
    return file.tally


def with_workers(config: Stream, table: Table) -> Stream:
    """Return options with a number of workers in place of ``auto``.

    Only for a program whose main module may be imported again, as that of the commands: each worker
    does that, and has a copy of the model (0.6 GB).
    """
    if config.num_workers != "auto":
        return config
    is_alone = config.engine == "ray" or torch_device(config.device) != "cpu"
    if is_alone or sum(1 for _ in islice(table, _ROWS_FOR_WORKERS)) < _ROWS_FOR_WORKERS:
        return replace(config, num_workers=0)
    from joblib import cpu_count

    count = cpu_count(only_physical_cores=True) // config.threads
    return replace(config, num_workers=0 if count < 2 else min(count, _MOST_WORKERS))


def _blocks(table: Table, size: int, start: int = 0) -> Iterator[list[Row]]:
    """Yield the rows of a table after the first ``start``, in blocks."""
    rows = islice(table, start, None)
    while block := list(islice(rows, size)):
        yield block


def _apply(
    model: MolAttn,
    spec: OutputSpec,
    config: StreamConfig,
    reader: "_RowReader",
    rows: "OutputRows",
    count: TallyRows | None,
    block: Sequence[Row],
) -> tuple[list[tuple[list[object], str]], Tally]:
    """Return the output rows of a block and their counts."""
    with inference_context(model, config.threads, in_bf16=config.precision == "bf16"):
        computed_rows = [*compute_rows(spec, [*reader.read(block)])]
    valid_rows = [(row, cells[0]) for row, cells, code in computed_rows if not code]
    tally = Tally(
        with_output=len(valid_rows),
        errors=Counter(code for *_, code in computed_rows if code),
        groups=sum(row.table_row.has_stereo_groups(row.smiles) for row, _ in valid_rows),
        parents=sum(has_parent(row, model) for row, _ in valid_rows),
        redrawn=sum(bool(row.record and row.record.is_redrawn) for row, _ in valid_rows),
    )
    if count is not None:
        tally.add(count(valid_rows))
    return [row for computed_row in computed_rows for row in rows.cells(*computed_row)], tally


@contextmanager
def inference_context(model: MolAttn, num_threads: int, *, in_bf16: bool = False) -> Iterator[None]:
    """Compute within the block with some threads, and in mixed precision if asked for.

    oneDNN saves 14% of the time of the default model, and costs 20 MB (12,000 molecules). Where all
    pairs are updated too it saves no time, and costs 270 MB (8,000 molecules, a small model).
    """
    updates_pairs = model.config.network.update_edges and not in_bf16
    device = next(model.parameters()).device.type
    with (
        threads(num_threads),
        without_onednn() if updates_pairs else nullcontext(),
        torch.autocast(device, torch.bfloat16, enabled=in_bf16),
    ):
        yield


def compute_rows(
    spec: OutputSpec, rows: Sequence[ReadRow]
) -> Iterator[tuple[ReadRow, Sequence[Cells], str]]:
    """Yield each row with its output rows and reason code."""
    readable = [row for row in rows if row.record is not None]
    records = [row.record for row in rows if row.record is not None]
    results = iter(spec.compute(readable, records) if readable else ())
    empty_cells = [[None] * len(spec.columns)]
    for row in rows:
        cells_or_code = row.code if row.record is None else next(results)
        if isinstance(cells_or_code, str):
            yield row, empty_cells, cells_or_code
        else:
            yield row, cells_or_code, ""


class OutputRows:
    """The rows of an output; ``schema`` has the types of columns, if its format has types."""

    def __init__(
        self,
        table: Table,
        model: MolAttn,
        spec: OutputSpec,
        config: StreamConfig,
        output: Path | IO[bytes],
    ) -> None:
        self._model = model.config
        self._keeps_columns = spec.keeps_columns
        self._is_readable = bool(spec.headings)
        types = spec.columns if spec.keeps_columns else {"row": "int64", **spec.columns}
        header = list(table.header) if spec.keeps_columns else []
        new = dict[str, str]()
        numbers = dict.fromkeys((f"{name}_converted" for name in spec.conversions), "float64")
        names = [*types, *numbers, *standardized_columns(model.config), "error"]
        for name in names:
            header.append(free_name(name, header))
            new[header[-1]] = {**types, **numbers}.get(name, "string")
        columns = [*spec.columns]
        indices = {name: columns.index(f"{name}_predicted") for name in spec.conversions}
        self._conversions = [
            (indices[name], unit, name in model.config.written_tasks)
            for name, unit in spec.conversions.items()
        ]
        self.schema = output_schema(output, table if spec.keeps_columns else None, new)
        if spec.headings or spec.structures:
            named = {
                column: spec.headings.get(name) for column, name in zip(new, names, strict=True)
            }
            facts = {"headings": named, "structures": spec.structures, "error": header[-1]}
            written = dict(zip(names, new, strict=True))
            facts["overview"] = _overview(table, spec, config, header, written)
            facts["grades"] = {
                written[column.colored_by]: written[column.grade]
                for column in spec.overview
                if column.grade
            }
            self.schema = self.schema.with_metadata({"readable": json.dumps(facts)})
        escapes = config.escape_formulas and output_format(output).runs_formulas
        self._escape = escape_formula if escapes else str
        self.header = [self._escape(name) for name in header]

    def cells(
        self, row: ReadRow, results: Sequence[Cells], code: str
    ) -> Iterator[tuple[list[object], str]]:
        """Yield the cells of a row, given what :func:`compute_rows` yields, with a structure.

        The structure is what :meth:`molattn.data.table.TableWriter.write` takes.
        """
        source = row.table_row
        row_cells = list[object]([row.table_row.line])
        structure = ""
        if code and self._is_readable:
            code = f"{code}: {source.reason or reason_meaning(row.code or code)}"
        if self._keeps_columns:
            has_types = self.schema is not None
            texts = map(self._escape, source.cells)
            row_cells = [*(source.values or source.cells)] if has_types else [*texts]
            structure = source.block or ("" if code else row.smiles)
        forms = standardized_cells(row.record, self._model)
        for cells in results:
            more = [*cells, *self._converted(row, cells), *forms]
            texts = more
            if self.schema is None:
                texts = [self._escape(cell_text(cell)) for cell in more]
            yield [*row_cells, *texts, code], structure

    def _converted(self, row: ReadRow, cells: Cells) -> list[float | None]:
        values = [(cells[index], unit, is_written) for index, unit, is_written in self._conversions]
        if row.record is None or not values:
            return [None] * len(values)
        forms = row.record.standardized or row.smiles, row.smiles
        masses = {smiles: molar_mass(smiles) for smiles in {*forms}}
        return [
            unit.convert(value, masses[forms[is_written]]) if isinstance(value, float) else None
            for value, unit, is_written in values
        ]


def _overview(
    table: Table,
    spec: OutputSpec,
    config: StreamConfig,
    header: Sequence[str],
    new: Mapping[str, str],
) -> list[dict[str, Any]]:
    """Return the columns of an overview of a table, none of a table with few columns.

    They are the drawing or SMILES, the name, and as many properties as there is space for.
    ``header`` are the columns of the table, and ``new`` of each column of the output.
    """
    details = [name for name, heading in spec.headings.items() if heading.is_detail]
    is_narrow = len(header) - len({*details} & {*spec.columns}) <= _MOST_COLUMNS
    if is_narrow or not spec.overview:
        return []
    smiles = table.column(config.smiles_column, "--smiles-column")
    columns = [{"title": "Structure", "index": -1}]
    if not spec.structures:
        columns = [{"title": header[smiles], "index": smiles}]
    if (name := name_column(table.header)) is not None:
        columns.append({"title": header[name], "index": name})
    for column in spec.overview[: _MOST_COLUMNS - len(columns)]:
        index, colored_by, grade = (
            header.index(new[name]) if name else -1
            for name in (column.column, column.colored_by, column.grade)
        )
        columns.append(
            {
                "title": column.title,
                "index": index,
                "colored_by": colored_by,
                "grade": grade,
                "ranges": spec.headings[column.colored_by].ranges,
                "percent": column.is_probability,
            }
        )
    return columns


class _RowReader:
    """Reads the molecules of blocks of rows for a model, in any process."""

    def __init__(
        self,
        table: Table,
        model: MolAttnConfig,
        config: TableConfig,
        fields: Fields,
        console: Console | None = None,
    ) -> None:
        if config.partner_column is not None and not model.has_partner:
            raise InputError("the model takes one molecule per row", option="partner_column")
        table.check_featurizer(model.featurizer)
        self._reader = model.reader(fields, config)
        self._in_order = fields.symbols or bool(model.site_tasks)
        self._smiles = table.column(config.smiles_column, "--smiles-column")
        partner = config.partner_column or model.partner_column
        self._partner = None if partner is None else table.column(partner, "--partner-column")
        print_missing(table, self._reader, console, has_partner=partner is not None)
        features = () if fields.numbers is None else model.features
        self._features = [table.column(name, "a feature of the model") for name in features]
        self._inputs = [self._smiles, *self._features]
        self._inputs += [] if self._partner is None else [self._partner]

    def read(self, block: Sequence[Row]) -> Iterator[ReadRow]:
        """Yield the rows of a block with their molecules."""
        block = [row.checked(self._inputs) for row in block]
        valid_rows = [row for row in block if not row.code]
        molecules = [row.structure(self._smiles) for row in valid_rows]
        if self._in_order:  # in the order of a mol block
            molecules = [
                (row.block and read_mol_block(row.block, mol_of_mol_block)) or structure
                for row, structure in zip(valid_rows, molecules, strict=True)
            ]
        partners = (
            None if self._partner is None else [row.cells[self._partner] for row in valid_rows]
        )
        records = zip(molecules, self._reader(molecules, partners), strict=True)
        for row in block:
            if row.code:
                yield ReadRow(row, "", None, [], row.code)
                continue
            molecule, record = next(records)
            features, code = _features([row.numeral(column) for column in self._features])
            if isinstance(record, SmilesError):
                code = record.code
                record = None
            read_record = None if code else record
            yield ReadRow(row, row.cells[self._smiles], read_record, features, code, molecule)


def has_parent(row: ReadRow, model: MolAttn) -> bool:
    """Return whether the parent of a molecule is read in its place."""
    both = (row.record, row.record and row.record.partner)
    return model.config.standardize == "parent" and any(
        record and record.standardized for record in both
    )


def _features(cells: Sequence[str]) -> tuple[list[float], ReasonCode | Literal[""]]:
    if any(map(is_missing, cells)):
        return [], "missing_feature"
    try:
        return [*map(number, cells)], ""
    except LabelError:
        return [], "bad_feature"


def molecule_batches(
    table: Table, model: MolAttn, config: TableConfig, fields: Fields
) -> Iterator[list[ReadRow]]:
    """Read the rows of a table for a model, in batches that fit into memory."""
    reader = _RowReader(table, model.config, config, fields)
    rows = chain.from_iterable(map(reader.read, _blocks(table, _BLOCK_ROWS)))
    return batches(rows, config.batch_size, lambda row: row.record)


def open_with_model(
    source: str | Path | Table,
    model_folder: str | Path | MolAttn,
    config: TableConfig,
    console: Console | None,
    output: str | Path | IO[bytes] | None = None,
) -> tuple[Table, MolAttn]:
    """Open a table, check the output and load a model; print remarks on table and model."""
    table = open_table(source, options=config)
    if output is not None and isinstance(config, StreamConfig):
        _check_output(table, Path(output) if isinstance(output, str) else output, config)
    table.column(config.smiles_column, "--smiles-column")  # before a model is loaded
    model = model_folder
    if not isinstance(model, MolAttn):
        check_device(config.device)
        model = MolAttn.from_pretrained(find_model(model)).to(torch_device(config.device))
    table.use(config, *model.config.input_columns)
    table.column(config.smiles_column, "--smiles-column")
    for remark in table.remarks:
        print_line(console, f"{table.path}: {remark}")
    if remark := model.inputs_remark():
        print_line(console, remark)
    return table, model.as_given() if config.as_given else model


def _check_output(table: Table, output: Path | IO[bytes], config: StreamConfig) -> None:
    if config.engine == "ray":
        check_ray(config.ray_address)
    is_file = isinstance(output, Path)
    if config.resume and not (is_file and output_format(output).is_resumable):
        names = ", ".join(
            table_format.name
            for table_format in FORMATS.values()
            if table_format.write and table_format.is_resumable
        )
        raise InputError(f"expected an --output that is a file in one of {names}", option="resume")
    output_format(output)
    if is_file and output.exists() and table.path.exists() and output.samefile(table.path):
        raise InputError(f"{output} is the input file; expected another file", option="output")


def _identity(model: MolAttn, table: Table, config: StreamConfig) -> dict[str, Any]:
    """Return what identifies a run, see :func:`molattn.inference.parts.open_output`."""
    files = sorted(model.to_files().content.items())
    return {
        "model": sha256(b"".join(content for _, content in files)).hexdigest(),
        "input": table.digest(),
        "options": {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(config).items()
            if name not in (*WORKER_OPTIONS, "resume")
        },
        "versions": package_versions(),
    }


def _print_counts(tally: Tally, model: MolAttn, console: Console) -> None:
    remarks = tally.errors, tally.groups, tally.parents, tally.redrawn, model.config.written_tasks
    print_remarks(console, *remarks)
    if tally.errors and not tally.with_output:
        hint = "if the SMILES are in another column, name it with --smiles-column"
        if tally.errors.most_common(1)[0][0] in ("bad_feature", "missing_feature"):
            hint = f"expected a number in each column {listed(model.config.features)}"
        print_line(console, f"every row has an error; {hint}")
