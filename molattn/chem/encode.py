"""From RDKit's atoms and bonds to codes: a plain reading, and a fast one that learns from it."""

import math

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem

from molattn.chem.binary import Pieces, cut
from molattn.chem.distance import clipped_distances
from molattn.chem.vocabulary import Column, Value
from molattn.record import MoleculeRecord

__all__ = ["Encoder"]

_BOND_NAMES = {
    "SINGLE": "single",
    "DOUBLE": "double",
    "TRIPLE": "triple",
    "AROMATIC": "aromatic",
    "DATIVE": "dative",
}
_STEREO_NAMES = {
    "STEREONONE": "none",
    "STEREOANY": "any",
    "STEREOZ": "Z",
    "STEREOCIS": "Z",
    "STEREOE": "E",
    "STEREOTRANS": "E",
}
# No SMILES needs so many kinds of atom; an endless stream of odd isotopes must not fill the memory.
_MAX_LEARNED = 50_000
_PROBES = (
    "C[C@H](O)c1ccc2[nH]ccc2c1.[Na+]",
    "F/C=C/C(=O)[O-]",
    "[13CH3][CH]C#N",
    "N->[Cu+2]<-N",
    "C1CC12CC2.[2H]O",
    "C",
)


def _chirality(atom: Chem.Atom) -> str:
    if atom.GetChiralTag() == Chem.ChiralType.CHI_UNSPECIFIED:
        return "none"
    return atom.GetProp("_CIPCode") if atom.HasProp("_CIPCode") else "unlabelled"


def _atom_values(atom: Chem.Atom, ring_size: int) -> dict[str, Value]:
    return {
        "element": atom.GetAtomicNum(),
        "degree": atom.GetDegree(),
        "hydrogens": atom.GetTotalNumHs(),
        "charge": atom.GetFormalCharge(),
        "hybridization": atom.GetHybridization().name,
        "aromatic": atom.GetIsAromatic(),
        "ring_size": ring_size,
        "chirality": _chirality(atom),
        "radicals": atom.GetNumRadicalElectrons(),
        "isotope": atom.GetIsotope() != 0,
    }


def _bond_values(bond: Chem.Bond) -> dict[str, Value]:
    return {
        "bond": _BOND_NAMES.get(bond.GetBondType().name, "other"),
        "conjugated": bond.GetIsConjugated(),
        "ring": bond.IsInRing(),
        "stereo": _STEREO_NAMES.get(bond.GetStereo().name, "other"),
    }


def _indices(text: bytes) -> NDArray[np.intp]:
    return np.frombuffer(text, dtype=np.uint8).astype(np.intp)


