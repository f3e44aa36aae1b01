"""The application: the page, models, predictions, structures, explanations."""

import asyncio
import secrets
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal, TypeVar

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response
from fastapi.security import HTTPAuthorizationCredentials
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from swagger_ui_bundle import swagger_ui_path
from typing_extensions import TypedDict

from molattn.chem.limits import is_fast
from molattn.config import ServeConfig
from molattn.errors import InputError, MolattnError, SmilesError
from molattn.serve import bodies
from molattn.serve.answers import (
    HeldResponse,
    Molecule,
    PredictResponse,
    dumps,
    file_parts,
    molecules,
)
from molattn.serve.batching import BusyError, Predicted, Work, Worker
from molattn.serve.bodies import CSV, FILES, JSON, NDJSON
from molattn.serve.catalog import Catalog, ModelsResponse
from molattn.serve.explanations import ExplainResponse, Explanations, depict
from molattn.serve.guard import APIError, Guard
from molattn.serve.metrics import CONTENT_TYPE, Metrics
from molattn.serve.openapi import (
    BEARER,
    EXPLAIN_BODIES,
    PREDICT_ANSWERS,
    PREDICT_BODIES,
    ROWS_HEADER,
    error_responses,
)
from molattn.utils.html import SHARED_TEMPLATES
from molattn.version import __version__

__all__ = ["make_app"]

Result = TypeVar("Result")

