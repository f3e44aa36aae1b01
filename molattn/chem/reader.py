"""Many molecules to records, in blocks that share NumPy's calls."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

from rdkit import Chem

from molattn.chem.count_fingerprints import SubstructureCounter
from molattn.chem.descriptors import DescriptorCalculator, calculate
from molattn.chem.featurizer import Featurizer
from molattn.chem.fingerprints import morgan_fingerprint
from molattn.chem.groups import scaffold_smiles
from molattn.chem.limits import is_fast, read_molecule
from molattn.chem.mol_binary import Pieces, cut
from molattn.chem.parse import Molecule, atom_numbers, check_list
from molattn.chem.prepared import PreparedSmiles
from molattn.chem.rdkit_log import quiet
from molattn.chem.standardize import standardized_smiles
from molattn.config import MoleculeLimits
from molattn.errors import SmilesError, quoted
from molattn.record import MoleculeRecord
from molattn.utils.workers import parallel_map

__all__ = ["MoleculeReader", "featurize_smiles"]

_BLOCK = 64
_MOST_DISTINCT = 20_000

_Read = dict[Molecule, MoleculeRecord | SmilesError]


def featurize_smiles(
    smiles: Iterable[str], featurizer: Featurizer
) -> Iterator[MoleculeRecord | SmilesError]:
    """Yield for each text, in order, its molecule or the error.

    Args:
        smiles: The texts; read lazily, 64 at a time.
        featurizer: The atom and pair features to record.

    Example:
        >>> read = featurize_smiles(["CCO", "ethanol"], Featurizer.default())
        >>> [type(molecule).__name__ for molecule in read]
        ['MoleculeRecord', 'SmilesError']
    """
    return MoleculeReader(featurizer)(smiles)


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
        symbols: Whether to add ``symbols`` and ``atom_numbers``.
        baseline: Further descriptors and counts, ``baseline_numbers`` of the record; a descriptor
            that ``calculator`` has too is calculated once.
        remember: How many of the latest second molecules to remember, None = all: a solvent of many
            rows is read once, and is the same object in all their records. Threads may share a
            reader that remembers none (0).
        distinct: Whether to remember the latest 20,000 first molecules too; rows of equal texts
            then share their arrays.
        limits: Limits of each molecule; by default those of :class:`MoleculeLimits`.
        standardize: Whether to standardize each molecule first, see
            :func:`molattn.chem.limits.read_molecule`, and to add ``standardized``.
        radius: Record only the pairs of atoms at most this many bonds apart; None = all pairs.
        targets: Calculates ``targets`` of the record, a function that can be pickled; None = none.
        num_workers: Processes that read the molecules, some blocks ahead, with the same result; 0
            reads them in this one.
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
        num_workers: int = 0,
    ) -> None:
        given = {"numbers": calculator, "baseline_numbers": baseline}
        calculators = {name: one for name, one in given.items() if one}
        fields = _Fields(calculators, counter, canonical, scaffolds, symbols, standardize, targets)
        limits = limits or MoleculeLimits()
        self._block = _BlockReader(featurizer, fields, fingerprints, limits, standardize, radius)
        self._name = partner
        self._firsts, self._partners = _Memory(_MOST_DISTINCT if distinct else 0), _Memory(remember)
        self._distinct = distinct
        self._num_workers = num_workers

    def __call__(
        self, smiles: Iterable[Molecule], partners: Iterable[Molecule] | None = None
    ) -> Iterator[MoleculeRecord | SmilesError]:
        """Yield for each row, in order, its molecule or the error.

        Args:
            smiles: The molecules.
            partners: Their second molecules; None = there are none.

        Raises:
            TypeError: A single molecule where several are expected.
        """
        for name, given in (("smiles", smiles), ("partners", partners)):
            check_list(name, given)
        return self._read(smiles, partners)

    def _read(
        self, smiles: Iterable[Molecule], partners: Iterable[Molecule] | None
    ) -> Iterator[MoleculeRecord | SmilesError]:
        if partners is None and not self._distinct:
            yield from self._forgotten(smiles)
            return
        if partners is None:
            yield from (first for (first,) in self._rows((one,) for one in smiles))
            return
        for record, partner in self._rows(zip(smiles, partners, strict=True)):
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
        read = self(smiles, partners)
        if partners is not None and len(partners) != len(smiles):
            raise ValueError(f"partners: got {len(partners)}, expected {len(smiles)}")
        records = []
        for position, result in enumerate(read):
            if isinstance(result, SmilesError):
                raise result.at(position) from result
            records.append(result)
        return records

    def _forgotten(self, smiles: Iterable[Molecule]) -> Iterator[MoleculeRecord | SmilesError]:
        """Yield what each molecule is read as; none is remembered beyond its block."""
        asked: deque[list[Molecule]] = deque()

        def distinct() -> Iterator[list[Molecule]]:
            left = iter(smiles)
            while block := list(islice(left, _BLOCK)):
                asked.append(block)
                yield [*dict.fromkeys(block)]

        for read in self._blocks(distinct()):
            block = asked.popleft()
            known = dict(zip(dict.fromkeys(block), read, strict=True))
            yield from map(known.__getitem__, block)

    def _rows(
        self, rows: Iterable[tuple[Molecule, ...]]
    ) -> Iterator[tuple[MoleculeRecord | SmilesError, ...]]:
        """Yield what each molecule of each row is read as."""
        asked: deque[tuple[list[tuple[Molecule, ...]], list[Molecule], _Read]] = deque()
        expected: set[Molecule] = set()  # asked for, and remembered once they are read
        first = 0 if self._distinct else 1  # of a row's molecules, that is remembered

        def unknown() -> Iterator[list[Molecule]]:
            left = iter(rows)
            while block := list(islice(left, _BLOCK)):
                molecules = dict.fromkeys(chain.from_iterable(block))
                known = self._firsts.among(molecules) | self._partners.among(molecules)
                new = [one for one in molecules if one not in known and one not in expected]
                expected.update(chain.from_iterable(row[first:] for row in block))
                asked.append((block, new, known))
                yield new

        for read in self._blocks(unknown()):
            block, new, known = asked.popleft()
            known.update(zip(new, read, strict=True))
            for row in block:
                found = self._found(row[0], known, self._firsts, self._partners)
                self._firsts.add(row[0], found)
                # A partner may have been remembered since the block was asked for.
                others = [self._found(one, self._partners, known, self._firsts) for one in row[1:]]
                for one, other in zip(row[1:], others, strict=True):
                    self._partners.add(one, other)
                expected.difference_update(row[first:])
                yield (found, *others)

    def _blocks(
        self, blocks: Iterator[list[Molecule]]
    ) -> Iterator[list[MoleculeRecord | SmilesError]]:
        """Read blocks of molecules, in this process or by workers."""
        some = list(islice(blocks, self._num_workers))  # no more processes than blocks
        return parallel_map(self._block, chain(some, blocks), len(some))

    def _found(self, molecule: Molecule, *places: _Read) -> MoleculeRecord | SmilesError:
        for place in places:
            if molecule in place:
                return place[molecule]
        return self._block([molecule])[0]  # read in an earlier block, and no longer remembered


class _Memory(_Read):
    """The latest molecules that were read, the latest last.

    Args:
        most: How many; None = all.
    """

    def __init__(self, most: int | None) -> None:
        super().__init__()
        self._most = most

    def among(self, molecules: Iterable[Molecule]) -> _Read:
        """Return those of some molecules that are remembered."""
        return {one: self[one] for one in molecules if one in self}

    def add(self, molecule: Molecule, read: MoleculeRecord | SmilesError) -> None:
        """Remember a molecule."""
        if self._most == 0:
            return
        self.pop(molecule, None)
        self[molecule] = read
        if self._most is not None and len(self) > self._most:
            del self[next(iter(self))]


@dataclass
class _BlockReader:
    """Reads a block of molecules, in any process."""

    featurizer: Featurizer
    fields: "_Fields"
    fingerprints: bool
    limits: MoleculeLimits
    standardize: bool
    radius: int | None

    def __post_init__(self) -> None:
        self._same_featurizer = self.featurizer
        self._lacking = replace(self.fields, canonical=False)
        self._of_fast = replace(self.fields, calculators={}, counter=None)  # of these in blocks
        self._descriptors = self.fields.targets is not None or not all(
            one.is_fast for one in self.fields.calculators.values()
        )

    def __call__(self, texts: Sequence[Molecule]) -> list[MoleculeRecord | SmilesError]:
        with quiet:  # once for all
            read = [self._read(text) for text in texts]
        known = [found for found in read if isinstance(found, tuple)]
        mols = [mol for mol, _ in known]
        pieces = [cut(mol) for mol in mols]
        records = iter(self.featurizer.of_pieces(mols, pieces, self.radius))
        self._add_numbers(known, pieces)
        if self.fingerprints:
            counter = self.fields.counter
            for mol, fields in known:
                fields["fingerprint"] = (
                    morgan_fingerprint(mol)
                    if counter is None
                    else counter.fingerprint(fields["counts"], mol)
                )
        done: list[MoleculeRecord | SmilesError] = []
        for found in read:
            if not isinstance(found, tuple):
                done.append(found)
                continue
            record, fields = next(records), found[1]
            done.append(replace(record, **fields) if fields else record)
        return done

    def _add_numbers(
        self, known: Sequence[tuple[Chem.Mol, dict[str, Any]]], pieces: Sequence[Pieces | None]
    ) -> None:
        """Add numbers and counts to the molecules that were not read with a limit of time."""
        calculators, counter = self.fields.calculators, self.fields.counter
        names = {*calculators} | ({"counts"} if counter else set())
        new = [place for place, (_, fields) in enumerate(known) if not names <= fields.keys()]
        mols = [known[place][0] for place in new]
        numbers = calculate(mols, calculators.values())
        columns: dict[str, Any] = {  # copies, which do not keep the numbers of the whole block
            name: [row.copy() for row in rows]
            for name, rows in zip(calculators, numbers, strict=True)
        }
        if counter is not None:
            columns["counts"] = counter.many(mols, [pieces[place] for place in new])
        for name, values in columns.items():
            for place, value in zip(new, values, strict=True):
                known[place][1][name] = value

    def _read(
        self, text: Molecule
    ) -> tuple[Chem.Mol, dict[str, Any]] | MoleculeRecord | SmilesError:
        try:
            if isinstance(text, PreparedSmiles) and self._is_known(text):
                return self._completed(text)
            needs_no_limit = is_fast(text, descriptors=self._descriptors)
            return read_molecule(
                text,
                self.limits,
                self._of_fast if needs_no_limit else self.fields,
                standardize=self.standardize,
                descriptors=self._descriptors,
            )
        except SmilesError as error:
            return error

    def _is_known(self, text: PreparedSmiles) -> bool:
        """Return whether reading the text would give its record."""
        limits = self.limits
        if self.standardize or self.radius is not None or text.record.num_atoms > limits.max_atoms:
            return False
        if text.featurizer is not self._same_featurizer:  # which is quicker than to compare
            if text.featurizer != self.featurizer:
                return False
            self._same_featurizer = text.featurizer
        return len(text) <= limits.max_length

    def _completed(self, text: PreparedSmiles) -> MoleculeRecord:
        fields: dict[str, Any] = {}
        if self._lacking:
            _, fields = read_molecule(
                text, self.limits, self._lacking, descriptors=self._descriptors
            )
        if not self.fingerprints:
            fields["fingerprint"] = None
        if not self.fields.canonical:
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
            numbers = calculate([mol], self.calculators.values())
            found = {name: one[0] for name, one in zip(self.calculators, numbers, strict=True)}
        if self.counter is not None:
            found["counts"] = self.counter(mol)
        if self.canonical:
            found["smiles"] = Chem.MolToSmiles(mol)
        if self.scaffolds:
            found["scaffold"] = scaffold_smiles(mol)
        if self.symbols:
            found["symbols"] = tuple(atom.GetSymbol() for atom in mol.GetAtoms())
            found["atom_numbers"] = atom_numbers(mol)
        if self.standardized:
            found["standardized"] = standardized_smiles(mol)
        if self.targets is not None:
            found["targets"] = self.targets(mol)
        return found
