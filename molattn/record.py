"""The compact form of a molecule: written by ``chem``, read by ``graph`` and ``model``."""

from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

NO_EDGE = 255
"""In place of the code of a pair that is no edge; featurizers have at most 255 codes."""


@dataclass(frozen=True, slots=True)
class MoleculeRecord:
    """A molecule as small integers; fields that no reader asked for are None.

    Args:
        atoms: Component codes of each atom, ``uint8 [n, A]``; the columns are the featurizer's
            ``atom_names``.
        pairs: Joint code of each ordered pair (sender, receiver), ``uint8 [n, n]``; rows of the
            featurizer's ``pair_table``. The diagonal holds the code of an atom with itself. With
            ``edge_index``, the codes of its pairs ``[E]``.
        numbers: Descriptors and counts that the model uses, ``float32 [F]``, NaN = undefined.
        partner: The second molecule of a pair, such as the solvent; None = there is none.
        fingerprint: Morgan counts, see :func:`molattn.chem.fingerprints.morgan_fingerprint`.
        smiles: Canonical SMILES.
        scaffold: Canonical SMILES of the Bemis-Murcko scaffold, empty without rings.
        symbols: Element symbol of each atom.
        atom_numbers: Number of each atom in the input, see :func:`molattn.chem.parse.atom_numbers`.
        counts: Positions and counts of substructures, see
            :class:`molattn.chem.fingerprints.HashedCounts`.
        baseline_numbers: What the random forest uses, like ``numbers``, ``float32 [G]``.
        standardized: The canonical SMILES of the standard form, or the parent, if that is another
            molecule, otherwise empty.
        targets: See :class:`molattn.chem.pretraining_targets.PretrainingTarget`.
        edge_index: The ordered pairs (sender, receiver) that a model with ``radius`` reads, sorted
            by receiver, then sender, ``int32 [2, E]``; None = all pairs.
        sites: Which atoms the atoms and bonds of the input are, see
            :class:`molattn.chem.sites.Sites`.
        is_redrawn: Whether it, or the second molecule, was read in another drawing, see
            :func:`molattn.chem.drawings.redrawn`.
        written: The record of the molecule as written, for which this one is of the parent; None =
            this one is, or no reader asked for it.
    """

    atoms: NDArray[np.uint8]
    pairs: NDArray[np.uint8]
    numbers: NDArray[np.float32] | None = None
    partner: "MoleculeRecord | None" = None
    fingerprint: NDArray[np.uint16] | None = None
    smiles: str | None = None
    scaffold: str | None = None
    symbols: tuple[str, ...] | None = None
    atom_numbers: tuple[int, ...] | None = None
    counts: tuple[NDArray[np.uint16], NDArray[np.uint8]] | None = None
    baseline_numbers: NDArray[np.float32] | None = None
    standardized: str | None = None
    targets: Any = None
    edge_index: NDArray[np.int32] | None = None
    sites: Any = None
    is_redrawn: bool = False
    written: "MoleculeRecord | None" = None

    @property
    def num_atoms(self) -> int:
        """Number of atoms ``n``."""
        return self.atoms.shape[0]

    @property
    def identity(self) -> int:
        """A hash of the canonical isomeric SMILES, of both molecules of a pair, 64 bits."""
        text = repr((self.smiles, self.partner and self.partner.smiles))
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")

    def with_all_pairs(self) -> "MoleculeRecord":
        """Return a record of all pairs; pairs that ``edge_index`` lacks have the code NO_EDGE."""
        if self.edge_index is None:
            return self
        pairs = np.full((self.num_atoms, self.num_atoms), NO_EDGE, dtype=np.uint8)
        pairs[self.edge_index[0], self.edge_index[1]] = self.pairs
        return replace(self, pairs=pairs, edge_index=None)


def pairs_within(
    num_nodes: int, edge_index: NDArray[np.integer], radius: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Find all ordered pairs of nodes with a path of at most ``radius`` edges between them.

    Of edges in both directions, ``[2, E]``, it returns the pairs ``[2, P]``, each node with itself
    among them, sorted by the first node, then the second; and the number of edges of the shortest
    path of each, ``[P]``. The radius is at least 1.
    """
    from scipy.sparse import csr_array, eye_array  # slow to import, and rarely used

    values = np.ones(edge_index.shape[1], dtype=np.int32)
    itself: Any = eye_array(num_nodes, format="csr").astype(np.int32)
    steps = csr_array((values, edge_index), shape=itself.shape) + itself
    near: Any = itself
    count: Any = itself  # of the radii up to the largest within which a pair is
    for remaining in range(radius, 0, -1):
        before = near.nnz
        near = near @ steps
        near.data[:] = 1
        if near.nnz == before:
            count = count + remaining * near
            break
        count = count + near
    count.sort_indices()
    pairs = np.stack(count.nonzero()).astype(np.int32)
    return pairs, radius + 1 - count.data
