"""Networks of which some parts are modules of the user's own."""

import copy
import json

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch_geometric.nn import MeanAggregation, SumAggregation

import molattn
from molattn import MolAttn, MolAttnConfig, from_smiles
from molattn.config import NetworkConfig
from molattn.data.table import bundled_dataset
from molattn.errors import InputError

SMALL = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
CONFIG = MolAttnConfig("y", SMALL)
SMILES = ["CCO", "c1ccccc1", "C", "CC(=O)[O-].[Na+]"]
OPTIONS = {"width": 8, "edge_width": 4, "epochs": 1, "batch_size": 8, "baselines": False}


class Sums(nn.Module):
    """An encoder: each atom adds what a matrix makes of its neighbors and their edges."""

    out_channels = 6

    def __init__(self, width=8, edge_width=4):
        super().__init__()
        self.atoms, self.edges = nn.Linear(width, 6), nn.Linear(edge_width, 6)

    def forward(self, x, edge_index, edge_attr):
        sender, receiver = edge_index
        x = self.atoms(x)
        return x.index_add(0, receiver, torch.tanh(x[sender] + self.edges(edge_attr)))


class First(nn.Module):
    """A readout: the first atom of each molecule, twice."""

    out_channels = 12

    def forward(self, x, index, num_graphs):
        first = torch.searchsorted(index, torch.arange(num_graphs))
        return torch.cat([x[first], x[first]], dim=-1)


class Head(nn.Module):
    """A head that may read extra features."""

    def __init__(self, width, features=0):
        super().__init__()
        self.linear = nn.Linear(width + features, 1)

    def forward(self, molecules, features=None):
        parts = [molecules] if features is None else [molecules, features.to(molecules)]
        return self.linear(torch.cat(parts, dim=-1))


def composed(config=CONFIG):
    molecules = 2 if config.has_partner else 1
    head = Head(12 * molecules, config.num_numbers)
    return MolAttn(config, encoder=Sums(), readout=First(), head=head)


def test_a_network_of_own_parts_computes_what_they_do():
    model = composed().eval()
    (net,) = model.nets
    graph = from_smiles("CCO", self_loops=True)
    with torch.no_grad():
        x = net.atom_embedding(graph.x)
        edges = net.pair_embedding(graph.edge_attr)
        atoms = net.encoder(x, graph.edge_index, edges)
        expected = net.head(torch.cat([atoms[0], atoms[0]])[None])
    assert model.predict(["CCO"]).item() == pytest.approx(expected.item(), abs=1e-6)
    assert model.config.custom_parts == (
        ("encoder", "Sums"),
        ("readout", "First"),
        ("head", "Head"),
    )
    assert model.networks.embedding_width() == 12
    assert model.networks.embedding_width(atoms=True) == 6
    assert model.embed(SMILES, atoms=True).shape[1] == 6


def test_an_encoder_of_complete_graphs_reads_them_as_blocks():
    torch.manual_seed(0)
    usual = MolAttn(CONFIG).eval()
    encoder = copy.deepcopy(usual.nets[0].encoder)
    plain = MolAttn(CONFIG, encoder=encoder).eval()
    plain.load_state_dict(usual.state_dict())
    encoder.complete_graphs = True
    blocks = MolAttn(CONFIG, encoder=encoder).eval()
    blocks.load_state_dict(usual.state_dict())
    np.testing.assert_array_equal(blocks.predict(SMILES), usual.predict(SMILES))
    np.testing.assert_allclose(plain.predict(SMILES), usual.predict(SMILES), atol=1e-6)


def test_a_saved_model_needs_its_parts_again(tmp_path):
    model = composed().eval()
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["custom_parts"] == {"encoder": "Sums", "readout": "First", "head": "Head"}
    parts = {"encoder": Sums(), "readout": First(), "head": Head(12)}
    again = MolAttn.from_pretrained(tmp_path, **parts)
    assert again.config == model.config
    np.testing.assert_array_equal(again.predict(SMILES), model.predict(SMILES))
    MolAttn(CONFIG).save_pretrained(tmp_path / "plain")
    for folder, given, named in (
        (tmp_path, {}, r"config\.json: custom parts: got none"),
        (tmp_path, {"encoder": Sums(), "readout": First()}, "'head': 'Head'"),
        (tmp_path, {**parts, "readout": MeanAggregation()}, "'readout': 'MeanAggregation'"),
        (tmp_path, {**parts, "head": Head(13)}, r"model\.safetensors.*head"),
        (tmp_path / "plain", {"readout": SumAggregation()}, "without any"),
    ):
        with pytest.raises(InputError, match=named):
            MolAttn.from_pretrained(folder, **given)


def test_a_run_trains_saves_and_predicts_by_them(tmp_path):
    made, table = [], pd.read_csv(bundled_dataset()).head(40)

    def make_model(config):
        made.append(composed(config))
        return made[-1]

    trained = molattn.train(table, "logS", make_model=make_model, ensemble=2, **OPTIONS)
    assert len(made) == trained.model.config.members == 2
    assert trained.run.config.fine_tuning.init_from == "none"
    assert dict(trained.model.config.custom_parts)["encoder"] == "Sums"
    trained.save(tmp_path / "run")
    numbers = trained.model.config.num_numbers
    parts = {"encoder": Sums(), "readout": First(), "head": Head(12, numbers)}
    model = MolAttn.from_pretrained(tmp_path / "run", **parts)
    np.testing.assert_array_equal(model.predict(SMILES), trained.model.predict(SMILES))


def test_parts_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match="readout: Linear has no attribute out_channels"):
        MolAttn(CONFIG, readout=nn.Linear(8, 8))
    wide = MolAttn(CONFIG, encoder=Sums(), readout=MeanAggregation(), head=nn.Linear(6, 2))
    with pytest.raises(ValueError, match=r"head: got outputs \[1, 2\], expected \[1, 1\]"):
        wide.predict(["C"])
    narrow = Sums()
    narrow.out_channels = 8
    with pytest.raises(ValueError, match=r"encoder: got atoms \[1, 6\], expected \[1, 8\]"):
        MolAttn(CONFIG, encoder=narrow).predict(["C"])
    with pytest.raises(InputError, match="freeze: got 1, expected 0 to 0"):
        composed().freeze(1)
    composed().freeze("encoder")
