"""SMILES whose molecules were read before."""

from molattn.chem.featurizer import Featurizer
from molattn.record import MoleculeRecord

__all__ = ["PreparedSmiles"]


class PreparedSmiles(str):
    """A SMILES with the molecule that was read from it, so that it is not read again.

    Attributes:
        record: The molecule, with ``fingerprint`` and ``smiles``; not standardized.
        featurizer: The featurizer of the record.
    """

    record: MoleculeRecord
    featurizer: Featurizer

    def __new__(
        cls, smiles: str, record: MoleculeRecord, featurizer: Featurizer
    ) -> "PreparedSmiles":
        """Return a text with a molecule."""
        prepared = super().__new__(cls, smiles)
        prepared.record, prepared.featurizer = record, featurizer
        return prepared

    def __reduce__(
        self,
    ) -> tuple[type["PreparedSmiles"], tuple[str, MoleculeRecord, Featurizer]]:
        return type(self), (str.__str__(self), self.record, self.featurizer)