_PAGE = Path(__file__).parent / "page"
_ENDPOINTS = frozenset("/ /models /predict /explain /depict /health /metrics".split())
_CODES = {404: "not_found", 405: "method_not_allowed"}
_EXPLANATION = 64  # molecules of the queue that an explanation counts for
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
_ERRORS_OF_BODIES = error_responses(408, 413, 415, 422, 429)


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
    worker = Worker(config, metrics)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        predicting = asyncio.create_task(worker.run())
        yield
        predicting.cancel()
        worker.close()

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
    for kind in (
        APIError,
        MolattnError,
        RequestValidationError,
        HTTPException,
        ClientDisconnect,
        Exception,
    ):
        app.add_exception_handler(kind, _answer_error)
    _add_pages(app)
    guarded = APIRouter()
    if config.token:
        guarded = APIRouter(
            dependencies=[Depends(_check_token(config.token))], responses=error_responses(401)
        )

    @guarded.get(
        "/metrics",
        summary="Numbers of the server, in the format of Prometheus",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def numbers() -> Response:
        return Response(metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    @guarded.get("/models", summary="The models, their tasks and what is known of them")
    async def models() -> ModelsResponse:
        return {"models": [one.describe() for one in catalog.models.values()]}

    _add_predict(guarded, catalog, config, worker)
    _add_pictures(guarded, catalog, config, worker)
    app.include_router(guarded)
    return app


def _add_pages(app: FastAPI) -> None:
    @app.get("/static/colors.css", include_in_schema=False)
    async def colors() -> FileResponse:
        return FileResponse(str(SHARED_TEMPLATES / "colors.css"))

    @app.get("/static/shared.js", include_in_schema=False)
    async def shared_script() -> FileResponse:
        return FileResponse(str(SHARED_TEMPLATES / "shared.js"), media_type="text/javascript")

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
    @app.get("/health", summary="Whether the server answers")
    async def health() -> HealthResponse:
        return {"status": "ok", "version": __version__}


def _add_predict(router: APIRouter, catalog: Catalog, config: ServeConfig, worker: Worker) -> None:
    @router.post(
        "/predict",
        summary="Predict molecules",
        response_model=PredictResponse,
        responses={200: PREDICT_ANSWERS, **_ERRORS_OF_BODIES},
        openapi_extra={"requestBody": {"content": PREDICT_BODIES, "required": True}},
        description="JSON gives JSON, JSON lines give JSON lines, and a file gives CSV as `molattn "
        "predict` writes it. `Accept` may name JSON lines or the type of a file in place of these. "
        "Each line of JSON lines is an object, of an answer a `Molecule`. The parameters are for "
        "bodies other than JSON, which has fields of these names and defaults. Files have no "
        "`neighbors`.",
    )
    async def predict(
        request: Request, given: Annotated[bodies.PredictOptions, Query()]
    ) -> Response:
        kind = bodies.content_type(request, PREDICT_BODIES)
        answer = bodies.accepted(request, kind if kind in (JSON, NDJSON) else CSV)
        stop = threading.Event()
        with ExitStack() as stack:
            stack.callback(stop.set)
            if kind == JSON:
                bodies.check_no_parameters(request)
                options = asked = await bodies.read_json(request, bodies.PredictRequest)
                served, count = catalog[asked.model], len(asked.smiles)
                table = bodies.json_table(served, asked, config)
                work = Work(served, table, asked.level, smiles=asked.smiles)
                stack.enter_context(worker.reserve(count))
            else:
                options, served = given, catalog[given.model]
                stack.enter_context(worker.reserve(config.batch_size))
                folder = TemporaryDirectory(prefix="molattn-", ignore_cleanup_errors=True)
                path = Path(stack.enter_context(folder)) / f"body.{FILES.get(kind, 'jsonl')}"
                stack.enter_context(bodies.shown_as_body(path))
                await bodies.spool(request, path)
                opened = _in_thread(worker.slow, bodies.file_table, path, kind, served, stop)
                table, count = await bodies.unless_gone(request, opened)
                work = Work(served, table, given.level, given.smiles_column)
            if options.neighbors and not served.has_neighbors:
                raise InputError("neighbors: expected 0: the model keeps no training molecules")
            if options.neighbors and answer in FILES:
                raise InputError(f"neighbors: expected 0 for {answer}, or Accept: {NDJSON}")
            if answer in FILES:
                write = file_parts(work, worker.options(work), FILES[answer])
                parts = write(worker.predict(work, stop))
            else:
                found = _molecules(work, worker.predict(work, stop), options.neighbors, worker.slow)
                if answer == JSON:
                    every = await bodies.unless_gone(request, _all(found))
                    whole: PredictResponse = {
                        "model": served.name,
                        "level": work.level,
                        "molecules": every,
                    }
                    return Response(dumps(whole), media_type=JSON)
                parts = (b"".join(dumps(one) + b"\n" for one in some) async for some in found)
            response = HeldResponse(parts, media_type=answer, headers={ROWS_HEADER: str(count)})
            response.held = stack.pop_all()
            return response


async def _molecules(
    work: Work, predicted: AsyncIterator[Predicted], neighbors: int, pool: Executor
) -> AsyncIterator[list[Molecule]]:
    async for found in predicted:
        if neighbors:
            yield await _in_thread(pool, molecules, work, found, neighbors)
        else:
            yield molecules(work, found, 0)


async def _all(parts: AsyncIterator[list[Molecule]]) -> list[Molecule]:
    return [one async for some in parts for one in some]


def _add_pictures(router: APIRouter, catalog: Catalog, config: ServeConfig, worker: Worker) -> None:
    explanations = Explanations(config)

    @router.post(
        "/explain",
        summary="Score the atoms of a molecule by their importance for a prediction",
        response_model=ExplainResponse,
        responses=_ERRORS_OF_BODIES,
        openapi_extra={"requestBody": {"content": EXPLAIN_BODIES, "required": True}},
    )
    async def explain(request: Request) -> Response:
        bodies.content_type(request, EXPLAIN_BODIES)
        bodies.check_no_parameters(request)
        asked = await bodies.read_json(request, bodies.ExplainRequest)
        served, stop = catalog[asked.model], threading.Event()
        with worker.reserve(min(_EXPLANATION, config.max_queue)):
            work = _in_thread(worker.explaining, explanations.explain, served, asked, stop)
            try:
                found = await bodies.unless_gone(request, work)
            finally:
                stop.set()
        return Response(dumps(found), media_type=JSON)

    @router.get(
        "/depict",
        summary="Draw a molecule as SVG",
        description="With `other`, the atoms that differ from that molecule are marked.",
        response_class=Response,
        responses={
            200: {"content": {"image/svg+xml": {"schema": {"type": "string"}}}},
            **error_responses(422, 429),
        },
    )
    async def depiction(asked: Annotated[bodies.Depiction, Query()]) -> Response:
        pool = worker.quick if asked.other is None and is_fast(asked.smiles) else worker.slow
        with worker.reserve(1):
            svg = await _in_thread(pool, depict, *asked.values, config)
        headers = {"Cache-Control": "private, max-age=3600"}
        return Response(svg, media_type="image/svg+xml; charset=utf-8", headers=headers)


async def _in_thread(pool: Executor, function: Callable[..., Result], *arguments: object) -> Result:
    return await asyncio.get_running_loop().run_in_executor(pool, function, *arguments)


def _check_token(token: str) -> Callable[..., None]:
    def check(
        given: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)],
    ) -> None:
        if given is None or not secrets.compare_digest(given.credentials.encode(), token.encode()):
            message = "expected the header 'Authorization: Bearer TOKEN' with the server's token"
            raise APIError(401, "token", message, {"WWW-Authenticate": "Bearer"})

    return check


async def _answer_error(_: Request, error: Exception) -> JSONResponse:
    return _refusal(error).response()


def _refusal(error: Exception) -> APIError:
    """Return a code and a message, which say nothing of how the server works."""
    match error:
        case APIError():
            return error
        case BusyError():
            return APIError(429, "busy", str(error), {"Retry-After": "1"})
        case InputError():
            code = error.code if isinstance(error, SmilesError) else "bad_request"
            return APIError(422, code, str(error))
        case RequestValidationError():
            return APIError(422, "bad_request", bodies.validation_line(error.errors()))
        case HTTPException():
            code = _CODES.get(error.status_code, "bad_request")
            return APIError(error.status_code, code, str(error.detail), error.headers)
        case ClientDisconnect():
            return APIError(499, "gone", "the client has disconnected")
        case MolattnError():
            return APIError(500, "internal", str(error))
    return APIError(500, "internal", "the server failed to answer")
