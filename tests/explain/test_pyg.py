"""PyG's own explainers on a model, against what they should find."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch
from torch_geometric.explain import CaptumExplainer, Explainer

from molattn.explain.pyg import GraphModel, one_hot_data
from molattn.model.model import MolAttn

from .conftest import SMALL, make, with_process

SMILES = "CC(=O)NCCO"


@pytest.fixture(scope="module")
def graph_model():
    # A mean of atoms, which messages change by more than a readout that learns.
    return GraphModel(make(network=replace(SMALL, readout="mean", graphs=("pairs",)))).eval()


def explained(graph_model, algorithm, **masks):
    explainer = Explainer(
        graph_model,
        algorithm,
        explanation_type="model",
        model_config={"mode": "regression", "task_level": "graph", "return_type": "raw"},
        **masks,
    )
    data = one_hot_data(graph_model.model, SMILES)
    return data, explainer(data.x, data.edge_index, edge_attr=data.edge_attr)


def test_one_hot_graphs_predict_what_the_smiles_does(graph_model):
    data = [one_hot_data(graph_model.model, text) for text in (SMILES, "O")]
    batch = Batch.from_data_list(data)
    with torch.no_grad():
        found = graph_model(batch.x, batch.edge_index, batch.edge_attr, batch=batch.batch)
    expected = graph_model.model.predict([SMILES, "O"])[:, :1]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


def test_integrated_gradients_of_messages_add_up_to_what_messages_do(graph_model):
    algorithm = CaptumExplainer("IntegratedGradients", n_steps=64)
    data, found = explained(graph_model, algorithm, edge_mask_type="object")
    silent = copy.deepcopy(graph_model)
    for block in silent.model.nets[0].encoder.blocks:
        block.conv.head_combine.lin.weight.data.zero_()  # of no message nothing remains
    with torch.no_grad():
        whole, none = (
            model(data.x, data.edge_index, data.edge_attr).item() for model in (graph_model, silent)
        )
    assert abs(whole - none) > 0.02
    assert found.edge_mask.sum().item() == pytest.approx(whole - none, rel=0.02)


def test_a_model_with_a_radius_is_refused():
    with pytest.raises(ValueError, match="radius 2"):
        one_hot_data(make(network=replace(SMALL, radius=2)), "CCCCO")


def test_the_networks_alone_are_explained():
    """As trained by default, with a Gaussian process, descriptors and Morgan counts."""
    options = {"descriptors": ("MolWt", "TPSA"), "morgan_counts": 8, "standardize": True}
    model = make(tasks=("y",), kernels=("morgan", "descriptors"), **options)
    model.set_feature_scaling([60.0] * 2 + [1.0] * 8, [30.0] * 2 + [0.5] * 8)
    with_process(model, 0.5)
    salt, graph_model = f"{SMILES}.Cl", GraphModel(model)
    data = one_hot_data(model, salt)
    given = {"edge_attr": data.edge_attr, "numbers": data.get("numbers")}
    algorithm = CaptumExplainer("IntegratedGradients", n_steps=4)
    config = {"mode": "regression", "task_level": "graph"}
    options = {"explanation_type": "model", "node_mask_type": "attributes", "model_config": config}
    found = Explainer(graph_model, algorithm, **options)(data.x, data.edge_index, **given)
    assert found.node_mask.shape == data.x.shape
    combined = model.predict([salt])[0, 0]
    model.gaussian_process = None
    alone = model.predict([salt])[0, 0]
    assert found.prediction.item() == pytest.approx(alone, rel=1e-5)
    assert abs(alone - combined) > 1e-3


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("unify_drawings", [False, True])
def test_a_graph_is_of_the_drawing_that_the_model_reads(unify_drawings, standardize):
    options = {"unify_drawings": unify_drawings, "standardize": standardize}
    model = make(descriptors=("MolWt",), **options)
    drawn = "C[S+](C)[O-]"
    data = one_hot_data(model, drawn)
    with torch.no_grad():
        found = GraphModel(model, "logS")(data.x, data.edge_index, data.edge_attr, data.numbers)
    assert found.item() == pytest.approx(model.predict([drawn])[0, 0], rel=1e-5)


def test_packaged_models_are_explained():
    data = one_hot_data(model := MolAttn.from_pretrained("admet"), SMILES)
    with torch.no_grad():
        found = GraphModel(model, "herg")(data.x, data.edge_index, data.edge_attr)
    assert found.isfinite().all()