class Encoder:
    """Writes the codes of molecules; holds what it has learned about pieces of the binary form.

    Args:
        atom_columns: Features of an atom.
        bond_columns: Features of a bond, ``ring`` among them.
        max_distance: Longest distance with a code of its own.
    """

    def __init__(
        self,
        atom_columns: tuple[Column, ...],
        bond_columns: tuple[Column, ...],
        max_distance: int,
    ) -> None:
        self._atom_columns = atom_columns
        self._max_distance = max_distance
        self._codes = {c.name: c.codes() for c in (*atom_columns, *bond_columns)}
        self._place = {column.name: place for place, column in enumerate(atom_columns)}
        sizes = [column.size for column in bond_columns]
        self._strides = {
            column.name: math.prod(sizes[place + 1 :]) for place, column in enumerate(bond_columns)
        }
        # The kind "none" has no rows among the bonded codes, which follow the unbonded ones.
        self._first_bonded = max_distance + 2 - self._strides[bond_columns[0].name]
        turn = self._code("ring", True) - self._code("ring", False)
        self._ring_step = np.uint8(turn * self._strides["ring"] % 256)
        self._degree_codes = self._table("degree")
        self._ring_codes = self._table("ring_size")
        self._atoms: dict[bytes, bytes] = {}
        self._bonds: dict[bytes, int] = {}
        self._learns = self._reads_as_plain()

    def __call__(self, mol: Chem.Mol) -> MoleculeRecord:
        """Return the codes of a sanitised molecule."""
        pieces = cut(mol) if self._learns else None
        return self.plain(mol) if pieces is None else self._assemble(mol, pieces)

    def plain(self, mol: Chem.Mol) -> MoleculeRecord:
        """Return the codes by asking RDKit for each property of each atom and bond."""
        rings = mol.GetRingInfo()
        rows = [
            self._atom_row(
                atom,
                rings.MinAtomRingSize(atom.GetIdx()) if rings.NumAtomRings(atom.GetIdx()) else 0,
            )
            for atom in mol.GetAtoms()
        ]
        atoms = np.frombuffer(bytearray().join(rows), dtype=np.uint8)
        ends: list[int] = []
        codes: list[int] = []
        for bond in mol.GetBonds():
            ends += (bond.GetBeginAtomIdx(), bond.GetEndAtomIdx())
            codes.append(self._bond_code(_bond_values(bond)))
        pairs = self._pairs(mol, np.array(ends, dtype=np.intp), codes, rings.NumRings())
        return MoleculeRecord(atoms.reshape(-1, len(self._atom_columns)), pairs)

    def _assemble(self, mol: Chem.Mol, pieces: Pieces) -> MoleculeRecord:
        num_atoms = len(pieces.atoms)
        try:
            rows = [self._atoms[piece] for piece in pieces.atoms]
        except KeyError:
            rows = self._learn_atoms(mol, pieces.atoms)
        try:
            codes = [self._bonds[piece] for piece in pieces.bonds]
        except KeyError:
            codes = self._learn_bonds(mol, pieces.bonds)
        flat = np.frombuffer(bytearray().join(rows), dtype=np.uint8)
        atoms = flat.reshape(num_atoms, len(self._atom_columns))
        ends = _indices(pieces.ends)
        place = self._place
        if "degree" in place:
            degree = np.bincount(ends, minlength=num_atoms)
            atoms[:, place["degree"]] = self._degree_codes[degree]
        if pieces.rings and "ring_size" in place:
            sizes = bytearray(num_atoms)
            for ring in sorted(pieces.rings, key=len, reverse=True):
                for atom in ring:
                    sizes[atom] = len(ring)
            atoms[:, place["ring_size"]] = self._ring_codes[np.frombuffer(sizes, dtype=np.uint8)]
        if "chirality" in place:
            chirality = place["chirality"]
            labels = flat[chirality :: len(self._atom_columns)].tobytes()
            none = self._code("chirality", "none")
            if labels.count(none) != num_atoms:
                for index, label in enumerate(labels):
                    if label != none:
                        value = _chirality(mol.GetAtomWithIdx(index))
                        atoms[index, chirality] = self._code("chirality", value)
        pairs = self._pairs(mol, ends, codes, len(pieces.rings))
        if pieces.rings:
            here = _indices(b"".join(pieces.rings))
            there = _indices(b"".join([ring[1:] + ring[:1] for ring in pieces.rings]))
            inside = np.concatenate((here * num_atoms + there, there * num_atoms + here))
            cells = pairs.reshape(-1)
            cells[inside] = cells[inside] + self._ring_step  # Once, also for a bond of two rings.
        return MoleculeRecord(atoms, pairs)

    def _pairs(
        self, mol: Chem.Mol, ends: NDArray[np.intp], codes: list[int], num_rings: int
    ) -> NDArray[np.uint8]:
        num_atoms = mol.GetNumAtoms()
        begin, end = ends[::2], ends[1::2]
        place = np.concatenate((begin * num_atoms + end, end * num_atoms + begin))
        pairs = clipped_distances(num_atoms, place, self._max_distance)
        # As many rings as a connected graph needs (or more): only then can there be fragments.
        if num_atoms - len(codes) + num_rings > 1:
            self._mark_fragments(mol, pairs)
        pairs.reshape(-1)[place] = codes + codes
        return pairs

    def _mark_fragments(self, mol: Chem.Mol, pairs: NDArray[np.uint8]) -> None:
        fragments = Chem.GetMolFrags(mol)
        if len(fragments) > 1:
            labels = np.empty(mol.GetNumAtoms(), dtype=np.intp)
            for label, fragment in enumerate(fragments):
                labels[list(fragment)] = label
            pairs[labels[:, None] != labels] = self._max_distance + 1

    def _learn_atoms(self, mol: Chem.Mol, pieces: list[bytes]) -> list[bytes]:
        if len(self._atoms) > _MAX_LEARNED:
            self._atoms = {}
        for index, piece in enumerate(pieces):
            if piece not in self._atoms:
                self._atoms[piece] = self._atom_row(mol.GetAtomWithIdx(index), 0)
        return [self._atoms[piece] for piece in pieces]

    def _learn_bonds(self, mol: Chem.Mol, pieces: list[bytes]) -> list[int]:
        for index, piece in enumerate(pieces):
            if piece not in self._bonds:
                values = {**_bond_values(mol.GetBondWithIdx(index)), "ring": False}
                self._bonds[piece] = self._bond_code(values)
        return [self._bonds[piece] for piece in pieces]

    def _code(self, name: str, value: Value) -> int:
        codes = self._codes[name]
        return codes.get(value, len(codes))

    def _atom_row(self, atom: Chem.Atom, ring_size: int) -> bytes:
        values = _atom_values(atom, ring_size)
        return bytes([self._code(name, values[name]) for name in self._place])

    def _bond_code(self, values: dict[str, Value]) -> int:
        return self._first_bonded + sum(
            self._code(name, values[name]) * stride for name, stride in self._strides.items()
        )

    def _table(self, name: str) -> NDArray[np.uint8]:
        if name not in self._place:
            return np.zeros(0, dtype=np.uint8)
        return np.array([self._code(name, value) for value in range(256)], dtype=np.uint8)

    def _reads_as_plain(self) -> bool:
        """Whether the fast reading agrees with the plain one, in the RDKit that is installed."""
        for smiles in _PROBES:
            mol = Chem.MolFromSmiles(smiles)
            pieces = cut(mol)
            if pieces is None:
                return False
            fast, plain = self._assemble(mol, pieces), self.plain(mol)
            if not (
                np.array_equal(fast.atoms, plain.atoms) and np.array_equal(fast.pairs, plain.pairs)
            ):
                return False
        return True
