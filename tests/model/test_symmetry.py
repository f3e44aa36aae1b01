"""MolAttn knows no order of atoms and no other molecule of its batch."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch

import molattn
from molattn.config import NetworkConfig
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.nn import LAYERS
from molattn.nn.readout import READOUTS
from molattn.record import MoleculeRecord
from molattn.testing import assert_graphs_independent, assert_permutation_invariant

SMALL = NetworkConfig(width=8, heads=2, layers=2, edge_width=4, gate=True, update_edges=True)
SMILES = """
    C[C@H](N)C(=O)O c1ccc2[nH]ccc2c1 CC(=O)[O-].[Na+] C/C=C/C#N C O=S(=O)(N)c1ccc(Cl)cc1
""".split()


def make(**options):
    model = MolAttn(MolAttnConfig(("y", "z"), replace(SMALL, **options))).eval()
    model.set_target_scaling([1.0, -2.0], [2.0, 0.5])
    return model


def as_data(smiles, model):
    return molattn.from_smiles(smiles, self_loops=model.config.network.self_loops)


def in_batch(model):
    return Batch.from_data_list([as_data(smiles, model) for smiles in SMILES])


@pytest.mark.parametrize("self_loops", [True, False])
@pytest.mark.parametrize("dtype, worst", [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_the_order_of_nodes_is_of_no_account(dtype, worst, self_loops):
    model = make(self_loops=self_loops).to(dtype)
    assert assert_permutation_invariant(model, as_data(SMILES[0], model), tolerance=worst) <= worst
    assert assert_permutation_invariant(model, in_batch(model), tolerance=worst) <= worst


@pytest.mark.parametrize("readout", READOUTS)
def test_a_readout_knows_no_order_and_one_molecule_at_a_time(readout):
    model = make(readout=readout).double()
    batch = in_batch(model)
    assert_permutation_invariant(model, batch, tolerance=1e-10)
    assert_graphs_independent(model, batch)
    alone = [model.predict([smiles])[0] for smiles in SMILES]
    np.testing.assert_allclose(model.predict(SMILES), alone, rtol=0, atol=1e-10)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("radius", [None, 1])
def test_an_atom_without_a_neighbor_is_learned_from(layer, radius):
    options = {"gate": False, "update_edges": False, "edge_width": 16, "self_loops": False}
    for readout in READOUTS:
        model = make(readout=readout, layer=layer, radius=radius, **options)
        batch = model.collate([model.featurize(smiles) for smiles in ("C", "[Na+]")])
        output = model.train()(batch)
        output.square().sum().backward()
        given = [weight.grad for weight in model.parameters() if weight.grad is not None]
        assert all(bool(tensor.isfinite().all()) for tensor in (output, *given)), readout
        assert any(bool(gradient.any()) for gradient in given)


def test_a_molecule_without_atoms_is_an_error_and_no_molecule_no_row():
    model = make()
    assert model.predict([]).shape == (0, 2)
    record = model.featurize("CC")
    nothing = MoleculeRecord(record.atoms[:0], record.pairs[:0, :0])
    for records in ([record, nothing], [record, replace(record, partner=nothing)]):
        for compute in (model.predictor.predict_outputs, model.networks.embed):
            with pytest.raises(ValueError, match="molecule 1 has no atoms"):
                compute(records)
