"""Errors of the API, each a status with a code and a message."""

__all__ = ["APIError"]


class APIError(Exception):
    """A request that is refused.

    Args:
        status: HTTP status.
        code: Short machine-readable reason, such as ``too_large``.
        message: The same as a sentence.
        headers: Further headers of the response.
    """

    def __init__(
        self, status: int, code: str, message: str, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers or {}
