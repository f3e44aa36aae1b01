"""``molattn explain``."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from molattn.cli.inputs import input_table
from molattn.cli.shared import (
    ModelFolder,
    check_is_path,
    group,
    make_console,
    report_same_name,
    section,
)
from molattn.config import ExplainConfig
from molattn.utils.console import counted, print_line

__all__ = ["EXAMPLE", "explain"]

EXAMPLE = """Examples:
  molattn explain runs/solubility molecules.csv --output explained --check
  molattn explain runs/solubility "CCO" "c1ccccc1O" --output explained
"""


def explain(
    model: ModelFolder,
    inputs: Annotated[list[str], Parameter(name="INPUT")],
    /,
    *,
    output: Annotated[Path, group("Output")],
    config: Annotated[ExplainConfig, section("Explanation")] = ExplainConfig(),
) -> None:
    """Explain the prediction of each molecule in a table.

    Args:
        model: See ``ModelFolder``.
        inputs: CSV, TSV, Parquet, Excel, SDF or SMILES file, or a store of molattn prepare; - for
            standard input; or one or more SMILES.
        output: Folder for index.html (a self-contained page), molecules/ (pictures as SVG and PNG),
            and atoms.csv, bonds.csv, other_inputs.csv, explanations.json and attention.npz. Rows
            that cannot be explained are listed with a reason code (see "Reason codes" in the
            documentation).
    """
    check_is_path(output)
    console = make_console()
    with input_table(inputs, config) as table:
        table.column(config.smiles_column, "--smiles-column")  # checked before torch is loaded
        report_same_name(console, model)
        from molattn.explain.page.folder import explain_table

        counts = explain_table(model, table, output, config, console)
    print_line(
        console,
        f"{counted(counts.done, 'row')} explained, {counts.errors:,} with an error; see "
        f"{output / 'index.html'}",
    )
