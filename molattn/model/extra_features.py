"""Extra molecule features that join the readout: table columns, descriptors, Morgan counts."""

from collections import Counter
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
"""Standard deviations from the training mean to which calculated features are clipped."""


def number_type() -> torch.dtype:
    """Return the type of extra features and labels before they are scaled.

    Double precision, as values may be large compared with their differences; single precision on
    Apple's GPUs, which have no other.
    """
    return torch.float32 if torch.backends.mps.is_available() else torch.float64


def given_numbers(
    features: Optional[ArrayLike], rows: int, config: MolAttnConfig
) -> Optional[Tensor]:
    """Convert extra features ``[rows, len(config.features)]`` to a tensor; None stays None.

    Columns of a DataFrame are found by name.

    Raises:
        ValueError: Features of a wrong shape or with other names, or not finite.
    """
    if features is None:
        return None
    if hasattr(features, "iloc") and hasattr(features, "columns"):  # a DataFrame
        columns, names = list(features.columns), list(config.features)  # pyright: ignore
        if Counter(columns) != Counter(names):
            raise ValueError(f"features: got the columns {columns}, expected {names}")
        features = features[names]  # pyright: ignore
    numbers = np.array(features, order="C")
    if numbers.dtype.kind not in "biuf":
        raise ValueError(f"features: got {numbers.dtype}, expected numbers")
    given = torch.tensor(numbers, dtype=number_type())
    expected = (rows, len(config.features))
    if given.shape != expected or not bool(given.isfinite().all()):
        raise ValueError(f"features: got {tuple(given.shape)}, expected finite numbers {expected}")
    return given


def joined_numbers(
    batch: Union[MoleculeBatch, Data], features: Optional[Tensor], config: MolAttnConfig
) -> Optional[Tensor]:
    """Concatenate all extra features of each molecule, in their own units.

    Args:
        batch: The molecules.
        features: Features from the table, ``[num_graphs, len(config.features)]``.
        config: The model's configuration.

    Returns:
        ``[num_graphs, config.num_numbers]``: features from the table, then those calculated for
        the molecule and for the second molecule; NaN where undefined. None without any.

    Raises:
        ValueError: Features that are missing, or of a wrong shape.
    """
    count = batch.num_graphs if isinstance(batch, (MoleculeBatch, Batch)) else 1
    if features is None and config.features:
        raise ValueError(f"features: missing; the model needs {', '.join(config.features)}")
    expected = (count, len(config.features))
    if features is not None and features.shape != expected:
        raise ValueError(f"features: got {tuple(features.shape)}, expected {expected}")
    parts = [] if features is None else [features]
    partners, index = getattr(batch, "partners", None), getattr(batch, "partner_index", None)
    if (partners is None) == config.has_partner:
        reason = (
            "the batch has no second molecules, but the model needs them"
            if partners is None
            else "the batch has second molecules, but the model takes one molecule per row"
        )
        raise ValueError(f"{reason}; use its featurize and collate")
    for name, molecules in (("molecules", batch), ("second molecules", partners)):
        numbers = getattr(molecules, "numbers", None)
        got = 0 if numbers is None else numbers.size(-1)
        if molecules is not None and got != len(config.calculator):
            raise ValueError(
                f"batch: got {got} calculated features of the {name}, expected "
                f"{len(config.calculator)}; use the model's featurize and collate"
            )
        if numbers is not None:
            parts.append(numbers if molecules is batch else numbers[index])
    return torch.cat(parts, dim=-1) if parts else None


def scaled_numbers(numbers: Tensor, mean: Tensor, scale: Tensor, given: int) -> Tensor:
    """Scale the output ``[n, F]`` of :func:`joined_numbers` by training means and deviations.

    The first ``given`` features come from the table. The others are calculated: they are clipped to
    plus and minus ``CLIP``, and undefined ones become 0, the mean. The mean is subtracted in double
    precision where there is one, so that large values with small differences keep their digits.
    """
    scaled = (numbers - mean) / scale
    calculated = scaled[:, given:].nan_to_num(nan=0.0).clamp(-CLIP, CLIP)
    return torch.cat([scaled[:, :given], calculated], dim=-1)
