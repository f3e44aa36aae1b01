"""A molecule to explain, and predictions with some of its atoms masked."""

import math
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Optional

import numpy as np
import torch
from numpy.typing import NDArray
from rdkit import Chem
from torch import Tensor
from torch_geometric.data import Data

from molattn.chem.descriptors import atom_contributions
from molattn.chem.fingerprints import Environments
from molattn.chem.limits import read_molecule
from molattn.chem.parse import Molecule, parse_accepted
from molattn.config import MoleculeLimits
from molattn.explain.attention_hooks import Attention, attention_weights
from molattn.explain.baseline import one_hot
from molattn.explain.process import MoleculeProcess
from molattn.explain.target import Target
from molattn.graph import MoleculeBatch
from molattn.model.gaussian_process.kernel import KernelInputs
from molattn.model.inputs import number_type, scaled_numbers
from molattn.model.model import MolAttn
from molattn.model.outputs import mean_of_members
from molattn.record import NO_EDGE, MoleculeRecord

__all__ = ["LEVEL", "Instance", "Masking"]

LEVEL = 0.9
"""Default nominal coverage of prediction intervals."""

Masking = Literal["remove", "blank"]
"""How atoms are masked; see :meth:`Instance.predict_kept`."""

_MOST_PAIR_FEATURES = 2_000_000  # in a batch: 8 MB, whatever the size of the molecule
_LARGEST_BATCH = 256
_DESCRIPTORS = "descriptors"


