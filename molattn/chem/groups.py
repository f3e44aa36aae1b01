"""Which rows belong together: one molecule, one scaffold, one cluster."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem.Scaffolds import MurckoScaffold

from molattn.chem.fingerprints import Fingerprint, fingerprints, similarities
from molattn.chem.parse import parse_smiles
from molattn.errors import InputError

__all__ = ["MOST_CLUSTERED", "Molecule", "same_cluster", "same_molecule", "same_scaffold"]

Molecule = str | Chem.Mol
MOST_CLUSTERED = 50_000
"""Distinct molecules; every one is compared with every other."""


def same_molecule(molecules: Iterable[Molecule]) -> list[list[int]]:
    """Group rows by canonical SMILES; groups in the order of their first rows.

    Raises:
        SmilesError: A SMILES is not a molecule.
    """
    return _grouped(map(Chem.MolToSmiles, _read(molecules)))


def same_scaffold(molecules: Iterable[Molecule]) -> list[list[int]]:
    """Group rows by Bemis-Murcko scaffold.

    Molecules without rings share the empty scaffold, and chirality does not tell scaffolds apart.

    Raises:
        SmilesError: A SMILES is not a molecule.

    Source: Bemis and Murcko, J. Med. Chem. 1996, 39, 2887.
    """
    return _grouped(
        MurckoScaffold.MurckoScaffoldSmiles(mol=mol, includeChirality=False)
        for mol in _read(molecules)
    )


def same_cluster(molecules: Sequence[Molecule], cutoff: float = 0.65) -> list[list[int]]:
    """Group rows by Butina's clusters of Morgan fingerprints.

    The molecule with most neighbours gathers those that are still free, and so on. Memory grows
    with the number of molecules, time with its square.

    Args:
        molecules: SMILES or molecules, one per row.
        cutoff: Largest Tanimoto distance of a molecule from the centre of its cluster.

    Raises:
        InputError: There are more than ``MOST_CLUSTERED`` distinct molecules.
        SmilesError: A SMILES is not a molecule.

    Source: Butina, J. Chem. Inf. Comput. Sci. 1999, 39, 747.
    """
    groups = same_molecule(molecules)
    if len(groups) > MOST_CLUSTERED:
        raise InputError(
            f"cluster split: got {len(groups)} distinct molecules, expected at most "
            f"{MOST_CLUSTERED}; a scaffold split has no such limit"
        )
    prints = fingerprints(_read(molecules[group[0]] for group in groups))
    return [
        sorted(row for place in cluster for row in groups[place])
        for cluster in _butina(prints, cutoff)
    ]


def _butina(prints: Sequence[Fingerprint], cutoff: float) -> list[list[int]]:
    neighbours = np.zeros(len(prints), dtype=np.int64)
    for place in range(1, len(prints)):
        near = _near(prints[place], prints[:place], cutoff)
        neighbours[:place] += near
        neighbours[place] += near.sum()
    free = np.ones(len(prints), dtype=bool)
    clusters = []
    # Ties go to the later molecule, as in RDKit's own ClusterData.
    for centre in np.lexsort((np.arange(len(prints)), neighbours))[::-1].tolist():
        if not free[centre]:
            continue
        candidates = np.flatnonzero(free)
        near = _near(prints[centre], [prints[place] for place in candidates.tolist()], cutoff)
        cluster = candidates[near]
        free[cluster] = False
        clusters.append(cluster.tolist())
    return clusters


def _near(centre: Fingerprint, others: Sequence[Fingerprint], cutoff: float) -> NDArray[np.bool_]:
    return 1.0 - similarities(centre, others) <= cutoff


def _read(molecules: Iterable[Molecule]) -> Iterable[Chem.Mol]:
    return (parse_smiles(m) if isinstance(m, str) else m for m in molecules)


def _grouped(keys: Iterable[str]) -> list[list[int]]:
    groups: dict[str, list[int]] = {}
    for row, key in enumerate(keys):
        groups.setdefault(key, []).append(row)
    return list(groups.values())
