"""The folder of an updated model: model, card, options of the training, and a short report."""

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, replace
from math import isnan
from pathlib import Path

from rich.console import Console

from molattn.config import TrainConfig
from molattn.config.data import FileOptions
from molattn.config.yaml_file import read_config_file
from molattn.errors import InputError, reason_meaning
from molattn.evaluation.report.tables import target_label
from molattn.model.artefact import PACKAGED, find_model
from molattn.model.model import MolAttn
from molattn.training.run_folder import CONFIG_FILE
from molattn.training.update import LEVEL, UpdatedModel, update_model
from molattn.utils.console import counted
from molattn.utils.files import atomic_folder, write_file

REPORT_FILE = "update.md"
_CARD_SECTION = "\n## Updates\n\nScores above are of the model before these updates.\n\n"


def update_run(
    run: str | Path,
    source: str | Path,
    output: Path,
    options: FileOptions,
    console: Console | None = None,
) -> UpdatedModel:
    """Let the model of a run learn from a table of new measurements, and write it to a new folder.

    Columns are read by the options of the training, ``config.yaml`` of the run, but for the options
    of the file that are not at their defaults.

    Raises:
        InputError: The model cannot be updated, the table cannot be used, or the output exists.
    """
    folder = find_model(run)
    if folder.parent == PACKAGED:
        reason = "a packaged model cannot be updated, as it does not keep its training table"
        raise InputError(f"{run}: {reason}; train a model of your own")
    if output.exists():
        raise InputError(f"got {output}, expected a new folder", option="output")
    config_file = folder.parent / CONFIG_FILE
    if not config_file.is_file():
        raise InputError(f"{run}: has no {CONFIG_FILE}, expected the folder of a run")
    data = TrainConfig(**read_config_file(config_file)).data
    values = {option.name: getattr(options, option.name) for option in fields(FileOptions)}
    changed = {name: value for name, value in values.items() if value != getattr(FileOptions, name)}
    model = MolAttn.from_pretrained(folder)
    updated = update_model(model, replace(data, **changed), source, console)
    card = folder / "README.md"
    text = card.read_text("utf-8") if card.is_file() else ""
    text += "" if _CARD_SECTION in text else _CARD_SECTION
    with atomic_folder(output) as new:
        new_model = new / "model"
        updated.model.save_pretrained(new_model)
        write_file(new_model / "README.md", f"{text}- {updated.update}\n".encode())
        shutil.copy(config_file, new / CONFIG_FILE)
        write_file(new / REPORT_FILE, ("\n".join(_report(updated, run)) + "\n").encode())
    return updated


def _report(updated: UpdatedModel, run: str | Path) -> Iterator[str]:
    """Yield the lines of the report, Markdown."""
    table = updated.table
    yield f"# Update of {run} by {table.path.name}\n"
    reasons = Counter(row.code for row in table.skipped)
    skipped = ", ".join(f"{count:,} {reason_meaning(code)}" for code, count in reasons.items())
    words = f"{counted(len(table.rows), 'row')} used, {len(table.skipped)} skipped"
    replicates = f"{counted(updated.replicates, 'row')} of training molecules"
    yield f"{words}{f' ({skipped})' if skipped else ''}; {replicates}, which count as replicates.\n"
    if not updated.before:
        yield "All new labels are censored, so that no errors are known.\n"
    errors = "expected error | actual error | in the interval"
    yield f"| target | measured labels | before: {errors} | after: {errors} |"
    yield "| --- " * 8 + "|"
    for before, after in zip(updated.before, updated.after, strict=True):
        cells = [target_label(before.task), f"{before.count:,}"]
        for row in (before, after):
            inside = "" if isnan(row.inside) else f"{row.inside:.0%}"
            expected = "unknown" if isnan(row.expected) else f"{row.expected:.3g} {row.scale}"
            cells += [expected.strip(), f"{row.actual:.3g} {row.scale}".strip(), inside]
        yield f"| {' | '.join(cells)} |"
    yield (
        "\nErrors are means over the measured labels: absolute, in the unit of the target; on "
        "log10, if it is learned as a logarithm (0.3 is a factor of 2); or rates of wrong classes. "
        f"Intervals are of {LEVEL:.0%}. *Before* is the model that had not seen them. *After* is "
        "the updated model, for each row without its own label. A label that is an interval counts "
        "as its value, or else its middle. Censored labels are learned from, but not in these "
        "errors.\n"
    )
    for line in updated.update.recalibrated or ("Nothing was recalibrated.",):
        yield f"- {line}"
    for line in updated.misfits:
        yield f"- **{line}**"
    if not updated.misfits:
        yield "- No target with ten new labels says that the model no longer fits."
    yield "\nThe network has not learned from the new rows; the Gaussian process has."
