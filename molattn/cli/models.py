"""The commands of saved models, such as ``molattn predict``; and ``prepare``."""

import csv
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from io import BytesIO, StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from molattn.cli.options import STREAM, Imports, group, make_console, section
from molattn.config import (
    EmbedConfig,
    ExplainConfig,
    ExportConfig,
    MoleculeLimits,
    PlanConfig,
    PredictConfig,
    PrepareConfig,
    ServeConfig,
    TableConfig,
)
from molattn.config.data import FileOptions
from molattn.data.table import SMILESList, Source, Table, format_by_suffix, open_table
from molattn.errors import InputError, MolattnError, SmilesError, quoted, reason_meaning
from molattn.utils.console import counted, print_line, print_remarks, three_digits
from molattn.utils.files import write_file
from molattn.utils.registry import import_files
from molattn.utils.workers import reuse_memory

if TYPE_CHECKING:
    from rich.console import Console

    from molattn.model.model import MolAttn
    from molattn.model.onnx_file import TestScores

ModelFolder = Annotated[
    Path,
    Parameter(
        help="Folder of a run or of a saved model, or a packaged model: admet, base, base-large, "
        "base-minimol, base-small."
    ),
]
Inputs = Annotated[
    list[str],
    Parameter(
        name="INPUT",
        help="CSV, TSV, Parquet, Excel, SDF or SMILES file, or a store of molattn prepare; - for "
        "standard input; or one or more SMILES.",
    ),
]


def predict(
    model: ModelFolder,
    inputs: Inputs,
    /,
    *,
    output: Annotated[Path | None, group("Output")] = None,
    config: Annotated[PredictConfig, section("Prediction")] = PredictConfig(),
    imports: Imports = (),
) -> None:
    """Predict the properties of each molecule in a table.

    If there is a column of a target of the model, the predictions are scored.

    Args:
        output: CSV, TSV, Parquet, Excel, SDF or SMILES file: all rows and columns of the input,
            the predictions, and error, why a row has none. By default, and as -, CSV on standard
            output.
    """
    import_files(imports)
    console = make_console(stderr=True)
    table = input_table(inputs, config)
    reuse_memory()
    from molattn.evaluation.report.tables import print_label_scores
    from molattn.inference import predict_table
    from molattn.inference.parts import resume_hint
    from molattn.inference.streaming import with_workers

    file = None if output is None or str(output) == STREAM else output
    if file is None and sys.stdout is None:
        raise InputError("standard output is closed; use --output")
    is_shown = file is None and isinstance(table, SMILESList) and _is_readable(config)
    written: Any = file or (BytesIO() if is_shown else sys.stdout.buffer)
    with nullcontext() if file is None else _resumable(file, resume_hint):
        options = with_workers(config, table)
        if is_shown:
            options = replace(options, style="machine", escape_formulas=False)
        predicted = predict_table(model, table, written, options, console)
    if is_shown:
        _print_predictions(predicted.model, written.getvalue().decode(), make_console())
    elif file is None:
        sys.stdout.flush()
    print_label_scores(predicted, console)
    predicted_rows, errors = predicted.counts
    seconds = predicted.tally.seconds
    destination = "" if file is None else f"; written to {file}"
    rows = f"{counted(predicted_rows, 'row')} predicted, {errors:,} with an error{destination}"
    rate = three_digits((predicted_rows + errors) / max(seconds, 1e-9))
    print_line(console, f"{rows}, in {seconds:.1f} s ({rate} a second)")


def _is_readable(config: PredictConfig) -> bool:
    """Return whether predictions on standard output are for people."""
    is_shown = config.style == "readable" or (config.style == "auto" and sys.stdout.isatty())
    return is_shown and config.neighbors is None and not (config.atoms or config.bonds)


