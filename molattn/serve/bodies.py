"""Bodies of requests: JSON, and tables that are kept in a temporary file."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError
from pydantic.json_schema import SkipJsonSchema
from starlette.requests import ClientDisconnect

from molattn.config import ServeConfig
from molattn.config.data import Decimal
from molattn.data.table import Row, Source, Table, open_table, with_found_structures
from molattn.errors import InputError, MolattnError, quoted
from molattn.explain import METHODS
from molattn.serve.catalog import LEVEL, ServedModel
from molattn.serve.guard import APIError, Error

JSON = "application/json"
CSV = "text/csv"
EXCEL = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
SDF = "chemical/x-mdl-sdfile"
FILES = {
    CSV: "csv",
    "text/tab-separated-values": "tsv",
    EXCEL: "xlsx",
    "application/vnd.apache.parquet": "parquet",
    SDF: "sdf",
    "chemical/x-daylight-smiles": "smi",
}
"""Content types of files, each with the format (:data:`molattn.data.table.FORMATS`)."""

DIFFERENCE_FROM = "difference_from"
_MOST_JSON = 20_000_000  # bytes: it is kept in memory
_MOST_SECONDS = 300.0  # for a body

_Level = Annotated[float, Field(gt=0, lt=1, description="Level of the intervals.")]
_Neighbors = Annotated[int, Field(ge=0, le=10, description="Number of nearest training molecules.")]
_AsGiven = Annotated[
    bool, Field(description="Read molecules as written, where the model predicts parents.")
]
_Model = Annotated[str | None, Field(description="Name of the model; by default the first.")]

Body = TypeVar("Body", bound=BaseModel)
Result = TypeVar("Result")


class _Query(BaseModel):
    model_config = ConfigDict(extra="forbid")


class TableOptions(_Query):
    """The model that has predicted a table, and how."""

    # Defaults in the document would be sent by its page, with JSON too.
    model: str | SkipJsonSchema[None] = Field(None, description="By default the first model.")
    level: _Level = Field(default_factory=lambda: LEVEL)
    as_given: _AsGiven = Field(default_factory=bool)
    smiles_column: str = Field(
        default_factory=lambda: "smiles", description="Of a file; by default `smiles`."
    )


class PredictOptions(TableOptions):
    """Parameters of the address, for bodies other than JSON."""

    neighbors: _Neighbors = Field(default_factory=int)
    cells: bool = Field(
        default_factory=bool, description="Add to JSON the row of each molecule in the CSV file."
    )
    decimal: Decimal = Field(default_factory=lambda: ".", description="Of a file.")
    sheet: str | SkipJsonSchema[None] = Field(
        None, description="Of an Excel file; by default the first with the columns."
    )
    header_row: Annotated[int, Field(ge=1)] | SkipJsonSchema[None] = Field(
        None, description="Of an Excel file; by default the first with the columns."
    )


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class PredictRequest(_Strict):
    """Molecules to predict."""

    model: _Model = None
    smiles: list[str | None] = Field(description="The molecules; null where one is missing.")
    level: _Level = LEVEL
    neighbors: _Neighbors = 0
    as_given: _AsGiven = False
    partner: list[str | None] | None = Field(
        None, description="The second molecule of each, where the model takes two."
    )
    features: dict[str, list[FiniteFloat | None]] | None = Field(
        None, description="Extra features by column, a number for each molecule."
    )
    difference_from: list[str] | None = Field(
        None, description="The molecule that each is compared with."
    )


class Depiction(_Query):
    """A structure to draw."""

    smiles: str = Field(json_schema_extra={"examples": ["CCO"]})
    other: str | SkipJsonSchema[None] = None
    atoms: list[Annotated[int, Field(ge=0)]] = Field([], max_length=200)
    width: int = Field(250, ge=50, le=2000)
    height: int = Field(180, ge=50, le=2000)


class PhyschemOptions(_Query):
    """A molecule whose physicochemical properties are calculated."""

    smiles: str = Field(json_schema_extra={"examples": ["CCO"]})
    model: str | SkipJsonSchema[None] = Field(None, description="By default the first model.")
    as_given: _AsGiven = Field(default_factory=bool)


class ExplainRequest(_Strict):
    """A prediction to explain."""

    model: _Model = None
    smiles: str = Field(description="The molecule.")
    task: str | None = Field(
        None, description="What to explain, a task or a class's column; by default the first task."
    )
    method: str = Field(
        "integrated_gradients",
        description="How to score the atoms.",
        json_schema_extra=lambda schema: schema.update(enum=[*METHODS]),
    )
    as_given: _AsGiven = False
    partner: str | None = Field(None, description="The second molecule, where the model takes two.")
    features: dict[str, FiniteFloat] | None = Field(None, description="Extra features by column.")
    width: int = Field(420, ge=100, le=2000, description="Width of the picture, in pixels.")
    height: int = Field(340, ge=150, le=2000, description="Height of the picture, in pixels.")


class SitesRequest(_Strict):
    """A molecule whose atoms or bonds are predicted."""

    model: _Model = None
    smiles: str = Field(description="The molecule.")
    target: str = Field(description="The property, one of `atom_tasks` or `bond_tasks`.")
    level: _Level = LEVEL
    width: int = Field(450, ge=100, le=2000, description="Width of the picture, in pixels.")
    height: int = Field(350, ge=100, le=2000, description="Height of the picture, in pixels.")


_TEXT = {"schema": {"type": "string"}}
_BINARY = {"schema": {"type": "string", "format": "binary"}}
PREDICT_BODIES: dict[str, dict[str, Any]] = {
    JSON: {
        "schema": PredictRequest.model_json_schema(),
        "example": {"smiles": ["CCO", "c1ccccc1O"]},
    },
    **dict.fromkeys(FILES, _BINARY),
    CSV: {**_TEXT, "example": "name,smiles\nethanol,CCO\n"},
}
PREDICT_ANSWERS = {"content": {CSV: _TEXT, EXCEL: _BINARY, SDF: _BINARY}}
"""Content of answers that are files; all others are JSON."""
TABLE_ANSWERS = {"content": {EXCEL: _BINARY, SDF: _BINARY}}
EXPLAIN_BODIES = {
    JSON: {"schema": ExplainRequest.model_json_schema(), "example": {"smiles": "c1ccccc1O"}}
}
SITES_BODIES = {JSON: {"schema": SitesRequest.model_json_schema()}}


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the description of the errors of an endpoint."""
    return {
        status: {"model": Error, "description": HTTPStatus(status).phrase} for status in statuses
    }


