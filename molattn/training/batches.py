"""Loaders of molecules in batches, which can resume within an epoch."""

import heapq
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from molattn.data.dataset import Molecules
from molattn.graph import MoleculeBatch, graph_costs
from molattn.model.inputs import number_type
from molattn.model.model import MolAttn
from molattn.record import MoleculeRecord
from molattn.utils.process_group import num_processes, process_rank

__all__ = ["LabeledBatch", "LabeledLoader", "Part", "ResumableLoader", "split_evenly"]

_MOST_KEPT = 100_000_000  # bytes of what a frozen encoder gives


class LabeledBatch(NamedTuple):
    """n molecules with targets ``[n, T]``, row weights ``[n]`` and features ``[n, F]``.

    Those of censored labels are bounds ``[2, n, T]``, see :class:`molattn.data.dataset.Molecules`.
    Of a frozen encoder there may be its output, the vectors of the atoms ``[N, width]``.
    """

    molecules: MoleculeBatch
    targets: Tensor
    weights: Tensor | None
    features: Tensor | None
    bounds: Tensor | None
    atoms: Tensor | None


class Part(NamedTuple):
    """The part of a batch that one of several processes computes.

    Args:
        places: Its places in the batch, ascending; at least one.
        counts: Whether it has targets. It has none if there are fewer molecules than processes and
            all of them are in other parts.
    """

    places: NDArray[np.int64]
    counts: bool = True


def split_evenly(costs: NDArray[np.int64], parts: int) -> list[NDArray[np.int64]]:
    """Split things into parts of similar cost: the most expensive first, to the cheapest part.

    Returns:
        The places of each part, ascending; none, if there are more parts than things. The largest
        cost of a part is at most 4/3 of what it must be (Graham 1969).
    """
    total = [(0, part) for part in range(parts)]
    chosen: list[list[int]] = [[] for _ in range(parts)]
    for place in np.argsort(-costs, kind="stable").tolist():
        cost, part = total[0]
        chosen[part].append(place)
        heapq.heapreplace(total, (cost + int(costs[place]), part))
    return [np.sort(np.array(part, dtype=np.int64)) for part in chosen]


class ResumableLoader(ABC):
    """A loader whose order in each epoch depends only on the seed and the epoch's number.

    An epoch can therefore be resumed at any of its batches. Of several processes that train
    together, each loads a part of every batch.

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
    def batch(
        self, rows: NDArray[np.int64], place: tuple[int, int], part: Part | None = None
    ) -> Any:
        """Return the batch of some rows, or a part of it.

        Args:
            rows: The rows.
            place: Its epoch and its index therein.
            part: The part; None = all.
        """

    @abstractmethod
    def costs(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the estimated cost of computing each row."""

    def __len__(self) -> int:
        return -(-self._count // self._size)

    def __iter__(self) -> Iterator[Any]:
        order = self._order()
        first = self._position if self._position < len(self) else 0
        for position in range(first, len(self)):
            self._position = position + 1
            rows = order[position * self._size : (position + 1) * self._size]
            if num_processes() == 1:
                yield self.batch(rows, (self._epoch, position))
            else:
                yield self.batch(rows, (self._epoch, position), self.own_part(rows))

    def own_part(self, rows: NDArray[np.int64]) -> Part:
        """Return the part of a batch that this process computes."""
        places = split_evenly(self.costs(rows), num_processes())[process_rank()]
        return Part(places) if len(places) else Part(np.zeros(1, np.int64), counts=False)

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
    """Loads molecules with labels.

    The output of a frozen encoder is computed at the first batch, and kept if it has up to 100 MB.
    """

    def __init__(
        self, model: MolAttn, molecules: Molecules, batch_size: int, seed: int | None = None
    ) -> None:
        super().__init__(len(molecules.records), batch_size, seed)
        self._model = model
        self._molecules = molecules

    @cached_property
    def _atoms(self) -> list[Tensor]:
        """The output of a frozen encoder for each molecule; empty if it is not kept."""
        # A subclass may compute something else of a batch.
        if type(self._model) is not MolAttn or not self._model.has_frozen_encoder:
            return []
        records = self._molecules.records
        sizes = list(_up_to(_MOST_KEPT // (4 * self._model.embedding_width(atoms=True)), records))
        if len(sizes) < len(records):
            return []
        return [*torch.from_numpy(self._model.embed_records(records, atoms=True)).split(sizes)]

    def costs(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the estimated cost of each molecule, with that of a second one."""
        records = [self._molecules.records[row] for row in rows.tolist()]
        return _costs(records) + _costs([one.partner for one in records])

    def batch(
        self, rows: NDArray[np.int64], place: tuple[int, int], part: Part | None = None
    ) -> LabeledBatch:
        """Return a batch; see :meth:`ResumableLoader.batch`."""
        molecules = self._molecules
        if part is not None:
            rows = rows[part.places]
        types = ((molecules.weights, torch.float32), (molecules.features, number_type()))
        weights, features = (
            None if values is None else torch.tensor(values[rows], dtype=dtype)
            for values, dtype in types
        )
        targets = torch.tensor(molecules.targets[rows], dtype=number_type())
        bounds = None
        if molecules.bounds is not None:
            bounds = torch.tensor(molecules.bounds[:, rows], dtype=number_type())
        if part is not None and not part.counts:
            targets.fill_(torch.nan)
            if bounds is not None:
                bounds.fill_(torch.nan)
        molecules = self._model.collate([molecules.records[row] for row in rows])
        atoms = torch.cat([self._atoms[row] for row in rows]) if self._atoms else None
        return LabeledBatch(molecules, targets, weights, features, bounds, atoms)


def _up_to(most: int, records: Sequence[MoleculeRecord]) -> Iterator[int]:
    """Yield the number of atoms of each molecule, as long as their sum is at most ``most``."""
    for record in records:
        most -= record.num_atoms
        if most < 0:
            return
        yield record.num_atoms


def _costs(records: Sequence[MoleculeRecord | None]) -> NDArray[np.int64]:
    """Return the estimated cost of each molecule, relative to the others."""
    costs = graph_costs(np.array([0 if one is None else one.num_atoms for one in records]))
    for place, one in enumerate(records):
        if one is not None and one.edge_index is not None:
            costs[place] += len(one.pairs) - one.num_atoms**2
    return costs
