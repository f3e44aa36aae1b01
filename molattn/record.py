"""The compact form of a molecule: written by ``chem``, read by ``graph`` and ``model``."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["MoleculeRecord"]


@dataclass(frozen=True, slots=True)
class MoleculeRecord:
    """A molecule as small integers.

    Fields that were not requested are None (see :class:`molattn.chem.reader.MoleculeReader`).

    Args:
        atoms: Component codes of each atom, ``uint8 [n, A]``; the columns are the featurizer's
            ``atom_names``.
        pairs: Joint code of each ordered pair (sender, receiver), ``uint8 [n, n]``; rows of the
            featurizer's ``pair_table``. The diagonal holds the code of an atom with itself.
        numbers: Descriptors and counts that the model uses, ``float32 [F]``, NaN where one is
            undefined.
        partner: The second molecule of a pair, such as the solvent; None = there is none.
        fingerprint: Morgan bits of :func:`molattn.chem.fingerprints.packed_fingerprints`, ``uint8
            [256]``.
        smiles: Canonical SMILES.
        standardized: The canonical SMILES if the molecule was changed by standardizing, otherwise
            empty; None if molecules are not standardized.
        scaffold: Canonical SMILES of the Bemis-Murcko scaffold, empty without rings.
        symbols: Element symbol of each atom.
        counts: Positions and counts of substructures, see
            :class:`molattn.chem.count_fingerprints.HashedCounts`.
        baseline_numbers: Descriptors and counts that the random forest uses, ``float32 [G]``, NaN
            where one is undefined.
        targets: Targets of pretraining, see
            :class:`molattn.chem.pretraining_targets.PretrainingTargets`.
    """

    atoms: NDArray[np.uint8]
    pairs: NDArray[np.uint8]
    numbers: NDArray[np.float32] | None = None
    partner: "MoleculeRecord | None" = None
    fingerprint: NDArray[np.uint8] | None = None
    smiles: str | None = None
    scaffold: str | None = None
    symbols: tuple[str, ...] | None = None
    counts: tuple[NDArray[np.uint16], NDArray[np.uint8]] | None = None
    baseline_numbers: NDArray[np.float32] | None = None
    standardized: str | None = None
    targets: Any = None

    @property
    def num_atoms(self) -> int:
        """Number of atoms ``n``."""
        return self.atoms.shape[0]