def content_type(request: Request, allowed: Iterable[str]) -> str:
    """Return the type of a body, which must be one that a page of another origin cannot send."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in allowed:
        message = f"Content-Type: got {quoted(kind)}, expected {', '.join(allowed)}"
        raise APIError(415, "content_type", message)
    return kind


def accepted(request: Request, default: str) -> str:
    """Return the first type of an answer that ``Accept`` names: JSON, CSV, Excel or SDF."""
    entries = request.headers.get("accept", "").lower().split(",")
    names = (media_range.partition(";")[0].strip() for media_range in entries)
    return next((name for name in names if name in (JSON, CSV, EXCEL, SDF)), default)


async def read_json(request: Request, kind: type[Body]) -> Body:
    """Read a body of JSON, whose options are fields and not parameters of the address."""
    for name in request.query_params:
        raise InputError(f"parameter {quoted(name)}: expected a field of the body in its place")
    body = bytearray()

    def add(chunk: bytes) -> None:
        body.extend(chunk)
        if len(body) > _MOST_JSON:
            message = f"got more than {_MOST_JSON} bytes of JSON; send a table instead"
            raise APIError(413, "too_large", message, {"Connection": "close"})

    await _receive(request, add)
    try:
        return kind.model_validate_json(bytes(body))
    except ValidationError as error:
        raise InputError(validation_line(error.errors(include_url=False))) from None


async def spool(request: Request, path: Path) -> None:
    """Write a body to a file."""
    with open(path, "wb") as file:
        await _receive(request, file.write)


async def _receive(request: Request, write: Callable[[bytes], object]) -> None:
    try:
        async with asyncio.timeout(_MOST_SECONDS):
            async for chunk in request.stream():
                write(chunk)
    except TimeoutError:
        text = f"got no end of the body in {_MOST_SECONDS:g} s"
        raise APIError(408, "timeout", text, {"Connection": "close"}) from None


async def unless_gone(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of work, which is cancelled if the client disconnects."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=0.2))[0]:
            if await request.is_disconnected():
                raise ClientDisconnect
        return task.result()
    finally:
        task.cancel()


class _MoleculeTable(Table):
    """Molecules of JSON as a table of a model's inputs."""

    path = Path("body")

    def __init__(self, served: ServedModel, columns: Sequence[Sequence[Any]]) -> None:
        model = served.model.config
        partner = [model.partner_column] if model.partner_column else []
        self.header = ["smiles", *partner, *model.features]
        self._numbers = slice(1 + len(partner), len(self.header))
        self.header += [DIFFERENCE_FROM] * (len(columns) - len(self.header))
        self._columns = columns

    def __iter__(self) -> Iterator[Row]:
        for row, values in enumerate(zip(*self._columns, strict=True), start=1):
            cells = ["null" if text is None else text for text in values]
            numbers = values[self._numbers]
            cells[self._numbers] = ["" if n is None else repr(n) for n in numbers]
            yield Row(row, cells)


