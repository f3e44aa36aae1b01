"""Codes against a plain reading of RDKit, atom by atom and bond by bond."""

import json
import pickle
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rdkit import Chem

from molattn.chem import Featurizer, parse_smiles
from molattn.chem.atom_features import Column
from molattn.data.table import bundled_dataset
from molattn.errors import InputError
from molattn.record import MoleculeRecord

from ..conftest import rows_of

FEATURIZER = Featurizer.default()
BUNDLED = [row["smiles"] for row in rows_of(bundled_dataset())]

ODD = [
    "C",
    "[Na+]",
    "[H][H]",
    "*",
    "[999*]C",
    "[Na+].[Cl-]",
    "C.C1CC1.c1ccccc1",
    "N->[Cu+2]<-N",
    "O=[Os](=O)(=O)=O",
    "[235U]",
    "[Au-15]",
    "[O-99]",
    "[13CH3][CH]C#N",
    "[N]=O",
    "[2H]OC",
    "FS(F)(F)(F)(F)F",
    "C[C@H](F)Cl",
    "C[C@H]1CC[C@@H](C)CC1",
    "C[Co@OH12](F)(Cl)(Br)(I)S",
    "F/C=C/F",
    "F/C=C\\F",
    "C/C=C/C=C\\C(=O)N",
    "C1CCCCCCCCCCC1",
    "C12C3C4C1C5C2C3C45",
    "c1ccc2c(c1)[nH]c1ccccc12",
    "CC |^2:0|",
    "C" * 40,
    "C" * 300,
    "C1" + "C" * 260 + "1",
]


def plain_atom(atom: Chem.Atom, mol: Chem.Mol) -> dict[str, object]:
    rings = [len(ring) for ring in mol.GetRingInfo().AtomRings() if atom.GetIdx() in ring]
    chirality: object = "none"
    if str(atom.GetChiralTag()).startswith("CHI_TETRAHEDRAL_"):
        chirality = atom.GetPropsAsDict(True, True).get("_CIPCode", "?")
    elif str(atom.GetChiralTag()) != "CHI_UNSPECIFIED":
        chirality = "?"
    return {
        "element": atom.GetAtomicNum(),
        "degree": len(atom.GetNeighbors()),
        "hydrogens": atom.GetNumExplicitHs() + atom.GetNumImplicitHs(),
        "charge": atom.GetFormalCharge(),
        "hybridization": str(atom.GetHybridization()),
        "aromatic": atom.GetIsAromatic(),
        "ring_size": min(rings, default=0),
        "chirality": chirality,
        "radicals": atom.GetNumRadicalElectrons(),
        "isotope": atom.GetIsotope() > 0,
    }


def plain_bond(bond: Chem.Bond | None) -> tuple[object, ...]:
    if bond is None:
        return ("none", False, False, "none")
    stereo = {"STEREONONE": "none", "STEREOANY": "any", "STEREOZ": "Z", "STEREOE": "E"}
    kind = str(bond.GetBondType()).lower()
    return (kind, bond.GetIsConjugated(), bond.IsInRing(), stereo.get(str(bond.GetStereo()), "?"))


def expected(mol: Chem.Mol, featurizer: Featurizer) -> tuple[np.ndarray, np.ndarray]:
    """Atom codes ``[n, A]`` and pair component codes ``[n, n, 5]``, the slow way."""

    def code(column: Column, value: object) -> int:
        listed = list(column.values)
        return listed.index(value) if value in listed else len(listed)  # type: ignore[arg-type]

    atoms = [
        [code(column, values[column.name]) for column in featurizer.atom_columns]
        for values in (plain_atom(atom, mol) for atom in mol.GetAtoms())
    ]
    n, top = mol.GetNumAtoms(), featurizer.max_distance
    pairs = np.zeros((n, n, 5), dtype=int)
    far = Chem.GetDistanceMatrix(mol, force=True)
    pairs[:, :, 4] = np.where(far > n, top + 1, np.minimum(far, top))
    for bond in mol.GetBonds():
        row = [
            code(column, value)
            for column, value in zip(featurizer.bond_columns, plain_bond(bond), strict=True)
        ]
        i, j = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        pairs[i, j, :4] = pairs[j, i, :4] = row
    return np.array(atoms), pairs


