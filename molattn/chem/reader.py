"""Many SMILES to records, a block at a time: parsing stays warm and NumPy's calls are shared."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice

from rdkit import Chem

from molattn.chem.descriptors import DescriptorCalculator
from molattn.chem.featurizer import Featurizer
from molattn.chem.fingerprints import packed_fingerprints
from molattn.chem.parse import parse_smiles
from molattn.errors import SmilesError, of_partner, quoted
from molattn.record import MoleculeRecord

__all__ = ["MoleculeReader", "featurize_smiles"]

_BLOCK = 64


def featurize_smiles(
    smiles: Iterable[str],
    featurizer: Featurizer,
    calculator: DescriptorCalculator | None = None,
    *,
    fingerprints: bool = False,
) -> Iterator[MoleculeRecord | SmilesError]:
    """Yield for each text, in order, its molecule or what is wrong with it.

    Args:
        smiles: The texts; read lazily, 64 at a time.
        featurizer: What to record of atoms and pairs.
        calculator: Further numbers to calculate; None, or one of no numbers: there are none.
        fingerprints: Add fingerprints to look for similar molecules by.

    Example:
        >>> read = featurize_smiles(["CCO", "ethanol"], Featurizer.default())
        >>> [type(molecule).__name__ for molecule in read]
        ['MoleculeRecord', 'SmilesError']
    """
    texts = iter(smiles)
    while block := list(islice(texts, _BLOCK)):
        read = [_parse(text) for text in block]
        mols = [mol for mol in read if isinstance(mol, Chem.Mol)]
        records = iter(featurizer.many(mols))
        packed = iter(packed_fingerprints(mols) if fingerprints else ())
        for mol in read:
            if isinstance(mol, SmilesError):
                yield mol
                continue
            record = next(records)
            if calculator:
                record = replace(record, numbers=calculator(mol))
            yield replace(record, fingerprint=next(packed)) if fingerprints else record


class MoleculeReader:
    """Reads rows of one molecule or of two.

    Args:
        featurizer: What to record of atoms and pairs.
        calculator: Further numbers to calculate.
        partner: What to call a second molecule in the reason why it is none.
        fingerprints: Add fingerprints of first molecules.
        remember: How many of the latest second molecules to remember, None = all: one that stands
            in many rows is read once, and is the same object in all their records.
    """

    def __init__(
        self,
        featurizer: Featurizer,
        calculator: DescriptorCalculator | None = None,
        *,
        partner: str = "its partner",
        fingerprints: bool = False,
        remember: int | None = None,
    ) -> None:
        self._featurizer = featurizer
        self._calculator = calculator
        self._name = partner
        self._fingerprints = fingerprints
        self._partner = lru_cache(maxsize=remember)(self._read)

    def __call__(
        self, smiles: Iterable[str], partners: Iterable[str] | None = None
    ) -> Iterator[MoleculeRecord | SmilesError]:
        """Yield for each row, in order, what it holds or what is wrong with it.

        Args:
            smiles: The molecules.
            partners: Their second molecules; None = there are none.
        """
        records = featurize_smiles(
            smiles, self._featurizer, self._calculator, fingerprints=self._fingerprints
        )
        if partners is None:
            yield from records
            return
        for record, text in zip(records, partners, strict=True):
            partner = self._partner(text) if isinstance(record, MoleculeRecord) else record
            if isinstance(record, SmilesError):
                yield record
            elif isinstance(partner, SmilesError):
                reason = f"{self._name}, {quoted(text)}: {partner.reason}"
                yield SmilesError(text, of_partner(partner.code), reason)
            else:
                yield replace(record, partner=partner)

    def all(
        self, smiles: Sequence[str], partners: Sequence[str] | None = None
    ) -> list[MoleculeRecord]:
        """Return what all rows hold.

        Raises:
            SmilesError: A text that is not a molecule; says which and why.
            TypeError: One text in place of a list of them.
            ValueError: Another number of second molecules than of molecules.
        """
        for name, given in (("smiles", smiles), ("partners", partners)):
            if isinstance(given, str):
                raise TypeError(f"{name}: got one text, expected a list: [{quoted(given)}]")
        if partners is not None and len(partners) != len(smiles):
            raise ValueError(f"partners: got {len(partners)}, expected {len(smiles)}")
        records = []
        for position, result in enumerate(self(smiles, partners)):
            if isinstance(result, SmilesError):
                reason = f"{result.reason} (position {position})"
                raise SmilesError(result.smiles, result.code, reason) from result
            records.append(result)
        return records

    def _read(self, text: str) -> MoleculeRecord | SmilesError:
        return next(featurize_smiles([text], self._featurizer, self._calculator))


def _parse(text: str) -> Chem.Mol | SmilesError:
    try:
        return parse_smiles(text)
    except SmilesError as error:
        return error
