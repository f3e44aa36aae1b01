"""A molecule to explain, and predictions with some of its atoms masked."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Optional

import numpy as np
import torch
from numpy.typing import NDArray
from rdkit import Chem
from torch import Tensor

from molattn.chem import Featurizer
from molattn.chem.descriptors import atom_contributions
from molattn.chem.fingerprints import Environments
from molattn.chem.limits import read_molecule
from molattn.chem.parse import Molecule, parse_molecule
from molattn.chem.reader import MoleculeReader
from molattn.config import MoleculeLimits
from molattn.data.table import bundled_dataset, open_table
from molattn.explain.attention_hooks import Attention, record_attention
from molattn.explain.process import MoleculeProcess
from molattn.explain.target import Target
from molattn.graph import MoleculeBatch
from molattn.model.kernel import KernelInputs
from molattn.model.model import MolAttn
from molattn.model.outputs import mean_of_members
from molattn.model.scaling import number_type, scaled_numbers
from molattn.record import NO_EDGE, MoleculeRecord

_MOST_PAIR_FEATURES = 2_000_000  # in a batch: 8 MB, whatever the size of the molecule
_LARGEST_BATCH = 256


@dataclass(frozen=True, eq=False)
class Instance:
    """A molecule, the model, and the target to explain.

    A model with a Gaussian process compares counts of substructures, here called environments, each
    of which consists of some of the atoms. Masking an atom removes the environments that it is in,
    and what it adds to descriptors that are sums over atoms (:attr:`contributions`). It changes
    neither the second molecule, if there is one, nor the features of the whole molecule
    (:attr:`number_groups`).

    ``record`` is the featurized molecule of ``n`` atoms, ``predicted`` a value in own units or the
    probability of a class, and ``features`` are those of the table, ``[num_features]``.
    """

    model: MolAttn
    molecule: Molecule
    record: MoleculeRecord
    target: Target
    predicted: float
    interval: tuple[float, float] | tuple[None, None] = (None, None)
    confidence: Optional[str] = None
    expected_error: Optional[float] = None
    features: Optional[NDArray[np.float64]] = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "record", self.record.with_all_pairs())

    @property
    def num_atoms(self) -> int:
        """Number of atoms ``n``."""
        return self.record.num_atoms

    @cached_property
    def mol(self) -> Chem.Mol:
        """The RDKit molecule; atoms in the order of the record's."""
        unify = self.model.config.unify_drawings
        if not self.record.standardized or isinstance(self.molecule, str):
            return parse_molecule(self.record.standardized or self.molecule, unify=unify)
        limits = MoleculeLimits(max_atoms=sys.maxsize)  # accepted before, like its standard form
        form = self.model.config.standardize
        return read_molecule(self.molecule, limits, bool, standardize=form, unify=unify)[0]

    @cached_property
    def smiles(self) -> str:
        """SMILES of the molecule as the model reads it: as given, standardized or of the parent."""
        if self.record.standardized:
            return self.record.standardized
        return self.molecule if isinstance(self.molecule, str) else Chem.MolToSmiles(self.mol)

    @cached_property
    def bonds(self) -> tuple[tuple[int, int], ...]:
        """Pairs of bonded atoms."""
        return tuple((b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in self.mol.GetBonds())

    @property
    def batch_size(self) -> int:
        """Number of variants predicted in one batch."""
        numbers = self.num_atoms**2 * sum(self.model.config.featurizer.pair_sizes)
        if (process := self.model.gaussian_process) is not None:
            numbers += process.weights.shape[0] * len(self.model.config.kernels)
        return int(np.clip(_MOST_PAIR_FEATURES // numbers, 1, _LARGEST_BATCH))

    @cached_property
    def prediction(self) -> float:
        """Prediction for the molecule without masking, in the target's unit."""
        return float(self.predict_kept(np.ones((1, self.num_atoms), dtype=bool))[0])

    @cached_property
    def attention(self) -> Attention:
        """Attention weights and gates that the model applies to the molecule."""
        with self.model.networks.evaluating():
            return record_attention(self.model, self.batch([self.record]))

    # Inputs: one-hot features of atoms and pairs, environments, features of the whole molecule.

    @cached_property
    def atoms(self) -> Tensor:
        """One-hot atom features ``[n, S]``."""
        return self._tensor(one_hot(self.record.atoms, self.model.config.featurizer.atom_sizes))

    @cached_property
    def pairs(self) -> Tensor:
        """One-hot pair features ``[n receivers, n senders, T]``."""
        featurizer = self.model.config.featurizer
        pairs = self.record.pairs.T
        codes = featurizer.pair_table[np.where(pairs == NO_EDGE, 0, pairs)]  # which is not read
        return self._tensor(one_hot(codes, featurizer.pair_sizes))

    @property
    def baseline_atoms(self) -> Tensor:
        """The :func:`average_atom` in place of every atom, ``[n, S]``."""
        return self._tensor(average_atom(self.model.config.featurizer)).expand_as(self.atoms)

    @cached_property
    def blank_pairs(self) -> Tensor:
        """Pair features that are all zero, except on the diagonal, which is unchanged."""
        same = torch.eye(self.num_atoms, device=self.model.device, dtype=self.pairs.dtype)
        return self.pairs * same.unsqueeze(-1)

    def _tensor(self, numbers: NDArray[np.floating]) -> Tensor:
        dtype = next(self.model.parameters()).dtype
        return torch.as_tensor(numbers, dtype=dtype, device=self.model.device)

    def _numbers(self, numbers: NDArray[np.generic]) -> Tensor:
        with torch.inference_mode(False):  # some are kept for what needs gradients
            return torch.as_tensor(numbers, dtype=number_type(), device=self.model.device)

    @cached_property
    def contributions(self) -> Optional[Tensor]:
        """What each atom adds to the descriptors, ``[n, F]``, if all are sums over atoms."""
        contributions = atom_contributions(self.mol, self.model.config.descriptors)
        return None if contributions is None else self._numbers(contributions)

    @cached_property
    def number_groups(self) -> tuple[str, ...]:
        """The G groups of features of the whole molecule, such as ``descriptors``."""
        in_atoms = () if self.contributions is None else ("descriptors",)
        return tuple(name for name in self.model.config.number_groups if name not in in_atoms)

    @cached_property
    def environments(self) -> Environments:
        """The E environments that a Gaussian process counts; empty for a network alone."""
        counter = self.model.config.counter
        if self.model.gaussian_process is None or counter is None:
            return Environments(np.zeros(0, np.int64), np.zeros((0, self.num_atoms), bool))
        return counter.environments(self.mol)

    @property
    def input_sizes(self) -> tuple[int, int, int]:
        """E; A, which is n, or 0 if atoms have no :attr:`contributions`; and G."""
        atoms = 0 if self.contributions is None else self.num_atoms
        return len(self.environments.atoms), atoms, len(self.number_groups)

    @cached_property
    def input_weights(self) -> Tensor:
        """Weights of environments, contributions and groups, all 1: ``[1, E + A + G]``."""
        return self._numbers(np.ones((1, sum(self.input_sizes))))

    @cached_property
    def _process(self) -> Optional[MoleculeProcess]:
        if self.model.gaussian_process is None:
            return None
        features = None if self.features is None else self.features[np.newaxis]
        nothing = np.zeros((1, 0), dtype=np.float32)
        inputs = KernelInputs.of_records(self.model.config, [self.record], nothing, features)
        with torch.inference_mode(False):
            return MoleculeProcess(self.model, self.environments, inputs)

    def __call__(self, atoms: Tensor, pairs: Tensor, weights: Optional[Tensor] = None) -> Tensor:
        """Predict from given features, differentiably: ``[B]`` in the target's unit.

        Features of atoms ``[B, n, S]`` and pairs ``[B, n, n, T]`` are one-hot or mixtures of
        one-hot vectors, weights ``[B, E + A + G]`` from 0 to 1, as :attr:`input_weights`. Scaled
        features of the whole molecule are multiplied by theirs: 0 stands for the training mean.
        """
        batch = self.batch([self.record] * len(atoms))
        rows = batch.layout.nodes_to_rows(atoms.flatten(0, 1))
        batch = replace(batch, x=rows, edge_attr=pairs.flatten(0, 2))
        return self._values(batch, self.input_weights if weights is None else weights)

    def batch(self, records: Sequence[MoleculeRecord]) -> MoleculeBatch:
        """Return variants of the molecule as a batch."""
        return self.model.collate(records).to(self.model.device)

    def _values(self, batch: MoleculeBatch, weights: Tensor) -> Tensor:
        """Predict a batch of B variants, ``[B]``."""
        weights = weights.expand(batch.num_graphs, -1)
        environments, atoms, groups = weights.split(self.input_sizes, dim=1)
        factors = dict(zip(self.number_groups, groups.unbind(dim=1), strict=True))
        descriptors = None
        if self.contributions is not None and self.record.numbers is not None:
            whole = self._numbers(self.record.numbers[: self.contributions.size(1)])
            descriptors = whole - (1.0 - atoms) @ self.contributions
        features = None
        if self.features is not None:
            features = self._numbers(self.features).expand(len(weights), -1)
        numbers = self.model.scaling.scaled_features(batch, features)
        if numbers is not None:
            for name, columns in self.model.config.number_groups.items():
                if descriptors is not None and name == "descriptors":
                    scales = self.model.feature_mean[columns], self.model.feature_scale[columns]
                    numbers[:, columns] = scaled_numbers(descriptors, *scales, 0).to(numbers.dtype)
                else:
                    numbers[:, columns] *= factors[name].unsqueeze(-1).to(numbers.dtype)
        outputs, embedding = self.model.networks.outputs_and_embedding(batch, numbers)
        if self._process is not None:
            process = self._process(environments, embedding, factors, descriptors)
            outputs = self._process.combine(outputs, process)
        return self.target.value(mean_of_members(outputs, self.model.config.tasks))

    def predict_kept(
        self, unmasked: NDArray[np.bool_], groups: Optional[NDArray[np.bool_]] = None
    ) -> NDArray[np.float64]:
        """Predict with some atoms masked: ``[B]``, in the target's unit.

        A masked atom is removed from the graph, so that no atom attends to it and the readout
        ignores it; features of the other atoms, such as their number of neighbors, do not change.
        ``unmasked`` has the atoms that are not masked, ``bool [B, n]``, and ``groups`` the groups
        of features of the whole molecule that are not replaced by training means, ``[B, G]``.
        """
        if groups is None:
            groups = np.ones((len(unmasked), len(self.number_groups)), dtype=bool)

        def predict(masks: NDArray[np.bool_]) -> Tensor:
            atom_masks, groups = np.split(masks, [self.num_atoms], axis=1)
            masked = (~atom_masks).astype(np.float32) @ self.environments.atoms.T.astype(np.float32)
            weights = [masked == 0.0, atom_masks[:, : self.input_sizes[1]], groups]
            atoms = self.record.atoms
            pairs = self.record.pairs
            variants = [
                replace(self.record, atoms=atoms[mask], pairs=pairs[mask][:, mask])
                for mask in atom_masks
            ]
            return self._values(
                self.batch(variants), self._numbers(np.concatenate(weights, axis=1))
            )

        # Orders of the atoms share masks, at least the empty and the full one.
        masks = np.concatenate([unmasked, groups], axis=1)
        distinct, index = np.unique(masks, axis=0, return_inverse=True)
        return self._in_batches(predict, distinct)[index.reshape(-1)]

    def predict_masked_pairs(self, masked: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Predict with the features of ordered pairs ``bool [B, n, n]`` set to zero, ``[B]``."""

        def predict(masks: NDArray[np.bool_]) -> Tensor:
            is_blank = torch.from_numpy(masks).to(self.model.device).unsqueeze(-1)
            pairs = torch.where(is_blank, self.blank_pairs, self.pairs)
            return self(self.atoms.expand(len(masks), -1, -1), pairs)

        return self._in_batches(predict, masked)

    @torch.inference_mode()
    def _in_batches(
        self, predict: Callable[[NDArray[np.bool_]], Tensor], masks: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        batches = np.array_split(masks, -(-len(masks) // self.batch_size) or 1)
        with self.model.networks.evaluating():
            values = [predict(batch).cpu().numpy() for batch in batches if len(batch)]
        return np.concatenate([np.zeros(0), *values])


def one_hot(codes: NDArray[np.uint8], sizes: Sequence[int]) -> NDArray[np.float32]:
    """Encode codes ``[..., columns]`` as one-hot vectors, concatenated: ``[..., sum(sizes)]``."""
    starts = np.cumsum([0, *sizes])[:-1]
    encoded = np.zeros((*codes.shape[:-1], sum(sizes)), dtype=np.float32)
    np.put_along_axis(encoded, codes.astype(np.int64) + starts, 1.0, axis=-1)
    return encoded


@lru_cache(maxsize=8)
def average_atom(featurizer: Featurizer) -> NDArray[np.float64]:
    """Return the mean of the one-hot features of all atoms of the bundled molecules, ``[S]``."""
    table = open_table(bundled_dataset())
    column = table.column("smiles", "smiles")
    records = MoleculeReader(featurizer)([row.cells[column] for row in table])
    atoms = [record.atoms for record in records if isinstance(record, MoleculeRecord)]
    return one_hot(np.concatenate(atoms), featurizer.atom_sizes).mean(axis=0, dtype=np.float64)
