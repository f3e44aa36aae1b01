"""The folder of a run: complete, or under another name and resumable; the history in it.

While a run is in progress, its files are in ``NAME.unfinished``, beside the final folder ``NAME``.
If it is interrupted, by Ctrl-C or a power cut, that folder stays and the run can be resumed from
its checkpoint. The process that writes to it holds a lock, which is released when it ends.
"""

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from molattn.data.table import write_table
from molattn.errors import InputError, MolattnError, did_you_mean
from molattn.utils.files import UNFINISHED, check_output_folder, locked, replace_folder

CHECKPOINT_FILE = "checkpoint.safetensors"
CONFIG_FILE = "config.yaml"
PAGE_FILE = "report.html"
RESULT_FILE = "metrics.json"
# Finished rounds of a cross-validation, and prepared molecules of a pretraining.
_RESUMABLE = (f"*fold_*/{RESULT_FILE}", "molecules", "molecules.unfinished/shard_00000.arrow")
_CONTENTS = re.compile(
    r"(repeat_\d+_)?fold_\d+(\.unfinished)?|member_\d+|molecules(\.unfinished)?|model"
    r"|config\.yaml|report\.html|metrics\.json|(checkpoint|out_of_fold)\.safetensors"
    r"|(history|predictions|skipped|unreadable)\.csv"
    r"|(calibration|coverage|learning_curve|parity|roc_pr|similarity)\.png"
    r"|.+\.part|\..+\.lock"
)


class Epoch(NamedTuple):
    """Losses of one epoch, of scaled targets, with its learning rate and duration.

    Without validation rows there is no validation loss.
    """

    epoch: int
    train_loss: float
    validation_loss: float | None
    learning_rate: float
    seconds: float


@dataclass(frozen=True)
class History:
    """The history of a finished training, including what was before an interruption."""

    curve: list[Epoch]  # the learning curve, one entry for each epoch
    kept_epoch: int  # number of the epoch whose weights the model has
    seconds: float = 0.0
    steps: int = 0  # of the optimizer
    frozen_weights: int = 0  # number of weights that were not trained


def write_history(folder: Path, curve: Sequence[Epoch]) -> None:
    """Write ``history.csv``, one row per epoch."""
    with write_table(folder / "history.csv", Epoch._fields) as write:
        for epoch in curve:
            write(epoch)


@contextmanager
def run_folder(
    path: str | Path, *, resume: bool = False, overwrite: bool = False
) -> Iterator[Path]:
    """Write the folder of a run.

    The block writes to the folder of the unfinished run, which is renamed to its final name when
    the block ends without an exception, and replaces the finished run of that name then. If it is
    interrupted, the folder is kept if it has a checkpoint.

    Raises:
        InputError: The path is not a run or cannot be written, another process is writing to it,
            or there is a run that is neither to be resumed nor overwritten.
    """
    path = final_folder(path)
    partial = _unfinished_folder(path)
    for folder in (path, partial):
        check_output_folder(folder, "a run", _is_of_run, (CONFIG_FILE,))
    is_finished = path.is_dir() and any(path.iterdir()) and not has_checkpoint(path)
    if is_finished and not (resume or overwrite):
        raise InputError(
            f"{path}: contains a finished run; use --overwrite to replace it, or another --output"
        )
    new_parents = [parent for parent in path.parents if not parent.exists()]
    try:
        partial.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
    try:
        with locked(partial):
            if has_checkpoint(path) and not (resume or overwrite):
                raise InputError(
                    f"{partial}: contains an unfinished run; --resume {path} continues it, "
                    "--overwrite replaces it"
                )
            yield from _filled(partial, path, resume)
    finally:
        for parent in new_parents:
            with suppress(OSError):  # it is not empty
                parent.rmdir()


def _filled(partial: Path, path: Path, resume: bool) -> Iterator[Path]:
    """Let the block fill a folder, and rename it, or remove it after an error if it is useless."""
    if not resume:
        shutil.rmtree(partial)
        partial.mkdir()
    try:
        yield partial
    except BaseException as error:
        has_rounds = any(partial.glob(_RESUMABLE[0])) or len([*partial.glob("*fold_*")]) > 1
        is_wrong = isinstance(error, MolattnError) and not has_rounds
        if not resume and (is_wrong or not has_checkpoint(path)):
            shutil.rmtree(partial, ignore_errors=True)
        raise
    replace_folder(partial, path)
    # Last, so that an interruption before leaves a run that can be resumed.
    leftovers = (file for name in (".*.part", ".*.lock") for file in path.rglob(name))
    for file in (*path.rglob(CHECKPOINT_FILE), *leftovers):
        file.unlink(missing_ok=True)


def unfinished_run(path: str | Path) -> Path | None:
    """Return the folder of an unfinished run, or None if the run is finished.

    Raises:
        InputError: If there is no such run.
    """
    path = final_folder(path)
    partial = _unfinished_folder(path)
    if (partial / CONFIG_FILE).is_file():
        return partial
    if (path / RESULT_FILE).is_file() and (path / CONFIG_FILE).is_file():
        return None
    others = path.parent.glob(f"*{UNFINISHED}") if path.parent.is_dir() else ()
    hint = did_you_mean(str(path), [str(final_folder(folder)) for folder in others])
    raise InputError(f"--resume {path}: no unfinished run (no folder {partial}){hint}")


def final_folder(path: str | Path) -> Path:
    """Return the final folder of a run, given this folder or the unfinished one."""
    path = Path(path)
    if path.name in ("", ".."):
        path = Path(os.path.abspath(path))
    return path.with_name(path.name.removesuffix(UNFINISHED) or path.name)


def free_folder(path: Path) -> Path:
    """Return the path, with a number if there is a run of that name, finished or not."""
    candidate = path
    number = 1
    while candidate.exists() or _unfinished_folder(candidate).exists():
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate


def has_checkpoint(path: str | Path) -> bool:
    """Return whether there is an unfinished run of that name that can be resumed."""
    partial = _unfinished_folder(final_folder(path))
    return any(any(partial.glob(name)) for name in (f"**/{CHECKPOINT_FILE}", *_RESUMABLE))


def member_folders(folder: Path, count: int) -> list[Path]:
    """Return the folder of each member of an ensemble; a single model is in the run's folder."""
    return [folder] if count == 1 else [folder / f"member_{n}" for n in range(1, count + 1)]


def _is_of_run(name: str) -> bool:
    return _CONTENTS.fullmatch(name) is not None


def _unfinished_folder(path: Path) -> Path:
    return path.with_name(path.name + UNFINISHED)
