"""Options of ``molattn serve``."""

import os
from dataclasses import field
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

from annotated_types import Interval

from molattn.config.base import Count, Name, Threads, checked, option
from molattn.config.data import MoleculeLimits
from molattn.config.training import Device
from molattn.errors import InputError, quoted

__all__ = ["ServeConfig", "is_loopback"]

TOKEN_VARIABLE = "MOLATTN_TOKEN"


@checked
class _ServerOptions:
    """Options of the server.

    Args:
        host: Address to listen on. Any other than this machine's own (127.0.0.1, localhost, ::1)
            makes the server public, and needs --token.
        port: Port to listen on; 0 = any free one.
        token: Secret that each request must send, as "Authorization: Bearer TOKEN". Better given by
            the environment variable MOLATTN_TOKEN, which other users of the machine do not see.
        reference: Table of molecules, such as marketed drugs. They are predicted once at the start;
            each prediction then comes with its percentile among theirs.
        max_molecules: Most molecules of a JSON request; tables have no such limit.
        max_request_size: Most megabytes of a request.
        max_queue: Most molecules that wait at the same time; a request beyond that is refused with
            status 429, to be repeated later.
        batch_size: Most molecules that are predicted together, of one request or of several.
        threads: Number of CPU threads of the predictions; more than one is faster only for wide
            networks.
        device: Device to predict on.
    """

    host: Name = "127.0.0.1"
    port: Annotated[int, Interval(ge=0, le=65535)] = 8000
    token: str | None = field(default=None, repr=False)
    reference: Path | None = None
    max_molecules: Count = 10_000
    max_request_size: Count = 100
    max_queue: Count = 20_000
    batch_size: Count = 256
    threads: Threads = 1
    device: Device = "cpu"


@checked
class ServeConfig(MoleculeLimits, _ServerOptions):
    """Options of the server, and the limits of its molecules."""

    def __post_init__(self) -> None:
        for name in ("max_molecules", "batch_size"):
            if getattr(self, name) > self.max_queue:
                raise InputError(
                    f"--max-queue: got {self.max_queue}, expected at least {option(name)} "
                    f"({getattr(self, name)})"
                )
        if self.token is None and os.environ.get(TOKEN_VARIABLE):
            object.__setattr__(self, "token", os.environ[TOKEN_VARIABLE])
        token = self.token or ""  # a header cannot carry others
        if not token.isascii() or not token.isprintable() or " " in token:
            raise InputError("--token: expected printable ASCII characters without spaces")
        if not self.token and not is_loopback(self.host):
            raise InputError(
                f"--host {quoted(self.host)[1:-1]}: other machines can reach this address; "
                f"expected a secret for them, by --token or the variable {TOKEN_VARIABLE}"
            )


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached from this machine alone."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
