"""Environments of atoms and bonds, and expected errors by them."""

import numpy as np
import pytest
from rdkit import Chem

from molattn.config import NetworkConfig
from molattn.model.environments import site_environments
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.sites import SiteCalibration, SiteScores

NETWORK = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)


def make_model():
    config = MolAttnConfig((), NETWORK, atom_tasks=("shift",), bond_tasks=("bde",))
    return MolAttn(config).eval()


def environments(model, smiles, level):
    return site_environments(model.networks.reader(None).all([smiles]), level)


@pytest.mark.parametrize("level, distinct", [("atom", [8, 10, 11, 12]), ("bond", [9, 11, 12, 12])])
def test_environments_do_not_depend_on_the_order_of_atoms(level, distinct):
    model = make_model()
    smiles = "CCOc1ccccc1C(=O)N"
    expected = environments(model, smiles, level)
    assert [len(np.unique(column)) for column in expected.T] == distinct
    mol = Chem.MolFromSmiles(smiles)
    order = np.random.default_rng(0).permutation(mol.GetNumAtoms()).tolist()
    renumbered = Chem.MolToSmiles(Chem.RenumberAtoms(mol, order), canonical=False)
    assert renumbered != smiles
    hashes = environments(model, renumbered, level)
    np.testing.assert_array_equal(np.sort(hashes, axis=0), np.sort(expected, axis=0))


def test_expected_errors_grow_toward_what_is_not_in_the_training(tmp_path):
    model = make_model()
    scores = SiteScores(9, (1.0, 2.0), (0.5, 1.0), by_radius=(5.0, 4.0, 3.0, 2.0, 1.0), mean=1.0)
    learned = {
        "shift": np.unique(environments(model, "CCCCCCO", "atom")),
        "bde": np.unique(environments(model, "CCCCCCO", "bond")),
    }
    model.site_calibration = SiteCalibration(dict.fromkeys(learned, scores), {}, learned)
    model.save_pretrained(tmp_path / "model")
    for saved in (model, MolAttn.from_pretrained(tmp_path / "model")):
        atoms, bonds = (
            predict(["CCCCCCN"]).expected_error[:, 0].tolist()
            for predict in (saved.predict_atoms, saved.predict_bonds)
        )
        assert atoms == [1, 1, 1, 2, 3, 4, 5]
        assert bonds == [1, 1, 2, 3, 4, 5]
