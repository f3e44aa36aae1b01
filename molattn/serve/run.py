"""The process of the server: it listens, and ends when all is answered."""

import asyncio
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from rich.console import Console
from uvicorn.protocols.http.h11_impl import H11Protocol

from molattn.config import ServeConfig
from molattn.config.inference import is_loopback
from molattn.errors import InputError
from molattn.serve.app import make_app
from molattn.serve.batching import table_options
from molattn.serve.catalog import LEVEL, Catalog, add_reference, load_models
from molattn.utils.console import counted, print_line
from molattn.utils.devices import check_device, torch_device

__all__ = ["run_server"]

_IDLE_SECONDS = 5  # after which a connection that has not sent the head of a request is closed
_DRAIN_SECONDS = 10  # after which requests that are not answered are given up


def run_server(models: Sequence[str | Path], config: ServeConfig, console: Console) -> None:
    """Serve models, folders or packaged names, until SIGTERM or Ctrl+C.

    Requests that were accepted are answered, for at most 10 s; a second signal ends the process at
    once.
    """
    check_device(config.device)
    with _listening(config) as listener:
        catalog = _load(models, config, console)
        host, port = listener.getsockname()[:2]
        name = f"[{host}]" if ":" in host else host

        def announce() -> None:
            names = ", ".join(catalog.models)
            print_line(console, f"serving {names} at http://{name}:{port}/ (Ctrl+C to end)")
            if not is_loopback(config.host):
                print_line(console, "other machines need the token, and a proxy for TLS")

        # What it logs of an error may repeat a request; the guard logs all errors.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL + 1)
        options = uvicorn.Config(
            make_app(catalog, config).state.guard,
            log_config=None,
            access_log=False,
            lifespan="on",
            http=_Connection,
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=_DRAIN_SECONDS,
            server_header=False,
            ws="none",
            proxy_headers=False,
        )
        server = _Server(options, announce)
        server.run(sockets=[listener])
    for thread in threading.enumerate():
        if thread.name.startswith("molattn-"):
            thread.join(0.5)
            if thread.is_alive():  # rather than wait for work that nobody waits for
                os._exit(server.exit_code)
    if server.exit_code:
        os._exit(server.exit_code)


def _load(models: Sequence[str | Path], config: ServeConfig, console: Console) -> Catalog:
    catalog = load_models(models, torch_device(config.device))
    for served in catalog.models.values():
        if remark := served.model.inputs_remark():
            print_line(console, f"{served.name}: {remark}")
        if config.reference is None:
            continue
        try:
            refused = add_reference(
                served, config.reference, table_options(config, "smiles", LEVEL)
            )
        except InputError as error:
            message = f"model {served.name}: {error.command_line()}"
            raise InputError(message, option="reference") from error
        if refused:
            rows = f"{counted(refused, 'row')} without a prediction of {served.name}"
            print_line(console, f"{config.reference}: left out {rows}")
    return catalog


class _Connection(H11Protocol):
    """Closed if the head of a request is long in coming: uvicorn waits for its first byte alone."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(_IDLE_SECONDS, transport.abort)

    def data_received(self, data: bytes) -> None:
        end = self.timeout_keep_alive_task
        super().data_received(data)  # stops waiting, also if the head goes on
        if end is not None and (self.cycle is None or self.cycle.response_complete):
            self.timeout_keep_alive_task = self.loop.call_at(end.when(), self.transport.abort)


class _Server(uvicorn.Server):
    """Ends with exit code 0 once all is answered after a signal, at once after a second one."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce
        self.exit_code = 0

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM within the block, and do not raise them again after it."""
        handled = (signal.SIGINT, signal.SIGTERM)
        former = {one: signal.signal(one, self.handle_exit) for one in handled}
        try:
            yield
        finally:
            for one, handler in former.items():
                signal.signal(one, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start."""
        await super().startup(sockets)
        self._announce()

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Finish what was accepted; at a second signal, nothing."""
        if self.should_exit:
            self.force_exit, self.exit_code = True, 128 + sig
        self.should_exit = True


def _listening(config: ServeConfig) -> socket.socket:
    """Open the address before anything is loaded; who connects in the meantime waits."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        return socket.create_server((config.host.strip("[]"), config.port), family=family)
    except OSError as error:
        message = f"{config.host}, port {config.port}: {error.strerror or error}"
        raise InputError(f"{message}; expected an address that is free", option="host") from error
