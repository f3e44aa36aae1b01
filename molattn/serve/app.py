"""The application: the page, models, predictions, structures, explanations."""

import asyncio
import secrets
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, Response, StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from swagger_ui_bundle import swagger_ui_path

from molattn.chem.limits import is_fast
from molattn.chem.physchem import Physchem, physchem
from molattn.config import ServeConfig
from molattn.data.table import Table
from molattn.errors import InputError, MolattnError, SmilesError
from molattn.inference.predict import Reference
from molattn.inference.streaming import OutputRows
from molattn.serve import bodies
from molattn.serve.answers import (
    ExplainResponse,
    Molecule,
    PredictResponse,
    SitesResponse,
    add_cells,
    depict,
    draw_predictions,
    dumps,
    explain_prediction,
    file_chunks,
    json_chunks,
    molecules,
    output_rows,
    write_predictions,
)
from molattn.serve.batching import Predicted, Work, Worker, in_thread, table_options
from molattn.serve.bodies import (
    CSV,
    EXCEL,
    EXPLAIN_BODIES,
    FILES,
    JSON,
    PREDICT_BODIES,
    SDF,
    SITES_BODIES,
)
from molattn.serve.catalog import Catalog, ModelsResponse, ServedModel
from molattn.serve.guard import APIError, Guard
from molattn.utils.html import SHARED_TEMPLATES
from molattn.version import __version__

_ROWS = "X-Molattn-Rows"  # the number of molecules, from which a client tells progress
_REMARKS = "X-Molattn-Remarks"  # how a file is read, percent-encoded
_MOST_REMARKS = 2048  # bytes, about
_BEARER = HTTPBearer(
    auto_error=False, description="The token of the server (`--token` or `MOLATTN_TOKEN`)."
)
_PAGE = Path(__file__).parent / "page"
_CODES = {404: "not_found", 405: "method_not_allowed"}
_EXPLANATION = 64  # molecules of the queue that an explanation counts for
_QUICK = 64  # molecules, at most, of a request that is read beside others
_PREDICT = """JSON gives JSON, and a file gives CSV as `molattn predict` writes it. `Accept` may
name JSON, CSV, Excel or SDF in place of these. The parameters are for bodies other than JSON, which
has fields of these names and defaults. Answers that are files have no `neighbors`."""
_ERRORS_OF_BODIES = bodies.error_responses(408, 413, 415, 422, 429)


async def _held() -> AsyncIterator[ExitStack]:
    """What a request holds until its answer is sent, or nobody waits for it."""
    with ExitStack() as stack:
        yield stack


Held = Annotated[ExitStack, Depends(_held)]


def make_app(catalog: Catalog, config: ServeConfig) -> FastAPI:
    """Return the application of some models, to be called through ``state.guard``."""
    worker = Worker(config)

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
        responses=bodies.error_responses(403, 500),
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.guard = Guard(app, config)
    app.state.worker = worker
    expected = APIError, MolattnError, RequestValidationError, HTTPException, ClientDisconnect
    for kind in (*expected, Exception):
        app.add_exception_handler(kind, _answer_error)
    _add_pages(app)
    guarded = APIRouter()
    if config.token:
        check = Depends(_check_token(config.token))
        guarded = APIRouter(dependencies=[check], responses=bodies.error_responses(401))

    @guarded.get("/models", summary="The models, their tasks and what is known of them")
    async def models() -> ModelsResponse:
        return {"models": [served.describe() for served in catalog.models.values()]}

    _add_predict(guarded, catalog, config, worker)
    _add_table(guarded, catalog, config, worker)
    _add_pictures(guarded, catalog, config, worker)
    _add_sites(guarded, catalog, config, worker)
    app.include_router(guarded)
    return app


def _add_pages(app: FastAPI) -> None:
    files = {
        "/": _PAGE / "index.html",
        "/docs": _PAGE / "docs.html",
        "/static/colors.css": SHARED_TEMPLATES / "colors.css",
        "/static/shared.js": SHARED_TEMPLATES / "shared.js",
        "/static/logo.svg": SHARED_TEMPLATES / "logo.svg",
    }

    async def file(request: Request) -> FileResponse:
        return FileResponse(files[request.url.path], headers={"Cache-Control": "no-cache"})

    async def health() -> dict[str, str]:
        return {"status": "ok", "version": __version__}

    hidden = {"methods": ["GET", "HEAD"], "include_in_schema": False}
    for path in files:
        app.add_api_route(path, file, response_model=None, **hidden)
    app.add_api_route("/health", health, summary="Whether the server answers")
    app.add_api_route("/health", health, methods=["HEAD"], include_in_schema=False)
    app.mount("/static", StaticFiles(directory=str(_PAGE)), name="static")
    app.mount("/docs/assets", StaticFiles(directory=str(swagger_ui_path)), name="docs")


