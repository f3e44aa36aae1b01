import numpy as np
from rdkit import Chem
from rdkit.Chem import Descriptors

from molattn.chem import Featurizer
from molattn.chem.inchi_keys import KeySet
from molattn.chem.pretraining_reader import PRETRAINING_DESCRIPTORS, PretrainingReader
from molattn.config import MoleculeLimits


def test_a_block_is_read_in_order_and_what_is_left_out_is_counted():
    texts = ["CC(=O)[O-].[Na+]", "ethanol", "c1ccccc1O", "C" * 9, "C1CC", "Oc1ccccc1", "CCO.Cl"]
    excluded = KeySet()
    excluded.add(Chem.MolToInchiKey(Chem.MolFromSmiles("CCO"))[:14])
    reader = PretrainingReader(MoleculeLimits(max_atoms=8), excluded, Featurizer.default())
    read = reader(texts)
    assert (read.num_texts, read.left_out, read.duplicates) == (7, 1, 1)
    assert read.refused == {"name": 1, "too_large": 1, "ring_closure": 1}
    mols = [Chem.MolFromSmiles(texts[place]) for place in (0, 2)]
    assert read.keys == [Chem.MolToInchiKey(mol)[:14] for mol in mols]
    assert [record.num_atoms for record in read.records] == [5, 7]
    column = PRETRAINING_DESCRIPTORS.index("MolLogP")
    expected = [Descriptors.MolLogP(mol) for mol in mols]
    np.testing.assert_allclose(read.descriptors[:, column], expected, rtol=1e-6)
    assert [one.counts.sum() > 0 for one in read.counts] == [True, True]
    again = reader(["CCC", texts[2]])
    assert (len(again.keys), again.duplicates) == (1, 1)


def test_a_block_may_hold_no_molecule():
    read = PretrainingReader(MoleculeLimits(), KeySet(), Featurizer.default())(["nonsense"])
    assert (read.num_texts, read.keys, read.records, read.counts) == (1, [], [], [])
    assert read.descriptors.shape == (0, len(PRETRAINING_DESCRIPTORS))
