"""Groups of rows that belong together: by molecule, by scaffold, by cluster.

Each function takes SMILES, RDKit molecules, or the records of a
:class:`molattn.chem.reader.MoleculeReader` that adds the key; records are not parsed again.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem, DataStructs
from rdkit.Chem.Scaffolds import MurckoScaffold

from molattn.chem.fingerprints import FINGERPRINT_SIZE, morgan_fingerprint
from molattn.chem.parse import check_list, parse_smiles, prepare_mol
from molattn.errors import InputError
from molattn.record import MoleculeRecord

Molecule = str | Chem.Mol | MoleculeRecord
MOST_CLUSTERED = 50_000
"""Most distinct molecules in a clustering, which compares every two of them."""


def same_molecule(molecules: Iterable[Molecule]) -> list[list[int]]:
    """Group rows by canonical SMILES (of records: ``smiles``), in the order of their first rows."""
    return _grouped(_keys(molecules, smiles=Chem.MolToSmiles))


def same_scaffold(molecules: Iterable[Molecule]) -> list[list[int]]:
    """Group rows by Bemis-Murcko scaffold (of records: ``scaffold``).

    Molecules without rings share the empty scaffold; chirality is ignored. Errors are those of
    :func:`same_molecule`.

    Source: Bemis and Murcko, J. Med. Chem. 1996, 39, 2887.
    """
    return _grouped(_keys(molecules, scaffold=scaffold_smiles))


def same_cluster(molecules: Iterable[Molecule], cutoff: float = 0.65) -> list[list[int]]:
    """Group rows by Butina clusters of Morgan fingerprints without counts.

    The molecule with the most neighbors takes those that are not yet in a cluster, and so on.
    Memory grows with the number of molecules, time with its square. Errors are also those of
    :func:`same_molecule`.

    Args:
        molecules: One per row; records with ``smiles`` and ``fingerprint``.
        cutoff: Largest Tanimoto distance of a molecule from the center of its cluster, 0 to 1.

    Raises:
        InputError: There are more than ``MOST_CLUSTERED`` distinct molecules, or another cutoff.

    Source: Butina, J. Chem. Inf. Comput. Sci. 1999, 39, 747.
    """
    if not 0 <= cutoff <= 1:
        raise InputError(f"cutoff: got {cutoff}, expected a number from 0 to 1")
    rows: dict[str, list[int]] = {}
    fingerprints = []
    keys = _keys(molecules, smiles=Chem.MolToSmiles, fingerprint=morgan_fingerprint)
    for row, (smiles, fingerprint) in enumerate(keys):
        if smiles not in rows:
            fingerprints.append(DataStructs.ExplicitBitVect(FINGERPRINT_SIZE))
            fingerprints[-1].SetBitsFromList(fingerprint.tolist())
        rows.setdefault(smiles, []).append(row)
    if len(rows) > MOST_CLUSTERED:
        raise InputError(
            f"cluster split: got {len(rows)} distinct molecules, expected at most "
            f"{MOST_CLUSTERED}; a scaffold split has no such limit"
        )
    rows_of_molecule = list(rows.values())
    return [
        sorted(row for molecule in cluster for row in rows_of_molecule[molecule])
        for cluster in _butina(fingerprints, cutoff)
    ]


def scaffold_smiles(mol: Chem.Mol) -> str:
    """Return the SMILES of the Bemis-Murcko scaffold without chirality, empty without rings."""
    return MurckoScaffold.MurckoScaffoldSmiles(mol=mol, includeChirality=False)


def _keys(molecules: Iterable[Molecule], **keys: Callable[[Chem.Mol], Any]) -> Iterable[tuple]:
    """Yield the keys of each molecule: fields of a record, or the same from other molecules."""
    check_list("molecules", molecules)
    for molecule in molecules:
        if isinstance(molecule, MoleculeRecord):
            fields = tuple(getattr(molecule, name) for name in keys)
            if fields[0] is None:
                raise ValueError(f"records: got one without {', '.join(keys)}, expected these")
            yield fields
        else:
            is_mol = isinstance(molecule, Chem.Mol)
            mol = prepare_mol(molecule) if is_mol else parse_smiles(molecule)
            yield tuple(calculate(mol) for calculate in keys.values())


def _butina(fingerprints: Sequence[Any], cutoff: float) -> list[list[int]]:
    neighbors = np.zeros(len(fingerprints), dtype=np.int64)
    for index in range(1, len(fingerprints)):
        near = _near(fingerprints[index], fingerprints[:index], cutoff)
        neighbors[:index] += near
        neighbors[index] += near.sum()
    free = np.ones(len(fingerprints), dtype=bool)
    clusters = []
    # Of molecules with equally many neighbors the later goes first, as in RDKit's ClusterData.
    for center in np.lexsort((np.arange(len(fingerprints)), neighbors))[::-1].tolist():
        if free[center]:
            candidates = np.flatnonzero(free)
            near = _near(
                fingerprints[center],
                [fingerprints[candidate] for candidate in candidates.tolist()],
                cutoff,
            )
            clusters.append(candidates[near].tolist())
            free[candidates[near]] = False
    return clusters


def _near(center: Any, others: Sequence[Any], cutoff: float) -> NDArray[np.bool_]:
    similarity = DataStructs.BulkTanimotoSimilarity(center, list(others))
    return 1.0 - np.array(similarity, dtype=np.float64) <= cutoff


def _grouped(keys: Iterable[Hashable]) -> list[list[int]]:
    """Group rows of equal keys, in the order of their first rows."""
    groups: dict[Hashable, list[int]] = {}
    for row, key in enumerate(keys):
        groups.setdefault(key, []).append(row)
    return list(groups.values())
