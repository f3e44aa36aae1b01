"""``molattn fingerprint``."""

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
    resume_told,
    section,
)
from molattn.config import EmbedConfig
from molattn.utils.console import counted, print_line
from molattn.utils.memory import reuse_memory

__all__ = ["EXAMPLE", "fingerprint"]

EXAMPLE = """Examples:
  molattn fingerprint runs/solubility molecules.csv --output embeddings.parquet
  molattn fingerprint base "CCO" "c1ccccc1O" --output embeddings.csv
"""


def fingerprint(
    model: ModelFolder,
    inputs: Annotated[list[str], Parameter(name="INPUT")],
    /,
    *,
    output: Annotated[Path, group("Output")],
    config: Annotated[EmbedConfig, section("Embedding")] = EmbedConfig(),
) -> None:
    """Write the learned embedding of each molecule in a table.

    Args:
        model: See ``ModelFolder``.
        inputs: CSV, TSV, Parquet, Excel, SDF or SMILES file, or a store of molattn prepare; - for
            standard input; or one or more SMILES.
        output: CSV, TSV, Parquet, Excel, SDF or SMILES file: all rows and columns of the input, the
            columns embedding_0, embedding_1, ... (see "Embeddings" in the documentation; for an
            ensemble, that of each member in turn), and error, the reason code of a row without an
            embedding (see "Reason codes").
    """
    check_is_path(output)
    console = make_console()
    with input_table(inputs, config) as table:
        table.column(config.smiles_column, "--smiles-column")  # checked before torch is loaded
        report_same_name(console, model)
        reuse_memory()
        from molattn.inference.embed import fingerprint_table

        with resume_told(output):
            counts = fingerprint_table(model, table, output, config, console)
    print_line(
        console,
        f"{counted(counts.done, 'row')} embedded, {counts.errors:,} with an error; written to "
        f"{output}",
    )