def _print_predictions(model: "MolAttn", text: str, console: "Console") -> None:
    """Print a table for each molecule of predictions as CSV: name, value, range, confidence."""
    from rich.markup import escape
    from rich.table import Table as Shown

    from molattn.model.readable import readable_values

    header, *rows = csv.reader(StringIO(text))
    columns = {"name": "Property", "value": "Value", "range": "Interval or probability"}
    columns["confidence"] = "Confidence (expected error)"
    columns |= {"measured": "Measured"} if "measured_remark" in header else {}
    columns |= {"reason": "Reason"} if "_confidence_reason" in " ".join(header) else {}
    for cells in rows:
        row = dict(zip(header, cells, strict=True))
        others = "".join(f", {name} as written" for name in model.config.written_tasks)
        parent = f", predicted as its parent {row['parent']}{others}" if row.get("parent") else ""
        console.print(f"\n{cells[0]}{parent}", style="bold", markup=False, highlight=False)
        if code := cells[-1]:
            console.print(f"no prediction: {code}: {reason_meaning(code)}", markup=False)
            continue
        table = Shown(box=None, pad_edge=False)
        group = ""
        for heading in columns.values():
            table.add_column(heading)
        for value in readable_values(model.config, model.endpoints, header, cells):
            if value.category != group:
                group = value.category
                table.add_row(f"[b]{group}[/b]")
            table.add_row(*(escape(getattr(value, name)) for name in columns))
        console.print(table)


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
    _check_is_path(output)
    console = make_console()
    tables = [
        _open_standard_input(config) if word == STREAM else open_table(word, options=config)
        for word in inputs
    ]
    from molattn.data.prepare import prepare_store, resume_hint

    start = time.perf_counter()
    with _resumable(output, resume_hint):
        index = prepare_store(tables, output, config, console)
    seconds = time.perf_counter() - start
    print_remarks(console, Counter(index.rejected))
    size = index.num_bytes / max(1, index.molecules)
    print_line(
        console,
        f"{counted(index.molecules, 'molecule')} prepared, {sum(index.rejected.values()):,} rows "
        f"rejected; written to {output} ({size:.0f} bytes a molecule), in {seconds:.1f} s",
    )


def plan(
    model: ModelFolder,
    inputs: Inputs,
    /,
    *,
    output: Annotated[Path, group("Output")],
    config: Annotated[PlanConfig, section("Plan")] = PlanConfig(),
    imports: Imports = (),
) -> None:
    """Choose the molecules of a table that are worth measuring next.

    They are chosen one after another, each as if those before were measured already, so that they
    differ from each other.

    Args:
        output: CSV, TSV, Parquet, Excel, SDF or SMILES file: the chosen rows of the input, best
            first, with rank, acquisition, reason, and their predictions.
    """
    import_files(imports)
    _check_is_path(output)
    console = make_console()
    table = input_table(inputs, config)
    from molattn.inference.plan import plan_table
    from molattn.inference.streaming import with_workers

    count = plan_table(model, table, output, with_workers(config, table), console)
    print_line(console, f"{counted(count, 'molecule')} chosen; written to {output}")


def update(
    run: Annotated[Path, Parameter(name="RUN", help="Folder of a run, or of an updated one.")],
    table: Annotated[
        str,
        Parameter(
            name="MEASURED",
            help="CSV, TSV, Parquet, Excel, SDF or SMILES file with the columns of the training; "
            "targets that were not measured may be missing.",
        ),
    ],
    /,
    *,
    output: Annotated[Path, group("Output")],
    config: Annotated[FileOptions, section("Data")] = FileOptions(),
    imports: Imports = (),
) -> None:
    """Let a model learn from new measurements, without training again.

    The Gaussian process learns from the new rows; predictions and intervals are recalibrated if a
    test on at least ten new labels says so. The network and RUN stay as they are.

    Args:
        output: New folder for the updated model, with update.md, which compares expected and actual
            errors of the new rows.
    """
    import_files(imports)
    _check_is_path(output)
    console = make_console()
    from molattn.evaluation.report.update_report import update_run

    update_run(run, table, output, config, console)
    print_line(console, f"written to {output}; see {output / 'update.md'}")


