"""``molattn explain``."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from molattn.cli.shared import group, make_console, report_same_name, section
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
    output: Annotated[Path, group("Output")],
    config: Annotated[ExplainConfig, section("Explanation")] = ExplainConfig(),
) -> None:
    """Explain the prediction of each molecule in a table.

    Args:
        model: Folder of a run or of a saved model, or base, the pretrained model that comes with
            molattn.
        table: CSV, TSV, Parquet, Excel, SDF or SMILES file.
        output: Folder for index.html (a self-contained page), molecules/ (pictures as SVG and PNG),
            and atoms.csv, bonds.csv, explanations.json and attention.npz. Rows that cannot be
            explained are listed with a reason code (see "Reason codes" in the documentation).
    """
    from molattn.explain.page.folder import explain_table

    console = make_console()
    report_same_name(console, model)
    counts = explain_table(model, table, output, config, console)
    print_line(
        console,
        f"{counts.done} rows explained, {counts.errors} with an error; see {output / 'index.html'}",
    )