def json_table(served: ServedModel, body: PredictRequest, config: ServeConfig) -> Table:
    """Return the molecules of a request, or refuse other inputs than the model's."""
    count = len(body.smiles)
    features = body.features or {}
    if count > config.max_molecules:
        message = f"smiles: got {count} molecules, expected at most {config.max_molecules}"
        raise APIError(413, "too_large", f"{message} (max_molecules); send a table instead")
    inputs = {"partner": body.partner, "difference_from": body.difference_from, **features}
    for name, values in inputs.items():
        if values is not None and len(values) != count:
            raise InputError(f"{name}: got {len(values)} values, expected {count}")
    check_inputs(served, body.partner is not None, features)
    partner = [] if body.partner is None else [body.partner]
    columns = [body.smiles, *partner, *(features[name] for name in served.model.config.features)]
    columns += [] if body.difference_from is None else [body.difference_from]
    return _MoleculeTable(served, columns)


def check_inputs(served: ServedModel, has_partner: bool, features: Iterable[str]) -> None:
    """Check that a request has the inputs of a model besides the molecule, and no others."""
    model = served.model.config
    if has_partner != model.has_partner:
        expected = "the second molecule of each" if model.has_partner else "none"
        raise InputError(f"partner: expected {expected}")
    if {*features} != {*model.features}:
        raise InputError(
            f"features: got {quoted([*features])}, expected {quoted([*model.features])}"
        )


def file_table(
    path: Path, kind: str, served: ServedModel, options: PredictOptions, stop: threading.Event
) -> tuple[Table, int]:
    """Return the table of a body of a type, and the number of its rows; all are read once."""
    table = open_table(Source(path, "body"), FILES[kind], options=options)
    table = with_found_structures(table)  # such as cells of Excel, pasted into the page
    table.use(options, *served.model.config.input_columns)
    count = 0
    for count, _ in enumerate(table, start=1):  # noqa: B007
        if stop.is_set():
            raise MolattnError("stopped")
    return table, count


def validation_line(errors: Iterable[Any]) -> str:
    """Return the first error of pydantic as a line."""
    error = next(iter(errors))
    where = ".".join(str(name) for name in error["loc"] if name not in ("body", "query"))
    is_clear = error["type"] in ("missing", "json_invalid", "model_type")
    received = "" if is_clear else f"got {quoted(error['input'])}, "
    words = " ".join(str(error["msg"]).split())
    return f"{where or 'body'}: {received}{words[:1].lower()}{words[1:]}"
