"""What the OpenAPI document says besides what FastAPI reads from the endpoints."""

from typing import Any

from fastapi.security import HTTPBearer

from molattn.serve.answers import Molecule, dumps
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

_ETHANOL: Molecule = {
    "smiles": "CCO",
    "error": None,
    "message": None,
    "training_similarity": 0.42,
    "in_domain": True,
    "predictions": {"logS": {"value": 0.92, "low": -0.18, "high": 2.01, "percentile": 97.9}},
    "neighbors": [],
}
_CSV_ANSWER = """name,smiles,logS_predicted,logS_low,logS_high,training_similarity,error
ethanol,CCO,0.92,-0.18,2.01,0.42,
"""
PREDICT_ANSWERS: dict[str, Any] = {
    "headers": {
        ROWS_HEADER: {
            "description": "Number of molecules in an answer that is streamed, all but JSON.",
            "schema": {"type": "integer"},
        }
    },
    "content": {  # FastAPI leaves null out of examples, hence none of JSON
        NDJSON: {**_TEXT, "example": dumps(_ETHANOL).decode() + "\n"},
        **_FILES,
        CSV: {**_TEXT, "example": _CSV_ANSWER},
    },
}

EXPLAIN_BODIES = {
    JSON: {"schema": ExplainRequest.model_json_schema(), "example": {"smiles": "c1ccccc1O"}}
}

_RETRY_AFTER = {
    "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}},
}
_ERRORS: dict[int, dict[str, Any]] = {
    401: {
        "description": "The token is missing or wrong.",
        "headers": {"WWW-Authenticate": {"schema": {"const": "Bearer"}}},
    },
    403: {"description": "The request is for another host, or from a page of another origin."},
    408: {"description": "The body stopped coming."},
    413: {"description": "Too many bytes, or too many molecules in JSON."},
    415: {"description": "Another `Content-Type` than those of the bodies."},
    422: {"description": "A request that cannot be understood, or a molecule that cannot be used."},
    429: {"description": "Too many molecules are waiting.", "headers": _RETRY_AFTER},
    500: {"description": "The server failed."},
}


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the description of the errors of an endpoint."""
    return {status: {"model": Error, **_ERRORS[status]} for status in statuses}
