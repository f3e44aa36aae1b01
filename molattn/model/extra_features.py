"""Numbers of a molecule that join the readout: given in the table, and calculated from it."""

from collections.abc import Iterator
from typing import Optional, Union

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch_geometric.data import Batch, Data

from molattn.graph import MoleculeBatch
from molattn.model.config import MolAttnConfig

__all__ = ["CLIP", "given_numbers", "joined_numbers", "number_type", "scaled_numbers"]

CLIP = 3.0
"""Standard deviations from the training mean beyond which a calculated number is cut off."""


def number_type() -> torch.dtype:
    """Return how numbers and labels go to a model, which may be large beside their differences.

    In double precision, until they are scaled; in single where the GPU, Apple's, has no other.
    """
    return torch.float32 if torch.backends.mps.is_available() else torch.float64


def given_numbers(
    features: Optional[ArrayLike], rows: int, config: MolAttnConfig
) -> Optional[Tensor]:
    """Check further numbers of molecules, and return them; None where none are.

    Args:
        features: ``[rows, len(config.features)]``, finite.
        rows: Number of molecules.
        config: Which numbers there must be.

    Raises:
        ValueError: Numbers of another shape, or that are not finite.
    """
    if features is None:
        return None
    given = torch.as_tensor(np.asarray(features), dtype=number_type())
    expected = (rows, len(config.features))
    if given.shape != expected or not bool(given.isfinite().all()):
        raise ValueError(f"features: got {tuple(given.shape)}, expected finite numbers {expected}")
    return given


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

    It is computed in the wider type of the numbers and their scales, so that numbers which are
    large beside their differences lose none of these.

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
