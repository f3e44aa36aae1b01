"""The process of the server: it listens, and ends when all is answered."""

import asyncio
import logging
import os
import socket
import struct
import threading
from collections.abc import Sequence
from functools import cache
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

_log = logging.getLogger(__package__)
_LIMIT = getattr(os, "sysconf", lambda _: -1)("SC_OPEN_MAX")  # not on Windows; -1 without a limit
_OPEN_FILES = _LIMIT if _LIMIT > 0 else 2048  # most
_MOST_CONNECTIONS = _OPEN_FILES // 3  # the others are for bodies, and for those being accepted
_MOST_ACCEPTED = max(1, _OPEN_FILES // 20)  # at a time
_QUEUE = 2048  # of connections that wait to be accepted
_DRAIN_SECONDS = 10  # after which requests that are not answered are given up


def run_server(models: Sequence[str | Path], config: ServeConfig, console: Console) -> None:
    """Serve models, folders or packaged names, until SIGTERM or Ctrl+C.

    Requests that were accepted are answered, for at most 10 s; then their connections are reset. A
    second signal ends the process at once.
    """
    check_device(config.device)
    with _listening(config) as listener:
        catalog = _load(models, config, console)
        host, port = listener.getsockname()[:2]
        address = f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
        # What it logs of an error may repeat a request; the guard logs all errors.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL + 1)
        options = uvicorn.Config(
            make_app(catalog, config).state.guard,
            log_config=None,
            access_log=False,
            lifespan="on",
            http=_Connection,
            backlog=_MOST_ACCEPTED,
            timeout_graceful_shutdown=_DRAIN_SECONDS,
            server_header=False,
            ws="none",
            proxy_headers=False,
        )
        server = _Server(options)
        print_line(console, f"serving {', '.join(catalog.models)} at {address} (Ctrl+C to end)")
        if not is_loopback(config.host):
            print_line(console, "other machines need the token, and a proxy for TLS")
        server.run(sockets=[listener])
    working = [thread for thread in threading.enumerate() if thread.name.startswith("molattn-")]
    for thread in working:
        thread.join(0.5)
    if server.exit_code or any(thread.is_alive() for thread in working):
        os._exit(server.exit_code)  # rather than wait for work that nobody waits for


def _load(models: Sequence[str | Path], config: ServeConfig, console: Console) -> Catalog:
    catalog = load_models(models, torch_device(config.device))
    for served in catalog.models.values():
        if remark := served.model.inputs_remark():
            print_line(console, f"{served.name}: {remark}")
        if config.reference is None:
            continue
        if not served.tasks:
            print_line(
                console, f"{config.reference}: {served.name} predicts no molecules to compare"
            )
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


class _Server(uvicorn.Server):
    """Ends with exit code 0 once all is answered after a signal, at once after a second one."""

    exit_code = 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, with a longer queue than what is accepted at a time."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(_QUEUE)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish what was accepted; break off what takes longer."""
        asyncio.get_running_loop().call_later(_DRAIN_SECONDS, self._break_off)
        for server in self.servers:
            server.close()
        await asyncio.sleep(0.1)  # for connections that are accepted, but not yet known
        await super().shutdown(sockets)

    def _break_off(self) -> None:
        """Reset connections: if they ended as usual, half a table might look like a whole one."""
        for connection in [*self.server_state.connections]:
            transport: Any = connection.transport
            client = transport.get_extra_info("socket")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Finish what was accepted; at a second signal, nothing."""
        if self.should_exit:
            self.force_exit = True
            self.exit_code = 128 + sig
        self.should_exit = True


class _Connection(H11Protocol):
    """A connection; too many close those without a request, or the newest if all have one."""

    def connection_made(self, transport: Any) -> None:
        """Begin."""
        super().connection_made(transport)
        if len(self.connections) > _MOST_CONNECTIONS:
            _warn_of_connections()
            for connection in self.connections - {self}:
                connection.shutdown()
            busy = sum(not connection.transport.is_closing() for connection in self.connections)
            if busy > _MOST_CONNECTIONS:
                transport.close()


@cache
def _warn_of_connections() -> None:
    _log.warning(
        "got more than %s connections, of at most %s open files (ulimit -n): closing those that "
        "wait for no answer",
        *(_MOST_CONNECTIONS, _OPEN_FILES),
    )


def _listening(config: ServeConfig) -> socket.socket:
    """Open the address before anything is loaded; who connects in the meantime waits."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        return socket.create_server((config.host.strip("[]"), config.port), family=family)
    except OSError as error:
        message = f"{config.host}, port {config.port}: {error.strerror or error}"
        raise InputError(f"{message}; expected an address that is free", option="host") from error
