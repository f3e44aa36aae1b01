"""Batches of molecules, some of them with parts that are hidden."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from molattn.config import MoleculesConfig
from molattn.graph import MoleculeBatch
from molattn.model.model import MolAttn
from molattn.pretraining.masking import hide
from molattn.pretraining.scaling import DescriptorScaling
from molattn.pretraining.store import MoleculeStore
from molattn.training.batches import ResumableLoader

__all__ = ["HiddenBatch", "HiddenBatches", "Source"]

_MASKS = 1  # tells the random numbers of what is hidden from those of the order


class HiddenBatch(NamedTuple):
    """Molecules, and what is to be learned of them.

    Args:
        molecules: All of them, with nothing hidden yet.
        whole: Which molecules stay whole, ``int64 [c]``.
        descriptors: Scaled descriptors of those, ``[c, D]``, NaN where one is undefined.
        counts: Their ``log(1 + count)``, ``[c, NUM_COUNTS]``.
        atoms: Rows of hidden atoms in the layout, ``int64 [m]``.
        atom_codes: Their codes, ``int64 [m, A]``.
        pairs: Pair rows of hidden pairs in both directions, ``int64 [2, p]``.
        pair_atoms: Rows of their two atoms, ``int64 [2, p]``.
        bonds: Their bond codes, 0 where there is none, ``int64 [p]``.
    """

    molecules: MoleculeBatch
    whole: Tensor
    descriptors: Tensor
    counts: Tensor
    atoms: Tensor
    atom_codes: Tensor
    pairs: Tensor
    pair_atoms: Tensor
    bonds: Tensor


@dataclass(frozen=True)
class Source:
    """Where batches come from.

    Args:
        store: The molecules.
        scaling: Of their descriptors.
        config: What is hidden of them.
    """

    store: MoleculeStore
    scaling: DescriptorScaling
    config: MoleculesConfig


class HiddenBatches(ResumableLoader):
    """Batches of a store's molecules; what is hidden follows from the seed and the batch's place.

    Args:
        model: Lays molecules out as a batch.
        source: The molecules.
        rows: Which of them.
        batch_size: Molecules in a batch.
        mask_seed: Seed of what is hidden.
        order_seed: Seed of the order; without one, molecules come in their own order.
        masked: Part of the molecules with something hidden; by default that of the source.
    """

    def __init__(
        self,
        model: MolAttn,
        source: Source,
        rows: NDArray[np.int64],
        batch_size: int,
        *,
        mask_seed: int,
        order_seed: int | None = None,
        masked: float | None = None,
    ) -> None:
        super().__init__(len(rows), batch_size, order_seed)
        self._model = model
        self._source = source
        self._rows = rows
        self._mask_seed = mask_seed
        self._masked = source.config.masked_molecules if masked is None else masked

    def batch(self, rows: NDArray[np.int64], place: tuple[int, int]) -> HiddenBatch:
        """Return a batch; see :meth:`molattn.training.batches.ResumableLoader.batch`."""
        random = np.random.default_rng([self._mask_seed, _MASKS, *place])
        chosen = self._rows[rows]
        store, featurizer = self._source.store, self._model.config.featurizer
        records = store.molecules.unpack(chosen)
        # Of the last few molecules as often as of all, whatever their number.
        count = int(self._masked * len(rows) + random.random())
        order = random.permutation(len(rows))
        masked, whole = np.sort(order[:count]), np.sort(order[count:])
        molecules = self._model.collate(records)
        starts = list(molecules.edge_index.graph_starts())
        atoms, codes, pairs, ends, bonds = [], [], [], [], []
        for molecule in masked:
            record, start = records[molecule], starts[molecule]
            is_bonded = record.pairs >= featurizer.first_bond_code
            hidden = hide(is_bonded, self._source.config.masked_atoms, random)
            atoms.append(start.row + hidden.atoms)
            codes.append(record.atoms[hidden.atoms])
            both = np.stack([hidden.first, hidden.second])
            pairs.append(start.pair + both * start.width + both[::-1])
            ends.append(start.row + both)
            bonds.append(featurizer.pair_table[record.pairs[hidden.first, hidden.second], 0])
        return HiddenBatch(
            molecules,
            torch.from_numpy(whole),
            torch.from_numpy(self._source.scaling.scaled(store.descriptors[chosen[whole]])),
            torch.from_numpy(store.log_counts(chosen[whole])),
            _joined(atoms, (0,)),
            _joined(codes, (0, len(featurizer.atom_names))),
            _joined(pairs, (2, 0), axis=1),
            _joined(ends, (2, 0), axis=1),
            _joined(bonds, (0,)),
        )


def _joined(parts: list[NDArray[np.integer]], nothing: tuple[int, ...], axis: int = 0) -> Tensor:
    whole = np.concatenate([np.zeros(nothing, np.int64), *parts], axis=axis)
    return torch.from_numpy(whole.astype(np.int64, copy=False))
