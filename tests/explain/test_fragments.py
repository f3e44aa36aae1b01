import pytest
from rdkit import Chem

from molattn.explain.fragments import find_fragments


@pytest.mark.parametrize(
    "smiles, names",
    [
        ("CC(=O)Oc1ccccc1C(=O)O", "methyl, ester, benzene, carboxylic acid"),
        ("O=C(NCCN1CCOCC1)c1ccc(Cl)cc1", "amide, *CC*, morpholine, benzene, chloro"),
        ("FC(F)(F)c1ccccc1", "trifluoromethyl, phenyl"),
        ("Cn1ccnc1", "methyl, imidazole"),
        ("CN(C)C(=O)CC", "methyl, amide (N), methyl, ethyl"),
        ("F/C=C/CCCCC", "fluoro, *C=CCCCCC"),
        ("[Na+].[O-]C(=O)c1ccccc1", "[Na+], *C(=O)[O-], phenyl"),
    ],
)
def test_fragments_have_the_names_of_chemists_or_their_smiles(smiles, names):
    mol = Chem.MolFromSmiles(smiles)
    found = find_fragments(mol)
    assert sorted(one.name for one in found) == sorted(names.split(", "))
    atoms = [atom for one in found for atom in one.atoms]
    assert sorted(atoms) == list(range(mol.GetNumAtoms()))
