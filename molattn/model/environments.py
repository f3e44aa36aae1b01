"""Atoms and bonds with what surrounds them, as hashes."""

import numpy as np
from numpy.typing import NDArray

from molattn.model.networks import Records
from molattn.task import Level

RADII = 4  # 0 to 3 bonds


def site_environments(records: Records, level: Level) -> NDArray[np.uint64]:
    """Hash each atom (bond) with all atoms within 0, 1, 2 and 3 bonds of it, ``[S, 4]``.

    Equal hashes mean equal codes of these atoms and of the bonds between them, in any order, as in
    Morgan fingerprints. Hashes of atoms (bonds) that are not in the graph have no meaning.
    """
    if not records:
        return np.zeros((0, RADII), dtype=np.uint64)
    starts = np.cumsum([0, *(record.num_atoms for record in records)])[:-1]
    drawn_bonds = [record.sites.bonds for record in records]
    bonds = np.hstack(drawn_bonds) + np.repeat(starts, [x.shape[1] for x in drawn_bonds])
    sites = [np.atleast_2d(getattr(record.sites, f"{level}s")) for record in records]
    ends = np.hstack(sites) + np.repeat(starts, [x.shape[1] for x in sites])
    pairs = (record.with_all_pairs().pairs[tuple(record.sites.bonds)] for record in records)
    codes = _mixed(1 + np.hstack([*pairs]).astype(np.uint64))
    is_edge = (np.hstack(drawn_bonds) >= 0).all(axis=0)
    sender, receiver = np.hstack([bonds[:, is_edge], bonds[::-1, is_edge]])
    edges = np.tile(codes[is_edge], 2)
    atoms = np.concatenate([record.atoms for record in records]).astype(np.uint64)
    atoms = _mixed(atoms @ _mixed(np.arange(1, atoms.shape[1] + 1, dtype=np.uint64)))
    hashes = np.zeros((RADII, ends.shape[1]), dtype=np.uint64)
    for radius in range(RADII):
        hashes[radius] = atoms[ends].sum(axis=0) + (codes if level == "bond" else 0)
        neighbors = np.zeros_like(atoms)
        np.add.at(neighbors, receiver, _mixed(atoms[sender] + edges))
        atoms = _mixed(_mixed(atoms) + neighbors)
    return hashes.T


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a hash of each number (a round of the finalizer of SplitMix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    return numbers ^ (numbers >> np.uint64(31))
