"""From SMILES to molecules with the targets of pretraining."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem import rdMolDescriptors

from molattn.chem.count_fingerprints import HashedCounts, SubstructureCounter
from molattn.chem.descriptors import DESCRIPTORS, DescriptorCalculator
from molattn.chem.featurizer import Featurizer
from molattn.chem.inchi_keys import KeySet, connectivity_keys
from molattn.chem.limits import calculate_within, read_molecule
from molattn.config import MoleculeLimits
from molattn.errors import SmilesError
from molattn.record import MoleculeRecord

__all__ = [
    "COUNT_GROUPS",
    "NUM_COUNTS",
    "PRETRAINING_DESCRIPTORS",
    "PretrainingBlock",
    "PretrainingReader",
    "PretrainingTarget",
    "PretrainingTargets",
]

# Slow to compute, alone or as the first of their kind, and largely redundant with the others.
_SLOW = {
    *"qed SPS BertzCT BalabanJ Phi Kappa2 Kappa3 NumRadicalElectrons NumValenceElectrons".split(),
    *"Chi2n Chi2v Chi3n Chi3v Chi4n Chi4v".split(),
    *"NumAtomStereoCenters NumUnspecifiedAtomStereoCenters".split(),
}
_SLOW_KINDS = ("BCUT2D", "EState_VSA", "VSA_EState", "FpDensityMorgan", "Max", "Min")
_QUICK = tuple(
    name for name in DESCRIPTORS if name not in _SLOW and not name.startswith(_SLOW_KINDS)
)
_AUTOCORRELATIONS = tuple(f"AUTOCORR2D_{i}" for i in range(1, 193))
_MQNS = tuple(f"MQN{i}" for i in range(1, 43))
PRETRAINING_DESCRIPTORS = (*_QUICK, *_AUTOCORRELATIONS, *_MQNS)
"""Names of the descriptors that a model is pretrained on.

RDKit's descriptors without the slow ones, 2D autocorrelations (Todeschini and Consonni, Molecular
Descriptors for Chemoinformatics, 2009) and molecular quantum numbers (Nguyen et al., ChemMedChem
2009, 4, 1803).
"""
_COUNTER = SubstructureCounter(("morgan", "atom_pairs", "torsions"), size=4096, radius=3)
COUNT_GROUPS = _COUNTER.groups
"""Positions of each kind of count that a model is pretrained on."""
NUM_COUNTS = len(_COUNTER)
"""Positions of all of them."""


@dataclass(frozen=True)
class PretrainingBlock:
    """The molecules of a block of SMILES, in order, without excluded ones and duplicates.

    Args:
        num_texts: Number of SMILES read.
        refused: Number of invalid ones by reason.
        left_out: Number of excluded molecules.
        duplicates: Number of molecules that the same reader has read before.
        keys: :func:`molattn.chem.inchi_keys.connectivity` of each remaining molecule.
        descriptors: Their ``PRETRAINING_DESCRIPTORS``, ``[len(keys), D]``; NaN where undefined.
    """

    num_texts: int
    refused: Counter[str]
    left_out: int
    duplicates: int
    keys: list[str]
    records: list[MoleculeRecord]
    descriptors: NDArray[np.float32]
    counts: list[HashedCounts]


class PretrainingReader:
    """Reads blocks of SMILES; runs in worker processes, without PyTorch.

    Args:
        limits: Limits of each molecule.
        excluded: Keys of excluded molecules; a molecule is left out if any of its
            :func:`molattn.chem.inchi_keys.connectivity_keys` is among them.
        featurizer: Encodes atoms and atom pairs.

    Example:
        >>> reader = PretrainingReader(MoleculeLimits(), KeySet(), Featurizer.default())
        >>> read = reader(["CCO", "ethanol", "OCC"])
        >>> read.keys, read.refused, read.duplicates
        (['LFQSCWFLJHTTHZ'], Counter({'name': 1}), 1)
    """

    def __init__(self, limits: MoleculeLimits, excluded: KeySet, featurizer: Featurizer) -> None:
        self._limits = limits
        self._excluded = excluded
        self._seen = KeySet()
        self._featurizer = featurizer
        self._targets = _Targets()

    def __call__(self, texts: Sequence[str]) -> PretrainingBlock:
        """Read a block of SMILES; invalid ones are counted by reason."""
        refused: Counter[str] = Counter()
        left_out = duplicates = 0
        chosen: list[tuple[str, Chem.Mol, tuple[NDArray[np.float32], HashedCounts]]] = []
        for text in texts:
            try:
                mol, keys = read_molecule(text, self._limits, connectivity_keys)
                if any(key in self._excluded for key in keys):
                    left_out += 1
                elif keys[0] in self._seen:
                    duplicates += 1
                else:
                    targets = calculate_within(text, mol, self._limits, self._targets)
                    chosen.append((keys[0], mol, targets))
                    self._seen.add(keys[0])
            except SmilesError as error:
                refused[error.code] += 1
        numbers = [numbers for _, _, (numbers, _) in chosen]
        return PretrainingBlock(
            len(texts),
            refused,
            left_out,
            duplicates,
            [key for key, _, _ in chosen],
            self._featurizer.many([mol for _, mol, _ in chosen]),
            np.array(numbers, dtype=np.float32).reshape(-1, len(PRETRAINING_DESCRIPTORS)),
            [counts for _, _, (_, counts) in chosen],
        )


class PretrainingTarget(NamedTuple):
    """What a model learns to predict of a molecule.

    Args:
        keys: Its :func:`molattn.chem.inchi_keys.connectivity_keys`, by which it is known again.
        descriptors: Its ``PRETRAINING_DESCRIPTORS``, NaN where undefined.
        counts: Its substructures.
    """

    keys: tuple[str, ...]
    descriptors: NDArray[np.float32]
    counts: HashedCounts


class PretrainingTargets:
    """Calculates the targets of pretraining."""

    def __call__(self, mol: Chem.Mol) -> PretrainingTarget:
        """Return those of a sanitized molecule."""
        return PretrainingTarget(connectivity_keys(mol), *_Targets()(mol))


class _Targets:
    """Calculates the targets of pretraining."""

    def __init__(self) -> None:
        self._quick = DescriptorCalculator(_QUICK)

    def __call__(self, mol: Chem.Mol) -> tuple[NDArray[np.float32], HashedCounts]:
        vectors = (
            self._quick(mol),
            rdMolDescriptors.CalcAUTOCORR2D(mol),
            rdMolDescriptors.MQNs_(mol),
        )
        descriptors = np.concatenate(vectors, dtype=np.float32, casting="same_kind")
        descriptors[~np.isfinite(descriptors)] = np.nan
        return descriptors, _COUNTER(mol)
