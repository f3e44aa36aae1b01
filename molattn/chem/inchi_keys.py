"""Keys of molecules that ignore charge, isotopes, stereochemistry and tautomerism."""

from hashlib import blake2b

import numpy as np
from rdkit import Chem

from molattn.chem.parse import quiet

__all__ = ["KeySet", "connectivity", "connectivity_keys"]

_BLOCK = 14
_LATEST = 2**20


def connectivity(mol: Chem.Mol) -> str:
    """Return the first block of the InChIKey, or canonical SMILES where InChI fails.

    The block encodes the formula, the connectivity and the hydrogen atoms, with mobile hydrogens
    shared.

    Source: Heller et al., J. Cheminform. 2015, 7, 23.
    """
    with quiet:
        key = Chem.MolToInchiKey(mol)
    return key[:_BLOCK] or Chem.MolToSmiles(mol, isomericSmiles=False)


def connectivity_keys(mol: Chem.Mol) -> tuple[str, ...]:
    """Return :func:`connectivity` of a molecule and, if it has several fragments, of the largest.

    Several largest fragments give a key each, in an order independent of the SMILES.

    Example:
        >>> acid, salt = map(Chem.MolFromSmiles, ("CC(=O)O", "CC(=O)[O-].[Na+]"))
        >>> connectivity_keys(salt)[1] == connectivity_keys(acid)[0]
        True
    """
    keys = (connectivity(mol),)
    if len(Chem.GetMolFrags(mol)) > 1:
        with quiet:
            fragments = Chem.GetMolFrags(mol, asMols=True, sanitizeFrags=False)
        most = max(map(Chem.Mol.GetNumAtoms, fragments))
        largest = (fragment for fragment in fragments if fragment.GetNumAtoms() == most)
        keys += tuple(sorted({*map(connectivity, largest)}))
    return keys


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
        return self._has(_digest(text))

    def add(self, text: str) -> bool:
        """Add a text; return whether it is new."""
        digest = _digest(text)
        if self._has(digest):
            return False
        self._latest.add(digest)
        if len(self._latest) == _LATEST:
            latest = np.fromiter(self._latest, np.uint64, len(self._latest))
            self._sorted = np.sort(np.concatenate([self._sorted, latest]))
            self._latest.clear()
        return True

    def _has(self, digest: int) -> bool:
        if digest in self._latest:
            return True
        place = np.searchsorted(self._sorted, np.uint64(digest))
        return bool(place < len(self._sorted) and self._sorted[place] == digest)


def _digest(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
