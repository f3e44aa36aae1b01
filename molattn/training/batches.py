"""Loaders of molecules in batches, which can resume within an epoch."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from molattn.data.dataset import Molecules
from molattn.graph import MoleculeBatch
from molattn.model.extra_features import number_type
from molattn.model.model import MolAttn

__all__ = ["LabeledBatch", "LabeledLoader", "ResumableLoader"]


class LabeledBatch(NamedTuple):
    """n molecules with targets ``[n, T]``, row weights ``[n]`` and features ``[n, F]``.

    Those of censored labels are bounds ``[2, n, T]``, see :class:`molattn.data.dataset.Molecules`.
    """

    molecules: MoleculeBatch
    targets: Tensor
    weights: Tensor | None
    features: Tensor | None
    bounds: Tensor | None


class ResumableLoader(ABC):
    """A loader whose order in each epoch depends only on the seed and the epoch's number.

    An epoch can therefore be resumed at any of its batches.

    Args:
        count: Number of molecules.
        batch_size: Molecules in a batch.
        seed: Seed of the random order; None = in the given order.
    """

    def __init__(self, count: int, batch_size: int, seed: int | None = None) -> None:
        self._count = count
        self._size = batch_size
        self._seed = seed
        self._epoch = 0
        self._position = 0

    @abstractmethod
    def batch(self, rows: NDArray[np.int64], place: tuple[int, int]) -> Any:
        """Return the batch of some rows; ``place`` is its epoch and its index therein."""

    def __len__(self) -> int:
        return -(-self._count // self._size)

    def __iter__(self) -> Iterator[Any]:
        order = self._order()
        first = self._position if self._position < len(self) else 0
        for position in range(first, len(self)):
            self._position = position + 1
            rows = order[position * self._size : (position + 1) * self._size]
            yield self.batch(rows, (self._epoch, position))

    def set_epoch(self, epoch: int) -> None:
        """Start an epoch at its first batch."""
        self._epoch, self._position = epoch, 0

    def state_dict(self) -> dict[str, int]:
        """Return the epoch and the number of its batches already yielded."""
        return {"epoch": self._epoch, "position": self._position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Resume from there."""
        self._epoch, self._position = state["epoch"], state["position"]

    def _order(self) -> NDArray[np.int64]:
        if self._seed is None:
            return np.arange(self._count)
        return np.random.default_rng([self._seed, self._epoch]).permutation(self._count)


class LabeledLoader(ResumableLoader):
    """Loads molecules with labels."""

    def __init__(
        self, model: MolAttn, molecules: Molecules, batch_size: int, seed: int | None = None
    ) -> None:
        super().__init__(len(molecules.records), batch_size, seed)
        self._model = model
        self._molecules = molecules

    def batch(self, rows: NDArray[np.int64], place: tuple[int, int]) -> LabeledBatch:
        """Return a batch; see :meth:`ResumableLoader.batch`."""
        molecules = self._molecules
        types = ((molecules.weights, torch.float32), (molecules.features, number_type()))
        weights, features = (
            None if values is None else torch.tensor(values[rows], dtype=dtype)
            for values, dtype in types
        )
        return LabeledBatch(
            self._model.collate([molecules.records[row] for row in rows]),
            torch.tensor(molecules.targets[rows], dtype=number_type()),
            weights,
            features,
            None
            if molecules.bounds is None
            else torch.tensor(molecules.bounds[:, rows], dtype=number_type()),
        )
