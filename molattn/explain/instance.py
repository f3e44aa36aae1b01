"""A molecule through a model in many variants: atoms masked, or partly so."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Optional

import numpy as np
import torch
from numpy.typing import NDArray
from rdkit import Chem
from torch import Tensor

from molattn.chem import parse_smiles
from molattn.explain.attention_hooks import Attention, attention_of
from molattn.explain.baseline import amounts
from molattn.explain.target import Target
from molattn.graph import CompleteGraphs, MoleculeBatch
from molattn.model.extra_features import number_type
from molattn.model.model import MolAttn
from molattn.record import MoleculeRecord

__all__ = ["LEVEL", "Instance", "Masking"]


LEVEL = 0.9
"""The usual probability that the truth lies in an interval."""


Masking = Literal["remove", "blank"]
"""What masking an atom does; see :meth:`Instance.keep`."""


_NUMBERS_AT_ONCE = 2_000_000  # of pair amounts: 8 MB, whatever the size of a molecule

_MOST_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class Instance:
    """A molecule, the model and the output that are looked at.

    A second molecule and further numbers of the molecule (table columns, descriptors,
    fingerprints) stay what they are, whatever becomes of the atoms.

    Args:
        model: The model.
        smiles: The molecule as text.
        record: As the model reads it, ``n`` atoms.
        output: The output.
        average: The average atom, in amounts of each code.
        predicted: What the model predicts of the molecule, probabilities calibrated where it is,
            ``[num_outputs]``.
        features: Further numbers given for the molecule, ``[num_features]``.
    """

    model: MolAttn
    smiles: str
    record: MoleculeRecord
    output: Target
    average: NDArray[np.float64]
    predicted: NDArray[np.float64]
    features: Optional[NDArray[np.float64]] = None

    @property
    def num_atoms(self) -> int:
        """Number of atoms ``n``."""
        return self.record.num_atoms

    @cached_property
    def mol(self) -> Chem.Mol:
        """The molecule as RDKit has it; atoms in the order of the SMILES."""
        return parse_smiles(self.smiles)

    @cached_property
    def bonds(self) -> tuple[tuple[int, int], ...]:
        """Pairs of bonded atoms."""
        return tuple((b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in self.mol.GetBonds())

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.target_mean.device

    @property
    def most_at_once(self) -> int:
        """How many variants fit into the memory of one step."""
        numbers = self.num_atoms**2 * sum(self.model.config.featurizer.pair_sizes)
        return int(np.clip(_NUMBERS_AT_ONCE // numbers, 1, _MOST_AT_ONCE))

    # What several methods ask for.

    @cached_property
    def prediction(self) -> float:
        """What is predicted of the molecule as it is, in the output's unit."""
        return float(self.keep(np.ones((1, self.num_atoms), dtype=bool))[0])

    @property
    def probability(self) -> Optional[float]:
        """Probability of the class, calibrated where the model is; None of a regression."""
        is_number = self.output.task.kind == "regression"
        return None if is_number else float(self.predicted[self.output.column])

    @cached_property
    def attention(self) -> Attention:
        """The weights and gates that the model applies to the molecule."""
        with self.evaluating():
            return attention_of(self.model, *self.batch())

    @cached_property
    def similarity(self) -> float:
        """To the nearest training molecule; NaN where the model does not know them."""
        known, fingerprint = self.model.uncertainty, self.record.fingerprint
        if known is None:
            return math.nan
        asked = [self.smiles] if fingerprint is None else fingerprint[np.newaxis]
        return known.molecules.similarity(asked).item()

    # Atoms and pairs as amounts of each code.

    @cached_property
    def atoms(self) -> Tensor:
        """Amounts of each atom code, ``[n, S]``: 1 where an atom has it."""
        return self._tensor(amounts(self.record.atoms, self.model.config.featurizer.atom_sizes))

    @cached_property
    def pairs(self) -> Tensor:
        """Amounts of each pair code, ``[n receivers, n senders, T]``."""
        featurizer = self.model.config.featurizer
        codes = featurizer.pair_table[self.record.pairs.T]
        return self._tensor(amounts(codes, featurizer.pair_sizes))

    @cached_property
    def average_atoms(self) -> Tensor:
        """The average atom in every place, ``[n, S]``."""
        return self._tensor(self.average).expand_as(self.atoms)

    @cached_property
    def blank_pairs(self) -> Tensor:
        """No amount of any code but on the diagonal, which is the same in all molecules."""
        same = torch.eye(self.num_atoms, dtype=torch.bool, device=self.device)
        return self.pairs.where(same.unsqueeze(-1), 0.0)

    def _tensor(self, numbers: NDArray[np.floating]) -> Tensor:
        return torch.as_tensor(
            numbers, dtype=next(self.model.parameters()).dtype, device=self.device
        )

    # Predictions.

    def __call__(self, atoms: Tensor, pairs: Tensor) -> Tensor:
        """Predict variants, ``[B]``, in the output's unit; gradients flow.

        Args:
            atoms: Amounts of atom codes ``[B, n, S]``.
            pairs: Amounts of pair codes ``[B, n, n, T]``.
        """
        count = len(atoms)
        whole = self.model.collate([self.record]).to(self.device)
        one = whole.edge_index
        graphs = CompleteGraphs([self.num_atoms] * count, self_loops=one.self_loops)
        graphs = graphs.to(self.device)
        if one.kept is not None:
            graphs = graphs.with_edges(one.kept.repeat(count))
        batch = replace(
            whole,
            x=atoms.flatten(0, 1),
            edge_index=graphs,
            edge_attr=pairs.flatten(0, 2),
            numbers=None if whole.numbers is None else whole.numbers.expand(count, -1),
            partner_index=None
            if whole.partner_index is None
            else whole.partner_index.repeat(count),
        )
        return self.output.value(self.model(batch, self._given(count)))

    def _given(self, count: int) -> Optional[Tensor]:
        if self.features is None:
            return None
        given = torch.as_tensor(self.features, dtype=number_type(), device=self.device)
        return given.expand(count, -1)

    def batch(self) -> tuple[MoleculeBatch, Optional[Tensor]]:
        """The molecule as it is, as the model takes it, and its further numbers."""
        return self.model.collate([self.record]).to(self.device), self._given(1)

    def keep(self, kept: NDArray[np.bool_], masking: Masking = "remove") -> NDArray[np.float64]:
        """Predict with some atoms masked.

        Args:
            kept: Which atoms stay, ``bool [B, n]``.
            masking: ``remove``: a masked atom is taken out of the graph, so that no atom attends to
                it and the readout does not see it; what the others say of themselves, such as how
                many neighbours they had, stays. ``blank``: it becomes the average atom, and its
                pairs lose all features.

        Returns:
            ``[B]``, in the output's unit.
        """
        predict = {"remove": self._removed, "blank": self._blanked}[masking]
        # Orders of one molecule share their ends, and more where it is small.
        distinct, place = np.unique(kept, axis=0, return_inverse=True)
        size = self.most_at_once
        parts = [predict(distinct[i : i + size]) for i in range(0, len(distinct), size)]
        return np.concatenate(parts)[place.reshape(-1)]

    def masked_pairs(self, masked: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Predict with some pairs without features, all atoms as they are.

        Args:
            masked: Which ordered pairs, ``bool [B, n, n]``.
        """
        size = self.most_at_once
        parts = [np.zeros(0)]
        for start in range(0, len(masked), size):
            some = torch.from_numpy(masked[start : start + size]).to(self.device)
            pairs = torch.where(some.unsqueeze(-1), self.blank_pairs, self.pairs)
            parts.append(self._predict(self.atoms.expand(len(some), -1, -1), pairs))
        return np.concatenate(parts)

    def _blanked(self, kept: NDArray[np.bool_]) -> NDArray[np.float64]:
        atoms = torch.from_numpy(kept).to(self.device).unsqueeze(-1)
        pairs = (atoms & atoms.mT).unsqueeze(-1)
        return self._predict(
            torch.where(atoms, self.atoms, self.average_atoms),
            torch.where(pairs, self.pairs, self.blank_pairs),
        )

    @torch.inference_mode()
    def _predict(self, atoms: Tensor, pairs: Tensor) -> NDArray[np.float64]:
        with self.evaluating():
            return self(atoms, pairs).double().cpu().numpy()

    @torch.inference_mode()
    def _removed(self, kept: NDArray[np.bool_]) -> NDArray[np.float64]:
        records = [
            replace(
                self.record, atoms=self.record.atoms[some], pairs=self.record.pairs[some][:, some]
            )
            for some in kept
        ]
        with self.evaluating():
            outputs = self.model(
                self.model.collate(records).to(self.device), self._given(len(records))
            )
        return self.output.value(outputs).double().cpu().numpy()

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Put the model into evaluation mode for a while."""
        training = self.model.training
        self.model.eval()
        try:
            yield
        finally:
            self.model.train(training)

    def interval(self, level: float = LEVEL) -> tuple[float, float] | tuple[None, None]:
        """Return the ends of the prediction's interval; None of a class, or where nothing is known.

        Args:
            level: Probability with which the truth lies in the interval.
        """
        known, task = self.model.uncertainty, self.output.task
        if known is None or task.kind != "regression":
            return None, None
        widths = known.calibration.half_widths(np.array([self.similarity]), level)
        half = float(widths[0, self.model.config.tasks.index(task)])
        middle = self.prediction
        return (middle - half, middle + half) if math.isfinite(half) else (None, None)
