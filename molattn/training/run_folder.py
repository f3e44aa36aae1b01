"""The folder of a run: complete, or under another name and resumable.

While a run is in progress, its files are in ``NAME.unfinished``, beside the final folder ``NAME``.
If it is interrupted, by Ctrl-C or a power cut, that folder stays and the run can be resumed from
its checkpoint. The process that writes to it holds a lock, which is released when it ends.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path

from molattn.errors import InputError, MolattnError
from molattn.training.checkpoint import CHECKPOINT_FILE
from molattn.utils.files import UNFINISHED, check_output_folder, locked, replace_folder

__all__ = [
    "CONFIG_FILE",
    "PAGE_FILE",
    "RESULT_FILE",
    "final_folder",
    "free_folder",
    "has_checkpoint",
    "latest_checkpoint",
    "member_folders",
    "run_folder",
    "unfinished_run",
]

CONFIG_FILE = "config.yaml"
PAGE_FILE = "report.html"
RESULT_FILE = "metrics.json"
# Of a pretraining: the prepared molecules, all of them or those before an interruption.
_PREPARED = ("molecules", "molecules.unfinished/shard_00000.arrow")
_FOLD = re.compile(r"(repeat_\d+_)?fold_\d+(\.unfinished)?")  # a round of a cross-validation
_MEMBER = re.compile(r"member_\d+")  # of one member of an ensemble
_LEFTOVER = re.compile(r".+\.part|\..+\.lock")  # of a process that was killed while writing
_CONTENTS = {
    CHECKPOINT_FILE,
    CONFIG_FILE,
    PAGE_FILE,
    RESULT_FILE,
    "calibration.png",
    "coverage.png",
    "history.csv",
    "learning_curve.png",
    "model",
    "molecules",
    "molecules.unfinished",
    "out_of_fold.safetensors",
    "parity.png",
    "predictions.csv",
    "rejected.csv",
    "roc_pr.png",
    "similarity.png",
    "skipped.csv",
    "tensorboard",
}


@contextmanager
def run_folder(
    path: str | Path, *, resume: bool = False, overwrite: bool = False
) -> Iterator[Path]:
    """Write the folder of a run.

    The block writes to the folder of the unfinished run, which is renamed to its final name when
    the block ends without an exception, and replaces the finished run of that name then. If it is
    interrupted, the folder is kept if it has a checkpoint.

    Args:
        path: The final folder.
        resume: Whether to continue an unfinished run.
        overwrite: Whether to replace a run, finished or not.

    Yields:
        The folder to write to.

    Raises:
        InputError: If the path is not a run or cannot be written, another process is writing to it,
            or there is a run that is neither to be resumed nor overwritten.
        OSError: Names the file, also if the disk is full.
    """
    path = final_folder(path)
    partial = _partial(path)
    _check_replaceable(path)
    _check_replaceable(partial)
    is_kept = path.is_dir() and any(path.iterdir()) and not has_checkpoint(path)
    if is_kept and not (resume or overwrite):
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
            _remove_leftovers(partial)
            try:
                if not resume:
                    _clear(partial, path, overwrite)
                yield partial
                _finish(partial, path)
            except BaseException as error:
                is_useless = isinstance(error, MolattnError) and not (resume or _has_round(partial))
                if partial.exists() and not (resume or has_checkpoint(path)):
                    is_useless = True
                if is_useless and not isinstance(error, _KeptError):
                    shutil.rmtree(partial, ignore_errors=True)
                raise
    finally:
        for parent in new_parents:
            with suppress(OSError):  # it is not empty
                parent.rmdir()


def unfinished_run(path: str | Path) -> Path | None:
    """Return the folder of an unfinished run, or None if the run is finished.

    Raises:
        InputError: If there is no such run.
    """
    path = final_folder(path)
    partial = _partial(path)
    if (partial / CONFIG_FILE).is_file():
        return partial
    if (path / RESULT_FILE).is_file() and (path / CONFIG_FILE).is_file():
        return None
    others = path.parent.glob(f"*{UNFINISHED}") if path.parent.is_dir() else ()
    names = {str(final_folder(other)) for other in others} - {str(path)}
    close = get_close_matches(str(path), names, n=1)
    hint = f"; did you mean {close[0]}?" if close else f" (no folder {partial})"
    raise InputError(f"--resume {path}: no unfinished run{hint}")


def final_folder(path: str | Path) -> Path:
    """Return the final folder of a run, from that or from its unfinished one."""
    path = Path(path)
    if path.name in ("", ".."):
        path = Path(os.path.abspath(path))
    return path.with_name(path.name.removesuffix(UNFINISHED) or path.name)


def free_folder(path: Path) -> Path:
    """Return the path, with a number if there is a run of that name, finished or not."""
    candidate, number = path, 1
    while candidate.exists() or _partial(candidate).exists():
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate


def has_checkpoint(path: str | Path) -> bool:
    """Return whether there is an unfinished run of that name that can be resumed.

    It has a checkpoint, its own or that of a member of an ensemble or of a round of a
    cross-validation; or a finished round; or the prepared molecules of a pretraining.
    """
    partial = _partial(final_folder(path))
    return (
        latest_checkpoint(path) is not None
        or _has_round(partial)
        or any((partial / name).exists() for name in _PREPARED)
    )


def latest_checkpoint(path: str | Path) -> Path | None:
    """Return the checkpoint of an unfinished run that was written last, if it has any."""
    partial = _partial(final_folder(path))
    places = (place for run in (partial, *_rounds(partial)) for place in (run, *_members(run)))
    found = [file for place in places if (file := place / CHECKPOINT_FILE).exists()]
    return max(found, key=lambda file: file.stat().st_mtime, default=None)


def member_folders(folder: Path, count: int) -> list[Path]:
    """Return the folder of each member of an ensemble; that of the run for a single model."""
    return [folder] if count == 1 else [folder / f"member_{n}" for n in range(1, count + 1)]


class _KeptError(InputError):
    """The unfinished run was not touched and must be kept."""


def _rounds(run: Path) -> list[Path]:
    return [entry for entry in run.glob("*fold_*") if _FOLD.fullmatch(entry.name)]


def _has_round(run: Path) -> bool:
    """Return whether a round of a cross-validation is trained; it outlives errors in others."""
    rounds = _rounds(run)  # the second is begun when the first is trained
    return len(rounds) > 1 or any((fold / RESULT_FILE).exists() for fold in rounds)


def _members(run: Path) -> list[Path]:
    return [entry for entry in run.glob("member_*") if _MEMBER.fullmatch(entry.name)]


def _partial(path: Path) -> Path:
    return path.with_name(path.name + UNFINISHED)


def _clear(partial: Path, path: Path, overwrite: bool) -> None:
    if has_checkpoint(path) and not overwrite:
        raise _KeptError(
            f"{partial}: contains an unfinished run; --resume {path} continues it, --overwrite "
            "replaces it"
        )
    for entry in partial.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _finish(partial: Path, path: Path) -> None:
    replace_folder(partial, path)
    # Last, so that an interruption before leaves a run that can be resumed.
    for place in (path, *_members(path)):
        (place / CHECKPOINT_FILE).unlink(missing_ok=True)
    _remove_leftovers(path)


def _remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of processes that were killed."""
    for place in (folder, *_members(folder)):
        for entry in [*place.glob(".*.part"), *place.glob(".*.lock")]:
            with suppress(OSError):  # such as a folder
                entry.unlink()


def _check_replaceable(path: Path) -> None:
    check_output_folder(path, "a run", _is_of_run, (CONFIG_FILE,))


def _is_of_run(name: str) -> bool:
    return name in _CONTENTS or any(kind.fullmatch(name) for kind in (_LEFTOVER, _FOLD, _MEMBER))
