"""Many molecules to records, in blocks that share NumPy's calls."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from hashlib import sha256
from inspect import getsource
from itertools import chain, compress, islice
from typing import Any, NamedTuple

from rdkit import Chem

from molattn.chem import drawings, parents
from molattn.chem.descriptors import DescriptorCalculator, calculate
from molattn.chem.drawings import is_redrawn
from molattn.chem.fast import Pieces, cut
from molattn.chem.featurizer import Featurizer
from molattn.chem.fingerprints import SubstructureCounter, morgan_fingerprint
from molattn.chem.groups import scaffold_smiles
from molattn.chem.limits import Standardize, is_fast, read_molecule, standardized_smiles
from molattn.chem.parse import Molecule, atom_numbers, check_list, quiet
from molattn.chem.sites import find_sites, with_hydrogens
from molattn.config import MoleculeLimits
from molattn.errors import SmilesError, quoted
from molattn.record import MoleculeRecord
from molattn.utils.workers import parallel_map

_BLOCK = 64

_NAMES = {
    "numbers": "descriptors",
    "counts": "counts of substructures",
    "baseline_numbers": "descriptors of the random forest",
    "scaffold": "scaffolds",
    "symbols": "symbols of atoms",
}

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

    def __call__(self, mol: Chem.Mol) -> dict[str, Any]:
        """Return the fields of a sanitized molecule."""
        return self.many([mol], [cut(mol)])[0]

    def many(
        self, mols: Sequence[Chem.Mol], pieces: Sequence[Pieces | None]
    ) -> list[dict[str, Any]]:
        """Return the fields of sanitized molecules, with their pieces from :func:`fast.cut`."""
        choices = {"numbers": self.numbers, "baseline_numbers": self.baseline_numbers}
        calculators = {
            name: calculator
            for name, calculator in choices.items()
            if calculator is not None and len(calculator)
        }
        columns: dict[str, Iterable[Any]] = {  # copies, which do not keep the whole block
            name: [row.copy() for row in rows]
            for name, rows in zip(calculators, calculate(mols, calculators.values()), strict=True)
        }
        if self.counts is not None:
            columns["counts"] = self.counts.many(mols, pieces)
        if self.fingerprint and self.counts is not None:
            columns["fingerprint"] = map(self.counts.fingerprint, columns["counts"], mols)
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


class Preparation(NamedTuple):
    """How prepared molecules were read: their featurizer, and the fields of their records.

    ``changed`` names the rules, ``parents`` or ``drawings``, that have changed since.
    """

    featurizer: Featurizer
    fields: Fields
    changed: Sequence[str] = ()


@cache
def rules() -> dict[str, str]:
    """Return the SHA-256 of the code that decides on ``parents`` and ``drawings``."""
    return {
        module.__name__.rpartition(".")[2]: sha256(getsource(module).encode()).hexdigest()
        for module in (parents, drawings)
    }


@dataclass(frozen=True, eq=False, slots=True)
class PreparedMolecule:
    """Record of a SMILES that was read before, so that it is not read again.

    Args:
        smiles: The SMILES.
        record: The molecule as it is drawn.
        parent: Its parent, or the error if it has none; None = the molecule itself.
        origin: How both were read; the same object for all molecules of a store.
    """

    smiles: str
    record: MoleculeRecord
    parent: MoleculeRecord | SmilesError | None
    origin: Preparation


Source = Molecule | PreparedMolecule


@dataclass(eq=False, repr=False)
class MoleculeReader:
    """Reads rows of one molecule or of two.

    A molecule is a SMILES or an RDKit molecule, which is not changed (see
    :func:`molattn.chem.parse.prepare_mol`), or a :class:`PreparedMolecule`.
    Rows of equal texts share a record.

    Example:
        >>> read = MoleculeReader(Featurizer.default())(["CCO", "ethanol"])
        >>> [type(result).__name__ for result in read]
        ['MoleculeRecord', 'SmilesError']

    Args:
        featurizer: The atom and pair features to record.
        fields: What else to record.
        limits: Limits of each molecule.
        standardize: Whether to take the standard form or the parent of each molecule, see
            :func:`molattn.chem.limits.read_molecule`, and to add ``standardized``.
        unify: Whether to read usual drawings of a molecule as one, see
            :func:`molattn.chem.drawings.redrawn`.
        radius: Record only the pairs of atoms at most this many bonds apart; None = all pairs.
        written: Whether to add ``written``, the molecule as written where its parent is another.
            It is read uncharged, see :func:`molattn.chem.parents.uncharged`, as drawings of a salt
            differ.
        sites: Whether to find the atoms and bonds of the input in the graph.
        hydrogens: Whether all hydrogens are atoms of the graph; other fields do without them.
        cache_size: How many records to keep for equal texts in later rows.
        num_workers: Processes that read the molecules, some blocks ahead, with the same result; 0
            reads them in this one.
    """

    featurizer: Featurizer
    fields: Fields = Fields()
    limits: MoleculeLimits = field(default_factory=MoleculeLimits)
    standardize: Standardize = False
    unify: bool = True
    radius: int | None = None
    written: bool = False
    sites: bool = False
    hydrogens: bool = False
    cache_size: int = 256
    num_workers: int = 0
    _cache: dict[Source, _Read] = field(default_factory=dict, init=False)  # the latest last
    _compared: tuple[Preparation | None, bool] = field(default=(None, False), init=False)

    def __call__(
        self, smiles: Iterable[Source], partners: Iterable[Molecule] | None = None
    ) -> Iterator[MoleculeRecord | SmilesError]:
        """Yield for each row, in order, its molecule or the error.

        Raises:
            TypeError: A single molecule where several are expected.
        """
        check_list("smiles", smiles)
        if partners is None:
            return (record for (record,) in self._rows((molecule,) for molecule in smiles))
        check_list("partners", partners)
        return (_joined(*row) for row in self._rows(zip(smiles, partners, strict=True)))

    def all(
        self, smiles: Sequence[Molecule], partners: Sequence[Molecule] | None = None
    ) -> list[MoleculeRecord]:
        """Return the molecules of all rows; a SmilesError names the position of its molecule."""
        records = []
        for position, record in enumerate(self(smiles, partners)):
            if isinstance(record, SmilesError):
                raise record.at(position) from record
            records.append(record)
        return records

    def _rows(self, rows: Iterable[tuple[Source, ...]]) -> Iterator[tuple[_Read, ...]]:
        """Yield the record, or the error, of each molecule of each row."""
        cache = self._cache
        pending: deque[tuple[list[tuple[Source, ...]], dict[Source, _Read], list[Source]]]
        pending = deque()
        rows = iter(rows)

        def new_molecules() -> Iterator[list[Source]]:
            while block := list(islice(rows, _BLOCK)):
                molecules = dict.fromkeys(chain.from_iterable(block))
                cached = {molecule: cache[molecule] for molecule in molecules if molecule in cache}
                pending.append(
                    (block, cached, [molecule for molecule in molecules if molecule not in cached])
                )
                yield pending[-1][2]

        blocks = new_molecules()
        first = list(islice(blocks, self.num_workers))  # no more processes than blocks
        # A copy has no cache, which processes do not need.
        read_block = partial(MoleculeReader._read_block, replace(self))
        for read in parallel_map(read_block, chain(first, blocks), len(first)):
            block, records, new = pending.popleft()
            records.update(zip(new, read, strict=True))
            for text in records:
                if isinstance(text, str):  # an RDKit molecule may be changed
                    records[text] = cache[text] = cache.pop(text, records[text])
            for text in list(islice(cache, max(0, len(cache) - self.cache_size))):
                del cache[text]
            yield from (tuple(map(records.__getitem__, row)) for row in block)

    def _read_block(self, molecules: Sequence[Source]) -> list[_Read]:
        with quiet:  # once for all
            read = [self._read(molecule) for molecule in molecules]
        parsed = [reading for reading in read if isinstance(reading, tuple)]
        mols = [mol for mol, _ in parsed]
        pieces = [cut(mol) for mol in mols]
        graphs = mols
        if self.hydrogens:
            graphs = [with_hydrogens(mol) for mol in mols]
        graph_pieces = [cut(graph) for graph in graphs] if self.hydrogens else pieces
        records = zip(graphs, self.featurizer.many(graphs, self.radius, graph_pieces), strict=True)
        later = [n for n, (_, fields) in enumerate(parsed) if fields is None]
        later_fields = iter(self.fields.many([mols[n] for n in later], [pieces[n] for n in later]))
        results: list[_Read] = []
        for molecule, reading in zip(molecules, read, strict=True):
            if isinstance(reading, tuple):
                mol, fields = reading
                graph, record = next(records)
                fields = next(later_fields) if fields is None else fields
                if self.standardize:
                    fields["standardized"] = standardized_smiles(mol)
                if is_redrawn(mol):
                    fields["is_redrawn"] = True
                if self.sites:
                    is_prepared = isinstance(molecule, PreparedMolecule)
                    drawn = molecule.smiles if is_prepared else molecule
                    fields["sites"] = sites = find_sites(drawn, mol, graph)
                    if self.hydrogens and self.fields.symbols:
                        added = graph.GetNumAtoms() - mol.GetNumAtoms()
                        fields["symbols"] += ("H",) * added
                        order = sites.atoms.argsort()  # those without a node first
                        fields["atom_numbers"] = tuple(order[-graph.GetNumAtoms() :].tolist())
                reading = replace(record, **fields)
            results.append(reading)
        return self._with_written(molecules, results) if self.written else results

    def _with_written(self, molecules: Sequence[Source], parents: list[_Read]) -> list[_Read]:
        """Add to each parent its molecule as written, where that is another one."""
        # Each worker would start others.
        reader = replace(self, standardize="uncharged", written=False, num_workers=0)
        rows = [n for n, parent in enumerate(parents) if getattr(parent, "standardized", "")]
        for n, form in zip(rows, reader(molecules[n] for n in rows), strict=True):
            parent = parents[n]
            if isinstance(form, SmilesError):  # too_slow: a little longer than its parent
                parents[n] = form
            elif isinstance(parent, MoleculeRecord) and form.standardized != parent.standardized:
                parents[n] = replace(parent, written=form)
        return parents

    def _read(self, molecule: Source) -> tuple[Chem.Mol, dict[str, Any] | None] | _Read:
        """Read a molecule; also its fields, if reading needs a limit of time."""
        if isinstance(molecule, PreparedMolecule):
            if self._is_read(molecule):
                itself = replace(molecule.record, standardized="" if self.standardize else None)
                record = (self.standardize and molecule.parent) or itself
                unused = (name for name, value in vars(self.fields).items() if not value)
                is_error = isinstance(record, SmilesError)
                return record if is_error else replace(record, **dict.fromkeys(unused))
            molecule = molecule.smiles
        try:
            calculate = _none if is_fast(molecule) else self.fields
            options: Any = {"standardize": self.standardize, "unify": self.unify}
            return read_molecule(molecule, self.limits, calculate, **options)
        except SmilesError as error:
            return error

    def missing(self, origin: Preparation) -> list[str]:
        """Name the fields that prepared molecules lack, so that their SMILES are read again."""
        names = [
            _NAMES.get(name, name)
            for name, value in vars(self.fields).items()
            if value and value != getattr(origin.fields, name)
        ]
        others = {
            "features": origin.featurizer != self.featurizer,
            "molecules as they are drawn": not self.unify,
            "standard forms": self.standardize not in (False, "parent"),
            "parents by today's rules": self.standardize == "parent"
            and "parents" in origin.changed,
            "drawings by today's rules": self.unify and "drawings" in origin.changed,
            "pairs within a radius": self.radius is not None,
            "atoms and bonds in order": self.sites,
        }
        return [*names, *compress(others, others.values())]

    def _is_read(self, molecule: PreparedMolecule) -> bool:
        """Return whether its record has all that is requested, or more."""
        if molecule.origin is not self._compared[0]:  # once for each store
            self._compared = (molecule.origin, not self.missing(molecule.origin))
        return (
            self._compared[1]
            and len(molecule.smiles) <= self.limits.max_length
            and molecule.record.num_atoms <= self.limits.max_atoms
        )


def _none(mol: Chem.Mol) -> None:
    """Leave the fields to the block."""


def _joined(record: _Read, partner: _Read) -> _Read:
    if isinstance(record, SmilesError):
        return record
    if isinstance(partner, SmilesError):
        reason = f"its partner, {quoted(partner.smiles)}: {partner.reason}"
        return SmilesError(partner.smiles, f"partner_{partner.code}", reason)
    redrawn = record.is_redrawn or partner.is_redrawn
    return replace(record, partner=partner, is_redrawn=redrawn)
