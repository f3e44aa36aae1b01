"""Batches of molecules for pretraining, some of them with masked atoms and bonds."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from molattn.config import MoleculesConfig
from molattn.graph import MoleculeBatch, graph_costs
from molattn.model.model import MolAttn
from molattn.pretraining.scaling import DescriptorScaling
from molattn.pretraining.store import MoleculeStore
from molattn.training.batches import Part, ResumableLoader

__all__ = ["Mask", "MaskedBatch", "MaskedLoader", "PretrainingData", "draw_mask"]

_MASKS = 1  # keeps the random numbers of the masks apart from those of the order
_BONDED_FRACTION = 0.5  # of a masked atom's bonds
# Of its other pairs: in a molecule of 27 atoms, about as many masked pairs as masked bonds.
_UNBONDED_FRACTION = 0.05


class Mask(NamedTuple):
    """The masked atoms and pairs of one molecule.

    Args:
        atoms: Masked atoms, ascending, ``[m]``.
        first: The lower atom of each masked pair, ``[p]``.
        second: The higher one, ``[p]``; a pair is masked in both directions.
    """

    atoms: NDArray[np.int64]
    first: NDArray[np.int64]
    second: NDArray[np.int64]


def draw_mask(is_bonded: NDArray[np.bool_], fraction: float, random: np.random.Generator) -> Mask:
    """Draw the masked atoms of a molecule, at least one, and the masked pairs among theirs."""
    count = len(is_bonded)
    atoms, numbers = _draw(count, fraction, random)
    chance = np.where(is_bonded[atoms], _BONDED_FRACTION, _UNBONDED_FRACTION)
    chosen = np.zeros((count, count), dtype=bool)
    chosen[atoms] = numbers < chance
    first, second = np.nonzero(np.triu(chosen | chosen.T, k=1))
    return Mask(atoms, first, second)


def _draw(
    count: int, fraction: float, random: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Draw the masked ones of ``count`` atoms, and a number for each of their pairs."""
    atoms = np.sort(random.choice(count, size=max(1, round(fraction * count)), replace=False))
    return atoms, random.random((len(atoms), count))


class MaskedBatch(NamedTuple):
    """Molecules with the targets of pretraining.

    Args:
        molecules: All molecules, nothing masked in their codes yet.
        unmasked: Molecules without masked atoms, ``int64 [c]``.
        descriptors: Scaled descriptors of those, then further columns, ``[c, D]``; NaN where
            undefined.
        counts: ``log(1 + count)`` of those, ``[c, NUM_COUNTS]``.
        atoms: Layout rows of the masked atoms, ``int64 [m]``.
        atom_codes: Their codes, ``int64 [m, A]``.
        pairs: Pair rows of the masked pairs in both directions, ``int64 [2, p]``.
        pair_atoms: Layout rows of their two atoms, ``int64 [2, p]``.
        bonds: Their bond codes, 0 for a pair without a bond, ``int64 [p]``.
        count: Number of molecules that have targets.
    """

    molecules: MoleculeBatch
    unmasked: Tensor
    descriptors: Tensor
    counts: Tensor
    atoms: Tensor
    atom_codes: Tensor
    pairs: Tensor
    pair_atoms: Tensor
    bonds: Tensor
    count: int


@dataclass(frozen=True)
class PretrainingData:
    """The data that batches are drawn from."""

    store: MoleculeStore
    scaling: DescriptorScaling
    config: MoleculesConfig


class MaskedLoader(ResumableLoader):
    """Batches of a store's molecules; the masks depend on the seed and the batch's place alone.

    Args:
        mask_seed: Seed of the masks.
        order_seed: Seed of the order; None keeps the order of the rows.
        masked: Fraction of molecules with masked atoms; None takes that of the config.
    """

    def __init__(
        self,
        model: MolAttn,
        data: PretrainingData,
        rows: NDArray[np.int64],
        batch_size: int,
        *,
        mask_seed: int,
        order_seed: int | None = None,
        masked: float | None = None,
    ) -> None:
        super().__init__(len(rows), batch_size, order_seed)
        self._model = model
        self._data = data
        self._rows = rows
        self._mask_seed = mask_seed
        self._masked = data.config.masked_molecules if masked is None else masked

    def costs(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the estimated cost of each molecule."""
        return graph_costs(self._data.store.sizes(self._rows[rows]))

    def batch(
        self, rows: NDArray[np.int64], place: tuple[int, int], part: Part | None = None
    ) -> MaskedBatch:
        """Return a batch; see :meth:`molattn.training.batches.ResumableLoader.batch`.

        All masks of a batch are drawn whatever the part, so that they do not depend on it.
        """
        random = np.random.default_rng([self._mask_seed, _MASKS, *place])
        store, featurizer = self._data.store, self._model.config.featurizer
        # Rounded at random, so that the fraction also holds on average in a short last batch.
        count = int(self._masked * len(rows) + random.random())
        order = random.permutation(len(rows))
        masked, unmasked = np.sort(order[:count]), np.sort(order[count:])
        own = np.arange(len(rows)) if part is None else part.places
        chosen = self._rows[rows[own]]
        records = store.unpack(chosen)
        molecules = self._model.collate(records)
        starts = list(molecules.layout.graph_starts())
        atoms, codes, pairs, ends, bonds = [], [], [], [], []
        sizes = [] if part is None else store.sizes(self._rows[rows]).tolist()
        places = {place: molecule for molecule, place in enumerate(own.tolist())}
        if part is not None and not part.counts:
            places = {}
        unmasked = np.array([places[one] for one in unmasked.tolist() if one in places], np.int64)
        for one in masked.tolist():
            if (molecule := places.get(one)) is None:
                _draw(sizes[one], self._data.config.masked_atoms, random)
                continue
            record, start = records[molecule], starts[molecule]
            is_bonded = record.pairs >= featurizer.first_bond_code
            mask = draw_mask(is_bonded, self._data.config.masked_atoms, random)
            atoms.append(start.row + mask.atoms)
            codes.append(record.atoms[mask.atoms])
            both = np.stack([mask.first, mask.second])
            pairs.append(start.pair + both * start.width + both[::-1])
            ends.append(start.row + both)
            bonds.append(featurizer.pair_table[record.pairs[mask.first, mask.second], 0])
        return MaskedBatch(
            molecules,
            torch.from_numpy(unmasked),
            torch.from_numpy(self._data.scaling.scaled(store.descriptors(chosen[unmasked]))),
            torch.from_numpy(store.log_counts(chosen[unmasked])),
            _joined(atoms, (0,)),
            _joined(codes, (0, len(featurizer.atom_names))),
            _joined(pairs, (2, 0), axis=1),
            _joined(ends, (2, 0), axis=1),
            _joined(bonds, (0,)),
            len(places),
        )


def _joined(parts: list[NDArray[np.integer]], empty: tuple[int, ...], axis: int = 0) -> Tensor:
    whole = np.concatenate([np.zeros(empty, np.int64), *parts], axis=axis)
    return torch.from_numpy(whole.astype(np.int64, copy=False))
