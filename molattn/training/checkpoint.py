"""Checkpoints of a training: the nested state of Lightning as one safetensors file.

Tensors are stored as tensors and everything else as JSON in the header of the file; nothing is
pickled. The header has the SHA-256 of the file, in which a placeholder stands for it.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from rich.console import Console
from safetensors import SafetensorError, safe_open
from torch import Tensor

from molattn.config import check_same_digest
from molattn.config.base import check_same_values
from molattn.errors import InputError
from molattn.model.model import MolAttn
from molattn.training.run_folder import CHECKPOINT_FILE
from molattn.utils.console import print_line
from molattn.utils.files import write_file
from molattn.version import package_versions, version_changes

RUN_KEY = "molattn_about"
"""Key of a checkpoint for the identity of its run."""
STATE_KEY = "molattn_state"
"""Key of a checkpoint for the state that Lightning does not save."""
_HEADER = "molattn_checkpoint"
_TENSOR = "name of a tensor"
_PLACEHOLDER = "sha256-of-this-file".ljust(64, "-")


@dataclass(frozen=True)
class RunCheckpoint:
    """The checkpoint of a run, and what identifies the run."""

    folder: Path
    # Data and initial model, each as the subject of a message, and its SHA-256; None = random.
    sources: Mapping[str, tuple[str, str | None]]
    model: MolAttn  # the new model, whose structure is compared

    @property
    def identity(self) -> dict[str, Any]:
        """What identifies the run in its checkpoints."""
        config = self.model.config.to_dict()
        return {
            **{name: digest for name, (_, digest) in self.sources.items()},
            "versions": package_versions(),
            "model": {name: config[name] for name in ("featurizer", "custom_parts")},
        }

    def read(self, console: Console | None = None) -> dict[str, Any] | None:
        """Return the checkpoint if there is one, and log where the training resumes.

        A package that affects results and has changed its version is logged too. A checkpoint of
        other data, initial weights or another model is an :class:`InputError`.
        """
        path = self.folder / CHECKPOINT_FILE
        if not path.exists():
            return None
        checkpoint = read_checkpoint(path)
        before = checkpoint[RUN_KEY]
        for name, (what, digest) in self.sources.items():
            check_same_digest(f"{what} has", digest, before[name], self.folder)
        check_same_values(before["model"], self.identity["model"], self.folder)
        for line in version_changes(before["versions"]):
            print_line(console, line)
        epochs = len(checkpoint[STATE_KEY]["curve"])
        step = checkpoint["global_step"]
        print_line(console, f"Resuming after epoch {epochs}, step {step}")
        return checkpoint


def write_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write a checkpoint atomically: the path holds the previous one or this one.

    The state consists of dictionaries, lists and tuples of tensors, numbers, strings, booleans and
    None; anything else is a ``TypeError``. Tuples become lists, and keys that are digits integers.
    """
    tensors: dict[str, Tensor] = {}

    def named(value: Any) -> dict[str, str]:
        if not isinstance(value, Tensor):
            raise TypeError(f"a checkpoint cannot hold {type(value).__name__}")
        name = str(len(tensors))
        # A copy, as the format refuses tensors that share memory.
        tensors[name] = value.detach().cpu().clone().contiguous()
        return {_TENSOR: name}

    header = json.dumps([_PLACEHOLDER, state], default=named)
    content = safetensors.torch.save(tensors, {_HEADER: header})
    digest = hashlib.sha256(content).hexdigest()
    write_file(path, content.replace(_PLACEHOLDER.encode(), digest.encode(), 1))


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read what :func:`write_checkpoint` wrote; tensors are on the CPU.

    Raises:
        InputError: If the file cannot be read, is no checkpoint or is damaged.
    """

    def restored(value: dict[str, Any]) -> Any:
        if _TENSOR in value:
            return file.get_tensor(value[_TENSOR])
        return {int(key) if key.isdecimal() else key: content for key, content in value.items()}

    try:
        with safe_open(path, framework="pt") as file:
            header = (file.metadata() or {})[_HEADER]
            digest, state = json.loads(header, object_hook=restored)
        content = path.read_bytes().replace(str(digest).encode(), _PLACEHOLDER.encode(), 1)
        if hashlib.sha256(content).hexdigest() != digest:
            raise ValueError("its content is not what was written")
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"{path}: not a readable checkpoint: {error}; to train that part again, remove the "
            "file, or the folder of a finished fold"
        ) from error
    return state
