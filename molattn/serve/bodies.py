"""Bodies of requests: JSON, and tables that are kept in a temporary file."""

import asyncio
import re
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Annotated, Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError
from starlette.requests import ClientDisconnect

from molattn.config import ServeConfig
from molattn.errors import InputError, quoted
from molattn.explain import METHODS
from molattn.serve.batching import Query, text_of
from molattn.serve.catalog import LEVEL, ServedModel
from molattn.serve.errors import APIError
from molattn.serve.guard import next_part

__all__ = [
    "CSV",
    "JSON",
    "NDJSON",
    "SDF",
    "ExplainRequest",
    "Level",
    "Neighbors",
    "PredictRequest",
    "accepts",
    "check_parameters",
    "content_type",
    "line_queries",
    "parse",
    "queries",
    "read_json",
    "spool",
    "unless_gone",
    "validation_line",
]

JSON, NDJSON = "application/json", "application/x-ndjson"
CSV, SDF = "text/csv", "chemical/x-mdl-sdfile"
_MOST_JSON = 20_000_000  # bytes: it is kept in memory
_MOST_LINE = 1_000_000  # bytes

Level = Annotated[float, Field(gt=0, lt=1, description="Level of the intervals.")]
Neighbors = Annotated[int, Field(ge=0, le=10, description="Number of nearest training molecules.")]

Body = TypeVar("Body", bound=BaseModel)
Result = TypeVar("Result")


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    model: str | None = Field(None, description="Name of the model; by default the first.")


class PredictRequest(_Request):
    """Molecules to predict."""

    smiles: list[str | None] = Field(description="The molecules; null where one is missing.")
    level: Level = LEVEL
    neighbors: Neighbors = 0
    partner: list[str | None] | None = Field(
        None, description="The second molecule of each, where the model takes two."
    )
    features: dict[str, list[FiniteFloat | None]] | None = Field(
        None, description="Extra features by column, a number for each molecule."
    )


class ExplainRequest(_Request):
    """A prediction to explain."""

    smiles: str = Field(description="The molecule.")
    task: str | None = Field(
        None, description="What to explain, a task or a class's column; by default the first task."
    )
    method: str = Field(
        "integrated_gradients",
        description="How to score the atoms.",
        json_schema_extra=lambda schema: schema.update(enum=[*METHODS]),
    )
    partner: str | None = Field(None, description="The second molecule, where the model takes two.")
    features: dict[str, FiniteFloat] | None = Field(None, description="Extra features by column.")
    check: bool = Field(
        False, description="Whether to test the method by deletion and insertion of atoms."
    )
    width: int = Field(420, ge=100, le=2000, description="Width of the picture, in pixels.")
    height: int = Field(340, ge=150, le=2000, description="Height of the picture, in pixels.")


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    smiles: str | None
    partner: str | None = None
    features: dict[str, FiniteFloat | None] | None = None


def content_type(request: Request, allowed: Iterable[str]) -> str:
    """Return the type of a body.

    A page of another origin cannot send these without asking first, which is refused.

    Raises:
        APIError: It is none of those allowed.
    """
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in allowed:
        expected = ", ".join(allowed)
        raise APIError(
            415, "content_type", f"Content-Type: got {quoted(given)}, expected {expected}"
        )
    return given


def accepts(request: Request, kind: str) -> bool:
    """Return whether a request names a type that it accepts, with a weight ``q`` above 0."""
    for part in request.headers.get("accept", "").lower().split(","):
        name, *parameters = (one.strip() for one in part.split(";"))
        if name == kind and not any(re.fullmatch(r"q=0(\.0*)?", one) for one in parameters):
            return True
    return False


def check_parameters(request: Request, names: Sequence[str]) -> None:
    """Check that the address has no parameters but those named: others would do nothing.

    Raises:
        InputError: It has, or has one twice.
    """
    for name in request.query_params:
        if len(values := request.query_params.getlist(name)) > 1:
            raise InputError(f"{name}: got {len(values)} values in the address, expected one")
        if name not in names:
            expected = ", ".join(names) or "none, as the body has fields of these names"
            raise InputError(f"parameter of the address: got {quoted(name)}, expected {expected}")


