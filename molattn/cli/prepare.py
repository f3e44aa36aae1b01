"""``molattn prepare``."""

import time
from collections import Counter
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from molattn.cli.inputs import open_standard_input
from molattn.cli.shared import STREAM, check_is_path, group, make_console, resumable, section
from molattn.config import PrepareConfig, TableConfig
from molattn.data.table import open_table
from molattn.utils.console import counted, print_errors, print_line

EXAMPLES = """Examples:
  molattn prepare library.smi.gz more.csv --output stores/library --num-workers 8
  molattn predict runs/solubility stores/library --output predictions.csv
  molattn prepare assay.csv --target-columns pIC50 --output stores/assay
  molattn train stores/assay --target-columns pIC50
"""


def prepare(
    *inputs: Annotated[str, Parameter(name="INPUT")],
    output: Annotated[Path, group("Output")],
    config: Annotated[PrepareConfig, section("Data")] = PrepareConfig(),
) -> None:
    """Read molecules once, and store them for the other commands.

    The store is a folder that they take in place of a table. See "Prepared molecules" in the
    documentation.

    Args:
        inputs: One or more tables (CSV, TSV, Parquet, Excel, SDF or SMILES files); - for standard
            input.
        output: Folder of the store. Rows without a molecule are listed in its rejected.csv.
    """
    check_is_path(output)
    console = make_console()
    columns = TableConfig(smiles_column=config.smiles_column)
    tables = [
        open_standard_input(columns) if word == STREAM else open_table(word) for word in inputs
    ]
    from molattn.data.prepare import prepare_store, resume_hint

    start = time.perf_counter()
    with resumable(output, resume_hint):
        index = prepare_store(tables, output, config, console)
    seconds = time.perf_counter() - start
    print_errors(Counter(index.rejected), console)
    size = index.num_bytes / max(1, index.molecules)
    print_line(
        console,
        f"{counted(index.molecules, 'molecule')} prepared, {sum(index.rejected.values()):,} rows "
        f"rejected; written to {output} ({size:.0f} bytes a molecule), in {seconds:.1f} s",
    )
