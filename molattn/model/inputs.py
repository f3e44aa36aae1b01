"""What networks read: molecules in batches that fit into memory, and their extra features."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch_geometric.data import Batch, Data

from molattn.graph import MoleculeBatch
from molattn.model.config import MolAttnConfig
from molattn.record import MoleculeRecord

CLIP = 3.0
"""Standard deviations from the training mean to which calculated features are clipped."""

MOST_PAIRS = 2**20
"""Largest number of atom pairs in a batch: about those of a molecule of 1,000 atoms."""

_LISTED = 8  # times the memory of a pair of complete graphs is that of a listed one

T = TypeVar("T")


def batches(
    items: Iterable[T], size: int, record: Callable[[T], MoleculeRecord | None]
) -> Iterator[list[T]]:
    """Group items, in order, by number and by atom pairs of the molecule that ``record`` returns.

    A batch has at most ``size`` items and, unless it is one molecule, at most ``MOST_PAIRS`` atom
    pairs; a listed pair, of a model with ``radius``, counts eight times.
    """
    if size < 1:
        raise ValueError(f"batch_size: got {size}, expected an integer of at least 1")
    batch: list[T] = []
    pairs = first = second = 0
    for item in items:
        molecule = record(item)
        partner = molecule and molecule.partner
        atoms, others = (one.num_atoms if one else 0 for one in (molecule, partner))
        more = _cost(molecule) + _cost(partner)
        # In cross attention molecules are padded to the largest of the batch.
        across = (len(batch) + 1) * max(first, atoms) * max(second, others)
        if batch and (len(batch) >= size or max(pairs + more, across) > MOST_PAIRS):
            yield batch
            batch, pairs, first, second = [], 0, 0, 0
        batch.append(item)
        pairs, first, second = pairs + more, max(first, atoms), max(second, others)
    if batch:
        yield batch


def _cost(molecule: MoleculeRecord | None) -> int:
    if molecule is None:
        return 0
    return molecule.num_atoms**2 if molecule.edge_index is None else _LISTED * len(molecule.pairs)


def number_type() -> torch.dtype:
    """Return the type of features and labels before they are scaled: double precision.

    Values may be large compared with their differences. Apple's GPUs have single precision only.
    """
    return torch.float32 if torch.backends.mps.is_available() else torch.float64


def table_features(features: ArrayLike | None, rows: int, config: MolAttnConfig) -> Tensor | None:
    """Convert extra features ``[rows, len(config.features)]`` to a tensor; None stays None.

    Columns of a DataFrame are found by name.
    """
    if features is None:
        return None
    names, expected = [*config.features], (rows, len(config.features))
    if hasattr(features, "columns"):
        columns = [*features.columns]  # pyright: ignore[reportAttributeAccessIssue]
        if sorted(columns) != sorted(names):
            raise ValueError(f"features: got the columns {columns}, expected {names}")
        features = features[names]  # pyright: ignore
    given = torch.tensor(np.array(features, dtype=np.float64, order="C"), dtype=number_type())
    if given.shape != expected or not bool(given.isfinite().all()):
        raise ValueError(f"features: got {tuple(given.shape)}, expected finite numbers {expected}")
    return given


def joined_numbers(
    batch: MoleculeBatch | Data, features: Tensor | None, config: MolAttnConfig
) -> Tensor | None:
    """Join all extra features of molecules in own units, ``[num_graphs, config.num_numbers]``.

    Features from the table, ``[num_graphs, len(config.features)]``, then those calculated for the
    molecule and for the second molecule; NaN where undefined. None without any.

    Raises:
        ValueError: Features or second molecules that are missing, or not used by the model.
    """
    count = batch.num_graphs if isinstance(batch, (MoleculeBatch, Batch)) else 1
    partners = getattr(batch, "partners", None)
    parts = [features, getattr(batch, "numbers", None)]
    if partners is not None and partners.numbers is not None:
        parts.append(partners.numbers[batch.partner_index])
    found = [part for part in parts if part is not None]
    width = sum(part.size(-1) for part in found)
    fits = all(len(part) == count for part in found) and width == config.num_numbers
    if not fits or (partners is not None) != config.has_partner:
        raise ValueError(
            f"features: got {width} for {count} molecules, expected {config.num_numbers} "
            f"and {'' if config.has_partner else 'no '}second molecules, as of the model's "
            f"featurize and collate and in the columns {config.features}"
        )
    return torch.cat(found, dim=-1) if found else None


def scaled_numbers(numbers: Tensor, mean: Tensor, scale: Tensor, given: int) -> Tensor:
    """Scale the output ``[n, F]`` of :func:`joined_numbers` by training means and deviations.

    All but the first ``given`` features, which come from the table, are clipped to plus and minus
    ``CLIP``, and undefined ones become 0, the mean.
    """
    scaled = (numbers - mean) / scale
    calculated = scaled[:, given:].nan_to_num(nan=0.0).clamp(-CLIP, CLIP)
    return torch.cat([scaled[:, :given], calculated], dim=-1)
