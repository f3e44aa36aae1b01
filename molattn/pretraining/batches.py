"""Batches of molecules for pretraining, some with masked atoms and bonds; scales of the targets.

Scaled, an uninformed prediction of a target has the error 1.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from molattn.chem.pretraining_targets import COUNT_GROUPS, NUM_COUNTS, PRETRAINING_DESCRIPTORS
from molattn.config import MoleculesConfig
from molattn.graph import MoleculeBatch
from molattn.model.model import MolAttn
from molattn.pretraining.store import MoleculeStore
from molattn.record import MoleculeRecord
from molattn.training.batches import ResumableLoader

_MASKS = 1  # keeps the random numbers of the masks apart from those of the order
_BONDED_FRACTION = 0.5  # of a masked atom's bonds
# Of its other pairs: in a molecule of 27 atoms, about as many masked pairs as masked bonds.
_UNBONDED_FRACTION = 0.05
MAX_SAMPLED = 50_000
_ROWS_AT_ONCE = 1024
_TAIL = 0.001


@dataclass(frozen=True)
class DescriptorScaling:
    """The predicted descriptors, further columns, and their scaling.

    A value is clipped to the range between the 0.1% and 99.9% quantiles of the training molecules,
    then standardized by the mean and standard deviation of the clipped values. A descriptor that
    is constant within this range is left out.
    """

    names: tuple[str, ...]  # of the descriptors, then of the further columns, D of them
    columns: NDArray[np.intp]  # their columns in the store, ascending [D], as the other arrays
    low: NDArray[np.float32]
    high: NDArray[np.float32]
    mean: NDArray[np.float32]
    scale: NDArray[np.float32]

    @property
    def num_descriptors(self) -> int:
        """Number of descriptors among the names."""
        return int(np.searchsorted(self.columns, len(PRETRAINING_DESCRIPTORS)))

    def scaled(self, values: NDArray[np.floating]) -> NDArray[np.float32]:
        """Scale rows of a store's descriptors to ``[n, D]``; NaN where one is undefined."""
        selected = np.asarray(values)[:, self.columns].astype(np.float32)
        return (np.clip(selected, self.low, self.high) - self.mean) / self.scale


