"""A molecule to explain, and predictions with some of its atoms masked."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Optional

import numpy as np
import torch
from numpy.typing import NDArray
from rdkit import Chem
from torch import Tensor

from molattn.chem.parse import parse_accepted_smiles
from molattn.explain.attention_hooks import Attention, attention_weights
from molattn.explain.baseline import one_hot
from molattn.explain.target import Target
from molattn.graph import MoleculeBatch
from molattn.model.extra_features import number_type
from molattn.model.model import MolAttn
from molattn.record import MoleculeRecord

__all__ = ["LEVEL", "Instance", "Masking"]

LEVEL = 0.9
"""Default nominal coverage of prediction intervals."""

Masking = Literal["remove", "blank"]
"""How atoms are masked; see :meth:`Instance.predict_kept`."""

_MOST_PAIR_FEATURES = 2_000_000  # in a batch: 8 MB, whatever the size of the molecule
_LARGEST_BATCH = 256


@dataclass(frozen=True, eq=False)
class Instance:
    """A molecule, the model, and the target to explain.

    Masking atoms changes neither the second molecule, if there is one, nor the features of the
    whole molecule (columns of the table, descriptors, Morgan counts).

    Args:
        model: The model.
        smiles: The molecule.
        record: The featurized molecule, ``n`` atoms.
        target: The target.
        baseline_atom: One-hot features of the baseline atom, see
            :func:`molattn.explain.baseline.baseline_atom`.
        predicted: Predictions of the model, calibrated if it is, ``[num_outputs]``.
        features: Table features of the molecule, ``[num_features]``.
    """

    model: MolAttn
    smiles: str
    record: MoleculeRecord
    target: Target
    baseline_atom: NDArray[np.float64]
    predicted: NDArray[np.float64]
    features: Optional[NDArray[np.float64]] = None

    @property
    def num_atoms(self) -> int:
        """Number of atoms ``n``."""
        return self.record.num_atoms

    @cached_property
    def mol(self) -> Chem.Mol:
        """The RDKit molecule; atoms in the order of the SMILES."""
        return parse_accepted_smiles(self.smiles)

    @cached_property
    def bonds(self) -> tuple[tuple[int, int], ...]:
        """Pairs of bonded atoms."""
        return tuple((b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in self.mol.GetBonds())

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return self.model.target_mean.device

    @property
    def batch_size(self) -> int:
        """Number of variants predicted in one batch."""
        numbers = self.num_atoms**2 * sum(self.model.config.featurizer.pair_sizes)
        return int(np.clip(_MOST_PAIR_FEATURES // numbers, 1, _LARGEST_BATCH))

    # Shared by several methods, and so computed once.

    @cached_property
    def prediction(self) -> float:
        """Prediction for the molecule without masking, in the target's unit."""
        return float(self.predict_kept(np.ones((1, self.num_atoms), dtype=bool))[0])

    @property
    def probability(self) -> Optional[float]:
        """Probability of the class, calibrated if the model is; None for a regression."""
        is_regression = self.target.task.kind == "regression"
        return None if is_regression else float(self.predicted[self.target.column])

    @cached_property
    def attention(self) -> Attention:
        """Attention weights and gates that the model applies to the molecule."""
        with self.evaluating():
            return attention_weights(self.model, *self.batch())

    @cached_property
    def similarity(self) -> float:
        """Similarity to the nearest training molecule; NaN if the model is not calibrated."""
        uncertainty, fingerprint = self.model.uncertainty, self.record.fingerprint
        if uncertainty is None:
            return math.nan
        molecules = [self.smiles] if fingerprint is None else fingerprint[np.newaxis]
        return uncertainty.molecules.similarity(molecules).item()

    # One-hot features of atoms and pairs.

    @cached_property
    def atoms(self) -> Tensor:
        """One-hot atom features ``[n, S]``."""
        return self._tensor(one_hot(self.record.atoms, self.model.config.featurizer.atom_sizes))

    @cached_property
    def pairs(self) -> Tensor:
        """One-hot pair features ``[n receivers, n senders, T]``."""
        featurizer = self.model.config.featurizer
        codes = featurizer.pair_table[self.record.pairs.T]
        return self._tensor(one_hot(codes, featurizer.pair_sizes))

    @cached_property
    def baseline_atoms(self) -> Tensor:
        """The baseline atom in place of every atom, ``[n, S]``."""
        return self._tensor(self.baseline_atom).expand_as(self.atoms)

    @cached_property
    def blank_pairs(self) -> Tensor:
        """Pair features that are all zero, except on the diagonal, which is unchanged."""
        same = torch.eye(self.num_atoms, dtype=torch.bool, device=self.device)
        return self.pairs.where(same.unsqueeze(-1), 0.0)

    def _tensor(self, numbers: NDArray[np.floating]) -> Tensor:
        return torch.as_tensor(
            numbers, dtype=next(self.model.parameters()).dtype, device=self.device
        )

    # Predictions.

    def __call__(self, atoms: Tensor, pairs: Tensor) -> Tensor:
        """Predict from given atom and pair features, differentiably.

        Args:
            atoms: Atom features ``[B, n, S]``, one-hot or mixtures of one-hot vectors.
            pairs: Pair features ``[B, n, n, T]``, likewise.

        Returns:
            Predictions ``[B]`` in the target's unit.
        """
        count = len(atoms)
        batch = self._batch([self.record] * count)
        batch = replace(batch, x=atoms.flatten(0, 1), edge_attr=pairs.flatten(0, 2))
        return self.target.value(self.model(batch, self._features(count)))

    def _features(self, count: int) -> Optional[Tensor]:
        if self.features is None:
            return None
        features = torch.as_tensor(self.features, dtype=number_type(), device=self.device)
        return features.expand(count, -1)

    def batch(self) -> tuple[MoleculeBatch, Optional[Tensor]]:
        """Return the arguments of the model: the molecule as a batch of one, and its features."""
        return self._batch([self.record]), self._features(1)

    def _batch(self, records: Sequence[MoleculeRecord]) -> MoleculeBatch:
        return self.model.collate(records).to(self.device)

    def predict_kept(
        self, kept: NDArray[np.bool_], masking: Masking = "remove"
    ) -> NDArray[np.float64]:
        """Predict with some atoms masked.

        Args:
            kept: Which atoms are not masked, ``bool [B, n]``.
            masking: ``remove``: a masked atom is removed from the graph, so that no atom attends to
                it and the readout ignores it; features of the other atoms, such as their number of
                neighbors, do not change. ``blank``: a masked atom is replaced by the baseline atom,
                and all features of its pairs are set to zero.

        Returns:
            ``[B]``, in the target's unit.
        """
        predict = {"remove": self._removed, "blank": self._blanked}[masking]
        # Orders of the atoms share masks, at least the empty and the full one.
        distinct, place = np.unique(kept, axis=0, return_inverse=True)
        return self._in_batches(predict, distinct)[place.reshape(-1)]

    def predict_masked_pairs(self, masked: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Predict with the features of some pairs of atoms set to zero.

        Args:
            masked: Which ordered pairs, ``bool [B, n, n]``.

        Returns:
            ``[B]``, in the target's unit.
        """
        return self._in_batches(self._without_pairs, masked)

    def _in_batches(
        self, predict: Callable[[NDArray[np.bool_]], NDArray[np.float64]], masks: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        starts = range(0, len(masks), self.batch_size)
        parts = (predict(masks[start : start + self.batch_size]) for start in starts)
        return np.concatenate([np.zeros(0), *parts])

    def _without_pairs(self, masked: NDArray[np.bool_]) -> NDArray[np.float64]:
        some = torch.from_numpy(masked).to(self.device).unsqueeze(-1)
        atoms = self.atoms.expand(len(masked), -1, -1)
        return self._predict(atoms, torch.where(some, self.blank_pairs, self.pairs))

    def _blanked(self, kept: NDArray[np.bool_]) -> NDArray[np.float64]:
        atoms = torch.from_numpy(kept).to(self.device).unsqueeze(-1)
        pairs = (atoms & atoms.mT).unsqueeze(-1)
        return self._predict(
            torch.where(atoms, self.atoms, self.baseline_atoms),
            torch.where(pairs, self.pairs, self.blank_pairs),
        )

    @torch.inference_mode()
    def _predict(self, atoms: Tensor, pairs: Tensor) -> NDArray[np.float64]:
        with self.evaluating():
            return self(atoms, pairs).cpu().numpy()

    @torch.inference_mode()
    def _removed(self, kept: NDArray[np.bool_]) -> NDArray[np.float64]:
        records = [
            replace(
                self.record, atoms=self.record.atoms[some], pairs=self.record.pairs[some][:, some]
            )
            for some in kept
        ]
        with self.evaluating():
            outputs = self.model(self._batch(records), self._features(len(records)))
        return self.target.value(outputs).cpu().numpy()

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Put the model in evaluation mode inside the block."""
        training = self.model.training
        self.model.eval()
        try:
            yield
        finally:
            self.model.train(training)

    def interval(self, level: float = LEVEL) -> tuple[float, float] | tuple[None, None]:
        """Return the prediction interval; None for a class or a model that is not calibrated.

        Args:
            level: Nominal coverage.
        """
        uncertainty, task = self.model.uncertainty, self.target.task
        if uncertainty is None or task.kind != "regression":
            return None, None
        config = self.model.config
        with torch.inference_mode(), self.evaluating():
            scaled = self.model(*self.batch()).cpu()
        outputs = np.zeros((1, len(config.output_names)))
        outputs[:, self.target.column] = self.target.transformed(scaled).numpy()
        ends = uncertainty.intervals(config, outputs, np.array([self.similarity]), level)
        low, high = (float(end[0, config.tasks.index(task)]) for end in ends)
        return (low, high) if math.isfinite(high - low) else (None, None)
