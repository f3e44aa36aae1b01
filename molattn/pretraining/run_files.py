"""The files of a pretraining run: the model with its card, and the scores."""

import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from molattn.config import PretrainConfig
from molattn.data.store import REJECTED_FILE
from molattn.model.artefact import CONFIG_FILE, WEIGHTS_FILE
from molattn.pretraining.run import MOLECULES_FOLDER, PretrainingRun
from molattn.training.history import write_history
from molattn.training.run_folder import RESULT_FILE
from molattn.utils.files import write_file, write_json

__all__ = ["describe_scores", "write_pretraining"]

_SCORES = {
    "descriptors": ("R² of descriptors", "mean_r2"),
    "morgan": ("R² of Morgan counts", "r2"),
    "atom_pairs": ("R² of atom-pair counts", "r2"),
    "torsions": ("R² of torsion counts", "r2"),
    "atoms": ("accuracy of masked elements", "accuracy"),
    "bonds": ("accuracy of masked bonds", "accuracy"),
    "columns": ("R² of columns", "mean_r2"),
}
_CARD = """---
library_name: molattn
tags:
- chemistry
---
A molattn network pretrained on molecules without labels.
Fine-tune it with `molattn train --init-from` and this folder.
{use}

## Data
{data}

{training:,} training and {validation:,} validation molecules; not used: {duplicates:,} duplicates,
{left_out:,} excluded and {invalid:,} invalid; {excluded_invalid:,} rows of the excluded tables have
no valid molecule. SHA-256 of the InChIKey first blocks, in order: {sha256}

## Training
{steps} steps in {epochs} epochs (best: {kept_epoch}), {training_hours:.2f} hours, seed {seed},
{packages}. {initial}

    {command}

## Scores on the validation molecules
{scores}
"""


def write_pretraining(run: PretrainingRun, folder: Path) -> None:
    """Write the model (``model/``) with a card, ``metrics.json`` and ``history.csv``.

    Molecules that were prepared for this run only are removed, but for ``rejected.csv``, the list
    of invalid rows.
    """
    run.model.save_pretrained(folder / "model")
    write_file(folder / "model" / "README.md", _model_card(run).encode())
    write_history(folder, run.history.epochs)
    write_json(folder / RESULT_FILE, run.metrics)
    rejected = folder / MOLECULES_FOLDER / REJECTED_FILE
    if run.metrics["molecules"]["refused"] and rejected.exists():
        rejected.replace(folder / REJECTED_FILE)
    shutil.rmtree(folder / MOLECULES_FOLDER, ignore_errors=True)


def describe_scores(scores: Mapping[str, Any]) -> list[str]:
    """Return the main score of each target as text."""
    lines = []
    for target, (name, key) in _SCORES.items():
        if target in scores:
            found = scores[target].get("element", {}) if target == "atoms" else scores[target]
            value = found.get(key)
            lines.append(f"{name} {'undefined' if value is None else f'{value:.3f}'}")
    return lines


def _command(config: PretrainConfig) -> str:
    """Return the command that reproduces the model, with file names in place of paths."""
    words = ["molattn", "pretrain", *(Path(file).name for file in config.files)]
    for name, value in config.changes().items():
        option = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            words.append(option if value else option.replace("--", "--no-", 1))
        elif name != "molecules_folder":
            values = value if isinstance(value, tuple) else (value,)
            is_path = name == "exclude" or (name == "init_from" and Path(values[0]).is_absolute())
            words += [option, *(Path(one).name if is_path else str(one) for one in values)]
    return shlex.join([*words, "--output", "pretrained"])


def _model_card(run: PretrainingRun) -> str:
    molecules, note = run.metrics["molecules"], run.config.molecules.data_note
    use = "It did not learn the descriptors: what `molattn predict` returns has no meaning."
    if "descriptors" in run.config.training.targets:
        use = "`molattn predict` returns descriptors, clipped to the 0.1% and 99.9% quantiles."
    if run.model.nets[0].projection is not None:
        use += "\nEmbeddings are projected: as far apart as the columns predicted for them."
    initial, digest = "", run.metrics["init_from_sha256"]
    if digest:
        files = f"{CONFIG_FILE} and {WEIGHTS_FILE}"
        initial = f"Initial weights from a model, SHA-256 {digest} (of {files})."
    data = [
        *([note, ""] if note else []),
        *(f"- {one['name']}, SHA-256 {one['sha256']}" for one in molecules["files"]),
        *(f"- excluded: {one['name']}, SHA-256 {one['sha256']}" for one in molecules["excluded"]),
    ]
    packages = (f"{name} {version}" for name, version in run.metrics["versions"].items())
    return _CARD.format(
        **{**molecules, **run.metrics, "validation": molecules["validation"]},
        use=use,
        data="\n".join(data),
        invalid=sum(molecules["refused"].values()),
        excluded_invalid=sum(molecules["excluded_refused"].values()),
        initial=initial,
        packages=", ".join(packages),
        command=_command(run.config),
        scores="\n".join(f"- {line}" for line in describe_scores(run.metrics["validation"])),
    )
