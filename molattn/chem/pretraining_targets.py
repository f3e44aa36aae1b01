"""What a model learns to predict of molecules without labels."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem import rdMolDescriptors

from molattn.chem.descriptors import DESCRIPTORS, DescriptorCalculator
from molattn.chem.fingerprints import HashedCounts, SubstructureCounter
from molattn.chem.inchi_keys import connectivity_keys

__all__ = [
    "COUNT_GROUPS",
    "NUM_COUNTS",
    "PRETRAINING_DESCRIPTORS",
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
    """Calculates the targets of a sanitized molecule; can be pickled.

    Example:
        >>> targets = PretrainingTargets()(Chem.MolFromSmiles("CCO"))
        >>> targets.keys, len(targets.descriptors) == len(PRETRAINING_DESCRIPTORS)
        (('LFQSCWFLJHTTHZ',), True)
    """

    def __init__(self) -> None:
        self._quick = DescriptorCalculator(_QUICK)

    def __call__(self, mol: Chem.Mol) -> PretrainingTarget:
        """Return the targets of a molecule."""
        vectors = (
            self._quick(mol),
            rdMolDescriptors.CalcAUTOCORR2D(mol),
            rdMolDescriptors.MQNs_(mol),
        )
        descriptors = np.concatenate(vectors, dtype=np.float32, casting="same_kind")
        descriptors[~np.isfinite(descriptors)] = np.nan
        return PretrainingTarget(connectivity_keys(mol), descriptors, _COUNTER(mol))
