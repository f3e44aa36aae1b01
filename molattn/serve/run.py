"""The server of :mod:`molattn.serve.app`."""

from collections.abc import Sequence
from pathlib import Path

import uvicorn
from rich.console import Console

from molattn.config import ServeConfig
from molattn.serve.app import make_app
from molattn.serve.catalog import load_models

__all__ = ["run_server"]


def run_server(models: Sequence[str | Path], config: ServeConfig, console: Console) -> None:
    """Serve models until SIGTERM or Ctrl+C.

    Raises:
        InputError: A model that cannot be loaded.
    """
    app = make_app(load_models(models), config)
    uvicorn.run(app, host=config.host, port=config.port, log_level="warning", access_log=False)
