"""Molecules that were read before."""

from dataclasses import dataclass

from molattn.chem.featurizer import Featurizer
from molattn.record import MoleculeRecord

__all__ = ["PreparedMolecule"]


@dataclass(frozen=True, eq=False, slots=True)
class PreparedMolecule:
    """A molecule that was read from a SMILES, so that it is not read again.

    Args:
        smiles: The SMILES.
        record: The molecule, with ``fingerprint`` and ``smiles``; not standardized.
        featurizer: The featurizer of the record.
    """

    smiles: str
    record: MoleculeRecord
    featurizer: Featurizer