def _add_predict(router: APIRouter, catalog: Catalog, config: ServeConfig, worker: Worker) -> None:
    @router.post(
        "/predict",
        summary="Predict molecules",
        response_model=PredictResponse,
        responses={200: bodies.PREDICT_ANSWERS, **_ERRORS_OF_BODIES},
        openapi_extra={"requestBody": {"content": PREDICT_BODIES, "required": True}},
        description=_PREDICT,
    )
    async def predict(
        request: Request, options: Annotated[bodies.PredictOptions, Query()], held: Held
    ) -> Response:
        kind = bodies.content_type(request, PREDICT_BODIES)
        answer = bodies.accepted(request, JSON if kind == JSON else CSV)
        stop = threading.Event()
        held.callback(stop.set)
        if kind == JSON:
            body = await bodies.read_json(request, bodies.PredictRequest)
            served = catalog.find(body.model, body.as_given)
            neighbors = body.neighbors
            work = _work_of_json(served, body, config)
            table = work.table
            count = len(body.smiles)
            held.enter_context(worker.reserve(count))
        else:
            served = catalog.find(options.model, options.as_given)
            neighbors = options.neighbors
            held.enter_context(worker.reserve(config.batch_size))
            path = await _spooled(request, held)
            opened = in_thread(worker.slow, bodies.file_table, path, kind, served, options, stop)
            table, count = await bodies.unless_gone(request, opened)
            work = Work(served, table, options.level, options.smiles_column)
        if neighbors and not served.has_neighbors:
            raise InputError("neighbors: expected 0: the model keeps no training molecules")
        if neighbors and answer in FILES:
            raise InputError(f"neighbors: expected 0 for {answer}, or Accept: {JSON}")
        predicted = worker.predict(work, stop)
        headers = _headers(table, count)
        reading = table_options(config, work.smiles_column, work.level)
        if answer in FILES:
            rows = output_rows(work, reading, FILES[answer])
            chunks = file_chunks(rows, FILES[answer], predicted)
            return StreamingResponse(chunks, media_type=answer, headers=headers)
        rows = output_rows(work, reading, FILES[CSV]) if options.cells else None
        chunks = json_chunks(work, _molecules(work, predicted, neighbors, worker, rows), rows)
        if kind == JSON:  # whole, so that an error has its status
            return Response(await bodies.unless_gone(request, _joined(chunks)), media_type=JSON)
        return StreamingResponse(chunks, media_type=JSON, headers=headers)


def _work_of_json(served: ServedModel, body: bodies.PredictRequest, config: ServeConfig) -> Work:
    table = bodies.json_table(served, body, config)
    texts = [*body.smiles, *(body.difference_from or ())]
    count = len(body.smiles)
    is_quick = count <= _QUICK and all(is_fast(smiles or "") for smiles in texts)
    is_quick = is_quick and served.model.config.standardize is not True
    reference = None
    if body.difference_from is not None:
        served.model.check_predicts_molecules()
        reference = Reference(len(table.header) - 1, config)
    return Work(served, table, body.level, quick=count if is_quick else 0, reference=reference)


async def _spooled(request: Request, held: ExitStack) -> Path:
    """Return the file of a body, which is kept as long as the request holds it."""
    folder = TemporaryDirectory(prefix="molattn-", ignore_cleanup_errors=True)
    path = Path(held.enter_context(folder)) / "body"
    await bodies.spool(request, path)
    return path


def _add_table(router: APIRouter, catalog: Catalog, config: ServeConfig, worker: Worker) -> None:
    @router.post(
        "/table",
        summary="Write predictions as Excel or SDF, without predicting again",
        description="The body is CSV of the `cells` of `/predict` with a column of mol blocks, "
        "which may be empty, after them; columns of your own may stand before the predictions. "
        "`Accept` names Excel (the default) or SDF.",
        response_class=Response,
        responses={200: bodies.TABLE_ANSWERS, **_ERRORS_OF_BODIES},
        openapi_extra={"requestBody": {"content": {CSV: {"schema": {"type": "string"}}}}},
    )
    async def table(
        request: Request, options: Annotated[bodies.TableOptions, Query()], held: Held
    ) -> Response:
        bodies.content_type(request, [CSV])
        answer = SDF if bodies.accepted(request, EXCEL) == SDF else EXCEL
        served = catalog.find(options.model, options.as_given)
        held.enter_context(worker.reserve(config.batch_size))
        path = await _spooled(request, held)
        reading = table_options(config, options.smiles_column, options.level)
        written = in_thread(worker.slow, write_predictions, served, path, reading, FILES[answer])
        return Response(await bodies.unless_gone(request, written), media_type=answer)


def _headers(table: Table, count: int) -> dict[str, str]:
    """Return the headers of an answer: the number of molecules, and how the table was read."""
    remarks = quote("; ".join(table.remarks))
    if len(remarks) > _MOST_REMARKS:  # what clients take is limited; cut between words
        remarks = remarks[:_MOST_REMARKS].rpartition("%20")[0] + "%20..."
    return {_ROWS: str(count), _REMARKS: remarks}


