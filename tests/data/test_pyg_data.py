import pytest
import torch
from rdkit import Chem

from molattn import MolAttn, MolAttnConfig, from_mol, from_smiles
from molattn.config import NetworkConfig
from molattn.graph import CompleteGraph

ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"


def of_pairs(data):
    pairs = map(tuple, data.edge_index.t().tolist())
    return dict(zip(pairs, data.edge_attr.tolist(), strict=True))


@pytest.mark.parametrize("smiles", [ASPIRIN, "C", "CC(=O)[O-].[Na+]", "C1CC1"])
def test_bonds_have_the_features_of_all_pairs(smiles):
    bonds, every = from_smiles(smiles, pairs="bonds"), from_smiles(smiles)
    assert of_pairs(bonds).items() <= of_pairs(every).items()
    assert torch.equal(bonds.x, every.x)
    loops = from_mol(Chem.MolFromSmiles(smiles), pairs="bonds", self_loops=True, conformer=False)
    assert loops.num_edges == bonds.num_edges + bonds.num_nodes
    assert of_pairs(bonds).items() <= of_pairs(loops).items()


def test_a_network_of_bonds_and_transforms_read_bonds():
    model = MolAttn(MolAttnConfig(("y",), NetworkConfig(8, 2, 1, radius=1))).eval()
    found = model(from_smiles(ASPIRIN, pairs="bonds", self_loops=True))
    assert found.item() == pytest.approx(model.predict([ASPIRIN]).item(), abs=1e-5)
    bonds = from_smiles(ASPIRIN, pairs="bonds")
    assert of_pairs(CompleteGraph()(bonds)) == of_pairs(
        CompleteGraph(bond_column=0)(from_smiles(ASPIRIN))
    )
