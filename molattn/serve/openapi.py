"""What the OpenAPI document says besides what FastAPI reads from the endpoints."""

from typing import Any

from fastapi.security import HTTPBearer

from molattn.serve.bodies import CSV, FILES, JSON, NDJSON, ExplainRequest, PredictRequest
from molattn.serve.guard import Error

__all__ = [
    "BEARER",
    "EXPLAIN_BODIES",
    "PREDICT_ANSWERS",
    "PREDICT_BODIES",
    "ROWS_HEADER",
    "error_responses",
]

BEARER = HTTPBearer(
    auto_error=False, description="The token of the server (`--token` or `MOLATTN_TOKEN`)."
)
ROWS_HEADER = "X-Molattn-Rows"
"""Header of a response with the number of its molecules, from which a client tells progress."""

_TEXT = {"schema": {"type": "string"}}
_FILES = {kind: {"schema": {"type": "string", "format": "binary"}} for kind in FILES}
PREDICT_BODIES: dict[str, dict[str, Any]] = {
    JSON: {
        "schema": PredictRequest.model_json_schema(),
        "example": {"smiles": ["CCO", "c1ccccc1O"]},
    },
    NDJSON: {**_TEXT, "example": '{"smiles": "CCO"}\n{"smiles": "c1ccccc1O"}\n'},
    **_FILES,
    CSV: {**_TEXT, "example": "name,smiles\nethanol,CCO\n"},
}
PREDICT_ANSWERS = {"content": {NDJSON: _TEXT, **_FILES, CSV: _TEXT}}
EXPLAIN_BODIES = {
    JSON: {"schema": ExplainRequest.model_json_schema(), "example": {"smiles": "c1ccccc1O"}}
}
_ERRORS = {
    401: "The token is missing or wrong.",
    403: "The request is for another host, or from a page of another origin.",
    408: "The body stopped coming.",
    413: "Too many bytes, or too many molecules in JSON.",
    415: "Another `Content-Type` than those of the bodies.",
    422: "A request that cannot be understood, or a molecule that cannot be used.",
    429: "Too many molecules are waiting: repeat it after the seconds in `Retry-After`.",
    500: "The server failed.",
}


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the description of the errors of an endpoint."""
    return {status: {"model": Error, "description": _ERRORS[status]} for status in statuses}
