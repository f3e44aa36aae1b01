"""``molattn serve``."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from molattn.cli.shared import make_console, report_same_name, section
from molattn.config import ServeConfig
from molattn.errors import InputError

__all__ = ["EXAMPLES", "serve"]

EXAMPLES = """Examples:
  molattn serve
  molattn serve runs/solubility runs/toxicity --reference drugs.csv --port 8080
  curl localhost:8000/predict --json '{"smiles": ["CCO", "c1ccccc1O"]}'
  curl localhost:8000/predict -H 'Content-Type: text/csv' --data-binary @molecules.csv
"""


def serve(
    models: Annotated[list[Path], Parameter(name="MODEL")] = [Path("admet")],  # noqa: B006
    /,
    *,
    config: Annotated[ServeConfig, section("Server")] = ServeConfig(),
) -> None:
    """Show predictions on a page in the browser, and answer programs over HTTP.

    The page is http://127.0.0.1:8000, the description of the API /docs. Both are served by this
    machine and load nothing from others. SIGTERM or Ctrl+C ends the server once the requests that
    it accepted are answered.

    Args:
        models: Folders of runs or of saved models, or admet, the packaged model of ADMET
            properties, which is the default. Requests choose one by the last part of its folder;
            without a choice it is the first.
    """
    try:
        from molattn.serve.run import run_server
    except ImportError as error:
        if error.name is None or error.name.split(".")[0] == "molattn":
            raise
        raise InputError(
            f"molattn serve needs the package {error.name}, which is not installed: "
            "pip install 'molattn[serve]'"
        ) from error
    console = make_console(stderr=True)
    for model in models:
        report_same_name(console, model)
    run_server(models, config, console)
