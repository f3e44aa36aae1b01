"""The process of the server: it listens, and ends when all is answered."""

import logging
import os
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvicorn
from rich.console import Console

from molattn.config import ServeConfig
from molattn.config.inference import is_loopback
from molattn.errors import InputError
from molattn.serve.app import make_app
from molattn.serve.batching import table_options
from molattn.serve.catalog import LEVEL, Catalog, add_reference, load_models
from molattn.utils.console import counted, print_line
from molattn.utils.devices import check_device, torch_device

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
        address = f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
        # What it logs of an error may repeat a request; the guard logs all errors.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL + 1)
        options = uvicorn.Config(
            make_app(catalog, config).state.guard,
            log_config=None,
            access_log=False,
            lifespan="on",
            http="h11",
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
    working = [one for one in threading.enumerate() if one.name.startswith("molattn-")]
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
