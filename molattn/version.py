"""The installed versions of the package and of other packages that decide its results."""

from collections.abc import Mapping
from importlib.metadata import version

__version__ = version("molattn")


def package_versions() -> dict[str, str]:
    """Return the versions of the packages that affect results."""
    return {package: version(package) for package in ("molattn", "torch", "rdkit")}


def version_changes(before: Mapping[str, str]) -> list[str]:
    """Return a line for each package whose version has changed since a run was started."""
    return [
        f"Run started with {package} {was}, resuming with {now}: results may differ in their last "
        "digits"
        for package, was in before.items()
        if was != (now := version(package))
    ]
