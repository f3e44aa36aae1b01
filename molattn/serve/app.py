"""The application: pages, models, predictions, structures."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError
from starlette.exceptions import HTTPException

from molattn.config import ServeConfig
from molattn.errors import InputError, SmilesError, quoted
from molattn.serve.batching import BusyError, Worker
from molattn.serve.batching import Query as Molecule
from molattn.serve.catalog import LEVEL, Catalog, ServedModel
from molattn.serve.depiction import depict
from molattn.serve.errors import APIError
from molattn.serve.molecules import dumps, molecule_json
from molattn.version import __version__

__all__ = ["make_app"]

_PAGE = files("molattn.serve") / "page"


class PredictRequest(BaseModel):
    """Molecules to predict."""

    model_config = ConfigDict(extra="forbid")

    smiles: list[str] = Field(description="The molecules.")
    model: str | None = Field(None, description="Name of the model; by default the first.")
    level: float = Field(LEVEL, gt=0, lt=1, description="Level of the intervals.")
    neighbors: int = Field(0, ge=0, le=10, description="Number of nearest training molecules.")
    partner: list[str] | None = Field(
        None, description="The second molecule of each, where the model takes two."
    )
    features: dict[str, list[FiniteFloat | None]] | None = Field(
        None, description="Extra features by column, a number for each molecule."
    )


def make_app(catalog: Catalog, config: ServeConfig) -> FastAPI:
    """Return the application of some models."""
    worker = Worker(catalog, config)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        worker.close()

    app = FastAPI(
        title="molattn", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None
    )
    app.state.worker = worker

    @app.exception_handler(APIError)
    async def refused(_: Request, error: APIError) -> JSONResponse:
        content = {"error": error.code, "message": error.message}
        return JSONResponse(content, error.status, error.headers)

    @app.exception_handler(HTTPException)
    async def http_error(_: Request, error: HTTPException) -> JSONResponse:
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "bad_request")
        content = {"error": code, "message": str(error.detail)}
        return JSONResponse(content, error.status_code, error.headers)

    @app.exception_handler(InputError)
    async def wrong(_: Request, error: InputError) -> JSONResponse:
        code = error.code if isinstance(error, SmilesError) else "bad_request"
        return JSONResponse({"error": code, "message": str(error)}, 422)

    @app.exception_handler(BusyError)
    async def busy(_: Request, error: BusyError) -> JSONResponse:
        content = {"error": "busy", "message": str(error)}
        return JSONResponse(content, 429, {"Retry-After": "1"})

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        content = {"error": "bad_request", "message": _validation_line(error.errors())}
        return JSONResponse(content, 422)

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(str(_PAGE / "index.html"))

    app.mount("/static", StaticFiles(directory=str(_PAGE)), name="static")

    @app.get("/models")
    async def models() -> dict[str, Any]:
        return {"models": [one.describe() for one in catalog.models.values()]}

    @app.post("/predict")
    async def predict(request: Request) -> Response:
        asked = _parsed(PredictRequest, await request.body())
        served = catalog[asked.model]
        queries = _queries(served, asked, config)
        with worker.reserve(len(queries)):
            answers = await worker.predict(served, asked.level, queries)
        columns = [*served.spec(asked.level).columns]
        molecules = [
            molecule_json(served, columns, query.smiles, answer)
            for query, answer in zip(queries, answers, strict=True)
        ]
        found = {"model": served.name, "level": asked.level, "molecules": molecules}
        return Response(dumps(found), media_type="application/json")

    @app.get("/depict")
    async def depiction(
        smiles: Annotated[str, Query(max_length=config.max_length)],
        width: Annotated[int, Query(ge=50, le=2000)] = 250,
        height: Annotated[int, Query(ge=50, le=2000)] = 180,
        other: str | None = None,
    ) -> Response:
        loop = asyncio.get_running_loop()
        svg = await loop.run_in_executor(worker.slow, depict, smiles, width, height, config)
        return Response(svg, media_type="image/svg+xml")

    return app


def _parsed(kind: type[PredictRequest], body: bytes) -> PredictRequest:
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise APIError(422, "bad_request", _validation_line(error.errors())) from None


def _queries(served: ServedModel, asked: PredictRequest, config: ServeConfig) -> list[Molecule]:
    """Return the molecules of a request.

    Raises:
        APIError: There are too many.
        InputError: Second molecules or features that do not fit the model.
    """
    count, model = len(asked.smiles), served.model.config
    if count > config.max_molecules:
        raise APIError(
            413,
            "too_large",
            f"smiles: got {count} molecules, expected at most {config.max_molecules} "
            "(--max-molecules); send a table instead",
        )
    if (asked.partner is not None) != model.has_partner:
        expected = "a list of SMILES" if model.has_partner else "none, as the model takes one"
        raise InputError(f"partner: got {'none' if asked.partner is None else 'some'}, {expected}")
    features = asked.features or {}
    if {*features} != {*model.features}:
        raise InputError(
            f"features: got {quoted([*features])}, expected {quoted([*model.features])}"
        )
    for name, values in {"partner": asked.partner, **features}.items():
        if values is not None and len(values) != count:
            raise InputError(f"{name}: got {len(values)} values, expected {count}")
    columns = [features[name] for name in model.features]
    return [
        Molecule(
            smiles,
            None if asked.partner is None else asked.partner[place],
            tuple(column[place] for column in columns),
        )
        for place, smiles in enumerate(asked.smiles)
    ]


def _validation_line(errors: Iterable[Any]) -> str:
    """Return the first error of pydantic as a line."""
    error = next(iter(errors))
    place = ".".join(str(part) for part in error["loc"] if part not in ("body", "query"))
    got = "" if error["type"] in ("missing", "json_invalid") else f", got {quoted(error['input'])}"
    return f"{place or 'body'}: {error['msg']}{got}"
