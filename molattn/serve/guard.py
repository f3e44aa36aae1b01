"""What every request passes: who may ask, how much, and whether the server is ending."""

import asyncio
import logging
import secrets
import time
import traceback
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from molattn.config import ServeConfig
from molattn.config.serving import is_loopback
from molattn.serve.errors import APIError
from molattn.serve.metrics import Metrics

__all__ = ["Guard", "next_part"]

_log = logging.getLogger(__package__)
_MEGABYTE = 10**6
_PUBLIC = ("/", "/docs", "/openapi.json", "/health", "/favicon.ico")
_PUBLIC_FOLDERS = ("/static/", "/docs/")
_SECONDS_WITHOUT_DATA = 30.0
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
        "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Guard:
    """Middleware that refuses requests before anything is done for them, and counts all.

    - A server of this machine alone answers only to its own names, so that a foreign page cannot
      reach it through a name of its own that it points here (DNS rebinding). A page of another
      origin gets nothing in any case: there are no CORS headers.
    - With a token, all but the page, the documentation and ``/health`` need it.
    - A body that is too large is refused, also without a length.
    - Once the server is ending, new requests get status 503.

    Args:
        app: The application.
        config: The options.
        metrics: Counts the requests.
        endpoints: The paths to count by themselves.

    Attributes:
        is_draining: Whether the server is ending.
        in_flight: Number of requests that are not answered in full.
        when_idle: Called at the end of each request.
    """

    def __init__(
        self, app: ASGIApp, config: ServeConfig, metrics: Metrics, endpoints: frozenset[str]
    ) -> None:
        self._app = app
        self._config = config
        self._metrics = metrics
        self._endpoints = endpoints
        self._most = config.max_request_size * _MEGABYTE
        self._only_local = is_loopback(config.host)
        self.is_draining = False
        self.in_flight = 0
        self.when_idle: Callable[[], None] = lambda: None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, start, read, is_whole = 500, time.perf_counter(), 0, False

        async def counted_receive() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._most:
                raise self._too_large(f"more than {self._most}")
            return message

        async def marked_send(message: Message) -> None:
            nonlocal status, is_whole
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                if self.is_draining:
                    headers["Connection"] = "close"
            await send(message)
            if message["type"] == "http.response.body":
                is_whole = not message.get("more_body", False)

        self.in_flight += 1
        try:
            refusal = self._refusal(scope)
            if refusal is None:
                await self._app(scope, counted_receive, marked_send)
            else:
                await refusal.response()(scope, receive, marked_send)
        except Exception as error:
            # Without its message, which may repeat what the request contains.
            place = traceback.extract_tb(error.__traceback__)[-1]
            _log.error(
                "%s: %s at %s, line %s",
                self._endpoint(scope),
                type(error).__name__,
                place.filename,
                place.lineno,
            )
            if not is_whole:  # the connection is closed
                raise
        finally:
            self.in_flight -= 1
            self._metrics.request(self._endpoint(scope), status, time.perf_counter() - start)
            self.when_idle()

    def _refusal(self, scope: Scope) -> APIError | None:
        headers, path = Headers(scope=scope), scope["path"]
        host = _host(headers.get("host", ""))
        if self._only_local and not is_loopback(host):
            return APIError(
                403,
                "wrong_host",
                "Host: got another name than that of this machine, expected localhost or 127.0.0.1",
            )
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != headers.get("host"):
            return APIError(403, "wrong_origin", "Origin: got another than this server's own page")
        if self.is_draining and path != "/metrics":
            return APIError(
                503,
                "ending",
                "the server is ending; send the request to another",
                {"Retry-After": "5"},
            )
        is_public = path in _PUBLIC or path.startswith(_PUBLIC_FOLDERS)
        if self._config.token and not is_public and not self._is_known(headers):
            return APIError(
                401,
                "token",
                "expected the header 'Authorization: Bearer TOKEN' with the token of the server",
                {"WWW-Authenticate": "Bearer"},
            )
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > self._most:
            return self._too_large(length[:20])
        return None

    def _is_known(self, headers: Headers) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        expected = (self._config.token or "").encode()
        return kind.lower() == "bearer" and secrets.compare_digest(given.strip().encode(), expected)

    def _too_large(self, got: str) -> APIError:
        return APIError(
            413,
            "too_large",
            f"got {got} bytes, expected at most {self._most} (--max-request-size)",
            {"Connection": "close"},
        )

    def _endpoint(self, scope: Scope) -> str:
        path = scope["path"]
        return path if path in self._endpoints else "other"


async def next_part(receive: Receive) -> Message:
    """Receive the next part of a body, which must not be long in coming.

    Raises:
        APIError: Nothing came for 30 seconds.
    """
    try:
        async with asyncio.timeout(_SECONDS_WITHOUT_DATA):
            return await receive()
    except TimeoutError:
        raise APIError(
            408, "timeout", f"got no data for {_SECONDS_WITHOUT_DATA:g} s", {"Connection": "close"}
        ) from None


def _host(header: str) -> str:
    """Return the name of a Host header without its port."""
    if header.startswith("["):
        return header.partition("]")[0][1:]
    return header.rpartition(":")[0] if ":" in header else header