def explain(
    model: ModelFolder,
    inputs: Inputs,
    /,
    *,
    output: Annotated[Path, group("Output")],
    config: Annotated[ExplainConfig, section("Explanation")] = ExplainConfig(),
    imports: Imports = (),
) -> None:
    """Explain the prediction of each molecule in a table.

    Args:
        output: Folder for index.html (a self-contained page), pictures and tables. Earlier
            explanations in it are replaced.
    """
    import_files(imports)
    _check_is_path(output)
    console = make_console()
    table = input_table(inputs, config)
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
    imports: Imports = (),
) -> None:
    """Write the learned embedding of each molecule in a table.

    Args:
        output: CSV, TSV, Parquet, Excel, SDF or SMILES file: all rows and columns of the input,
            the columns embedding_0, embedding_1, ... (for an ensemble, of each member in turn), and
            error, why a row has none.
    """
    import_files(imports)
    _check_is_path(output)
    console = make_console()
    table = input_table(inputs, config)
    reuse_memory()
    from molattn.inference import embed_table
    from molattn.inference.parts import resume_hint
    from molattn.inference.streaming import with_workers

    with _resumable(output, resume_hint):
        counts = embed_table(model, table, output, with_workers(config, table), console)
    rows = f"{counted(counts.done, 'row')} embedded, {counts.errors:,} with an error"
    print_line(console, f"{rows}; written to {output}")


def serve(
    models: Annotated[list[Path], Parameter(name="MODEL")] = [Path("admet")],  # noqa: B006
    /,
    *,
    config: Annotated[ServeConfig, section("Server")] = ServeConfig(),
    imports: Imports = (),
) -> None:
    """Show predictions on a page in the browser, and answer programs over HTTP.

    The page is http://127.0.0.1:8000, the description of the API /docs. Both are served by this
    machine and load nothing from others. SIGTERM or Ctrl+C ends the server once the requests that
    it accepted are answered, for at most 10 seconds; then their connections break off.

    Args:
        models: Folders of runs or of saved models, or admet, the packaged model of ADMET
            properties, which is the default. Requests choose one by the last part of its folder;
            without a choice it is the first.
    """
    with _extra("serve", "serve"):
        from molattn.serve.run import run_server
    import_files(imports)
    console = make_console(stderr=True)
    run_server(models, config, console)


def export(
    model: ModelFolder,
    /,
    *,
    output: Annotated[Path, group("Output")],
    config: Annotated[ExportConfig, section("Export")] = ExportConfig(),
    imports: Imports = (),
) -> None:
    """Write a model as a file that other programs run without torch.

    ONNX: molecules and atoms in any number, predictions in own units, class probabilities, and
    embeddings; several networks are averaged. Prediction intervals are left out, and so is the
    Gaussian process without --with-gaussian-process, as the log says, with the test scores of the
    network alone and of the whole model. See "ONNX" in the documentation.

    Args:
        output: The file, such as model.onnx; an existing one is replaced.
    """
    import_files(imports)
    _check_is_path(output)
    console = make_console()
    from molattn.evaluation.scores.run_metrics import main_test_scores
    from molattn.model.artefact import find_model
    from molattn.model.model import MolAttn
    from molattn.model.onnx_file import to_onnx

    loaded = MolAttn.from_pretrained(model)
    with _extra("export", "onnx"):
        scores = main_test_scores(find_model(model).parent)
        whole = config.with_gaussian_process
        content, exported = to_onnx(loaded, scores, with_gaussian_process=whole)
    write_file(output, content)
    targets = counted(len(exported.config.all_tasks), "target")
    size = f"{len(content) / 1e6:.1f} MB"
    left_out = ", ".join(exported.left_out()) or "nothing"
    print_line(console, f"{targets} written to {output} ({size}); left out: {left_out}")
    if exported.network_weights() and exported.process is None:
        _print_network_scores(exported.test_scores, console)


def _print_network_scores(scores: "TestScores", console: "Console") -> None:
    from molattn.evaluation.report.tables import format_score

    if not scores:
        print_line(console, "how well the network predicts alone is not known: no run with a test")
    for task, of_network in scores.get("network", {}).items():
        for metric, value in of_network.items():
            whole = format_score(scores["test"][task][metric])
            alone = f"{format_score(value)} of the network alone"
            print_line(console, f"test {metric} of {task}: {alone}, {whole} of the whole model")


@contextmanager
def _extra(command: str, extra: str) -> Iterator[None]:
    """Name what to install if a package of an extra is missing."""
    try:
        yield
    except ImportError as error:
        if error.name is None or error.name.startswith("molattn"):
            raise
        raise InputError(
            f"molattn {command} needs the package {error.name}, which is not installed: "
            f"pip install 'molattn[{extra}]'"
        ) from error


