"""The dataset that comes with the package."""

from pathlib import Path

from molattn.errors import InputError

__all__ = ["BUNDLED_TARGET", "BUNDLED_UNIT", "bundled_dataset"]

BUNDLED_TARGET = "logS"
BUNDLED_UNIT = "log mol/L"


def bundled_dataset() -> Path:
    """Return the CSV file of 1,282 measured aqueous solubilities that comes with the package.

    Its columns are name, smiles, logS (log mol/L) and split (train, test).

    Raises:
        InputError: The installation lacks it.
    """
    package = Path(__file__).parents[2]
    for folder in (package.parent / "datasets", package):  # in a checkout, in a wheel
        if (path := folder / "solubility.csv").is_file():
            return path
    raise InputError(
        "solubility.csv, the bundled dataset, is not installed; use a table of your own"
    )
