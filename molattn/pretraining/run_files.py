"""The files of a pretraining run: the model with its card, and the scores."""

import shlex
import shutil
from pathlib import Path
from typing import Any

from molattn.data.store import REJECTED_FILE
from molattn.model.artefact import CONFIG_FILE, WEIGHTS_FILE
from molattn.pretraining.run import MOLECULES_FOLDER, PretrainingRun
from molattn.training.history import write_history
from molattn.training.run_folder import RESULT_FILE
from molattn.utils.files import write_file, write_json

__all__ = ["pretrain_command", "pretraining_metrics", "write_pretraining"]

_MODEL_FOLDER = "model"
_TARGETS = {
    "descriptors": "RDKit descriptors",
    "morgan": "Morgan counts",
    "atom_pairs": "atom-pair counts",
    "torsions": "torsion counts",
    "atoms": "masked atoms",
    "bonds": "masked bonds",
    "columns": "columns of the table",
}


def write_pretraining(run: PretrainingRun, folder: Path) -> None:
    """Write the model (``model/``) with a card, ``metrics.json`` and ``history.csv``.

    Molecules that were prepared for this run only are removed, but for ``rejected.csv``, the list
    of invalid rows.
    """
    run.model.save_pretrained(folder / _MODEL_FOLDER)
    write_file(folder / _MODEL_FOLDER / "README.md", model_card(run).encode())
    write_history(folder, run.history.epochs)
    write_json(folder / RESULT_FILE, pretraining_metrics(run))
    rejected = folder / MOLECULES_FOLDER / REJECTED_FILE
    if run.molecules["refused"] and rejected.exists():
        rejected.replace(folder / REJECTED_FILE)
    shutil.rmtree(folder / MOLECULES_FOLDER, ignore_errors=True)


def pretraining_metrics(run: PretrainingRun) -> dict[str, Any]:
    """Return all figures of a run as JSON types."""
    return {
        "molecules": {
            **run.molecules,
            "training": run.training,
            "validation": run.validation,
            "bytes_per_molecule": round(run.num_bytes / (run.training + run.validation), 1),
        },
        "validation": run.scores,
        "epochs": len(run.history.epochs),
        "kept_epoch": run.history.best,
        "steps": run.history.steps,
        "training_hours": round(run.history.seconds / 3600.0, 4),
        "hours": round(run.seconds / 3600.0, 4),
        "seed": run.config.training.seed,
        "init_from_sha256": run.init_from,
        "versions": run.versions,
    }


def pretrain_command(run: PretrainingRun) -> str:
    """Return the command that reproduces the model, with file names in place of paths."""
    words = ["molattn", "pretrain", *(Path(file).name for file in run.config.files)]
    for name, value in run.config.changes().items():
        option = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            words.append(option if value else option.replace("--", "--no-", 1))
        elif name != "molecules_folder":
            values = value if isinstance(value, tuple) else (value,)
            is_place = name == "exclude" or (name == "init_from" and Path(values[0]).is_absolute())
            words += [option, *(Path(one).name if is_place else str(one) for one in values)]
    return shlex.join([*words, "--output", "pretrained"])


def model_card(run: PretrainingRun) -> str:
    """Return the model's README."""
    figures, read, loop = pretraining_metrics(run), run.molecules, run.config.training
    invalid = sum(read["excluded_refused"].values())
    targets = [target for target in _TARGETS if target in run.scores]
    lines = [
        "---",
        "library_name: molattn",
        "tags:",
        "- chemistry",
        "---",
        "A molattn network pretrained on molecules without labels to predict "
        f"{_joined([_TARGETS[target] for target in targets])}.",
        "Fine-tune it with `molattn train --init-from` and this folder.",
        "`molattn predict` returns the descriptors, clipped to the range between their 0.1% and "
        "99.9% quantiles in training."
        if "descriptors" in loop.targets
        else "It did not learn the descriptors: what `molattn predict` returns has no meaning.",
        *(
            ["Embeddings are projected: they are as far apart as the columns predicted for them."]
            if run.model.nets[0].projection is not None
            else []
        ),
        "",
        "## Data",
        *([run.config.molecules.data_note, ""] if run.config.molecules.data_note else []),
        *(f"- {one['name']}, SHA-256 {one['sha256']}" for one in read["files"]),
        *(f"- excluded: {one['name']}, SHA-256 {one['sha256']}" for one in read["excluded"]),
        "",
        f"{run.training:,} training and {run.validation:,} validation molecules; not used: "
        f"{read['duplicates']:,} duplicates, {read['left_out']:,} excluded and "
        f"{sum(read['refused'].values()):,} invalid. "
        f"SHA-256 of the InChIKey first blocks, in order: {read['sha256']}",
        *([f"{invalid} rows of the excluded tables have no valid molecule."] if invalid else []),
        "",
        "## Training",
        f"{figures['steps']} steps in {figures['epochs']} epochs (best: "
        f"{figures['kept_epoch']}), {figures['training_hours']:.2f} hours, seed {figures['seed']}, "
        + ", ".join(f"{package} {number}" for package, number in run.versions.items())
        + f", --device {loop.device}, --threads {loop.threads}.",
        *([_initial_model(run.init_from)] if run.init_from else []),
        "",
        f"    {pretrain_command(run)}",
        "",
        "## Scores on the validation molecules",
        *(
            ["In parentheses: the accuracy of always predicting the most frequent value.", ""]
            if {"atoms", "bonds"} & {*loop.targets}
            else []
        ),
        "| | |",
        "| --- | --- |",
        *(
            f"| {name} | {_shown(value)} |"
            for target in targets
            for name, value in _score_rows(target, run.scores[target])
        ),
        "",
    ]
    return "\n".join(lines)


def _score_rows(target: str, scores: dict[str, Any]) -> list[tuple[str, float | str | None]]:
    """Return the scores of a target, each with its name."""
    if target == "descriptors":
        return [(f"descriptors, R² ({kind})", scores[f"{kind}_r2"]) for kind in ("mean", "median")]
    if target == "columns":
        return [("columns, R² (mean)", scores["mean_r2"])]
    if target == "atoms":
        return [(f"masked atoms, {name}, accuracy", _both(hits)) for name, hits in scores.items()]
    if target == "bonds":
        return [("masked bonds, accuracy", _both(scores))]
    return [(f"{_TARGETS[target]}, R² (pooled)", scores["r2"])]


def _initial_model(digest: str) -> str:
    return f"Initial weights from a model, SHA-256 {digest} (of {CONFIG_FILE} and {WEIGHTS_FILE})."


def _joined(names: list[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _both(hits: dict[str, float | None]) -> str | None:
    if hits["accuracy"] is None:
        return None
    return f"{hits['accuracy']:.3f} ({hits['commonest']:.3f})"


def _shown(value: float | str | None) -> str:
    return "none" if value is None else value if isinstance(value, str) else f"{value:.3f}"