async def _molecules(
    work: Work,
    predicted: AsyncIterator[Predicted],
    neighbors: int,
    worker: Worker,
    rows: OutputRows | None,
) -> AsyncIterator[list[Molecule]]:
    async for batch in predicted:
        if neighbors:
            answers = await in_thread(worker.slow, molecules, work, batch, neighbors)
        else:
            answers = molecules(work, batch, 0)
        if rows is not None:
            add_cells(rows, answers, batch)
        yield answers


async def _joined(chunks: AsyncIterator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in chunks])


def _add_pictures(router: APIRouter, catalog: Catalog, config: ServeConfig, worker: Worker) -> None:
    @router.post(
        "/explain",
        summary="Score the atoms of a molecule by their importance for a prediction",
        response_model=ExplainResponse,
        responses=_ERRORS_OF_BODIES,
        openapi_extra={"requestBody": {"content": EXPLAIN_BODIES, "required": True}},
    )
    async def explain(request: Request, held: Held) -> Response:
        bodies.content_type(request, EXPLAIN_BODIES)
        body = await bodies.read_json(request, bodies.ExplainRequest)
        held.enter_context(worker.reserve(min(_EXPLANATION, config.max_queue)))
        served = catalog.find(body.model, body.as_given)
        work = in_thread(worker.explaining, explain_prediction, config, served, body)
        return Response(dumps(await bodies.unless_gone(request, work)), media_type=JSON)

    @router.get(
        "/depict",
        summary="Draw a molecule as SVG",
        description="With `other`, the atoms that differ from that molecule are marked, else "
        "those of `atoms`.",
        response_class=Response,
        responses={
            200: {"content": {"image/svg+xml": {"schema": {"type": "string"}}}},
            **bodies.error_responses(422, 429),
        },
    )
    async def depiction(query: Annotated[bodies.Depiction, Query()]) -> Response:
        pool = worker.quick if query.other is None and is_fast(query.smiles) else worker.slow
        values = query.smiles, query.other, tuple(query.atoms), query.width, query.height
        with worker.reserve(1):
            svg = await in_thread(pool, depict, *values, config)
        headers = {"Cache-Control": "private, max-age=3600"}
        return Response(svg, media_type="image/svg+xml; charset=utf-8", headers=headers)

    @router.get(
        "/physchem",
        summary="Physicochemical properties and structural alerts of a molecule",
        description="Of the form that the model predicts: its parent, unless `as_given`. The "
        "atoms of alerts are those of `smiles` of the answer, from 0.",
        responses=bodies.error_responses(422, 429),
    )
    async def properties(query: Annotated[bodies.PhyschemOptions, Query()]) -> Physchem:
        standardize = catalog.find(query.model, query.as_given).model.config.standardize
        with worker.reserve(1):
            return await in_thread(worker.slow, physchem, query.smiles, config, standardize)


def _add_sites(router: APIRouter, catalog: Catalog, config: ServeConfig, worker: Worker) -> None:
    @router.post(
        "/sites",
        summary="Predict a property of the atoms or bonds of a molecule, and draw it",
        response_model=SitesResponse,
        responses=_ERRORS_OF_BODIES,
        openapi_extra={"requestBody": {"content": SITES_BODIES, "required": True}},
    )
    async def sites(request: Request, held: Held) -> Response:
        bodies.content_type(request, SITES_BODIES)
        body = await bodies.read_json(request, bodies.SitesRequest)
        held.enter_context(worker.reserve(min(_EXPLANATION, config.max_queue)))
        served = catalog.find(body.model, as_given=False)
        work = in_thread(worker.explaining, draw_predictions, config, served, body)
        return Response(dumps(await bodies.unless_gone(request, work)), media_type=JSON)


def _check_token(token: str) -> Callable[..., None]:
    def check(
        header: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)],
    ) -> None:
        expected = token.encode()
        if header is None or not secrets.compare_digest(header.credentials.encode(), expected):
            message = "expected the header 'Authorization: Bearer TOKEN' with the server's token"
            raise APIError(401, "token", message, {"WWW-Authenticate": "Bearer"})

    return check


async def _answer_error(_: Request, error: Exception) -> Response:
    """Answer with a code and a message, which say nothing of how the server works."""
    match error:
        case APIError():
            refusal = error
        case InputError():
            code = error.code if isinstance(error, SmilesError) else "bad_request"
            refusal = APIError(422, code, str(error))
        case RequestValidationError():
            refusal = APIError(422, "bad_request", bodies.validation_line(error.errors()))
        case HTTPException():
            code = _CODES.get(error.status_code, "bad_request")
            refusal = APIError(error.status_code, code, str(error.detail), error.headers)
        case ClientDisconnect():
            refusal = APIError(499, "gone", "the client has disconnected")
        case _:
            refusal = APIError(500, "internal", "the server failed to answer")
    return refusal.response()
