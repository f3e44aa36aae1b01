"""Groups of rows that belong together: by molecule, by scaffold, by cluster.

Each function takes SMILES, RDKit molecules, or the records of a
:class:`molattn.chem.reader.MoleculeReader` that adds the key; records are not parsed again.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem, DataStructs
from rdkit.Chem.Scaffolds import MurckoScaffold

from molattn.chem.fingerprints import FINGERPRINT_SIZE, morgan_fingerprint
from molattn.chem.parse import check_list, parse_smiles, prepare_mol
from molattn.errors import InputError
from molattn.record import MoleculeRecord

__all__ = ["MOST_CLUSTERED", "same_cluster", "same_molecule", "same_scaffold", "scaffold_smiles"]

Molecule = str | Chem.Mol | MoleculeRecord
_Prepared = Chem.Mol | MoleculeRecord
Fingerprint = Any  # RDKit's ExplicitBitVect
MOST_CLUSTERED = 50_000
"""Most distinct molecules in a clustering, which compares every two of them."""


def same_molecule(molecules: Iterable[Molecule]) -> list[list[int]]:
    """Group rows by canonical SMILES; groups in the order of their first rows.

    Args:
        molecules: One per row; records with ``smiles``.

    Raises:
        SmilesError: A SMILES is not a molecule.
        TypeError: One molecule where several are expected.
    """
    check_list("molecules", molecules)
    return _grouped(_smiles(_prepared(molecule)) for molecule in molecules)


def same_scaffold(molecules: Iterable[Molecule]) -> list[list[int]]:
    """Group rows by Bemis-Murcko scaffold.

    Molecules without rings share the empty scaffold; chirality is ignored.

    Args:
        molecules: One per row; records with ``scaffold``.

    Raises:
        SmilesError: A SMILES is not a molecule.
        TypeError: One molecule where several are expected.

    Source: Bemis and Murcko, J. Med. Chem. 1996, 39, 2887.
    """
    check_list("molecules", molecules)
    return _grouped(
        _key(_prepared(molecule), "scaffold", scaffold_smiles) for molecule in molecules
    )


def same_cluster(molecules: Iterable[Molecule], cutoff: float = 0.65) -> list[list[int]]:
    """Group rows by Butina clusters of Morgan fingerprints without counts.

    The molecule with the most neighbors takes those that are not yet in a cluster, and so on.
    Memory grows with the number of molecules, time with its square.

    Args:
        molecules: One per row; records with ``smiles`` and ``fingerprint``.
        cutoff: Largest Tanimoto distance of a molecule from the center of its cluster.

    Raises:
        InputError: There are more than ``MOST_CLUSTERED`` distinct molecules, or ``cutoff`` is not
            from 0 to 1.
        SmilesError: A SMILES is not a molecule.
        TypeError: One molecule where several are expected.

    Source: Butina, J. Chem. Inf. Comput. Sci. 1999, 39, 747.
    """
    check_list("molecules", molecules)
    if not 0 <= cutoff <= 1:
        raise InputError(f"cutoff: got {cutoff}, expected a number from 0 to 1")
    groups: dict[str, list[int]] = {}
    prints: list[Fingerprint] = []
    for row, molecule in enumerate(molecules):
        prepared = _prepared(molecule)
        group = groups.setdefault(_smiles(prepared), [])
        if not group:
            prints.append(_fingerprint(prepared))
        group.append(row)
    if len(groups) > MOST_CLUSTERED:
        raise InputError(
            f"cluster split: got {len(groups)} distinct molecules, expected at most "
            f"{MOST_CLUSTERED}; a scaffold split has no such limit"
        )
    rows = list(groups.values())
    return [
        sorted(row for place in cluster for row in rows[place])
        for cluster in _butina(prints, cutoff)
    ]


def scaffold_smiles(mol: Chem.Mol) -> str:
    """Return the SMILES of the Bemis-Murcko scaffold without chirality, empty without rings."""
    return MurckoScaffold.MurckoScaffoldSmiles(mol=mol, includeChirality=False)


def _butina(prints: Sequence[Fingerprint], cutoff: float) -> list[list[int]]:
    neighbors = np.zeros(len(prints), dtype=np.int64)
    for place in range(1, len(prints)):
        near = _near(prints[place], prints[:place], cutoff)
        neighbors[:place] += near
        neighbors[place] += near.sum()
    free = np.ones(len(prints), dtype=bool)
    clusters = []
    # Of molecules with equally many neighbors the later goes first, as in RDKit's ClusterData.
    for center in np.lexsort((np.arange(len(prints)), neighbors))[::-1].tolist():
        if not free[center]:
            continue
        candidates = np.flatnonzero(free)
        near = _near(prints[center], [prints[place] for place in candidates.tolist()], cutoff)
        cluster = candidates[near]
        free[cluster] = False
        clusters.append(cluster.tolist())
    return clusters


def _near(center: Fingerprint, others: Sequence[Fingerprint], cutoff: float) -> NDArray[np.bool_]:
    similarity = DataStructs.BulkTanimotoSimilarity(center, list(others))
    return 1.0 - np.array(similarity, dtype=np.float64) <= cutoff


def _smiles(molecule: _Prepared) -> str:
    return _key(molecule, "smiles", Chem.MolToSmiles)


def _fingerprint(molecule: _Prepared) -> Fingerprint:
    bits = DataStructs.ExplicitBitVect(FINGERPRINT_SIZE)
    bits.SetBitsFromList(_key(molecule, "fingerprint", morgan_fingerprint).tolist())
    return bits


def _prepared(molecule: Molecule) -> _Prepared:
    if isinstance(molecule, MoleculeRecord):
        return molecule
    return prepare_mol(molecule) if isinstance(molecule, Chem.Mol) else parse_smiles(molecule)


def _key(molecule: _Prepared, name: str, calculate: Callable[[Chem.Mol], Any]) -> Any:
    if not isinstance(molecule, MoleculeRecord):
        return calculate(molecule)
    if (value := getattr(molecule, name)) is None:
        raise ValueError(f"records: got one without {name}, expected records read with it")
    return value


def _grouped(keys: Iterable[str]) -> list[list[int]]:
    """Group rows of equal keys, in the order of their first rows.

    Hashes of 64 bits stand for the keys, which take less memory. The probability that two of a
    million keys have the same is 3e-8.
    """
    groups: dict[int, list[int]] = {}
    for row, key in enumerate(keys):
        groups.setdefault(hash(key), []).append(row)
    return list(groups.values())
