"""Groups of rows, held to RDKit's own clustering and to plain readings of the definitions."""

import pytest
from rdkit import Chem, DataStructs
from rdkit.Chem import AllChem
from rdkit.ML.Cluster import Butina

from molattn.chem.groups import same_cluster, same_molecule, same_scaffold
from molattn.data.table import bundled_dataset
from molattn.errors import InputError, SmilesError

from ..conftest import rows_of

SMILES = [row["smiles"] for row in rows_of(bundled_dataset())]


def test_a_molecule_is_one_however_it_is_written():
    assert same_molecule(["OCC", "C", "CCO", "[CH4]", "C[13CH3]", "CC"]) == [
        [0, 2],
        [1, 3],
        [4],
        [5],
    ]


def test_a_scaffold_is_rings_and_what_joins_them():
    rows = ["c1ccccc1C", "CCO", "Oc1ccccc1", "C1CC1", "C", "C[C@H]1CCO1", "C[C@@H]1CCO1"]
    assert same_scaffold(rows) == [[0, 2], [1, 4], [3], [5, 6]]


@pytest.mark.parametrize("cutoff", [0.3, 0.65, 0.9])
def test_clusters_are_those_of_rdkit(cutoff):
    some = list(dict.fromkeys(Chem.CanonSmiles(smiles) for smiles in SMILES[::5]))
    prints = [
        AllChem.GetMorganGenerator(radius=2, fpSize=2048).GetFingerprint(Chem.MolFromSmiles(text))
        for text in some
    ]
    distances = [
        1.0 - similarity
        for place in range(1, len(prints))
        for similarity in DataStructs.BulkTanimotoSimilarity(prints[place], prints[:place])
    ]
    expected = Butina.ClusterData(distances, len(prints), cutoff, isDistData=True)
    assert sorted(map(sorted, same_cluster(some, cutoff))) == sorted(map(sorted, expected))


@pytest.mark.parametrize("group", [same_molecule, same_scaffold, same_cluster])
def test_rdkit_molecules_are_read_as_their_smiles(group):
    written = ["OCC", "Cc1ccccc1", "CCO"]
    mols = [Chem.AddHs(Chem.MolFromSmiles("OCC")), Chem.MolFromSmiles("[CH3:1][c:2]1ccccc1")]
    assert group([*mols, "CCO"]) == group(written)


@pytest.mark.parametrize("group", [same_molecule, same_scaffold, same_cluster])
def test_a_single_molecule_is_refused_as_a_list(group):
    for one in ("CCO", Chem.MolFromSmiles("CCO")):
        with pytest.raises(TypeError, match="molecules: got one molecule, expected a list"):
            group(one)
    with pytest.raises(SmilesError):
        group(["CCO", None])


@pytest.mark.parametrize("cutoff", [-1.0, 1.5, float("nan")])
def test_a_cutoff_is_a_distance(cutoff):
    with pytest.raises(InputError, match=r"cutoff: got .*, expected a number from 0 to 1"):
        same_cluster(["CCO", "CC"], cutoff=cutoff)
