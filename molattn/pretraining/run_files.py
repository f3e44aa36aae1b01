"""The files of a pretraining run: the model with its card, and the scores."""

import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from molattn.config import PretrainConfig
from molattn.data.store import REJECTED_FILE
from molattn.pretraining.run import MOLECULES_FOLDER, PretrainingRun
from molattn.training.run_folder import RESULT_FILE, write_history
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
Fine-tune it with `molattn train --init-from` and this folder. {use}

{note}

    {command}

```yaml
{facts}```
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
    use = "It did not learn the descriptors that `molattn predict` returns."
    if "descriptors" in run.config.training.targets:
        use = "`molattn predict` returns descriptors, clipped to the 0.1% and 99.9% quantiles."
    if run.model.nets[0].projection is not None:
        use += " Embeddings are projected: as far apart as the columns predicted for them."
    facts = {**run.metrics, "validation": describe_scores(run.metrics["validation"])}
    return _CARD.format(
        use=use,
        note=run.config.molecules.data_note or "",
        command=_command(run.config),
        facts=yaml.safe_dump(facts, sort_keys=False, allow_unicode=True),
    )
