"""The columns of a table that a model is trained on.

They are checked before the packages that read molecules and train are loaded.
"""

from collections.abc import Sequence
from typing import NamedTuple

from molattn.config import DataConfig
from molattn.data.table import Table, listed
from molattn.errors import InputError, quoted

__all__ = ["TrainingColumns", "find_columns"]


class TrainingColumns(NamedTuple):
    """Indices of the columns that a model is trained on; None or empty where there is none."""

    smiles: int
    targets: list[int]
    relations: Sequence[int | None]
    features: list[int]
    partner: int | None
    weight: int | None
    split: int | None
    order: int | None


def find_columns(table: Table, config: DataConfig) -> TrainingColumns:
    """Return which columns of a table a model is trained on.

    Raises:
        InputError: A column is missing, given twice, or both a target and an input.
    """
    smiles = table.column(config.smiles_column, "--smiles-column")
    if not config.target_columns:
        others = [name for index, name in enumerate(table.header) if index != smiles]
        known = f"the other columns are {listed(others)}" if others else "there is no other column"
        raise InputError(f"{table.path}: --target-columns is required; {known}")
    targets = [table.column(name, "--target-columns") for name in config.target_columns]
    relations = [table.column(name, "--relation-columns") for name in config.relation_columns]
    features = [table.column(name, "--feature-columns") for name in config.feature_columns]
    partner, weight, split, order = (
        None if name is None else table.column(name, option)
        for name, option in (
            (config.partner_column, "--partner-column"),
            (config.weight_column, "--weight-column"),
            (config.split_column, "--split-column"),
            (config.order_column, "--order-column"),
        )
    )
    for option, found in (("--target-columns", targets), ("--feature-columns", features)):
        if len({*found}) < len(found):  # names that differ in case
            names = listed([table.header[index] for index in found])
            raise InputError(f"{table.path}: {option}: got {names}, expected each column only once")
    if leaked := set(targets) & {smiles, partner, weight, *features, *relations}:
        raise InputError(
            f"{table.path}: column {quoted(table.header[min(leaked)])} is both a target "
            "(--target-columns) and an input (--smiles-column, --partner-column, "
            "--weight-column, --feature-columns or --relation-columns)"
        )
    signs = relations or [None] * len(targets)
    return TrainingColumns(smiles, targets, signs, features, partner, weight, split, order)