@dataclass(frozen=True, eq=False)
class Instance:
    """A molecule, the model, and the target to explain.

    A model with a Gaussian process compares counts of substructures, here called environments, each
    of which consists of some of the atoms. Masking an atom removes the environments that it is in,
    and what it adds to descriptors that are sums over atoms (:attr:`contributions`). It changes
    neither the second molecule, if there is one, nor the features of the whole molecule
    (:attr:`number_groups`).

    Args:
        model: The model.
        molecule: The molecule, a SMILES or an RDKit molecule.
        record: The featurized molecule, ``n`` atoms.
        target: The target.
        baseline_atom: One-hot features of the baseline atom, see
            :func:`molattn.explain.baseline.baseline_atom`.
        predicted: Predictions of the model, calibrated if it is, ``[num_outputs]``.
        features: Table features of the molecule, ``[num_features]``.
    """

    model: MolAttn
    molecule: Molecule
    record: MoleculeRecord
    target: Target
    baseline_atom: NDArray[np.float64]
    predicted: NDArray[np.float64]
    features: Optional[NDArray[np.float64]] = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "record", self.record.with_all_pairs())

    @property
    def num_atoms(self) -> int:
        """Number of atoms ``n``."""
        return self.record.num_atoms

    @cached_property
    def mol(self) -> Chem.Mol:
        """The RDKit molecule; atoms in the order of the record's.

        That is the order of the molecule that was given, or of its standardized SMILES.
        """
        if not self.record.standardized:
            return parse_accepted(self.molecule)
        if isinstance(self.molecule, str):
            return parse_accepted(self.record.standardized)
        limits = MoleculeLimits(max_atoms=sys.maxsize)  # accepted before, like its standard form
        return read_molecule(self.molecule, limits, bool, standardize=True)[0]

    @cached_property
    def smiles(self) -> str:
        """The SMILES that was given, standardized if that changes it, or that of the molecule."""
        if self.record.standardized:
            return self.record.standardized
        return self.molecule if isinstance(self.molecule, str) else Chem.MolToSmiles(self.mol)

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
        if (process := self.model.gaussian_process) is not None:
            numbers += process.weights.shape[0] * len(self.model.config.kernels)
        return int(np.clip(_MOST_PAIR_FEATURES // numbers, 1, _LARGEST_BATCH))

    @property
    def number_groups(self) -> tuple[str, ...]:
        """The G groups of features of the whole molecule, such as ``descriptors``."""
        groups = self.model.config.number_groups
        return tuple(name for name in groups if name != _DESCRIPTORS or self.contributions is None)

    @cached_property
    def contributions(self) -> Optional[Tensor]:
        """What each atom adds to the descriptors, ``[n, F]``, if all are sums over atoms."""
        found = atom_contributions(self.mol, self.model.config.descriptors)
        if found is None:
            return None
        with torch.inference_mode(False):  # kept for what needs gradients
            return torch.as_tensor(found, dtype=number_type(), device=self.device)

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
    def task_similarity(self) -> NDArray[np.float64]:
        """Similarity to the nearest training molecule of each task ``[1, T]``; NaN without any."""
        uncertainty, fingerprint = self.model.uncertainty, self.record.fingerprint
        tasks = len(self.model.config.tasks)
        if uncertainty is None:
            return np.full((1, tasks), math.nan)
        molecules = [self.smiles] if fingerprint is None else [fingerprint]
        return uncertainty.molecules.task_similarity(molecules, tasks)

    # One-hot features of atoms and pairs.

    @cached_property
    def atoms(self) -> Tensor:
        """One-hot atom features ``[n, S]``."""
        return self._tensor(one_hot(self.record.atoms, self.model.config.featurizer.atom_sizes))

    @cached_property
    def pairs(self) -> Tensor:
        """One-hot pair features ``[n receivers, n senders, T]``."""
        featurizer, pairs = self.model.config.featurizer, self.record.pairs.T
        codes = featurizer.pair_table[np.where(pairs == NO_EDGE, 0, pairs)]  # which is not read
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

    # Environments, and features of the whole molecule.

    @cached_property
    def environments(self) -> Environments:
        """The E environments that the Gaussian process counts; none without one."""
        counter = self.model.config.counter
        if self.model.gaussian_process is None or counter is None:
            no_atoms = np.zeros((0, self.num_atoms), dtype=bool)
            return Environments(np.zeros(0, dtype=np.int64), no_atoms)
        return counter.environments(self.mol)

    @cached_property
    def input_weights(self) -> Tensor:
        """Weights of environments, atoms and groups of features, all 1: ``[1, E + A + G]``.

        Those of the atoms count for their :attr:`contributions`: A is n, or 0 without any.
        """
        size = len(self.environments.places) + self.num_contributing + len(self.number_groups)
        with torch.inference_mode(False):  # kept for what needs gradients
            return torch.ones(1, size, dtype=number_type(), device=self.device)

    @cached_property
    def _process(self) -> Optional[MoleculeProcess]:
        process, config = self.model.gaussian_process, self.model.config
        if process is None:
            return None
        nothing = np.zeros((1, 0), dtype=np.float32)
        features = None if self.features is None else self.features[np.newaxis]
        inputs = KernelInputs.of_records(config, [self.record], nothing, features)
        with torch.inference_mode(False):  # kept for what needs gradients
            return MoleculeProcess(process, self.environments, inputs, self.device)

    # Predictions.

    def __call__(self, atoms: Tensor, pairs: Tensor, weights: Optional[Tensor] = None) -> Tensor:
        """Predict from given atom and pair features, differentiably.

        Args:
            atoms: Atom features ``[B, n, S]``, one-hot or mixtures of one-hot vectors.
            pairs: Pair features ``[B, n, n, T]``, likewise.
            weights: From 0 to 1, as :attr:`input_weights`, ``[B, E + A + G]``. Features of the
                whole molecule are scaled, then multiplied by the weight, so that 0 stands for the
                training mean. None = 1.

        Returns:
            Predictions ``[B]`` in the target's unit.
        """
        if weights is None:
            weights = self.input_weights.expand(len(atoms), -1)
        return self._values(self._featurized(atoms, pairs), weights)

    def _featurized(self, atoms: Tensor, pairs: Tensor) -> MoleculeBatch:
        batch = self._batch([self.record] * len(atoms))
        rows = batch.layout.nodes_to_rows(atoms.flatten(0, 1))
        return replace(batch, x=rows, edge_attr=pairs.flatten(0, 2))

    def member_values(self, batch: MoleculeBatch | Data) -> Tensor:
        """Return what each member predicts for a batch of the molecule, ``[members]``.

        With a Gaussian process each is combined with it.
        """
        return self.target.value(self._member_outputs(batch, self.input_weights))[:, 0]

    def _values(self, batch: MoleculeBatch, weights: Tensor) -> Tensor:
        return self.target.value(self._outputs(batch, weights))

    def _outputs(self, batch: MoleculeBatch, weights: Tensor) -> Tensor:
        return mean_of_members(self._member_outputs(batch, weights), self.model.config.tasks)

    def _member_outputs(self, batch: MoleculeBatch | Data, weights: Tensor) -> Tensor:
        """Return outputs as of :meth:`molattn.MolAttn.member_outputs`, with the Gaussian process.

        Args:
            batch: B variants of the molecule.
            weights: ``[B, E + A + G]``.
        """
        count, groups = len(weights), self.model.config.number_groups
        sizes = [len(self.environments.places), self.num_contributing, len(self.number_groups)]
        weights, of_atoms, of_groups = weights.split(sizes, dim=1)
        factors = dict(zip(self.number_groups, of_groups.unbind(dim=1), strict=True))
        descriptors = self._descriptors(of_atoms)
        numbers = self.model.scaled_features(batch, self._features(count))
        if numbers is not None:
            own = []
            for name, part in groups.items():
                if name in factors:
                    own.append(numbers[:, part] * factors[name].unsqueeze(-1).to(numbers.dtype))
                else:
                    assert descriptors is not None
                    scales = self.model.feature_mean[part], self.model.feature_scale[part]
                    own.append(scaled_numbers(descriptors, *scales, 0).to(numbers.dtype))
            of_second = numbers[:, sum(part.size(1) for part in own) :]
            numbers = torch.cat([*own, of_second], dim=1)
        outputs, embedding = self.model.outputs_and_embedding(batch, numbers)
        if self._process is None:
            return outputs
        process = self._process(weights, embedding, factors, descriptors)
        return self._process.combine(outputs.to(process.dtype), process)

    @property
    def num_contributing(self) -> int:
        """Number of atoms that add to the descriptors A: n, or 0 if there are no contributions."""
        return 0 if self.contributions is None else self.num_atoms

    def _descriptors(self, weights: Tensor) -> Optional[Tensor]:
        """Return the descriptors ``[B, F]`` with weights of the atoms ``[B, A]``, if A is n."""
        if self.contributions is None:
            return None
        assert self.record.numbers is not None
        numbers = self.record.numbers[: self.contributions.size(1)]
        whole = torch.as_tensor(numbers, dtype=number_type())
        return whole.to(self.device) - (1.0 - weights) @ self.contributions

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
        self,
        kept: NDArray[np.bool_],
        masking: Masking = "remove",
        groups: Optional[NDArray[np.bool_]] = None,
    ) -> NDArray[np.float64]:
        """Predict with some atoms masked.

        Args:
            kept: Which atoms are not masked, ``bool [B, n]``.
            masking: ``remove``: a masked atom is removed from the graph, so that no atom attends to
                it and the readout ignores it; features of the other atoms, such as their number of
                neighbors, do not change. ``blank``: a masked atom is replaced by the baseline atom,
                and all features of its pairs are set to zero. Both remove the environments that a
                masked atom is in, and its :attr:`contributions` to the descriptors.
            groups: Which groups of features of the whole molecule are not replaced by their
                training means, ``bool [B, G]``; None = all are kept.

        Returns:
            ``[B]``, in the target's unit.
        """
        if groups is None:
            groups = np.ones((len(kept), len(self.number_groups)), dtype=bool)
        # Orders of the atoms share masks, at least the empty and the full one.
        masks = np.concatenate([kept, groups], axis=1)
        distinct, index = np.unique(masks, axis=0, return_inverse=True)
        variants = {"remove": self._removed, "blank": self._blanked}[masking]
        return self._predict(variants, distinct)[index.reshape(-1)]

    def predict_masked_pairs(self, masked: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Predict with the features of some pairs of atoms set to zero.

        Args:
            masked: Which ordered pairs, ``bool [B, n, n]``.

        Returns:
            ``[B]``, in the target's unit.
        """
        return self._predict(self._without_pairs, masked)

    @torch.inference_mode()
    def _predict(
        self,
        variants: Callable[[NDArray[np.bool_]], tuple[MoleculeBatch, Tensor]],
        masks: NDArray[np.bool_],
    ) -> NDArray[np.float64]:
        """Predict the variants of masks, a batch at a time."""
        parts = [np.zeros(0)]
        with self.evaluating():
            for start in range(0, len(masks), self.batch_size):
                batch = variants(masks[start : start + self.batch_size])
                parts.append(self._values(*batch).cpu().numpy())
        return np.concatenate(parts)

    def _without_pairs(self, masked: NDArray[np.bool_]) -> tuple[MoleculeBatch, Tensor]:
        some = torch.from_numpy(masked).to(self.device).unsqueeze(-1)
        pairs = torch.where(some, self.blank_pairs, self.pairs)
        atoms = self.atoms.expand(len(masked), -1, -1)
        return self._featurized(atoms, pairs), self.input_weights.expand(len(masked), -1)

    def _blanked(self, masks: NDArray[np.bool_]) -> tuple[MoleculeBatch, Tensor]:
        kept = torch.from_numpy(masks[:, : self.num_atoms]).to(self.device).unsqueeze(-1)
        pairs = torch.where((kept & kept.mT).unsqueeze(-1), self.pairs, self.blank_pairs)
        atoms = torch.where(kept, self.atoms, self.baseline_atoms)
        return self._featurized(atoms, pairs), self._weights_of(masks)

    def _removed(self, masks: NDArray[np.bool_]) -> tuple[MoleculeBatch, Tensor]:
        atoms, pairs = self.record.atoms, self.record.pairs
        records = [
            replace(self.record, atoms=atoms[some], pairs=pairs[some][:, some])
            for some in masks[:, : self.num_atoms]
        ]
        return self._batch(records), self._weights_of(masks)

    def _weights_of(self, masks: NDArray[np.bool_]) -> Tensor:
        """Return the weights of masks of atoms and groups ``[B, n + G]``, ``[B, E + A + G]``."""
        kept, groups = np.split(masks, [self.num_atoms], axis=1)
        atoms = self.environments.atoms.T.astype(np.float32)
        present = (~kept).astype(np.float32) @ atoms == 0.0
        found = np.concatenate([present, kept[:, : self.num_contributing], groups], axis=1)
        return torch.from_numpy(found).to(self.input_weights)

    def evaluating(self) -> AbstractContextManager[None]:
        """Put the model in evaluation mode inside the block."""
        return self.model.evaluating()

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
            scaled = self._outputs(self.batch()[0], self.input_weights).cpu()
        outputs = np.zeros((1, len(config.output_names)))
        outputs[:, self.target.column] = self.target.transformed(scaled).numpy()
        ends = self.model.intervals(outputs, self.task_similarity, level)
        low, high = (float(end[0, config.tasks.index(task)]) for end in ends)
        return (low, high) if math.isfinite(high - low) else (None, None)