async def read_json(request: Request, kind: type[Body]) -> Body:
    """Read a body of JSON.

    Raises:
        APIError: It is too large, or not such JSON.
    """
    body = bytearray()
    async for part in _parts(request):
        body += part
        if len(body) > _MOST_JSON:
            raise APIError(
                413,
                "too_large",
                f"got more than {_MOST_JSON} bytes of JSON, expected fewer; send a table instead",
                {"Connection": "close"},
            )
    return parse(kind, bytes(body))


def parse(kind: type[Body], text: bytes, place: str = "") -> Body:
    """Parse JSON; ``place`` is where it is, for the message.

    Raises:
        APIError: It is not such JSON.
    """
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        message = place + validation_line(error.errors(include_url=False))
        raise APIError(422, "bad_request", message) from None


async def spool(request: Request, file: IO[bytes]) -> None:
    """Write a body to a file."""
    async for part in _parts(request):
        file.write(part)
    file.flush()


async def _parts(request: Request) -> AsyncIterator[bytes]:
    while True:
        message = await next_part(request.receive)
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        yield message.get("body", b"")
        if not message.get("more_body", False):
            return


async def unless_gone(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Do something for a request whose body is read; give it up when the client disconnects.

    Raises:
        ClientDisconnect: The client has.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientDisconnect
    finally:
        for one in (task, gone):
            one.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def queries(served: ServedModel, asked: PredictRequest, config: ServeConfig) -> list[Query]:
    """Return the molecules of a request.

    Raises:
        APIError: There are too many.
        InputError: Second molecules or features that do not fit the model.
    """
    count = len(asked.smiles)
    if count > config.max_molecules:
        raise APIError(
            413,
            "too_large",
            f"smiles: got {count} molecules, expected at most {config.max_molecules} "
            "(--max-molecules); send a table instead",
        )
    features = asked.features or {}
    for name, values in {"partner": asked.partner, **features}.items():
        if values is not None and len(values) != count:
            raise InputError(f"{name}: got {len(values)} values, expected {count}")
    check_inputs(served, asked.partner is not None, features)
    columns = [features[name] for name in served.model.config.features]
    return [
        Query(
            smiles,
            None if asked.partner is None else text_of(asked.partner[place]),
            tuple(column[place] for column in columns),
        )
        for place, smiles in enumerate(asked.smiles)
    ]


def check_inputs(served: ServedModel, has_partner: bool, features: Iterable[str]) -> None:
    """Check that a request has the inputs of a model besides the molecule, and no others.

    Raises:
        InputError: It has not.
    """
    model = served.model.config
    if has_partner != model.has_partner:
        raise InputError(
            "partner: got none, expected the second molecule of each"
            if model.has_partner
            else "partner: expected none, as the model takes one molecule"
        )
    if {*features} != {*model.features}:
        raise InputError(
            f"features: got {quoted([*features])}, expected {quoted([*model.features])}"
        )


def line_queries(path: Path, served: ServedModel) -> Iterator[Query]:
    """Yield the molecules of a file of JSON lines; blank lines are skipped.

    Raises:
        APIError: A line that is not such JSON, or too long; names it.
        InputError: Second molecules or features that do not fit the model.
    """
    with open(path, "rb") as file:
        number = 0
        while text := file.readline(_MOST_LINE + 1):
            number += 1
            if len(text) > _MOST_LINE:
                message = f"line {number}: got more than {_MOST_LINE} bytes, expected fewer"
                raise APIError(422, "bad_request", message)
            if not text.strip():
                continue
            line = parse(_Line, text, f"line {number}: ")
            features, partner = line.features or {}, line.partner
            if "partner" in line.model_fields_set and served.model.config.has_partner:
                partner = text_of(partner)
            try:
                check_inputs(served, partner is not None, features)
            except InputError as error:
                raise InputError(f"line {number}: {error}") from None
            columns = tuple(features[name] for name in served.model.config.features)
            yield Query(line.smiles, partner, columns)


def validation_line(errors: Iterable[Any]) -> str:
    """Return the first error of pydantic as a line."""
    error = next(iter(errors))
    place = ".".join(str(part) for part in error["loc"] if part not in ("body", "query"))
    is_told = error["type"] in ("missing", "json_invalid", "model_type")
    got = "" if is_told else f"got {quoted(error['input'])}, "
    words = " ".join(str(error["msg"]).split())
    return f"{place or 'body'}: {got}{words[:1].lower()}{words[1:]}"