def assert_plain(record: MoleculeRecord, mol: Chem.Mol, featurizer=FEATURIZER) -> None:
    atoms, pairs = expected(mol, featurizer)
    assert record.atoms.dtype == record.pairs.dtype == np.uint8
    np.testing.assert_array_equal(record.atoms, atoms, err_msg=Chem.MolToSmiles(mol))
    got = featurizer.pair_table[record.pairs]
    np.testing.assert_array_equal(got, pairs, err_msg=Chem.MolToSmiles(mol))


def test_bundled_molecules_equal_plain_reading() -> None:
    assert len(BUNDLED) > 1000
    mols = [parse_smiles(text) for text in BUNDLED]
    for mol, record in zip(mols, FEATURIZER.many(mols), strict=True):
        assert_plain(record, mol)


def test_pair_table_lists_each_combination_once() -> None:
    table = FEATURIZER.pair_table
    assert table.shape == (FEATURIZER.num_pair_codes, 5)
    assert len(table) <= 256
    assert len(np.unique(table, axis=0)) == len(table)
    assert (table < FEATURIZER.pair_sizes).all()
    assert table[0].tolist() == [0, 0, 0, 0, 0]  # an atom with itself
    with pytest.raises(ValueError, match="read-only"):
        table[0] = 1


@given(st.sampled_from(ODD[:-3] + BUNDLED[:300]), st.randoms(use_true_random=False))
def test_renumbering_permutes_the_record(text: str, rng: random.Random) -> None:
    mol = parse_smiles(text)
    order = list(range(mol.GetNumAtoms()))
    rng.shuffle(order)
    record = FEATURIZER(mol)
    permuted = FEATURIZER(Chem.RenumberAtoms(mol, order))
    np.testing.assert_array_equal(permuted.atoms, record.atoms[order])
    np.testing.assert_array_equal(permuted.pairs, record.pairs[order][:, order])


def test_round_trip_through_json_and_pickle() -> None:
    changed = replace(FEATURIZER, max_distance=5, atom_columns=FEATURIZER.atom_columns[::-2])
    for featurizer in (FEATURIZER, changed):
        again = Featurizer(**json.loads(json.dumps(featurizer.to_dict())))
        assert again == featurizer
        assert pickle.loads(pickle.dumps(featurizer)) == featurizer
        assert json.dumps(again.to_dict()) == json.dumps(featurizer.to_dict())
    assert changed.atom_names == ("isotope", "chirality", "aromatic", "charge", "degree")
    for mol in map(parse_smiles, [*ODD, *BUNDLED[:50]]):
        assert_plain(changed(mol), mol, changed)


ELEMENT = {"name": "element", "values": [6], "is_open": True}
BONDS = FEATURIZER.to_dict()["bond_columns"]


@pytest.mark.parametrize(
    "changes",
    [
        {"extra": 1},
        {"version": 2},
        {"max_distance": 0},
        {"max_distance": 200},
        {"atom_columns": []},
        {"atom_columns": [{"name": "element"}]},
        *({"atom_columns": [{**ELEMENT, "values": some}]} for some in ([], [1, 1], [1, "a"])),
        {"atom_columns": [{**ELEMENT, "name": "mass"}]},
        {"atom_columns": [ELEMENT, ELEMENT]},
        {"bond_columns": BONDS[:2]},
        {"bond_columns": BONDS[::-1]},
        {"bond_columns": [{**BONDS[0], "values": BONDS[0]["values"][::-1]}, *BONDS[1:]]},
    ],
)
def test_broken_data_is_refused(changes) -> None:
    with pytest.raises(InputError):
        Featurizer(**{**FEATURIZER.to_dict(), **changes})


def test_square_planar_atoms_do_not_depend_on_the_order_in_which_they_are_written():
    featurizer = Featurizer.default()
    written = ("Cl[Pt@SP1](F)(Br)I", Chem.CanonSmiles("Cl[Pt@SP1](F)(Br)I"))
    assert written[0] != written[1]
    rows = [sorted(map(bytes, featurizer(parse_smiles(one)).atoms)) for one in written]
    assert rows[0] == rows[1]
