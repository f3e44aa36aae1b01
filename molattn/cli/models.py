"""``molattn prepare``, ``explain``, ``fingerprint``, ``serve`` and ``verify``."""

import time
from collections import Counter
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from molattn.cli.inputs import input_table, open_standard_input
from molattn.cli.shared import (
    STREAM,
    Inputs,
    ModelFolder,
    check_is_path,
    group,
    make_console,
    resumable,
    section,
    warn_if_ambiguous,
)
from molattn.config import EmbedConfig, ExplainConfig, PrepareConfig, ServeConfig, TableConfig
from molattn.data.table import open_table
from molattn.errors import InputError
from molattn.utils.console import counted, print_errors, print_line
from molattn.utils.workers import reuse_memory

PREPARE_EXAMPLES = """Examples:
  molattn prepare library.smi.gz more.csv --output stores/library --num-workers 8
  molattn predict runs/solubility stores/library --output predictions.csv
  molattn prepare assay.csv --target-columns pIC50 --output stores/assay
  molattn train stores/assay --target-columns pIC50
"""
EXPLAIN_EXAMPLES = """Examples:
  molattn explain runs/solubility molecules.csv --output explained --check
  molattn explain runs/solubility "CCO" "c1ccccc1O" --output explained
"""
FINGERPRINT_EXAMPLES = """Examples:
  molattn fingerprint runs/solubility molecules.csv --output embeddings.parquet
  molattn fingerprint base "CCO" "c1ccccc1O" --output embeddings.csv
"""
SERVE_EXAMPLES = """Examples:
  molattn serve
  molattn serve runs/solubility runs/toxicity --reference drugs.csv --port 8080
  curl localhost:8000/predict --json '{"smiles": ["CCO", "c1ccccc1O"]}'
  curl localhost:8000/predict -H 'Content-Type: text/csv' --data-binary @molecules.csv
"""
VERIFY_EXAMPLES = """Example:
  molattn verify runs/solubility
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


def explain(
    model: ModelFolder,
    inputs: Inputs,
    /,
    *,
    output: Annotated[Path, group("Output")],
    config: Annotated[ExplainConfig, section("Explanation")] = ExplainConfig(),
) -> None:
    """Explain the prediction of each molecule in a table.

    Args:
        output: Folder for index.html (a self-contained page), molecules/ (pictures as SVG and PNG),
            and atoms.csv, bonds.csv, other_inputs.csv, explanations.json and attention.npz. Rows
            that cannot be explained are listed with a reason code (see "Reason codes" in the
            documentation).
    """
    check_is_path(output)
    console = make_console()
    table = input_table(inputs, config)
    warn_if_ambiguous(console, model)
    from molattn.explain import explain_table

    counts = explain_table(model, table, output, config, console)
    rows = f"{counted(counts.done, 'row')} explained, {counts.errors:,} with an error"
    print_line(console, f"{rows}; see {output / 'index.html'}")


def fingerprint(
    model: ModelFolder,
    inputs: Inputs,
    /,
    *,
    output: Annotated[Path, group("Output")],
    config: Annotated[EmbedConfig, section("Embedding")] = EmbedConfig(),
) -> None:
    """Write the learned embedding of each molecule in a table.

    Args:
        output: CSV, TSV, Parquet, Excel, SDF or SMILES file: all rows and columns of the input, the
            columns embedding_0, embedding_1, ... (see "Embeddings" in the documentation; for an
            ensemble, that of each member in turn), and error, the reason code of a row without an
            embedding (see "Reason codes").
    """
    check_is_path(output)
    console = make_console()
    table = input_table(inputs, config)
    warn_if_ambiguous(console, model)
    reuse_memory()
    from molattn.inference import embed_table
    from molattn.inference.parts import resume_hint

    with resumable(output, resume_hint):
        counts = embed_table(model, table, output, config, console)
    rows = f"{counted(counts.done, 'row')} embedded, {counts.errors:,} with an error"
    print_line(console, f"{rows}; written to {output}")


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
        if error.name is None or error.name.startswith("molattn"):
            raise
        raise InputError(
            f"molattn serve needs the package {error.name}, which is not installed: "
            "pip install 'molattn[serve]'"
        ) from error
    console = make_console(stderr=True)
    for model in models:
        warn_if_ambiguous(console, model)
    run_server(models, config, console)


def verify(model: ModelFolder, /) -> None:
    """Check that the files of a saved model are complete and unchanged.

    Compares the files with the manifest (sizes, SHA-256), loads the model, and names the RDKit of
    the training if another one is installed.
    """
    from molattn.model.artefact import ModelFiles, find_model
    from molattn.model.model import MolAttn

    console = make_console()
    files = ModelFiles.read(find_model(model))
    for name, problem in files.problems().items():
        size = f"{len(files.content[name]):,}" if name in files.content else "-"
        print_line(console, f"{name:<32}  {size:>12}  {problem or 'ok'}")
    files.check()
    config = files.config
    has_parts = bool(config.get("custom_parts"))
    if not has_parts and (remark := MolAttn.from_files(files).inputs_remark()):
        print_line(console, remark)
    loaded = "not loaded, as it has custom parts" if has_parts else "the model can be loaded"
    saved = f"format {config.get('format')}, saved by molattn {config.get('molattn_version')}"
    print_line(console, f"{files.folder}: {saved}; all files as saved; {loaded}")
