"""``molattn fingerprint``."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from molattn.cli.shared import EMBEDDING, OUTPUT, make_console, section
from molattn.config import EmbedConfig
from molattn.utils.console import print_line

__all__ = ["EXAMPLE", "fingerprint"]

EXAMPLE = """Example:
  molattn fingerprint runs/solubility molecules.csv --output embeddings.parquet
"""


def fingerprint(
    model: Path,
    table: Annotated[Path, Parameter(name="INPUT")],
    /,
    *,
    output: Annotated[Path, Parameter(group=OUTPUT)],
    config: Annotated[EmbedConfig, section(EMBEDDING)] = EmbedConfig(),
) -> None:
    """Write the embedding that a model learned of every molecule of a table.

    Args:
        model: Folder of a run or of a saved model, or base, which comes with the package.
        table: CSV, TSV, Parquet, SDF or SMILES file.
        output: CSV, TSV or Parquet file to write: every row of the input in order, with its
            columns, embedding_0, embedding_1 and so on (what the readout makes of the atoms; of an
            ensemble those of each member in turn), and the column error, a reason code where there
            is none (molattn/errors.py lists them).
    """
    from molattn.inference.embed import fingerprint_table

    console = make_console()
    counts = fingerprint_table(model, table, output, config, console)
    print_line(console, f"{counts.done} embedded, {counts.refused} refused; written to {output}")
