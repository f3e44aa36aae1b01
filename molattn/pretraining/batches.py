"""Batches of molecules for pretraining, some of them with masked atoms and bonds."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from molattn.config import MoleculesConfig
from molattn.graph import MoleculeBatch
from molattn.model.model import MolAttn
from molattn.pretraining.scaling import DescriptorScaling
from molattn.pretraining.store import MoleculeStore
from molattn.training.batches import ResumableLoader

__all__ = ["Mask", "MaskedBatch", "MaskedLoader", "PretrainingData", "draw_atoms", "make_mask"]

_MASKS = 1  # keeps the random numbers of the masks apart from those of the order
_BONDED_FRACTION = 0.5  # of a masked atom's bonds
# Of its other pairs: in a molecule of 27 atoms, about as many masked pairs as masked bonds.
_UNBONDED_FRACTION = 0.05


class Mask(NamedTuple):
    """Masked atoms of a molecule, ascending ``[m]``, and pairs (lower, higher atom) ``[2, p]``."""

    atoms: NDArray[np.int64]
    pairs: NDArray[np.int64]


def draw_atoms(
    count: int, fraction: float, random: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Draw the masked ones of ``count`` atoms, at least one, and a number for each of their pairs.

    The number decides whether :func:`make_mask` masks the pair.
    """
    atoms = np.sort(random.choice(count, size=max(1, round(fraction * count)), replace=False))
    return atoms, random.random((len(atoms), count))


def make_mask(
    is_bonded: NDArray[np.bool_], atoms: NDArray[np.int64], numbers: NDArray[np.float64]
) -> Mask:
    """Return the mask of the atoms and numbers that :func:`draw_atoms` returned."""
    chosen = np.zeros(is_bonded.shape, dtype=bool)
    chosen[atoms] = numbers < np.where(is_bonded[atoms], _BONDED_FRACTION, _UNBONDED_FRACTION)
    return Mask(atoms, np.stack(np.nonzero(np.triu(chosen | chosen.T, k=1))))


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
    """The molecules, the scaling of their targets, and the rows to learn from and to validate."""

    store: MoleculeStore
    scaling: DescriptorScaling
    config: MoleculesConfig
    training: NDArray[np.int64]
    validation: NDArray[np.int64]


class MaskedLoader(ResumableLoader):
    """Batches of a store's molecules; the masks depend on the seed and the batch's index alone.

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
        self._model, self._data, self._rows = model, data, rows
        self._mask_seed = mask_seed
        self._masked = data.config.masked_molecules if masked is None else masked

    def sizes(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of atoms of each molecule."""
        return self._data.store.sizes(self._rows[rows])

    def batch(
        self, rows: NDArray[np.int64], index: tuple[int, int], part: NDArray[np.int64] | None = None
    ) -> MaskedBatch:
        """Return a batch; see :meth:`molattn.training.batches.ResumableLoader.batch`.

        All masks of a batch are drawn whatever the part, so that they do not depend on it.
        """
        random = np.random.default_rng([self._mask_seed, _MASKS, *index])
        store, config = self._data.store, self._data.config
        # Rounded at random, so that the fraction also holds on average in a short last batch.
        count = int(self._masked * len(rows) + random.random())
        order = random.permutation(len(rows))
        masked, unmasked = np.sort(order[:count]), np.sort(order[count:])
        sizes = store.sizes(self._rows[rows]).tolist()
        drawn = {n: draw_atoms(sizes[n], config.masked_atoms, random) for n in masked.tolist()}
        own = np.arange(len(rows)) if part is None else part
        chosen = self._rows[rows[own if len(own) else [0]]]
        records = store.unpack(chosen)
        molecules = self._model.collate(records)
        unmasked = np.flatnonzero(np.isin(own, unmasked))
        starts = [*molecules.layout.graph_starts()]
        featurizer = self._model.config.featurizer
        found = []  # atoms, their codes, pairs, their atoms and bonds of each masked molecule
        for n, row in enumerate(own.tolist()):
            if row not in drawn:
                continue
            record, start = records[n], starts[n]
            is_bonded = record.pairs >= featurizer.first_bond_code
            atoms, pairs = make_mask(is_bonded, *drawn[row])
            bonds = featurizer.pair_table[record.pairs[*pairs], 0]
            indices = start.pair + pairs * start.padded + pairs[::-1]
            codes = record.atoms[atoms].T
            found.append((start.row + atoms, codes, indices, start.row + pairs, bonds))
        width = len(featurizer.atom_names)
        empty = [np.zeros(shape) for shape in (0, (width, 0), (2, 0), (2, 0), 0)]
        parts = (np.concatenate(part, axis=-1) for part in zip(empty, *found, strict=True))
        atoms, codes, pairs, ends, bonds = (torch.from_numpy(part).long() for part in parts)
        return MaskedBatch(
            molecules,
            torch.from_numpy(unmasked),
            torch.from_numpy(self._data.scaling.scaled(store.descriptors(chosen[unmasked]))),
            torch.from_numpy(store.log_counts(chosen[unmasked])),
            atoms,
            codes.T,
            pairs,
            ends,
            bonds,
            len(own),
        )
