"""How far heads look, as the mean over molecules, in numbers and as a picture."""

import base64
import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from rdkit import Chem

from molattn.explain import attention_by_distance, explain

from .conftest import GOOD, SMALL, make

SMILES = ["CCCCCCO", "CC(=O)[O-].[Na+]", "C", "c1ccccc1"]
SLOPES = replace(SMALL, layer_options=("attn_bias=slopes",), graphs=("pairs",))


def mean_shares(explanations):
    """The same by loops over receivers and senders."""
    shares = []
    for found in explanations:
        layers, heads = found.attention.shape[:2]
        share = np.zeros((layers, heads, 5))
        far = Chem.GetDistanceMatrix(Chem.MolFromSmiles(found.smiles))
        for i in range(found.num_atoms):
            for j in range(found.num_atoms):
                share[..., min(int(far[i, j]), 4)] += found.attention[..., i, j] / found.num_atoms
        shares.append(share)
    return np.mean(shares, axis=0)


@pytest.mark.parametrize("members", [1, 2])
def test_shares_are_means_over_receivers_and_molecules(members):
    model = make(network=SLOPES, members=members)
    explanations = explain(model, SMILES, "attention")
    found = attention_by_distance(model, explanations)
    np.testing.assert_allclose(found.shares, mean_shares(explanations), rtol=1e-5)
    np.testing.assert_allclose(found.shares.sum(axis=-1), 1)
    equal = [np.ones((1, 1, one.num_atoms, one.num_atoms)) / one.num_atoms for one in explanations]
    equal = [replace(one, attention=x) for one, x in zip(explanations, equal, strict=True)]
    np.testing.assert_allclose(found.uniform, np.tile(mean_shares(equal)[0, 0], (2, 1)))
    assert found.head_names == explanations[0].head_names
    np.testing.assert_array_equal(found.slopes, np.tile([4.0, 0.0], (2, members)))
    near = found.shares[..., :2].sum(axis=-1)
    assert (near[:, ::2] > near[:, 1::2]).all()


def test_blocks_of_bonds_have_no_slopes(tmp_path):
    model = make(network=replace(SLOPES, graphs=("bonds", "pairs")))
    looks = attention_by_distance(model, explain(model, SMILES, "attention"))
    np.testing.assert_array_equal(looks.slopes, [[np.nan, np.nan], [4.0, 0.0]])
    assert looks.to_dict()["slopes"] == [None, [4.0, 0.0]]
    np.testing.assert_allclose(looks.shares[0], [[0, 1, 0, 0, 0]] * 2)
    looks.save(tmp_path / "a.png")


def test_molecules_without_edges_do_not_count():
    model = make(network=replace(SMALL, self_loops=False, layer_options=()))
    methane, ethanol = (explain(model, [text], "attention") for text in ("C", "CCO"))
    expected = attention_by_distance(model, ethanol)
    both = attention_by_distance(model, methane + ethanol)
    np.testing.assert_allclose(both.shares, expected.shares)
    np.testing.assert_allclose(both.uniform, [[0, 1, 0, 0, 0], [0, 2 / 3, 1 / 3, 0, 0]])
    assert both.slopes is None
    assert not attention_by_distance(model, methane).shares.any()
    assert attention_by_distance(model, []) is None


def test_an_encoder_without_attention_has_no_picture(small_model):
    found = explain(small_model, "CCO", "attention")
    found = replace(found, attention=np.zeros((0, 0, 3, 3)), head_names=())
    assert attention_by_distance(small_model, [found]) is None


def test_the_picture_is_1000_pixels_wide(tmp_path):
    model = make(network=SLOPES)
    attention_by_distance(model, explain(model, SMILES, "attention")).save(tmp_path / "a.png")
    picture = Image.open(tmp_path / "a.png")
    assert picture.width == 1000
    colors = {color for _, color in picture.convert("RGB").getcolors(1 << 20)}
    bars = [(11, 37, 69), (28, 107, 160), (86, 163, 211), (169, 211, 236), (223, 229, 234)]
    assert colors >= {*bars}


def test_the_folder_and_its_page_have_the_picture_and_the_numbers(explained, small_model):
    expected = attention_by_distance(small_model, explain(small_model, [*GOOD.values()]))
    found = json.loads((explained / "explanations.json").read_text())["attention_by_distance"]
    np.testing.assert_allclose(found["shares"], expected.shares, rtol=1e-5)
    assert found["slopes"] == expected.to_dict()["slopes"]
    np.testing.assert_allclose(found["uniform"], expected.uniform)
    assert found["bonds"][:2] == ["0", "1"]
    picture = base64.b64encode((explained / "attention_by_distance.png").read_bytes()).decode()
    assert f"data:image/png;base64,{picture}" in (explained / "index.html").read_text()
