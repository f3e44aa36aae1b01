import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem import Descriptors, rdMolDescriptors

from molattn.chem.pretraining_targets import PRETRAINING_DESCRIPTORS, pretraining_target


@pytest.mark.parametrize("text", ["CC(=O)[O-].[Na+]", "c1ccccc1O", "C", "[Na+]"])
def test_targets_are_those_of_rdkit(text):
    mol = Chem.MolFromSmiles(text)
    target = pretraining_target(mol)
    assert target.keys[0] == Chem.MolToInchiKey(mol)[:14]
    assert len(target.keys) == (2 if "." in text else 1)
    assert len(target.descriptors) == len(PRETRAINING_DESCRIPTORS)
    place = PRETRAINING_DESCRIPTORS.index("MolLogP")
    assert target.descriptors[place] == pytest.approx(Descriptors.MolLogP(mol), rel=1e-6)
    assert not np.isinf(target.descriptors).any()
    morgan = target.counts.counts[target.counts.places < 4096]
    found = rdMolDescriptors.GetMorganFingerprint(mol, 3).GetNonzeroElements()
    assert morgan.sum() == sum(found.values())
