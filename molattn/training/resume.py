"""What must be the same where an unfinished training goes on."""

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from molattn.config import RunConfig, check_same_options
from molattn.errors import InputError
from molattn.training.checkpoint import CHECKPOINT_FILE, read_checkpoint
from molattn.training.fine_tuning import check_same_model
from molattn.training.lightning.loop import ABOUT
from molattn.utils.console import print_line

__all__ = ["run_fingerprint", "changed_data", "check_same_run"]

_DECIDING_PACKAGES = ("molattn", "torch", "rdkit")


def run_fingerprint(config: RunConfig, init_from: str | None, data: str) -> dict[str, Any]:
    """Return what a checkpoint keeps of its run.

    Args:
        config: The options.
        init_from: SHA-256 of the model that it begins with, if any.
        data: SHA-256 of what it learns from.
    """
    return {
        "config": config.to_dict(),
        "init_from": init_from,
        "data": data,
        "versions": {package: version(package) for package in _DECIDING_PACKAGES},
    }


def check_same_run(
    folder: Path,
    config: RunConfig,
    init_from: str,
    about: Mapping[str, Any],
    data: str,
    console: Console | None,
) -> None:
    """Refuse to go on with a training of other options, data or initial weights.

    Other versions of the packages that decide the digits are told.

    Args:
        folder: Where the training may have left a checkpoint.
        config: The options now.
        init_from: Name of the model that it begins with, or ``none``.
        about: What :func:`run_fingerprint` gives now.
        data: What has changed where the data have, in words.
        console: Where to tell; silent without one.

    Raises:
        InputError: Names what differs.
    """
    path = folder / CHECKPOINT_FILE
    if not path.exists():
        return
    former = read_checkpoint(path)[ABOUT]
    check_same_options(type(config).from_dict(former["config"]), config, folder)
    if former["data"] != about["data"]:
        raise changed_data(data, folder, about["data"], former["data"])
    check_same_model(init_from, about["init_from"], former.get("init_from"), folder)
    for package, was in former["versions"].items():
        if was != (now := about["versions"][package]):
            print_line(
                console, f"begun with {package} {was}, going on with {now}: digits may differ"
            )


def changed_data(what: str, folder: Path, now: str, former: str) -> InputError:
    """Return what to tell of data that are no longer what a run has read.

    Args:
        what: What has changed, in words.
        folder: The folder of the run.
        now: SHA-256 of what is there.
        former: SHA-256 of what was.
    """
    return InputError(
        f"{what} changed since the run in {folder} began "
        f"(SHA-256 {now[:12]}..., was {former[:12]}...); expected the same"
    )
