"""Predictions of atoms and bonds: their order, symmetry, intervals and files."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from rdkit import Chem
from torch import nn
from torch_geometric.data import Data

from molattn.config import NetworkConfig
from molattn.errors import InputError
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.sites import SiteCalibration, SiteScores
from molattn.nn import EdgeAttentionConv, Encoder
from molattn.nn.site_head import SiteHead, bond_vectors
from molattn.task import Task
from molattn.testing import assert_permutation_equivariant

SMILES = "CC(=O)Oc1ccccc1N"


def make_model(**options):
    torch.manual_seed(0)
    network = NetworkConfig(width=8, heads=2, layers=2, edge_width=4, **options)
    tasks = {"atom_tasks": ("shift",), "bond_tasks": (Task("broken", "binary", ("0", "1")),)}
    return MolAttn(MolAttnConfig(tasks=("logS",), network=network, **tasks)).eval()


class Sites(nn.Module):
    """The heads on an encoder of a PyG graph; each edge is a bond."""

    def __init__(self):
        super().__init__()
        make = lambda: EdgeAttentionConv(8, 8, 2, edge_dim=4, update_edges=True)  # noqa: E731
        self.encoder = Encoder(make, 2, 8)
        self.atoms = SiteHead(8, 8, 1, 0.0)
        self.bonds = SiteHead(20, 8, 1, 0.0)

    def forward(self, x, edge_index, edge_attr):
        nodes, edges = self.encoder(x, edge_index, edge_attr, return_edges=True)
        ends = nodes[edge_index[0]], nodes[edge_index[1]]
        return self.atoms(nodes), self.bonds(bond_vectors(*ends, edges, edges))


def test_heads_are_permutation_equivariant():
    torch.manual_seed(0)
    edge_index = torch.tensor([[0, 1, 1, 2, 2, 3, 0], [1, 0, 2, 1, 3, 2, 3]])
    data = Data(x=torch.randn(4, 8), edge_index=edge_index, edge_attr=torch.randn(7, 4))
    assert_permutation_equivariant(Sites().eval(), data)


@pytest.mark.parametrize("options", [{}, {"update_edges": True}, {"radius": 3}])
def test_predictions_follow_the_atoms_and_bonds_of_another_order(options):
    model = make_model(**options)
    mol = Chem.MolFromSmiles(SMILES)
    order = np.random.default_rng(0).permutation(mol.GetNumAtoms()).tolist()
    other = Chem.RenumberAtoms(mol, order)
    atoms, others = (model.predict_atoms([x]).outputs for x in (mol, other))
    np.testing.assert_allclose(others, atoms[order], atol=1e-5)
    bonds, others = (model.predict_bonds([x]).outputs for x in (mol, other))
    same = [
        mol.GetBondBetweenAtoms(order[b.GetBeginAtomIdx()], order[b.GetEndAtomIdx()]).GetIdx()
        for b in other.GetBonds()
    ]
    np.testing.assert_allclose(others, bonds[same], atol=1e-5)
    assert np.ptp(bonds) > 1e-3


def test_molecules_are_predicted_alike_alone_and_together():
    model = make_model(update_edges=True)
    both = model.predict_bonds([SMILES, "CCO"])
    np.testing.assert_allclose(
        both.outputs[both.starts[1] :], model.predict_bonds(["CCO"]).outputs, atol=1e-6
    )
    assert both.starts.tolist() == [0, 11, 13]


def test_explicit_hydrogens_without_a_node_have_no_prediction():
    prediction = make_model().predict_atoms(["[H]OC"])
    assert np.isnan(prediction.outputs[:, 0]).tolist() == [True, False, False]


def test_updated_edges_of_the_last_block_change_bonds_alone():
    model = make_model(update_edges=True)
    atoms, bonds = model.predict_atoms([SMILES]).outputs, model.predict_bonds([SMILES]).outputs
    last = model.networks.members[0].encoder.blocks[-1].conv
    with torch.no_grad():
        last.lin_edge_out.weight.add_(0.5)
    np.testing.assert_array_equal(model.predict_atoms([SMILES]).outputs, atoms)
    assert np.abs(model.predict_bonds([SMILES]).outputs - bonds).max() > 1e-4


def half_width(scores, level):
    return float(scores.half_widths(scores.expected_errors(np.array([6]), np.array([0])), level)[0])


def test_intervals_cover_the_fraction_of_each_molecule():
    errors = np.array([0.1, 0.2, 0.3, 0.4, 5.0, 6.0, 7.0, 8.0])
    molecule = np.array([0, 1, 2, 3, 4, 4, 4, 4])  # four of one atom, one of four
    scores = SiteScores.fit(errors, molecule, np.full(8, 6), np.zeros(8, int))
    # 6/5 of the level must be reached: 4 of 5 molecules at 0.4, then a quarter of the fifth each.
    assert half_width(scores, 0.6) == pytest.approx(0.4)
    assert half_width(scores, 0.7) == pytest.approx(5.0)
    assert half_width(scores, 0.9) == np.inf


def test_without_labels_nothing_is_expected():
    scores = SiteScores.fit(np.zeros(0), *np.zeros((3, 0), int))
    assert np.isnan(scores.expected_errors(np.array([6, 8]), np.array([0, 4]))).all()
    assert half_width(scores, 0.5) == np.inf


def test_many_errors_are_kept_at_even_fractions():
    errors = np.random.default_rng(0).exponential(size=5000)
    scores = SiteScores.fit(errors, np.arange(5000), np.full(5000, 6), np.zeros(5000, int))
    assert len(scores.scores) == 1000
    expected = np.sort(errors)[int(np.ceil(5001 * 0.9)) - 1]
    assert expected - 1e-9 <= half_width(scores, 0.9) <= np.quantile(errors, 0.902)


def test_intervals_of_new_molecules_are_covered_as_promised():
    rng = np.random.default_rng(1)
    counts = rng.integers(1, 20, 2000)
    molecule = np.repeat(np.arange(2000), counts)
    kinds = rng.choice([1, 6], len(molecule))
    errors = np.abs(rng.normal(size=len(molecule))) * rng.gamma(2.0, size=2000)[molecule] * kinds
    is_new = molecule >= 1000
    radii = rng.integers(0, 4, len(molecule))
    errors *= 5 - radii
    columns = (errors, molecule, kinds, radii)
    scores = SiteScores.fit(*(column[~is_new] for column in columns))
    half_widths = scores.half_widths(scores.expected_errors(kinds, radii), 0.9)
    within = np.bincount(molecule[is_new], (errors <= half_widths)[is_new])[1000:] / counts[1000:]
    assert abs(within.mean() - 0.9) < 0.03
    assert scores.difficulties[6] / scores.difficulties[1] == pytest.approx(6.0, rel=0.1)
    hardest, *_, easiest, missing = scores.by_radius
    assert hardest / easiest == pytest.approx(2.5, rel=0.1)
    assert missing == pytest.approx(easiest)  # no label is of the largest radius


def test_perfect_predictions_have_intervals_of_no_width():
    scores = SiteScores.fit(np.zeros(20), np.arange(20), np.full(20, 6), np.zeros(20, int))
    assert half_width(scores, 0.9) == 0.0
    assert half_width(scores, 0.99) == np.inf


def test_charges_sum_to_the_charge_of_the_molecule():
    torch.manual_seed(0)
    config = MolAttnConfig(tasks=(), atom_tasks=("shift", "q"), charge_tasks=("q",))
    free = MolAttn(replace(config, charge_tasks=())).eval()
    model = MolAttn(config).eval()
    model.load_state_dict(free.state_dict())
    for member in (free, model):
        member.networks.members[0].site_head("atom").scale.fill_(3.0)
    smiles = ["[H]C[N+](C)(C)C", "CC(=O)[O-]", "CCO"]
    values, others = (x.predict_atoms(smiles) for x in (model, free))
    sums = np.add.reduceat(np.nan_to_num(values.outputs), values.starts[:-1])
    np.testing.assert_allclose(sums[:, 1], [1, -1, 0], atol=1e-5)
    differences = values.outputs - others.outputs
    np.testing.assert_allclose(differences[-3:, 1], differences[-1, 1], atol=1e-5)
    np.testing.assert_allclose(differences[-3:, 0], 0.0, atol=1e-6)


def test_saved_model_predicts_the_same(tmp_path):
    model = make_model()
    model.site_calibration = SiteCalibration(
        {"shift": SiteScores(9, (1.0, 2.0), (0.5, 1.0), 1.0, {8: 2.0})}
    )
    model.save_pretrained(tmp_path / "model")
    loaded = MolAttn.from_pretrained(tmp_path / "model")
    ours, theirs = (x.predict_atoms([SMILES], level=0.4) for x in (model, loaded))
    np.testing.assert_array_equal(ours.outputs, theirs.outputs)
    is_oxygen = [atom.GetSymbol() == "O" for atom in Chem.MolFromSmiles(SMILES).GetAtoms()]
    np.testing.assert_allclose(theirs.expected_error[:, 0], np.where(is_oxygen, 2.0, 1.0))
    np.testing.assert_allclose(theirs.high - theirs.low, 2.0 * theirs.expected_error, rtol=1e-5)


def test_model_of_atoms_alone_is_not_explained():
    model = MolAttn(MolAttnConfig(tasks=(), atom_tasks=("shift",)))
    assert model.predict(["CCO"]).shape == (1, 0)
    with pytest.raises(InputError, match="predicts atoms and bonds alone"):
        model.check_predicts_molecules()
    with pytest.raises(InputError, match="expected at least one"):
        MolAttnConfig(tasks=())


@pytest.mark.parametrize("option", [{"partner_column": "solvent"}, {"standardize": True}])
def test_atoms_of_two_molecules_or_of_another_form_are_refused(option):
    with pytest.raises(InputError) as error:
        MolAttnConfig((), atom_tasks=("shift",), **option)
    assert error.value.option == "atom_tasks"
