"""The installed versions of the package and of those that decide its results."""

from collections.abc import Mapping
from importlib.metadata import version

__all__ = ["__version__", "package_versions", "version_changes"]

__version__ = version("molattn")

_DECIDING_PACKAGES = ("molattn", "torch", "rdkit")


def package_versions() -> dict[str, str]:
    """Return the versions of the packages that affect results."""
    return {package: version(package) for package in _DECIDING_PACKAGES}


def version_changes(before: Mapping[str, str]) -> list[str]:
    """Return a line for each package whose version has changed since a run was started."""
    return [
        f"Run started with {package} {was}, resuming with {now}: results may differ in their last "
        "digits"
        for package, was in before.items()
        if was != (now := version(package))
    ]
