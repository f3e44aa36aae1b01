"""Loaders of molecules in batches, which can resume within an epoch."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from molattn.data.dataset import Molecules
from molattn.graph import MoleculeBatch
from molattn.graph.complete import OnDevice
from molattn.model.model import MolAttn
from molattn.model.scaling import number_type
from molattn.task import Level
from molattn.utils.process_group import num_processes, process_rank

FEWEST_AUXILIARY = 160  # molecules in an epoch, however few others there are
MAX_KEPT_BYTES = 100_000_000  # of what a frozen encoder gives


@dataclass(frozen=True)
class SiteTargets(OnDevice):
    """Labels of the atoms or bonds of a batch.

    Args:
        targets: In own units or class indices, NaN where missing or censored, ``[S, T]``.
        bounds: Of censored labels, ``[2, S, T]``; None = no label is censored.
        molecule: The molecule of each, ``int64 [S]``.
    """

    targets: Tensor
    bounds: Tensor | None
    molecule: Tensor

    def _map(self, move: Callable[[Any], Any]) -> Self:
        bounds = None if self.bounds is None else move(self.bounds)
        moved = {"targets": move(self.targets), "molecule": move(self.molecule)}
        return replace(self, bounds=bounds, **moved)


class LabeledBatch(NamedTuple):
    """n molecules with targets ``[n, T]``, weights ``[n]`` or ``[n, T]``, features ``[n, F]``.

    Labels with limits have bounds ``[2, n, T]``, see :class:`molattn.data.dataset.Molecules`.
    A frozen encoder's output, the vectors of the atoms ``[N, width]``, may be there too.
    """

    molecules: MoleculeBatch
    targets: Tensor
    weights: Tensor | None
    features: Tensor | None
    bounds: Tensor | None
    atoms: Tensor | None
    atom_targets: SiteTargets | None = None
    bond_targets: SiteTargets | None = None


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
        self.count = count
        self.batch_size = batch_size
        self._seed = seed
        self._epoch = self._position = 0

    @abstractmethod
    def batch(
        self,
        rows: NDArray[np.int64],
        index: tuple[int, int],
        positions: NDArray[np.int64] | None = None,
    ) -> Any:
        """Return a batch of these rows, whose index is its epoch and its number therein.

        A process computes the rows at these ``positions`` in ``rows``; None = all. If there are
        none, it gets one molecule without targets, for gradients of 0.
        """

    @abstractmethod
    def sizes(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of atoms of each row."""

    def __len__(self) -> int:
        return -(-self.count // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        order = self._order()
        first = self._position if self._position < len(self) else 0
        for position in range(first, len(self)):
            self._position = position + 1
            rows = order[position * self.batch_size : (position + 1) * self.batch_size]
            positions = None if num_processes() == 1 else self._positions(rows)
            yield self.batch(rows, (self._epoch, position), positions)

    def _order(self) -> NDArray[np.int64]:
        """Return the rows of this epoch, one after another."""
        if self._seed is None:
            return np.arange(self.count)
        return np.random.default_rng([self._seed, self._epoch]).permutation(self.count)

    def _positions(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Deal the rows out to the processes, the largest molecules first, there and back."""
        largest = np.argsort(-self.sizes(rows), kind="stable")
        count = num_processes()
        turn = np.arange(len(rows)) % (2 * count)
        return np.sort(largest[np.minimum(turn, 2 * count - 1 - turn) == process_rank()])

    def set_epoch(self, epoch: int) -> None:
        """Start an epoch at its first batch."""
        self._epoch = epoch
        self._position = 0

    def state_dict(self) -> dict[str, int]:
        """Return the epoch and the number of its batches already yielded."""
        return {"epoch": self._epoch, "position": self._position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Resume at a saved epoch and batch."""
        self._epoch = state["epoch"]
        self._position = state["position"]


def rows_of_epoch(molecules: Molecules, auxiliary: int) -> int:
    """Return the number of molecules in an epoch, see :class:`LabeledLoader`."""
    others = len(molecules.records) - auxiliary
    return others + min(auxiliary, max(others, FEWEST_AUXILIARY))


class LabeledLoader(ResumableLoader):
    """Loads molecules with labels, and the output of a frozen encoder if it has up to 100 MB.

    The last ``auxiliary`` molecules have no label of a target. An epoch has at most as many of
    them, drawn at random, as of the others (or 160), so that it has at most twice the steps.
    """

    def __init__(
        self,
        model: MolAttn,
        molecules: Molecules,
        batch_size: int,
        seed: int | None = None,
        auxiliary: int = 0,
    ) -> None:
        self._auxiliary = auxiliary
        super().__init__(rows_of_epoch(molecules, auxiliary), batch_size, seed)
        self._model = model
        self._molecules = molecules
        columns = molecules.targets, molecules.stds, molecules.weights
        self._weights = model.scaling.label_weights(*columns)

    @cached_property
    def _atoms(self) -> list[Tensor]:
        """The output of a frozen encoder for each molecule; empty if it is not kept."""
        # A subclass may compute something else of a batch.
        if (
            self._molecules.sites
            or type(self._model) is not MolAttn
            or not self._model.networks.has_frozen_encoder
        ):
            return []
        records = self._molecules.records
        sizes = [record.num_atoms for record in records]
        if 4 * self._model.networks.embedding_width(atoms=True) * sum(sizes) > MAX_KEPT_BYTES:
            return []
        return [*torch.from_numpy(self._model.networks.embed(records, atoms=True)).split(sizes)]

    def _order(self) -> NDArray[np.int64]:
        """Return the rows of this epoch, among them some auxiliary ones."""
        # Reversed: [seed, epoch] draws the order of the rows, which must not depend on this draw.
        rng = np.random.default_rng([self._epoch, self._seed or 0])
        others = len(self._molecules.records) - self._auxiliary
        drawn = others + rng.choice(self._auxiliary, self.count - others, replace=False)
        return np.concatenate([np.arange(others), np.sort(drawn)])[super()._order()]

    def sizes(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of atoms of each row, in both molecules of a pair."""
        records = [self._molecules.records[row] for row in rows.tolist()]
        partners = (0 if record.partner is None else record.partner.num_atoms for record in records)
        return np.array(
            [record.num_atoms + more for record, more in zip(records, partners, strict=True)]
        )

    def batch(
        self,
        rows: NDArray[np.int64],
        index: tuple[int, int],
        positions: NDArray[np.int64] | None = None,
    ) -> LabeledBatch:
        """Return a batch; see :meth:`ResumableLoader.batch`."""
        is_empty = positions is not None and not len(positions)
        if positions is not None:
            rows = rows[:1] if is_empty else rows[positions]
        molecules = self._molecules
        dtype = number_type()
        targets = torch.tensor(molecules.targets[rows], dtype=dtype)
        bounds = (
            None
            if molecules.bounds is None
            else torch.tensor(molecules.bounds[:, rows], dtype=dtype)
        )
        if is_empty:
            targets.fill_(torch.nan)
            bounds = None
        return LabeledBatch(
            self._model.collate([molecules.records[row] for row in rows]),
            targets,
            None if self._weights is None else torch.tensor(self._weights[rows]).float(),
            None
            if molecules.features is None
            else torch.tensor(molecules.features[rows], dtype=dtype),
            bounds,
            torch.cat([self._atoms[row] for row in rows]) if self._atoms else None,
            *(self._site_targets(level, rows, is_empty) for level in get_args(Level)),
        )

    def _site_targets(
        self, level: Level, rows: NDArray[np.int64], is_empty: bool
    ) -> SiteTargets | None:
        if (labels := self._molecules.sites.get(level)) is None:
            return None
        labels = labels.molecules(rows)
        dtype = number_type()
        targets = torch.tensor(labels.targets, dtype=dtype)
        bounds = None if labels.bounds is None else torch.tensor(labels.bounds, dtype=dtype)
        if is_empty:
            targets.fill_(torch.nan)
            bounds = None
        return SiteTargets(targets, bounds, torch.from_numpy(labels.molecule))
