"""Many SMILES to records, in blocks that share NumPy's calls."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from typing import Any

from rdkit import Chem

from molattn.chem.descriptors import DescriptorCalculator, calculate
from molattn.chem.featurizer import Featurizer
from molattn.chem.fingerprints import packed_fingerprints
from molattn.chem.groups import scaffold_smiles
from molattn.chem.parse import parse_smiles
from molattn.errors import SmilesError, quoted
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
    """Yield for each text, in order, its molecule or the error.

    Args:
        smiles: The texts; read lazily, 64 at a time.
        featurizer: The atom and pair features to record.
        calculator: Descriptors and counts to calculate; None or an empty one = none.
        fingerprints: Whether to add the fingerprints of a similarity search.

    Example:
        >>> read = featurize_smiles(["CCO", "ethanol"], Featurizer.default())
        >>> [type(molecule).__name__ for molecule in read]
        ['MoleculeRecord', 'SmilesError']
    """
    return MoleculeReader(featurizer, calculator, fingerprints=fingerprints)(smiles)


class MoleculeReader:
    """Reads rows of one molecule or of two; each text is parsed once for all that is asked of it.

    Args:
        featurizer: The atom and pair features to record.
        calculator: Descriptors and counts to calculate, ``numbers`` of the record.
        partner: What an error calls a second molecule.
        fingerprints: Whether to add ``fingerprint``.
        canonical: Whether to add ``smiles``, the canonical SMILES.
        scaffolds: Whether to add ``scaffold``.
        baseline: Further descriptors and counts, ``baseline_numbers`` of the record; a descriptor
            that ``calculator`` has too is calculated once.
        remember: How many of the latest second molecules to remember, None = all: a solvent of many
            rows is read once, and is the same object in all their records.
        distinct: Whether to remember first molecules too, all of them; rows of equal texts then
            share their arrays.
    """

    def __init__(
        self,
        featurizer: Featurizer,
        calculator: DescriptorCalculator | None = None,
        *,
        partner: str = "its partner",
        fingerprints: bool = False,
        canonical: bool = False,
        scaffolds: bool = False,
        baseline: DescriptorCalculator | None = None,
        remember: int | None = None,
        distinct: bool = False,
    ) -> None:
        self._featurizer = featurizer
        fields = {"numbers": calculator, "baseline_numbers": baseline}
        self._calculators = {name: one for name, one in fields.items() if one}
        self._name = partner
        self._fingerprints = fingerprints
        self._canonical = canonical
        self._scaffolds = scaffolds
        self._known: dict[str, MoleculeRecord | SmilesError] | None = {} if distinct else None
        self._partner = lru_cache(maxsize=remember)(lambda text: next(self._records([text])))

    def __call__(
        self, smiles: Iterable[str], partners: Iterable[str] | None = None
    ) -> Iterator[MoleculeRecord | SmilesError]:
        """Yield for each row, in order, its molecule or the error.

        Args:
            smiles: The molecules.
            partners: Their second molecules; None = there are none.
        """
        records = self._records(smiles)
        if partners is None:
            yield from records
            return
        for record, text in zip(records, partners, strict=True):
            partner = self._partner(text) if isinstance(record, MoleculeRecord) else record
            if isinstance(record, SmilesError):
                yield record
            elif isinstance(partner, SmilesError):
                reason = f"{self._name}, {quoted(text)}: {partner.reason}"
                yield SmilesError(text, f"partner_{partner.code}", reason)
            else:
                yield replace(record, partner=partner)

    def all(
        self, smiles: Sequence[str], partners: Sequence[str] | None = None
    ) -> list[MoleculeRecord]:
        """Return the molecules of all rows.

        Raises:
            SmilesError: A text that is not a molecule; names its position and the reason.
            TypeError: A single text where a list is expected.
            ValueError: The numbers of molecules and of second molecules differ.
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

    def _records(self, smiles: Iterable[str]) -> Iterator[MoleculeRecord | SmilesError]:
        texts = iter(smiles)
        while block := list(islice(texts, _BLOCK)):
            if self._known is None:
                yield from self._block(block)
                continue
            new = [text for text in dict.fromkeys(block) if text not in self._known]
            self._known.update(zip(new, self._block(new), strict=True))
            yield from (self._known[text] for text in block)

    def _block(self, texts: Sequence[str]) -> Iterator[MoleculeRecord | SmilesError]:
        read = [_parse(text) for text in texts]
        mols = [mol for mol in read if isinstance(mol, Chem.Mol)]
        records = iter(self._featurizer.many(mols))
        packed = iter(packed_fingerprints(mols) if self._fingerprints else ())
        for mol in read:
            if isinstance(mol, SmilesError):
                yield mol
                continue
            added: dict[str, Any] = {}
            if self._calculators:
                numbers = calculate(mol, self._calculators.values())
                added.update(zip(self._calculators, numbers, strict=True))
            if self._fingerprints:
                added["fingerprint"] = next(packed)
            if self._canonical:
                added["smiles"] = Chem.MolToSmiles(mol)
            if self._scaffolds:
                added["scaffold"] = scaffold_smiles(mol)
            record = next(records)
            yield replace(record, **added) if added else record


def _parse(text: str) -> Chem.Mol | SmilesError:
    try:
        return parse_smiles(text)
    except SmilesError as error:
        return error
