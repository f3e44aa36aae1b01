"""Errors of the API, each a status with a code and a message."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field
from starlette.responses import JSONResponse
from typing_extensions import TypedDict

__all__ = ["APIError", "Error"]


class Error(TypedDict):
    """Why a request is refused."""

    error: Annotated[str, Field(description="A code, such as `too_large`.")]
    message: Annotated[str, Field(description="The same in words.")]


class APIError(Exception):
    """A request that is refused.

    Args:
        status: HTTP status.
        code: Short machine-readable reason, such as ``too_large``.
        message: The same as a sentence.
        headers: Further headers of the response.
    """

    def __init__(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self._status, self._headers = status, headers
        self._content: Error = {"error": code, "message": message}

    def response(self) -> JSONResponse:
        """Return it as a response."""
        return JSONResponse(self._content, self._status, self._headers)
