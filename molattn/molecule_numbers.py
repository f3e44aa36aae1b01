"""Numbers of a molecule that join the readout: given in the table, and calculated from it."""

from collections.abc import Iterator, Sequence
from typing import Optional, Union

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Batch, Data

from .graph import MoleculeBatch
from .model_config import MolAttnConfig
from .record import MoleculeRecord

__all__ = ["CLIP", "joined_numbers", "number_scaling", "scaled_numbers"]

CLIP = 5.0
"""Standard deviations from the training mean beyond which a calculated number is cut off."""
_UNUSED = float(np.finfo(np.float32).max)
_ROWS_AT_ONCE = 4096


def joined_numbers(
    batch: Union[MoleculeBatch, Data], features: Optional[Tensor], config: MolAttnConfig
) -> Optional[Tensor]:
    """Join all numbers of each molecule, in their own units; None where there are none.

    Args:
        batch: The molecules.
        features: Those given, ``[num_graphs, len(config.features)]``.
        config: Which there must be.

    Returns:
        ``[num_graphs, config.num_numbers]``: those given, those calculated, and those calculated of
        the second molecule; NaN where one is undefined.

    Raises:
        ValueError: Numbers are missing, or of another shape.
    """
    count = batch.num_graphs if isinstance(batch, (MoleculeBatch, Batch)) else 1
    if features is None and config.features:
        raise ValueError(f"features: got none, expected {', '.join(config.features)}")
    expected = (count, len(config.features))
    if features is not None and features.shape != expected:
        raise ValueError(f"features: got {tuple(features.shape)}, expected {expected}")
    parts = [features, *_calculated(batch, config)]
    there = [part for part in parts if part is not None]
    return torch.cat(there, dim=-1) if there else None


def _calculated(
    batch: Union[MoleculeBatch, Data], config: MolAttnConfig
) -> Iterator[Optional[Tensor]]:
    partners, index = getattr(batch, "partners", None), getattr(batch, "partner_index", None)
    if (partners is None) == config.has_partner:
        got, expected = ("none", "one") if partners is None else ("one", "none")
        raise ValueError(
            f"second molecules: got {got} for each molecule, expected {expected}, as collate makes "
            "of the model's own featurize"
        )
    for name, molecules in (("molecules", batch), ("second molecules", partners)):
        numbers = getattr(molecules, "numbers", None)
        got = 0 if numbers is None else numbers.size(-1)
        if molecules is not None and got != len(config.calculator):
            raise ValueError(
                f"numbers of {name}: got {got}, expected {len(config.calculator)}, as collate "
                "makes of the model's own featurize"
            )
        yield numbers if molecules is batch or numbers is None else numbers[index]


def scaled_numbers(numbers: Tensor, mean: Tensor, scale: Tensor, given: int) -> Tensor:
    """Scale numbers ``[n, F]``; an undefined one becomes the mean, 0.

    Args:
        numbers: Of :func:`joined_numbers`.
        mean: Their means ``[F]``.
        scale: Their standard deviations ``[F]``.
        given: How many of them, the first, stand in the table; the others, which are calculated,
            are cut off at plus and minus ``CLIP``.
    """
    scaled = (numbers - mean) / scale
    calculated = scaled[:, given:].nan_to_num(nan=0.0).clamp(-CLIP, CLIP)
    return torch.cat([scaled[:, :given], calculated], dim=-1)


def number_scaling(
    records: Sequence[MoleculeRecord], features: Optional[NDArray[np.float64]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and standard deviation of all numbers of training molecules, ``[F]`` each.

    A number that does not vary, or is undefined for all of them, gets a scale so large that it is 0
    for any molecule: the model has learned nothing about it.

    Args:
        records: One or more molecules, all with the same numbers.
        features: Numbers given for each, ``[n, ...]``, or None.
    """
    size = sum(map(len, _row(records, features, 0)))
    count, total, squares = (np.zeros(size) for _ in range(3))
    for rows in _rows(records, features):
        count += (~np.isnan(rows)).sum(axis=0)
        total += np.nansum(rows, axis=0)
    mean = total / np.maximum(count, 1)
    for rows in _rows(records, features):
        squares += np.nansum((rows - mean) ** 2, axis=0)
    scale = np.sqrt(squares / np.maximum(count, 1))
    # Equal numbers leave rounding noise, not zero, for a standard deviation.
    varies = scale > 1e-12 * np.maximum(np.abs(mean), np.finfo(np.float32).tiny)
    return mean, np.where(varies, scale, _UNUSED)


def _rows(
    records: Sequence[MoleculeRecord], features: Optional[NDArray[np.float64]]
) -> Iterator[NDArray[np.float64]]:
    for start in range(0, len(records), _ROWS_AT_ONCE):
        places = range(start, min(start + _ROWS_AT_ONCE, len(records)))
        yield np.array(
            [np.concatenate(_row(records, features, place)) for place in places], dtype=np.float64
        )


def _row(
    records: Sequence[MoleculeRecord], features: Optional[NDArray[np.float64]], place: int
) -> list[NDArray[np.floating]]:
    record = records[place]
    partner = None if record.partner is None else record.partner.numbers
    parts = [None if features is None else features[place], record.numbers, partner]
    return [np.zeros(0), *(part for part in parts if part is not None)]