def sample(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return at most 50,000 of the rows, evenly spaced, in their order."""
    step = -(-len(rows) // MAX_SAMPLED)
    return rows[:: max(1, step)]


def descriptor_scaling(
    store: MoleculeStore, rows: NDArray[np.int64], *, columns: bool = True
) -> DescriptorScaling:
    """Fit the scaling of the descriptors, and of the further columns, to some of the molecules."""
    fits = []
    values = []
    width = len(PRETRAINING_DESCRIPTORS)
    every = store.descriptors(rows).T
    for column, numbers in enumerate(every if columns else every[:width]):
        defined = numbers[~np.isnan(numbers)].astype(np.float64)
        if not len(defined):
            continue
        low, high = np.quantile(defined, [_TAIL, 1.0 - _TAIL], method="nearest")
        clipped = np.clip(defined, low, high)
        # Equal values leave rounding noise, not zero, for a standard deviation. Further columns
        # may have any unit.
        size = max(1.0, abs(clipped.mean())) if column < width else 0.1 * np.abs(clipped).max()
        if clipped.std() > 1e-6 * size:
            fits.append(column)
            values.append((low, high, clipped.mean(), clipped.std()))
    indices = np.array(fits, dtype=np.intp)
    limits = np.array(values, dtype=np.float32).reshape(-1, 4).T
    return DescriptorScaling(tuple(store.names[column] for column in fits), indices, *limits)


def count_scaling(
    store: MoleculeStore, rows: NDArray[np.int64]
) -> tuple[NDArray[np.float32], dict[str, float]]:
    """Return the mean of each ``log(1 + count)``, and the mean variance of each group.

    The variance of a group that is constant is given as 1.
    """
    total = np.zeros(NUM_COUNTS)
    squares = np.zeros(NUM_COUNTS)
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        counts = store.log_counts(rows[start : start + _ROWS_AT_ONCE])
        total += counts.sum(axis=0, dtype=np.float64)
        squares += (counts**2).sum(axis=0, dtype=np.float64)
    mean = total / len(rows)
    variance = np.maximum(squares / len(rows) - mean**2, 0.0)
    of_groups = {name: float(variance[part].mean()) for name, part in COUNT_GROUPS.items()}
    return mean.astype(np.float32), {
        name: group_variance or 1.0 for name, group_variance in of_groups.items()
    }


def draw_atoms(
    count: int, fraction: float, random: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Draw the masked ones of ``count`` atoms, at least one, and a number for each of their pairs.

    The number decides whether :func:`masked_pairs` masks the pair.
    """
    atoms = np.sort(random.choice(count, size=max(1, round(fraction * count)), replace=False))
    return atoms, random.random((len(atoms), count))


def masked_pairs(
    is_bonded: NDArray[np.bool_], atoms: NDArray[np.int64], numbers: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return the masked pairs (lower, higher atom) ``[2, p]`` of what :func:`draw_atoms` drew."""
    is_masked = np.zeros(is_bonded.shape, dtype=bool)
    is_masked[atoms] = numbers < np.where(is_bonded[atoms], _BONDED_FRACTION, _UNBONDED_FRACTION)
    return np.stack(np.nonzero(np.triu(is_masked | is_masked.T, k=1)))


class MaskedBatch(NamedTuple):
    """Molecules with the targets of pretraining; indices and codes are ``int64``."""

    molecules: MoleculeBatch  # all molecules, nothing masked in their codes yet
    unmasked: Tensor  # molecules without masked atoms, [c]
    descriptors: Tensor  # scaled, of those, then further columns, [c, D]; NaN where undefined
    counts: Tensor  # log(1 + count) of those, [c, NUM_COUNTS]
    atoms: Tensor  # layout rows of the masked atoms, [m]
    atom_codes: Tensor  # their codes, [m, A]
    pairs: Tensor  # pair rows of the masked pairs in both directions, [2, p]
    pair_atoms: Tensor  # layout rows of their two atoms, [2, p]
    bonds: Tensor  # their bond codes, 0 for a pair without a bond, [p]
    count: int  # number of molecules that have targets


@dataclass(frozen=True)
class PretrainingData:
    """The molecules, the scaling of their targets, and the rows to learn from and to validate."""

    store: MoleculeStore
    scaling: DescriptorScaling
    config: MoleculesConfig
    training: NDArray[np.int64]
    validation: NDArray[np.int64]

    def facts(self) -> dict[str, Any]:
        """Return sources, counts and sizes, as JSON types."""
        return {
            **self.store.about,
            "training": len(self.training),
            "validation": len(self.validation),
            "bytes_per_molecule": round(self.store.num_bytes / len(self.store), 1),
        }


class MaskedLoader(ResumableLoader):
    """Batches of a store's molecules; the masks depend on the seed and the batch's index alone.

    ``masked``: fraction of molecules with masked atoms; None takes that of the config.
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

    def sizes(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of atoms of each molecule."""
        return self._data.store.sizes(self._rows[rows])

    def batch(
        self,
        rows: NDArray[np.int64],
        index: tuple[int, int],
        positions: NDArray[np.int64] | None = None,
    ) -> MaskedBatch:
        """Return a batch; see :meth:`molattn.training.batches.ResumableLoader.batch`.

        All masks of a batch are drawn whatever the positions, on which they do not depend.
        """
        random = np.random.default_rng([self._mask_seed, _MASKS, *index])
        store = self._data.store
        config = self._data.config
        # Rounded at random, so that the fraction also holds on average in a short last batch.
        count = int(self._masked * len(rows) + random.random())
        order = random.permutation(len(rows))
        masked = np.sort(order[:count])
        unmasked = np.sort(order[count:])
        sizes = store.sizes(self._rows[rows]).tolist()
        drawn = {n: draw_atoms(sizes[n], config.masked_atoms, random) for n in masked.tolist()}
        batch_rows = np.arange(len(rows)) if positions is None else positions
        store_rows = self._rows[rows[batch_rows if len(batch_rows) else [0]]]
        records = store.unpack(store_rows)
        molecules = self._model.collate(records)
        unmasked = np.flatnonzero(np.isin(batch_rows, unmasked))
        masks = self._masks(molecules, records, [drawn.get(row) for row in batch_rows.tolist()])
        descriptors = self._data.scaling.scaled(store.descriptors(store_rows[unmasked]))
        targets = (unmasked, descriptors, store.log_counts(store_rows[unmasked]))
        tensors = [*map(torch.from_numpy, targets), *masks]
        return MaskedBatch._make([molecules, *tensors, len(batch_rows)])

    def _masks(
        self, molecules: MoleculeBatch, records: list[MoleculeRecord], drawn: list[Any]
    ) -> list[Tensor]:
        """Return masked atoms, their codes, pairs, and the atoms and bonds of these."""
        featurizer = self._model.config.featurizer
        starts = [*molecules.layout.graph_starts()]
        width = len(featurizer.atom_names)
        target_arrays: list[list[NDArray[Any]]] = [
            [np.zeros(shape) for shape in (0, (width, 0), (2, 0), (2, 0), 0)]
        ]
        for record, start, draw in zip(records, starts, drawn, strict=False):
            if draw is None:
                continue
            atoms, numbers = draw
            pairs = masked_pairs(record.pairs >= featurizer.first_bond_code, atoms, numbers)
            bonds = featurizer.pair_table[record.pairs[*pairs], 0]
            indices = start.pair + pairs * start.padded + pairs[::-1]
            codes = record.atoms[atoms].T
            target_arrays.append([start.row + atoms, codes, indices, start.row + pairs, bonds])
        columns = zip(*target_arrays, strict=True)
        joined = [torch.from_numpy(np.concatenate(arrays, axis=-1)).long() for arrays in columns]
        atoms, codes, *pairs_and_bonds = joined
        return [atoms, codes.T, *pairs_and_bonds]
