"""The application: the page, models, predictions, structures, explanations."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from pydantic.json_schema import SkipJsonSchema
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from swagger_ui_bundle import swagger_ui_path
from typing_extensions import TypedDict

from molattn.chem.limits import is_fast
from molattn.config import ServeConfig
from molattn.config.validation import as_in_file
from molattn.errors import InputError, MolattnError, SmilesError
from molattn.serve.batching import BusyError, Worker
from molattn.serve.bodies import (
    CSV,
    JSON,
    NDJSON,
    SDF,
    ExplainRequest,
    Level,
    Neighbors,
    PredictRequest,
    accepts,
    check_parameters,
    content_type,
    line_queries,
    queries,
    read_json,
    spool,
    unless_gone,
    validation_line,
)
from molattn.serve.catalog import LEVEL, Catalog, ModelsResponse
from molattn.serve.depiction import depict
from molattn.serve.errors import APIError
from molattn.serve.explanations import ExplainResponse, Explanations
from molattn.serve.guard import Guard
from molattn.serve.metrics import CONTENT_TYPE, Metrics
from molattn.serve.molecules import Molecule, PredictResponse, dumps, molecule_json
from molattn.serve.openapi import (
    BEARER,
    EXPLAIN_BODIES,
    PREDICT_ANSWERS,
    PREDICT_BODIES,
    error_responses,
)
from molattn.serve.tables import (
    ROWS_HEADER,
    Extend,
    HeldResponse,
    OpenTable,
    held_folder,
    predicted_lines,
)
from molattn.utils.html import SHARED_TEMPLATES
from molattn.version import __version__

__all__ = ["make_app"]

_PAGE = Path(__file__).parent / "page"
_ENDPOINTS = frozenset("/ /models /predict /explain /depict /health /metrics".split())
_CODES = {404: "not_found", 405: "method_not_allowed"}
_OF_LINES = ("model", "level", "neighbors")
_PARAMETERS = {JSON: (), NDJSON: _OF_LINES} | dict.fromkeys(
    (CSV, SDF), (*_OF_LINES, "smiles_column")
)
_EXPLANATION = 64  # molecules of the queue that an explanation counts for
_GONE = 499  # the status of a request whose client has disconnected, which nobody reads
_DOCS = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>molattn: API</title>
<link rel="stylesheet" href="docs/assets/swagger-ui.css"></head>
<body><div id="swagger-ui"></div><script src="docs/assets/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script></body></html>
"""
# The bundled page knows OpenAPI 3.0 alone, and shows all that the document uses of 3.1.
_DOCS_SCRIPT = """fetch("openapi.json").then((answer) => answer.json()).then((spec) => {
  spec.openapi = "3.0.3";
  SwaggerUIBundle({spec, dom_id: "#swagger-ui", validatorUrl: null});
});
"""
_ERRORS_OF_BODIES = error_responses(408, 413, 415, 422, 429, 503)


class HealthResponse(TypedDict):
    """A server that answers."""

    status: Literal["ok"]
    version: str


