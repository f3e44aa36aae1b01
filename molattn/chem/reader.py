"""Many molecules to records, in blocks that share NumPy's calls."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any

from rdkit import Chem

from molattn.chem.count_fingerprints import SubstructureCounter
from molattn.chem.descriptors import DescriptorCalculator, calculate
from molattn.chem.featurizer import Featurizer
from molattn.chem.fingerprints import packed_fingerprints
from molattn.chem.groups import scaffold_smiles
from molattn.chem.limits import read_molecule
from molattn.chem.parse import Molecule, check_list
from molattn.chem.prepared import PreparedSmiles
from molattn.chem.standardize import standardized_smiles
from molattn.config import MoleculeLimits
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
    """Reads rows of one molecule or of two; each is read once for all that is asked of it.

    A molecule is a SMILES or an RDKit molecule, which is not changed (see
    :func:`molattn.chem.parse.prepare_mol`). Of a :class:`molattn.chem.prepared.PreparedSmiles`
    with the same featurizer only what its record lacks is calculated.

    Args:
        featurizer: The atom and pair features to record.
        calculator: Descriptors and counts to calculate, ``numbers`` of the record.
        partner: What an error calls a second molecule.
        fingerprints: Whether to add ``fingerprint``.
        counter: Counts substructures, ``counts`` of the record; None = none.
        canonical: Whether to add ``smiles``, the canonical SMILES.
        scaffolds: Whether to add ``scaffold``.
        symbols: Whether to add ``symbols``.
        baseline: Further descriptors and counts, ``baseline_numbers`` of the record; a descriptor
            that ``calculator`` has too is calculated once.
        remember: How many of the latest second molecules to remember, None = all: a solvent of many
            rows is read once, and is the same object in all their records.
        distinct: Whether to remember first molecules too, all of them; rows of equal texts then
            share their arrays.
        limits: Limits of each molecule; by default those of :class:`MoleculeLimits`.
        standardize: Whether to standardize each molecule first, see
            :func:`molattn.chem.limits.read_molecule`, and to add ``standardized``.
        radius: Record only the pairs of atoms at most this many bonds apart; None = all pairs.
        targets: Calculates ``targets`` of the record, a function that can be pickled; None = none.
    """

    def __init__(
        self,
        featurizer: Featurizer,
        calculator: DescriptorCalculator | None = None,
        *,
        partner: str = "its partner",
        fingerprints: bool = False,
        counter: SubstructureCounter | None = None,
        canonical: bool = False,
        scaffolds: bool = False,
        symbols: bool = False,
        baseline: DescriptorCalculator | None = None,
        remember: int | None = None,
        distinct: bool = False,
        limits: MoleculeLimits | None = None,
        standardize: bool = False,
        radius: int | None = None,
        targets: Callable[[Chem.Mol], Any] | None = None,
    ) -> None:
        self._featurizer = self._same_featurizer = featurizer
        fields = {"numbers": calculator, "baseline_numbers": baseline}
        calculators = {name: one for name, one in fields.items() if one}
        self._standardize = standardize
        self._radius = radius
        self._fields = _Fields(
            calculators, counter, canonical, scaffolds, symbols, standardize, targets
        )
        self._lacking = replace(self._fields, canonical=False)
        self._name = partner
        self._fingerprints = fingerprints
        self._limits = limits or MoleculeLimits()
        self._known: dict[Molecule, MoleculeRecord | SmilesError] | None = {} if distinct else None
        self._partner = lru_cache(maxsize=remember)(lambda text: next(self._records([text])))

    def __call__(
        self, smiles: Iterable[Molecule], partners: Iterable[Molecule] | None = None
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
                reason = f"{self._name}, {quoted(partner.smiles)}: {partner.reason}"
                yield SmilesError(partner.smiles, f"partner_{partner.code}", reason)
            else:
                yield replace(record, partner=partner)

    def all(
        self, smiles: Sequence[Molecule], partners: Sequence[Molecule] | None = None
    ) -> list[MoleculeRecord]:
        """Return the molecules of all rows.

        Raises:
            SmilesError: One that is not a molecule; names its position and the reason.
            TypeError: A single molecule where a list is expected.
            ValueError: The numbers of molecules and of second molecules differ.
        """
        for name, given in (("smiles", smiles), ("partners", partners)):
            check_list(name, given)
        if partners is not None and len(partners) != len(smiles):
            raise ValueError(f"partners: got {len(partners)}, expected {len(smiles)}")
        records = []
        for position, result in enumerate(self(smiles, partners)):
            if isinstance(result, SmilesError):
                raise result.at(position) from result
            records.append(result)
        return records

    def _records(self, smiles: Iterable[Molecule]) -> Iterator[MoleculeRecord | SmilesError]:
        texts = iter(smiles)
        while block := list(islice(texts, _BLOCK)):
            if self._known is None:
                yield from self._block(block)
                continue
            new = [text for text in dict.fromkeys(block) if text not in self._known]
            self._known.update(zip(new, self._block(new), strict=True))
            yield from (self._known[text] for text in block)

    def _block(self, texts: Sequence[Molecule]) -> Iterator[MoleculeRecord | SmilesError]:
        read = [self._read(text) for text in texts]
        mols = [found[0] for found in read if isinstance(found, tuple)]
        records = iter(self._featurizer.many(mols, self._radius))
        packed = iter(packed_fingerprints(mols) if self._fingerprints else ())
        for found in read:
            if not isinstance(found, tuple):
                yield found
                continue
            fields = found[1]
            if self._fingerprints:
                fields["fingerprint"] = next(packed)
            record = next(records)
            yield replace(record, **fields) if fields else record

    def _read(
        self, text: Molecule
    ) -> tuple[Chem.Mol, dict[str, Any]] | MoleculeRecord | SmilesError:
        try:
            if isinstance(text, PreparedSmiles) and self._is_known(text):
                return self._completed(text)
            return read_molecule(text, self._limits, self._fields, standardize=self._standardize)
        except SmilesError as error:
            return error

    def _is_known(self, text: PreparedSmiles) -> bool:
        """Return whether reading the text would give its record."""
        limits = self._limits
        if (
            self._standardize
            or self._radius is not None
            or text.record.num_atoms > limits.max_atoms
        ):
            return False
        if text.featurizer is not self._same_featurizer:  # which is quicker than to compare
            if text.featurizer != self._featurizer:
                return False
            self._same_featurizer = text.featurizer
        return len(text) <= limits.max_length

    def _completed(self, text: PreparedSmiles) -> MoleculeRecord:
        fields = read_molecule(text, self._limits, self._lacking)[1] if self._lacking else {}
        if not self._fingerprints:
            fields["fingerprint"] = None
        if not self._fields.canonical:
            fields["smiles"] = None
        return replace(text.record, **fields) if fields else text.record


@dataclass(frozen=True)
class _Fields:
    """Calculates fields of a record from one molecule."""

    calculators: Mapping[str, DescriptorCalculator]
    counter: SubstructureCounter | None
    canonical: bool
    scaffolds: bool
    symbols: bool
    standardized: bool
    targets: Callable[[Chem.Mol], Any] | None

    def __bool__(self) -> bool:
        return any(vars(self).values())

    def __call__(self, mol: Chem.Mol) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.calculators:
            numbers = calculate(mol, self.calculators.values())
            found.update(zip(self.calculators, numbers, strict=True))
        if self.counter is not None:
            found["counts"] = self.counter(mol)
        if self.canonical:
            found["smiles"] = Chem.MolToSmiles(mol)
        if self.scaffolds:
            found["scaffold"] = scaffold_smiles(mol)
        if self.symbols:
            found["symbols"] = tuple(atom.GetSymbol() for atom in mol.GetAtoms())
        if self.standardized:
            found["standardized"] = standardized_smiles(mol)
        if self.targets is not None:
            found["targets"] = self.targets(mol)
        return found
