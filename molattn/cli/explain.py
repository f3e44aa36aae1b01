"""``molattn explain``."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from molattn.cli.shared import EXPLANATION, OUTPUT, make_console, section
from molattn.config import ExplainConfig
from molattn.utils.console import print_line

__all__ = ["EXAMPLE", "explain"]

EXAMPLE = """Example:
  molattn explain runs/solubility molecules.csv --output explained --check
"""


def explain(
    model: Path,
    table: Annotated[Path, Parameter(name="INPUT")],
    /,
    *,
    output: Annotated[Path, Parameter(group=OUTPUT)],
    config: Annotated[ExplainConfig, section(EXPLANATION)] = ExplainConfig(),
) -> None:
    """Show what the predictions of a table's molecules rest on.

    Args:
        model: Folder of a run or of a saved model, or base, which comes with the package.
        table: CSV, TSV, Parquet, SDF or SMILES file.
        output: Folder to write: index.html (a page to look at, which needs nothing beside it),
            molecules/ (a picture of each as SVG and PNG), and the numbers in atoms.csv, bonds.csv,
            explanations.json and attention.npz. Rows without an explanation are in the tables and
            on the page, with a reason code (molattn/errors.py lists them).
    """
    from molattn.explain.page.folder import explain_table

    console = make_console()
    counts = explain_table(model, table, output, config, console)
    print_line(
        console, f"{counts.done} explained, {counts.refused} refused; see {output / 'index.html'}"
    )