def verify(model: ModelFolder, /) -> None:
    """Check that the files of a saved model are complete and unchanged.

    Compares the files with the manifest (sizes, SHA-256), names the RDKit of the training if
    another one is installed, and lists updates. The model itself is not loaded.
    """
    from molattn.model.artefact import UPDATES_FILE, ModelFiles, Update, find_model, inputs_remark

    console = make_console()
    files = ModelFiles.read(find_model(model))
    for name, problem in files.problems().items():
        size = f"{len(files.content[name]):,}" if name in files.content else "-"
        print_line(console, f"{name:<32}  {size:>12}  {problem or 'ok'}")
    files.check()
    config = files.config
    if remark := inputs_remark(files.versions):
        print_line(console, remark)
    for made in files.parse(UPDATES_FILE, tuple[Update, ...]) or ():
        print_line(console, str(made))
    saved = f"format {config.get('format')}, saved by molattn {config.get('molattn_version')}"
    print_line(console, f"{files.folder}: {saved}; all files as saved")


def input_table(words: Sequence[str], config: TableConfig) -> Table:
    """Open standard input (``-`` alone), a file, or SMILES in its place.

    An existing path is a file. Anything else is a SMILES, unless it is not a valid one and has a
    path separator or the suffix of a table, as the name of a missing file does.
    """
    table = _open_standard_input(config) if [*words] == [STREAM] else _open(words, config)
    table.column(config.smiles_column, "--smiles-column")  # checked before torch is loaded
    return table


def _open(words: Sequence[str], config: TableConfig) -> Table:
    words = ["-" if word == STREAM else word for word in words]
    files = [word for word in words if os.path.exists(word)]
    if files and len(words) == 1:
        return open_table(words[0], options=config)
    if files:
        raise InputError(
            f"INPUT: got {len(words)} inputs, one of which is the file {quoted(files[0])}; "
            "expected one file, or SMILES"
        )
    errors = [_error(word, config) for word in words]
    for word, error in zip(words, errors, strict=True):
        is_name = "/" in word or "\\" in word or format_by_suffix(Path(word)) is not None
        if error is not None and (is_name or None not in errors):
            name = word or quoted(word)
            raise InputError(f"{name}: no such file, and not a SMILES: {error.reason}")
    return SMILESList(words, config.smiles_column)


def _open_standard_input(config: TableConfig | PrepareConfig) -> Table:
    """Open standard input as a table, in any format that files have."""
    if sys.stdin is None:
        raise InputError("standard input is closed; expected a table")
    source = Source(sys.stdin.buffer, "standard input")
    return open_table(source, _format(source.start, config), options=config)


def _format(start: bytes, config: TableConfig | PrepareConfig) -> str:
    """Return the format of text that begins with some bytes: SDF, SMILES, or else CSV."""
    lines = start.split(b"\n")
    if len(lines) > 3 and lines[3].rstrip().endswith((b"V2000", b"V3000")):
        return "sdf"
    first = lines[0].decode(errors="replace")
    names = [name.strip(' "\r').lower() for name in re.split("[,;\t]", first)]
    if config.smiles_column.lower() in names:  # the first may be a SMILES, such as "SN"
        return "csv"
    word = next(iter(first.split()), "")
    return "smi" if word and _error(word, config) is None else "csv"


def _error(text: str, config: MoleculeLimits) -> SmilesError | None:
    """Return why a text is not a SMILES; molecules beyond a limit have one."""
    from molattn.chem.limits import read_molecule

    try:
        read_molecule(text, config, bool)
    except SmilesError as error:
        return None if error.code.startswith("too_") else error
    return None


@contextmanager
def _resumable(output: Path, hint: Callable[[Path, BaseException], str]) -> Iterator[None]:
    """Add to errors within the block how to resume what is written, if it is kept."""
    try:
        yield
    except (KeyboardInterrupt, MolattnError, OSError) as error:
        if note := hint(output, error):
            error.add_note(note)
        raise


def _check_is_path(output: Path) -> None:
    """Raise an ``InputError`` for ``--output -`` of a command that does not write to a pipe."""
    if str(output) == STREAM:
        raise InputError("got -, expected a path; only predict writes to a pipe", option="output")
