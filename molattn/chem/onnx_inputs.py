"""Inputs of the models that ``molattn export`` writes, calculated without torch."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from molattn.chem.descriptors import DescriptorCalculator
from molattn.chem.featurizer import Featurizer
from molattn.chem.fingerprints import SubstructureCounter
from molattn.chem.parse import Molecule
from molattn.chem.reader import Fields, MoleculeReader
from molattn.chem.sites import Sites
from molattn.config import MoleculeLimits
from molattn.record import NO_EDGE, MoleculeRecord

Inputs = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class OnnxInputs:
    """Inputs of an exported model from molecules, read like the molecules of its training.

    Example:
        >>> inputs = OnnxInputs(MoleculeReader(Featurizer.default()))(["C", "CCO"])
        >>> {name: values.shape for name, values in inputs.items()}
        {'atoms': (2, 3, 10), 'pairs': (2, 3, 3)}
    """

    reader: MoleculeReader

    @classmethod
    def from_metadata(cls, text: str) -> Self:
        """Read the entry ``molattn`` of the file's metadata, JSON."""
        metadata = json.loads(text)["inputs"]
        numbers = DescriptorCalculator(tuple(metadata["descriptors"]), metadata["morgan_counts"])
        counter = metadata.get("counts")
        counts = None if counter is None else SubstructureCounter(**counter)
        featurizer = Featurizer(**metadata["featurizer"])
        limits = MoleculeLimits()
        unify = metadata.get("unify_drawings", False)
        options = (limits, metadata["standardize"], unify, metadata["radius"])
        hydrogens = metadata.get("hydrogens", False)
        fields = Fields(numbers, counts)
        sites = metadata.get("sites", False)
        return cls(MoleculeReader(featurizer, fields, *options, hydrogens=hydrogens, sites=sites))

    def __call__(
        self,
        smiles: Sequence[Molecule],
        *,
        partners: Sequence[Molecule] | None = None,
        features: ArrayLike | None = None,
    ) -> Inputs:
        """Return the inputs of a batch of n molecules.

        Args:
            smiles: SMILES or RDKit molecules.
            partners: Second molecules, of a model that takes two.
            features: Columns of the table that the model reads, ``[n, F]`` in own units.

        Raises:
            SmilesError: An invalid molecule, with its position.
        """
        records = self.reader.all(smiles, partners)
        inputs = self._of_molecules(records)
        numbers = [] if features is None else [np.asarray(features, dtype=np.float64)]
        columns = [records]
        if partners is not None:
            columns.append([record.partner for record in records if record.partner is not None])
            partner_inputs = self._of_molecules(columns[1])
            inputs |= {f"partner_{name}": codes for name, codes in partner_inputs.items()}
        for molecules in columns:
            descriptors = [record.numbers for record in molecules if record.numbers is not None]
            numbers += [np.stack(descriptors).astype(np.float64)] if descriptors else []
        return inputs | ({"features": np.concatenate(numbers, axis=1)} if numbers else {})

    def sites(self, smiles: Sequence[Molecule]) -> list[Sites]:
        """Return where the atoms and bonds of each molecule are among the inputs.

        Of molecule ``i``, atoms in the order of its SMILES have the predictions
        ``atom_predictions[i, sites.atoms]``, and bonds ``bond_predictions[i, *sites.bonds]``. The
        index -1 stands for an atom that the model does not read, such as an explicit hydrogen.
        """
        return [record.sites for record in self.reader.all(smiles)]

    def _of_molecules(self, records: Sequence[MoleculeRecord]) -> Inputs:
        """Codes of atoms and pairs, and the counts of substructures ``[n, positions]``."""
        inputs = _padded(records)
        if self.reader.fields.counts is not None:
            size = len(self.reader.fields.counts)
            inputs["counts"] = np.zeros((len(records), size), dtype=np.uint8)
            hashed = [record.counts for record in records if record.counts is not None]
            for row, (positions, counts) in zip(inputs["counts"], hashed, strict=True):
                row[positions] = counts
        return inputs


def _padded(records: Sequence[MoleculeRecord]) -> Inputs:
    """Codes of atoms ``[n, N, A]`` and of pairs ``[n, N, N]``, 255 where there is no pair."""
    records = [record.with_all_pairs() for record in records]
    size = max(record.num_atoms for record in records)
    atoms = np.zeros((len(records), size, records[0].atoms.shape[1]), dtype=np.uint8)
    pairs = np.full((len(records), size, size), NO_EDGE, dtype=np.uint8)
    for record, atom_codes, pair_codes in zip(records, atoms, pairs, strict=True):
        count = record.num_atoms
        atom_codes[:count] = record.atoms
        pair_codes[:count, :count] = record.pairs
    return {"atoms": atoms, "pairs": pairs}
