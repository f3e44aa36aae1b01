"""What every request passes: which host, which origin, how large; and its errors."""

import logging
import traceback
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from typing_extensions import TypedDict

from molattn.config import ServeConfig
from molattn.config.inference import is_loopback

_log = logging.getLogger(__package__)
_ENDPOINTS = {*"/ /models /predict /table /explain /sites /depict /physchem /health".split()}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
        "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Error(TypedDict):
    """Why a request is refused."""

    error: Annotated[str, Field(description="A code, such as `too_large`.")]
    message: Annotated[str, Field(description="The same in words.")]


class APIError(Exception):
    """A request that is refused: HTTP status, code, the same in words, further headers."""

    def __init__(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self._status = status
        self._headers = headers
        self._content: Error = {"error": code, "message": message}

    def response(self) -> JSONResponse:
        """Return it as a response."""
        return JSONResponse(self._content, self._status, self._headers)


class Guard:
    """Middleware that refuses requests before anything is done for them.

    - A server of this machine alone answers only to its own names, so that a foreign page cannot
      reach it through a name of its own that it points here (DNS rebinding). A page of another
      origin gets nothing in any case: there are no CORS headers. Both have the status 403;
      Starlette's ``TrustedHostMiddleware`` answers 400 and in plain text.
    - A body that is too large is refused.
    """

    def __init__(self, app: ASGIApp, config: ServeConfig) -> None:
        self._app = app
        self._most = config.max_request_size * 10**6
        self._only_local = is_loopback(config.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        size = 0
        endpoint = scope["path"] if scope["path"] in _ENDPOINTS else "other"

        async def counted_receive() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self._most:
                text = f"got more than {self._most} bytes (max_request_size)"
                raise APIError(413, "too_large", text, {"Connection": "close"})
            return message

        async def marked_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            refusal = self._refusal(Headers(scope=scope))
            app = self._app if refusal is None else refusal.response()
            await app(scope, counted_receive, marked_send)
        except Exception as error:
            # Without its message, which may repeat what the request contains.
            last = traceback.extract_tb(error.__traceback__)[-1]
            kind = type(error).__name__
            _log.error("%s: %s at %s, line %s", endpoint, kind, last.filename, last.lineno)
            raise  # the connection is closed

    def _refusal(self, headers: Headers) -> APIError | None:
        host = headers.get("host", "")
        origin = headers.get("origin")
        name = host.partition("]")[0][1:] if host.startswith("[") else host.partition(":")[0]
        if self._only_local and not is_loopback(name):
            message = "Host: got another name than that of this machine, expected localhost"
            return APIError(403, "wrong_host", message)
        if origin is not None and origin.partition("://")[2] != host:
            return APIError(403, "wrong_origin", "Origin: got another than this server's own page")
        return None