def make_app(catalog: Catalog, config: ServeConfig) -> FastAPI:
    """Return the application of some models.

    Its ``state`` has ``guard``, the :class:`molattn.serve.guard.Guard` through which it is to be
    called.
    """
    metrics = Metrics(lambda: worker.reserved)
    worker = Worker(catalog, config, metrics.batch)
    explanations = Explanations(catalog, config)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        worker.close()
        explanations.thread.shutdown(wait=False, cancel_futures=True)

    app = FastAPI(
        title="molattn",
        version=__version__,
        description="Predictions of molecules.",
        responses=error_responses(403, 500),
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.guard = Guard(app, config, metrics, _ENDPOINTS)
    app.state.worker = worker
    _handle_errors(app)
    guarded = APIRouter(
        dependencies=[Depends(BEARER)] if config.token else [],
        responses=error_responses(401) if config.token else {},
    )

    @app.get("/static/colors.css", include_in_schema=False)
    async def colors() -> FileResponse:
        return FileResponse(str(SHARED_TEMPLATES / "colors.css"))

    app.mount("/static", StaticFiles(directory=str(_PAGE)), name="static")
    app.mount("/docs/assets", StaticFiles(directory=str(swagger_ui_path)), name="docs")

    @app.head("/", include_in_schema=False)
    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(str(_PAGE / "index.html"), headers={"Cache-Control": "no-cache"})

    @app.head("/docs", include_in_schema=False)
    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(_DOCS)

    @app.get("/docs/start.js", include_in_schema=False)
    async def docs_script() -> Response:
        return Response(_DOCS_SCRIPT, media_type="text/javascript")

    @app.head("/health", include_in_schema=False)
    @app.get("/health", summary="Whether the server answers", responses=error_responses(503))
    async def health() -> HealthResponse:
        return {"status": "ok", "version": __version__}

    @guarded.get(
        "/metrics",
        summary="Numbers of the server, in the format of Prometheus",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def numbers() -> Response:
        return Response(metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    @guarded.get(
        "/models",
        summary="The models, their tasks and what is known of them",
        responses=error_responses(503),
    )
    async def models() -> ModelsResponse:
        return {"models": [one.describe() for one in catalog.models.values()]}

    @guarded.post(
        "/predict",
        summary="Predict molecules",
        response_model=PredictResponse,
        responses={200: PREDICT_ANSWERS, **_ERRORS_OF_BODIES},
        openapi_extra={"requestBody": {"content": PREDICT_BODIES, "required": True}},
        description="JSON gives JSON, or JSON lines with `Accept: application/x-ndjson`. JSON "
        "lines give JSON lines. CSV gives CSV, as `molattn predict` writes it, or JSON lines; SDF "
        "likewise. Each line of JSON lines is an object, of an answer a `Molecule`. The parameters "
        "are for bodies other than JSON, which has fields of these names and defaults. CSV has no "
        "`neighbors`.",
    )
    async def predict(
        request: Request,
        # Defaults in the document would be sent by its page, with JSON too.
        level: Annotated[Level, Query(default_factory=lambda: LEVEL)],
        neighbors: Annotated[Neighbors, Query(default_factory=int)],
        smiles_column: Annotated[
            str,
            Query(
                default_factory=lambda: "smiles",
                description="Of a CSV or SDF; by default `smiles`.",
            ),
        ],
        model: Annotated[
            str | SkipJsonSchema[None],
            Query(description="Name of the model; by default the first."),
        ] = None,
    ) -> Response:
        kind = content_type(request, PREDICT_BODIES)
        check_parameters(request, _PARAMETERS[kind])
        wants_lines = accepts(request, NDJSON)
        if kind == JSON:
            return await predict_json(request, wants_lines)
        served = catalog[model]
        served.check_neighbors(neighbors)
        count = partial(metrics.molecule, served.name)
        extend = Extend(worker, served, neighbors)
        with ExitStack() as stack:
            stack.enter_context(worker.reserve(config.batch_size))
            path = held_folder(stack)
            with open(path, "wb") as file:
                await spool(request, file)
            loop = asyncio.get_running_loop()
            if kind == NDJSON:
                rows = await loop.run_in_executor(
                    worker.tables, lambda: sum(1 for _ in line_queries(path, served))
                )
                parts = predicted_lines(
                    line_queries(path, served), served, level, worker, count, extend
                )
            else:
                table = await loop.run_in_executor(
                    worker.tables, OpenTable, path, kind, served, config, level, smiles_column
                )
                rows, wants_csv = table.count, not wants_lines
                if wants_csv and neighbors:
                    raise InputError("neighbors: expected 0 for CSV, or Accept: " + NDJSON)
                parts = (
                    table.csv(worker, count) if wants_csv else table.lines(worker, count, extend)
                )
            media_type = CSV if kind != NDJSON and not wants_lines else NDJSON
            headers = {ROWS_HEADER: str(rows)}
            return HeldResponse(parts, stack.pop_all(), media_type, headers)

    async def predict_json(request: Request, wants_lines: bool) -> Response:
        asked = await read_json(request, PredictRequest)
        served = catalog[asked.model]
        served.check_neighbors(asked.neighbors)
        found = queries(served, asked, config)
        count = partial(metrics.molecule, served.name)
        extend = Extend(worker, served, asked.neighbors)
        with ExitStack() as stack:
            stack.enter_context(worker.reserve(len(found)))
            if wants_lines:
                parts = predicted_lines(iter(found), served, asked.level, worker, count, extend)
                headers = {ROWS_HEADER: str(len(found))}
                return HeldResponse(parts, stack.pop_all(), NDJSON, headers)
            columns = [*served.spec(asked.level).columns]

            async def predicted() -> list[Molecule]:
                answers = await worker.predict(served, asked.level, found)
                molecules = []
                for query, answer in zip(found, answers, strict=True):
                    count(answer.code)
                    molecules.append(molecule_json(served, columns, query.smiles, answer))
                await extend(molecules, answers)
                return molecules

            molecules = await unless_gone(request, predicted())
        whole: PredictResponse = {
            "model": served.name,
            "level": asked.level,
            "molecules": molecules,
        }
        return Response(dumps(whole), media_type=JSON)

    @guarded.post(
        "/explain",
        summary="Score the atoms of a molecule by their importance for a prediction",
        response_model=ExplainResponse,
        responses=_ERRORS_OF_BODIES,
        openapi_extra={"requestBody": {"content": EXPLAIN_BODIES, "required": True}},
    )
    async def explain(request: Request) -> Response:
        content_type(request, EXPLAIN_BODIES)
        check_parameters(request, ())
        asked = await read_json(request, ExplainRequest)
        served, stop = catalog[asked.model], threading.Event()
        loop = asyncio.get_running_loop()

        async def explained() -> ExplainResponse:
            return await loop.run_in_executor(
                explanations.thread, explanations.explain, served, asked, stop
            )

        with worker.reserve(min(_EXPLANATION, config.max_queue)):
            try:
                found = await unless_gone(request, explained())
            finally:
                stop.set()
        return Response(dumps(found), media_type=JSON)

    @guarded.get(
        "/depict",
        summary="Draw a molecule as SVG",
        description="With `other`, the atoms that differ from that molecule are marked.",
        response_class=Response,
        responses={
            200: {"content": {"image/svg+xml": {"schema": {"type": "string"}}}},
            **error_responses(422, 429, 503),
        },
    )
    async def depiction(
        request: Request,
        smiles: Annotated[str, Query(openapi_examples={"ethanol": {"value": "CCO"}})],
        width: Annotated[int, Query(ge=50, le=2000)] = 250,
        height: Annotated[int, Query(ge=50, le=2000)] = 180,
        other: str | SkipJsonSchema[None] = None,
    ) -> Response:
        check_parameters(request, ("smiles", "width", "height", "other"))
        pool = worker.drawing if other is None and is_fast(smiles) else worker.slow
        loop = asyncio.get_running_loop()
        with worker.reserve(1):
            svg = await loop.run_in_executor(pool, depict, smiles, other, width, height, config)
        headers = {"Cache-Control": "private, max-age=3600"}
        return Response(svg, media_type="image/svg+xml; charset=utf-8", headers=headers)

    app.include_router(guarded)
    return app


def _handle_errors(app: FastAPI) -> None:
    """Answer with a code and a message, which say nothing of how the server works."""

    def as_response(error: APIError) -> JSONResponse:
        return error.response()

    def wrong(error: InputError) -> JSONResponse:
        code = error.code if isinstance(error, SmilesError) else "bad_request"
        return APIError(422, code, as_in_file(str(error))).response()

    def busy(error: BusyError) -> JSONResponse:
        return APIError(429, "busy", str(error), {"Retry-After": "1"}).response()

    def invalid(error: RequestValidationError) -> JSONResponse:
        return APIError(422, "bad_request", validation_line(error.errors())).response()

    def http_error(error: HTTPException) -> JSONResponse:
        code = _CODES.get(error.status_code, "bad_request")
        return APIError(error.status_code, code, str(error.detail), error.headers).response()

    def told(error: MolattnError) -> JSONResponse:
        return APIError(500, "internal", str(error)).response()

    def failed(error: Exception) -> JSONResponse:
        return APIError(500, "internal", "the server failed to answer").response()

    def gone(error: ClientDisconnect) -> JSONResponse:
        return APIError(_GONE, "gone", "the client has disconnected").response()

    handlers: list[tuple[type[Exception], Any]] = [
        (APIError, as_response),
        (InputError, wrong),
        (BusyError, busy),
        (MolattnError, told),
        (RequestValidationError, invalid),
        (HTTPException, http_error),
        (ClientDisconnect, gone),
        (Exception, failed),
    ]
    for kind, make in handlers:

        async def handler(_: Request, error: Exception, make: Any = make) -> JSONResponse:
            return make(error)

        app.add_exception_handler(kind, handler)
