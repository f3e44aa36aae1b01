"""Many molecules to records, in blocks that share NumPy's calls."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

from rdkit import Chem

from molattn.chem.descriptors import DescriptorCalculator, calculate
from molattn.chem.fast import Pieces, cut
from molattn.chem.featurizer import Featurizer
from molattn.chem.fingerprints import SubstructureCounter, morgan_fingerprint
from molattn.chem.groups import scaffold_smiles
from molattn.chem.limits import is_fast, read_molecule
from molattn.chem.parse import Molecule, atom_numbers, check_list, quiet
from molattn.chem.prepared import PreparedMolecule
from molattn.chem.standardize import standardized_smiles
from molattn.config import MoleculeLimits
from molattn.errors import SmilesError, quoted
from molattn.record import MoleculeRecord
from molattn.utils.workers import parallel_map

__all__ = ["Fields", "MoleculeReader", "featurize_smiles"]

_BLOCK = 64

_Read = MoleculeRecord | SmilesError


@dataclass(frozen=True)
class Fields:
    """What a :class:`molattn.record.MoleculeRecord` has besides atoms and pairs.

    Args:
        numbers: Calculates descriptors and counts.
        counts: Counts substructures.
        baseline_numbers: Calculates further descriptors; one that ``numbers`` has too is
            calculated once.
        fingerprint: Whether to add the Morgan fingerprint.
        smiles: Whether to add the canonical SMILES.
        scaffold: Whether to add the scaffold.
        symbols: Whether to add ``symbols`` and ``atom_numbers``.
        targets: Calculates targets of pretraining; can be pickled.
    """

    numbers: DescriptorCalculator | None = None
    counts: SubstructureCounter | None = None
    baseline_numbers: DescriptorCalculator | None = None
    fingerprint: bool = False
    smiles: bool = False
    scaffold: bool = False
    symbols: bool = False
    targets: Callable[[Chem.Mol], Any] | None = None

    def __bool__(self) -> bool:
        return any(vars(self).values())

    def __call__(self, mol: Chem.Mol) -> dict[str, Any]:
        """Return the fields of a sanitized molecule."""
        return self.many([mol], [cut(mol)])[0]

    def many(
        self, mols: Sequence[Chem.Mol], pieces: Sequence[Pieces | None]
    ) -> list[dict[str, Any]]:
        """Return the fields of sanitized molecules, faster than one at a time.

        Args:
            mols: The molecules.
            pieces: What :func:`molattn.chem.fast.cut` returns of each.
        """
        calculators = {
            name: one
            for name in ("numbers", "baseline_numbers")
            if (one := getattr(self, name)) is not None and len(one)
        }
        columns: dict[str, Iterable[Any]] = {  # copies, which do not keep the whole block
            name: [row.copy() for row in rows]
            for name, rows in zip(calculators, calculate(mols, calculators.values()), strict=True)
        }
        if self.counts is not None:
            columns["counts"] = counts = self.counts.many(mols, pieces)
            if self.fingerprint:
                columns["fingerprint"] = map(self.counts.fingerprint, counts, mols)
        elif self.fingerprint:
            columns["fingerprint"] = map(morgan_fingerprint, mols)
        if self.smiles:
            columns["smiles"] = map(Chem.MolToSmiles, mols)
        if self.scaffold:
            columns["scaffold"] = map(scaffold_smiles, mols)
        if self.symbols:
            columns["symbols"] = [tuple(a.GetSymbol() for a in mol.GetAtoms()) for mol in mols]
            columns["atom_numbers"] = map(atom_numbers, mols)
        if self.targets is not None:
            columns["targets"] = map(self.targets, mols)
        if not columns:
            return [{} for _ in mols]
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


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
    """Reads rows of one molecule or of two.

    A molecule is a SMILES or an RDKit molecule, which is not changed (see
    :func:`molattn.chem.parse.prepare_mol`). Rows of equal texts share a record. Of a
    :class:`molattn.chem.prepared.PreparedMolecule` with the same featurizer only what its record
    lacks is calculated.

    Args:
        featurizer: The atom and pair features to record.
        fields: What else to record.
        limits: Limits of each molecule; by default those of :class:`MoleculeLimits`.
        standardize: Whether to standardize each molecule first, see
            :func:`molattn.chem.limits.read_molecule`, and to add ``standardized``.
        radius: Record only the pairs of atoms at most this many bonds apart; None = all pairs.
        cache_size: How many records to keep for equal texts in later rows. Threads may share a
            reader that keeps none (0).
        num_workers: Processes that read the molecules, some blocks ahead, with the same result; 0
            reads them in this one.
    """

    def __init__(
        self,
        featurizer: Featurizer,
        fields: Fields = Fields(),
        *,
        limits: MoleculeLimits | None = None,
        standardize: bool = False,
        radius: int | None = None,
        cache_size: int = 256,
        num_workers: int = 0,
    ) -> None:
        self._block = _BlockReader(
            featurizer, fields, limits or MoleculeLimits(), standardize, radius
        )
        self._cache: dict[Molecule, _Read] = {}
        self._cache_size = cache_size
        self._num_workers = num_workers

    def __call__(
        self,
        smiles: Iterable[Molecule | PreparedMolecule],
        partners: Iterable[Molecule] | None = None,
    ) -> Iterator[MoleculeRecord | SmilesError]:
        """Yield for each row, in order, its molecule or the error.

        Args:
            smiles: The molecules.
            partners: Their second molecules; None = there are none.

        Raises:
            TypeError: A single molecule where several are expected.
        """
        check_list("smiles", smiles)
        if partners is None:
            return (record for (record,) in self._rows((one,) for one in smiles))
        check_list("partners", partners)
        return (_joined(*row) for row in self._rows(zip(smiles, partners, strict=True)))

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

    def _rows(self, rows: Iterable[tuple[Molecule, ...]]) -> Iterator[tuple[_Read, ...]]:
        """Yield what each molecule of each row is read as."""
        asked: deque[tuple[list[tuple[Molecule, ...]], dict[Molecule, _Read], list[Molecule]]]
        asked = deque()
        cache = self._cache

        def unread() -> Iterator[list[Molecule]]:
            left = iter(rows)
            while block := list(islice(left, _BLOCK)):
                molecules = dict.fromkeys(chain.from_iterable(block))
                known = {one: cache[one] for one in molecules if one in cache}
                new = [one for one in molecules if one not in known]
                asked.append((block, known, new))
                yield new

        for read in self._read_blocks(unread()):
            block, found, new = asked.popleft()
            found.update(zip(new, read, strict=True))
            if self._cache_size:
                for text in found:
                    if isinstance(text, str):  # what another holds may be changed
                        found[text] = cache[text] = cache.pop(text, found[text])
                for text in list(islice(cache, max(0, len(cache) - self._cache_size))):
                    del cache[text]
            yield from (tuple(map(found.__getitem__, row)) for row in block)

    def _read_blocks(self, blocks: Iterator[list[Molecule]]) -> Iterator[list[_Read]]:
        """Read blocks of molecules, in this process or by workers."""
        some = list(islice(blocks, self._num_workers))  # no more processes than blocks
        return parallel_map(self._block, chain(some, blocks), len(some))


def _joined(record: _Read, partner: _Read) -> _Read:
    if isinstance(record, SmilesError):
        return record
    if isinstance(partner, SmilesError):
        reason = f"its partner, {quoted(partner.smiles)}: {partner.reason}"
        return SmilesError(partner.smiles, f"partner_{partner.code}", reason)
    return replace(record, partner=partner)


@dataclass
class _BlockReader:
    """Reads a block of molecules, in any process."""

    featurizer: Featurizer
    fields: Fields
    limits: MoleculeLimits
    standardize: bool
    radius: int | None

    def __post_init__(self) -> None:
        self._same_featurizer = self.featurizer
        self._lacking = replace(self.fields, smiles=False, fingerprint=False)  # of a prepared one
        self._unwanted = {
            name: None for name in ("smiles", "fingerprint") if not getattr(self.fields, name)
        }
        calculators = self.fields.numbers, self.fields.baseline_numbers
        self._descriptors = self.fields.targets is not None or not all(
            one is None or one.is_fast for one in calculators
        )

    def __call__(self, texts: Sequence[Molecule]) -> list[_Read]:
        with quiet:  # once for all
            read = [self._read(text) for text in texts]
        molecules = [one for one in read if isinstance(one, tuple)]
        mols = [mol for mol, _ in molecules]
        pieces = [cut(mol) for mol in mols]
        records = iter(self.featurizer.of_pieces(mols, pieces, self.radius))
        fast = [place for place, (_, fields) in enumerate(molecules) if fields is None]
        found = iter(self.fields.many([mols[n] for n in fast], [pieces[n] for n in fast]))
        done: list[_Read] = []
        for one in read:
            if isinstance(one, tuple):
                mol, fields = one
                fields = next(found) if fields is None else fields
                if self.standardize:
                    fields["standardized"] = standardized_smiles(mol)
                done.append(replace(next(records), **fields) if fields else next(records))
            else:
                done.append(one)
        return done

    def _read(
        self, text: Molecule | PreparedMolecule
    ) -> tuple[Chem.Mol, dict[str, Any] | None] | _Read:
        """Read a molecule, with the fields of one that needs a limit of time."""
        options = {"standardize": self.standardize, "descriptors": self._descriptors}
        try:
            if isinstance(text, PreparedMolecule):
                prepared, text = text, text.smiles
                if self._is_known(prepared):
                    fields: dict[str, Any] = {**self._unwanted}
                    if self._lacking:
                        fields |= read_molecule(text, self.limits, self._lacking, **options)[1]
                    known = prepared.record
                    return replace(known, **fields) if fields else known
            later = is_fast(text, descriptors=self._descriptors)
            return read_molecule(text, self.limits, _none if later else self.fields, **options)
        except SmilesError as error:
            return error

    def _is_known(self, molecule: PreparedMolecule) -> bool:
        """Return whether reading the SMILES would give its record."""
        limits, record = self.limits, molecule.record
        if self.standardize or self.radius is not None or record.num_atoms > limits.max_atoms:
            return False
        if molecule.featurizer is not self._same_featurizer:  # which is quicker than to compare
            if molecule.featurizer != self.featurizer:
                return False
            self._same_featurizer = molecule.featurizer
        return len(molecule.smiles) <= limits.max_length


def _none(mol: Chem.Mol) -> None:
    """Leave the fields to the block."""
