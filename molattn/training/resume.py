"""Resuming an interrupted training run from its checkpoint."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from molattn.config import RunConfig, check_same_digest, check_same_options
from molattn.errors import InputError
from molattn.model.model import MolAttn
from molattn.training.checkpoint import CHECKPOINT_FILE, read_checkpoint
from molattn.training.lightning.module import RUN_KEY, epochs_done
from molattn.utils.console import print_line
from molattn.version import package_versions, version_changes

__all__ = [
    "check_same_model",
    "model_fingerprint",
    "resume_checkpoint",
    "resume_message",
    "run_fingerprint",
]


def run_fingerprint(config: RunConfig, init_from: str | None, data: str) -> dict[str, Any]:
    """Return what identifies a run in its checkpoints."""
    return {
        "config": config.to_dict(),
        "init_from": init_from,
        "data": data,
        "versions": package_versions(),
    }


def resume_checkpoint(
    folder: Path,
    config: RunConfig,
    init_from: str,
    fingerprint: Mapping[str, Any],
    data: str,
    console: Console | None,
) -> dict[str, Any] | None:
    """Read the checkpoint of a folder, if there is one, and check that it is of the same run.

    A package that affects results and has changed its version is logged.

    Returns:
        The checkpoint, or None if there is none.

    Raises:
        InputError: If the checkpoint cannot be read, or is of a run with other options, data or
            initial weights.
    """
    path = folder / CHECKPOINT_FILE
    if not path.exists():
        return None
    checkpoint = read_checkpoint(path)
    before = checkpoint[RUN_KEY]
    check_same_options(type(config).from_dict(before["config"]), config, folder)
    check_same_digest(data, fingerprint["data"], before["data"], folder)
    model = f"--init-from: the model {init_from} has"
    check_same_digest(model, fingerprint["init_from"], before.get("init_from"), folder)
    for line in version_changes(before["versions"]):
        print_line(console, line)
    return checkpoint


def resume_message(checkpoint: Mapping[str, Any]) -> str:
    """Return the log message of a run that is resumed from a checkpoint."""
    return f"Resuming after epoch {epochs_done(checkpoint)}, step {checkpoint['global_step']}"


def model_fingerprint(model: MolAttn) -> dict[str, str]:
    """Return what identifies the structure of a new model, its featurizer and parts included."""
    config = model.config.to_dict()
    parts = {name: config[name] for name in ("featurizer", "custom_parts")}
    parts["weights"] = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
    return {
        name: hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest()
        for name, part in parts.items()
    }


def check_same_model(
    checkpoint: Mapping[str, Any] | None, now: Mapping[str, str], folder: Path
) -> None:
    """Check that the new model of a resumed run has the structure of that of its checkpoint.

    Raises:
        InputError: Names what differs.
    """
    before = {} if checkpoint is None else checkpoint[RUN_KEY].get("model", {})
    for name, digest in before.items():
        if digest != now[name]:
            raise InputError(
                f"make_model or featurizer: the model has other {name.replace('_', ' ')} than that "
                f"of the run in {folder}; use the original or start a new run"
            )
