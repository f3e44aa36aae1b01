"""Attention within a radius, on lists of edges."""

import csv
from dataclasses import replace

import numpy as np
import pytest
import torch

from molattn import MolAttn
from molattn.chem import Featurizer, parse_smiles
from molattn.cli import main
from molattn.config import NetworkConfig, PretrainConfig, PretrainNetworkConfig
from molattn.errors import InputError
from molattn.explain import explain
from molattn.graph import EdgeLists
from molattn.model.batching import MOST_PAIRS, batches
from molattn.model.model import MolAttnConfig
from molattn.nn import LAYERS

NET = NetworkConfig(width=16, heads=2, layers=2)
SMILES = ["CCO", "c1ccccc1C(=O)NC", "C" * 30, "F/C=C/C(=O)[O-]", "C"]


def pair_of_models(radius, **options):
    """Models of all pairs and within a radius, with the same weights."""
    net = replace(NET, **options)
    whole = MolAttn(MolAttnConfig("y", net)).eval()
    near = MolAttn(MolAttnConfig("y", replace(net, radius=radius))).eval()
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


def test_a_radius_of_one_is_attention_over_bonds():
    bonds = MolAttn(MolAttnConfig("y", replace(NET, pairs="bonds"))).eval()
    near = MolAttn(MolAttnConfig("y", replace(NET, radius=1))).eval()
    near.load_state_dict(bonds.state_dict())
    np.testing.assert_allclose(near.predict(SMILES), bonds.predict(SMILES), atol=1e-5)


@pytest.mark.parametrize("partner", ["concat", "cross_attention"])
def test_second_molecules_are_read_within_the_radius_too(partner):
    config = MolAttnConfig("y", replace(NET, partner=partner), partner_column="solvent")
    whole = MolAttn(config).eval()
    near = MolAttn(replace(config, network=replace(config.network, radius=29))).eval()
    near.load_state_dict(whole.state_dict())
    partners = ["O", "CCCCCC", "O", "c1ccccc1", "O"]
    expected = whole.predict(SMILES, partners=partners)
    np.testing.assert_allclose(near.predict(SMILES, partners=partners), expected, atol=1e-5)


@pytest.mark.parametrize("radius", [2, 12])
def test_codes_are_those_of_all_pairs(radius):
    featurizer = Featurizer(max_distance=4)
    for smiles in ["CC(C)CO", "C1CC1C=CCCCCCCCCCCC", "C", "[Na+].[Cl-]", "Cc1ccccc1"]:
        mol = parse_smiles(smiles)
        (near,), whole = featurizer.many([mol], radius), featurizer(mol)
        sender, receiver = near.edge_index
        np.testing.assert_array_equal(near.atoms, whole.atoms)
        np.testing.assert_array_equal(near.pairs, whole.pairs[sender, receiver])
        assert np.array_equal(np.lexsort((sender, receiver)), np.arange(len(near.pairs)))


def test_the_edges_of_a_long_chain_take_memory_in_proportion_to_its_length():
    model = pair_of_models(4)[1]
    record = model.featurize("C" * 2000)
    assert record.edge_index.shape == (2, 9 * 2000 - 20)
    assert isinstance(model.collate([record, record]).edge_index, EdgeLists)


def test_a_batch_holds_fewer_listed_pairs():
    record = pair_of_models(4)[1].featurize("C" * 2000)
    most = MOST_PAIRS // (8 * len(record.pairs))
    sizes = [len(batch) for batch in batches([record] * 20, 256, lambda record: record)]
    assert sizes[:2] == [most, most]


@pytest.mark.parametrize("method", ["attention", "occlusion", "integrated_gradients"])
def test_explanations_are_those_of_the_model(method):
    whole, near = pair_of_models(7)
    smiles = ["CC(=O)NC1CC1"]  # at most 7 bonds between its atoms
    for model in (whole, near):
        model.eval()
    one, other = (explain(model, smiles, method)[0] for model in (whole, near))
    np.testing.assert_allclose(one.atom_scores, other.atom_scores, atol=1e-4)
    near = pair_of_models(2)[1]
    found = explain(near, smiles, method)[0]
    assert found.prediction == pytest.approx(near.predict(smiles).item(), abs=1e-5)


def test_trained_and_used_from_the_command_line(tmp_path):
    chains = ["C" * n + "O" for n in range(2, 14)] + ["OCC" * 80, "OCC" * 75 + "C"]
    rows = "".join(f"{smiles},{len(smiles) / 10}\n" for smiles in chains)
    (tmp_path / "t.csv").write_text(f"smiles,y\n{rows}")
    table, run = str(tmp_path / "t.csv"), str(tmp_path / "run")
    options = "--radius 3 --epochs 1 --batch-size 4 --no-baselines --bootstrap 0 --device cpu"
    sizes = "--validation-size 0.3 --predictor network"
    words = ["train", table, "--target-columns", "y", *options.split(), *sizes.split()]
    assert main([*words, "--output", run]) == 0
    assert main(["predict", run, table, "--output", str(tmp_path / "p.csv")]) == 0
    with open(tmp_path / "p.csv", newline="") as file:
        found = [float(row["y_predicted"]) for row in csv.DictReader(file)]
    model = MolAttn.from_pretrained(run)
    assert model.config.network.radius == 3
    np.testing.assert_allclose(found, model.predict(chains)[:, 0], rtol=1e-4)


def test_options_that_cannot_be_combined_are_refused():
    with pytest.raises(InputError, match=r"radius:? cannot be used with pairs bonds"):
        NetworkConfig(pairs="bonds", radius=2)
    with pytest.raises(InputError, match="radius: got 0"):
        NetworkConfig(radius=0)
    with pytest.raises(InputError, match=r"radius:? cannot be used in pretraining"):
        PretrainConfig(("t.csv",), network=PretrainNetworkConfig(radius=2))


def test_records_with_and_without_all_pairs_are_not_mixed():
    whole, near = pair_of_models(4)
    with pytest.raises(ValueError, match="edge_index in some molecules, expected in all or none"):
        near.collate([near.featurize("CCO"), whole.featurize("CCO")])


def test_a_step_is_differentiable():
    model = pair_of_models(3)[1].train()
    model(model.collate([model.featurize(smiles) for smiles in SMILES])).sum().backward()
    assert all(torch.isfinite(weight.grad).all() for weight in model.parameters())
