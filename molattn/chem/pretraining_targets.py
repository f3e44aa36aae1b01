"""What a model learns to predict of molecules without labels, and keys of the molecules."""

from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem import rdMolDescriptors

from molattn.chem.descriptors import DESCRIPTORS, DescriptorCalculator
from molattn.chem.fingerprints import HashedCounts, SubstructureCounter
from molattn.chem.parse import quiet

_LATEST = 2**20
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
_CALCULATOR = DescriptorCalculator(_QUICK)
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


class PretrainingTarget(NamedTuple):
    """Keys of a molecule, its ``PRETRAINING_DESCRIPTORS`` (NaN where undefined), and its counts."""

    keys: tuple[str, ...]
    descriptors: NDArray[np.float32]
    counts: HashedCounts


def pretraining_target(mol: Chem.Mol) -> PretrainingTarget:
    """Return the targets of a sanitized molecule."""
    vectors = _CALCULATOR(mol), rdMolDescriptors.CalcAUTOCORR2D(mol), rdMolDescriptors.MQNs_(mol)
    descriptors = np.concatenate(vectors, dtype=np.float32, casting="same_kind")
    descriptors[~np.isfinite(descriptors)] = np.nan
    return PretrainingTarget(connectivity_keys(mol), descriptors, _COUNTER(mol))


def connectivity_keys(mol: Chem.Mol) -> tuple[str, ...]:
    """Return the connectivity of a molecule, and of the largest of several fragments.

    This is the first block of the InChIKey (Heller et al., J. Cheminform. 2015, 7, 23), which
    ignores charge, isotopes, stereochemistry and tautomerism; canonical SMILES where InChI fails.
    """
    with quiet:
        keys = (_connectivity(mol),)
        if len(Chem.GetMolFrags(mol)) > 1:
            fragments = Chem.GetMolFrags(mol, asMols=True, sanitizeFrags=False)
            most = max(map(Chem.Mol.GetNumAtoms, fragments))
            largest = (fragment for fragment in fragments if fragment.GetNumAtoms() == most)
            keys += tuple(sorted({*map(_connectivity, largest)}))
    return keys


def _connectivity(mol: Chem.Mol) -> str:
    key = Chem.MolToInchiKey(mol)
    return key.partition("-")[0] or Chem.MolToSmiles(mol, isomericSmiles=False)


class KeySet:
    """A set of texts for many millions of them: eight bytes each, plus a Python set of the latest.

    Texts are compared by a 64-bit digest. With ten million in the set, the probability that a new
    text is taken for one of them is 5 in 10^13.
    """

    def __init__(self) -> None:
        self._sorted = np.zeros(0, dtype=np.uint64)
        self._latest: set[int] = set()

    def __len__(self) -> int:
        return len(self._sorted) + len(self._latest)

    def __contains__(self, text: str) -> bool:
        digest = _digest(text)
        index = np.searchsorted(self._sorted, np.uint64(digest))
        return digest in self._latest or digest in self._sorted[index : index + 1]

    def add(self, text: str) -> bool:
        """Add a text, and return whether it is new."""
        if text in self:
            return False
        self._latest.add(_digest(text))
        if len(self._latest) == _LATEST:
            latest = np.fromiter(self._latest, np.uint64, len(self._latest))
            self._sorted = np.sort(np.concatenate([self._sorted, latest]))
            self._latest.clear()
        return True


def _digest(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
