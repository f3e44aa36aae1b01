"""Attention within a radius, on lists of edges."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch

from molattn import MolAttn, from_smiles
from molattn.config import NetworkConfig
from molattn.graph import ListedGraphs
from molattn.model.model import MolAttnConfig
from molattn.nn import LAYERS

NET = NetworkConfig(width=16, heads=2, layers=2)
SMILES = ["CCO", "c1ccccc1C(=O)NC", "C" * 30, "F/C=C/C(=O)[O-]", "C"]


def pair_of_models(radius, partner_column=None, **options):
    """Models of all pairs and within a radius, with the same weights."""
    config = MolAttnConfig("y", replace(NET, **options), partner_column=partner_column)
    whole = MolAttn(config).eval()
    near = MolAttn(replace(config, network=replace(config.network, radius=radius))).eval()
    near.load_state_dict(whole.state_dict())
    return whole, near


@pytest.mark.parametrize("self_loops", [True, False])
@pytest.mark.parametrize("layer", LAYERS)
def test_a_radius_beyond_all_distances_is_attention_over_all_pairs(layer, self_loops):
    whole, near = pair_of_models(29, layer=layer, self_loops=self_loops)
    np.testing.assert_allclose(near.predict(SMILES), whole.predict(SMILES), atol=1e-5)
    shorter = pair_of_models(28, layer=layer, self_loops=self_loops)[1]
    shorter.load_state_dict(whole.state_dict())
    assert abs(shorter.predict(SMILES[2:3]) - whole.predict(SMILES[2:3])).item() > 0


def test_second_molecules_are_read_within_the_radius_too():
    whole, near = pair_of_models(29, partner_column="solvent")
    partners = ["O", "CCCCCC", "O", "c1ccccc1", "O"]
    expected = whole.predict(SMILES, partners=partners)
    np.testing.assert_allclose(near.predict(SMILES, partners=partners), expected, atol=1e-5)


@pytest.mark.parametrize("radius", [1, 3])
def test_a_graph_of_pyg_with_all_pairs_is_read_within_the_radius(radius):
    whole, near = pair_of_models(radius)
    batch = Batch.from_data_list([from_smiles(text, self_loops=True) for text in SMILES])
    with torch.no_grad():
        predicted = near(batch)
    np.testing.assert_allclose(predicted, near.predict(SMILES), atol=1e-5)
    assert np.abs(whole.predict(SMILES) - near.predict(SMILES)).max() > 1e-3


def test_the_edges_of_a_long_chain_take_memory_in_proportion_to_its_length():
    model = pair_of_models(4)[1]
    record = model.featurize("C" * 2000)
    assert record.edge_index.shape == (2, 9 * 2000 - 20)
    assert isinstance(model.collate([record, record]).edge_index, ListedGraphs)


def test_records_with_and_without_all_pairs_are_not_mixed():
    whole, near = pair_of_models(4)
    with pytest.raises(ValueError, match="edge_index in some molecules, expected in all or none"):
        near.collate([near.featurize("CCO"), whole.featurize("CCO")])
