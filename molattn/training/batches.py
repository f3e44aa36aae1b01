"""Molecules batch by batch, in an order that can be taken up anywhere."""

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

__all__ = ["Batches", "LabelledBatch", "LabelledLoader"]


class LabelledBatch(NamedTuple):
    """Molecules ``[n]`` with targets ``[n, T]``, and weights ``[n]`` and features ``[n, F]``."""

    molecules: MoleculeBatch
    targets: Tensor
    weights: Tensor | None
    features: Tensor | None


class Batches(ABC):
    """One epoch of batches after another.

    The order of an epoch follows from the seed and the epoch's number alone, so that an epoch can
    be taken up at any of its batches.

    Args:
        count: Number of molecules.
        batch_size: Molecules in a batch.
        seed: Seed of the order; without one, molecules come in their own order.
    """

    def __init__(self, count: int, batch_size: int, seed: int | None = None) -> None:
        self._count = count
        self._size = batch_size
        self._seed = seed
        self._epoch = 0
        self._position = 0

    @abstractmethod
    def batch(self, rows: NDArray[np.int64], place: tuple[int, int]) -> Any:
        """Return a batch.

        Args:
            rows: Places of its molecules.
            place: The epoch, and how many of its batches came before.
        """

    def __len__(self) -> int:
        return -(-self._count // self._size)

    def __iter__(self) -> Iterator[Any]:
        order = self._order()
        first = self._position if self._position < len(self) else 0
        for position in range(first, len(self)):
            self._position = position + 1
            rows = order[position * self._size : (position + 1) * self._size]
            yield self.batch(rows, (self._epoch, position))

    def begin(self, epoch: int) -> None:
        """Go to the first batch of an epoch."""
        self._epoch, self._position = epoch, 0

    def state_dict(self) -> dict[str, int]:
        """Return where this is: the epoch and the batches of it already given."""
        return {"epoch": self._epoch, "position": self._position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from there."""
        self._epoch, self._position = state["epoch"], state["position"]

    def _order(self) -> NDArray[np.int64]:
        if self._seed is None:
            return np.arange(self._count)
        return np.random.default_rng([self._seed, self._epoch]).permutation(self._count)


class LabelledLoader(Batches):
    """Batches of molecules with labels.

    Args:
        model: Lays molecules out as a batch.
        molecules: The molecules.
        batch_size: Molecules in a batch.
        seed: Seed of the order; without one, molecules come in their own order.
    """

    def __init__(
        self, model: MolAttn, molecules: Molecules, batch_size: int, seed: int | None = None
    ) -> None:
        super().__init__(len(molecules.records), batch_size, seed)
        self._model = model
        self._molecules = molecules

    def batch(self, rows: NDArray[np.int64], place: tuple[int, int]) -> LabelledBatch:
        """Return a batch; see :meth:`Batches.batch`."""
        molecules = self._molecules
        types = ((molecules.weights, torch.float32), (molecules.features, number_type()))
        weights, features = (
            None if values is None else torch.tensor(values[rows], dtype=dtype)
            for values, dtype in types
        )
        return LabelledBatch(
            self._model.collate([molecules.records[row] for row in rows]),
            torch.tensor(molecules.targets[rows], dtype=number_type()),
            weights,
            features,
        )
