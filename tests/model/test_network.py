"""The network's layers and what it reads of pairs: each by one option."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from rdkit import Chem
from torch._dynamo.testing import CompileCounterWithBackend
from torch_geometric.data import Batch
from torch_geometric.utils import to_dense_adj

import molattn
from molattn.chem.reader import Fields
from molattn.config import NetworkConfig
from molattn.graph import RRWP, CompleteGraphs
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.nn import LAYERS, PREDICTION_HEADS, FourierHead, MLPFourierHead, MLPHead
from molattn.nn.registry import unused_options
from molattn.task import Task

SMALL = NetworkConfig(width=8, heads=2, layers=2)
OPTIONS = [
    {"layer": "gaan"},
    {"layer": "mat"},
    {"layer": "graph_network", "gate": True, "update_edges": True},
    {"edge_value": False},
    {"layer": "grit", "walk_length": 4, "update_edges": True},
    {"layer_options": ("attn_bias=slopes",)},
    {"layer_options": ("attn_bias=slopes",), "update_edges": True},
    {"layer": "graph_network", "layer_options": ("attn_bias=slopes",)},
    {"layer": "egt", "layer_options": ("attn_bias=slopes",)},
    {"norm": "batch"},
    {"graphs": ("bonds", "pairs"), "update_edges": True},
    {"graphs": ("bonds", "pairs"), "layer": "grit", "walk_length": 4},
    {"graphs": ("bonds", "pairs"), "walk_length": 4},
    {"graphs": ("bonds", "pairs"), "layers": 4, "layer_options": ("attn_bias=linear",)},
]
# Among them a ring, stereo, two fragments and, without self loops, atoms that have no neighbor.
SMILES = ["C[C@H](N)C(=O)O", "c1ccc2[nH]ccc2c1", "CC(=O)[O-].[Na+]", r"C/C=C/C#N", "C"]


def make(**options):
    torch.manual_seed(0)
    return MolAttn(MolAttnConfig(("y",), replace(SMALL, **options))).eval().double()


@pytest.mark.parametrize(
    "kinds, chosen, expected",
    [
        (["binary"], "auto", FourierHead),
        (["binary", "multiclass"], "auto", FourierHead),
        (["binary", "regression"], "auto", MLPFourierHead),
        (["regression"], "auto", MLPFourierHead),
        (["regression"], "fourier", FourierHead),
        (["binary"], "mlp", MLPHead),
    ],
)
def test_the_head_follows_from_the_targets_unless_it_is_chosen(kinds, chosen, expected):
    classes = {"regression": (), "binary": ("0", "1"), "multiclass": ("a", "b", "c")}
    tasks = tuple(Task(kind, kind, classes[kind]) for kind in kinds)
    config = MolAttnConfig(tasks, replace(SMALL, head=chosen))
    (net,) = MolAttn(config).nets
    assert type(net.head) is expected
    assert config.network.head == next(n for n, h in PREDICTION_HEADS.items() if h is expected)
    assert MolAttnConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize("head", PREDICTION_HEADS)
def test_a_head_predicts_in_double_precision(head):
    net = make(head=head).float().networks.members[0]
    molecules = torch.randn(50, net.molecule_width)
    exact = copy.deepcopy(net).double().decode(molecules.double())
    assert torch.equal(net.decode(molecules), exact.float())


def as_batch(model):
    loops = model.config.network.self_loops
    return Batch.from_data_list([molattn.from_smiles(s, self_loops=loops) for s in SMILES])


def as_rows(model):
    return model.collate([model.featurize(text) for text in SMILES])


@pytest.mark.parametrize("combine", ["linear", "weighted"])
@pytest.mark.parametrize("name", LAYERS)
def test_every_parameter_is_trained(name, combine):
    options = {"update_edges": True, "gate": True, "score": "general", "combine": combine}
    options["graphs"] = ("pairs",)
    unused = unused_options(replace(SMALL, layer=name))
    model = make(layer=name, **{key: on for key, on in options.items() if key not in unused})
    for form in (as_rows, as_batch):
        model.zero_grad()
        model(form(model)).square().sum().backward()
        assert not [name for name, value in model.named_parameters() if value.grad is None]
    if model.config.network.update_edges:
        assert [layer.update_edges for layer in model.nets[0].attention_layers] == [True, False]


@pytest.mark.parametrize("wraps", [False, True])
@pytest.mark.parametrize("radius", [None, 2])
def test_grit_reads_the_bonds_of_each_atom(radius, wraps, monkeypatch):
    monkeypatch.setitem(LAYERS, "grit", replace(LAYERS["grit"], complete_graphs=not wraps))
    model, seen = make(layer="grit", radius=radius), []
    conv = next(m for m in model.modules() if isinstance(m, molattn.nn.GRITConv))
    conv.register_forward_pre_hook(lambda _, x, given: seen.append(given), with_kwargs=True)
    atoms = [atom for text in SMILES for atom in Chem.MolFromSmiles(text).GetAtoms()]
    expected = torch.tensor([float(atom.GetDegree()) for atom in atoms]).double()
    for form in (as_rows, as_batch):
        model(batch := form(model))
        layout, found = batch.edge_index, seen.pop()["degree"]
        is_rows = isinstance(layout, CompleteGraphs) and not wraps
        assert torch.equal(layout.rows_to_nodes(found) if is_rows else found, expected)


@pytest.mark.parametrize("wraps", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_slopes_read_the_number_of_bonds_between_atoms(name, wraps, monkeypatch):
    monkeypatch.setitem(LAYERS, name, replace(LAYERS[name], complete_graphs=not wraps))
    model = make(layer=name, layer_options=("attn_bias=slopes",), graphs=("pairs",))
    read = []
    for module in model.modules():
        if isinstance(module, molattn.nn.DistanceSlopes):
            module.register_forward_hook(lambda _, inputs, __: read.append(inputs[0]))
    far = model.config.featurizer.max_distance + 1
    mols = [Chem.MolFromSmiles(text) for text in SMILES]
    distances = np.concatenate([Chem.GetDistanceMatrix(mol).flatten() for mol in mols])
    expected = np.where(distances > 1000, far, distances.clip(max=far - 1))
    for form in (as_rows, as_batch):
        model(form(model))
        assert len(read) == SMALL.layers
        for bonds in read:  # of codes, or of pairs
            assert {*bonds[:, -1].tolist()} >= {*expected.tolist()}
        if form is as_batch:
            np.testing.assert_array_equal(read[0][:, -1].numpy(), expected)
        read.clear()


def test_a_second_molecule_has_slopes_over_its_own_bonds():
    network = replace(SMALL, layer_options=("attn_bias=slopes",), graphs=("pairs",))
    model = MolAttn(MolAttnConfig(("y",), network, partner_column="solvent")).eval().double()
    net = model.nets[0]
    pairs = [*zip(SMILES, SMILES[::-1], strict=True)]

    def halves():
        batch = model.collate([model.featurize(*pair) for pair in pairs])
        return net.encode(batch).chunk(2, dim=-1)

    first, second = halves()
    torch.testing.assert_close(first, second.flip(0), rtol=0, atol=1e-10)
    with torch.no_grad():
        for layer in net.attention_layers:
            layer.attn_bias.slope.zero_()
    assert not torch.allclose(halves()[1], second)


@pytest.mark.parametrize("form", [as_rows, as_batch])
def test_pairs_and_atoms_have_the_random_walks_of_their_bonds(form):
    model, seen = make(walk_length=5), []
    for embedding in model.nets[0].walk_embedding:
        embedding.register_forward_hook(lambda _, given, out: seen.append(given[0].detach()))
    model(batch := form(model))
    transform = RRWP(5, bond_column=0)
    graphs = Batch.from_data_list([transform(g) for g in as_batch(model).to_data_list()])
    dense = to_dense_adj(graphs.edge_index.flip(0), edge_attr=graphs.edge_attr[:, -5:].double())
    (atoms, pairs), graph = seen, batch.edge_index
    if form is as_rows:
        atoms, pairs = graph.rows_to_nodes(atoms), graph.pairs_to_edges(pairs)
        graph = graph.edge_index
    torch.testing.assert_close(atoms, graphs.rrwp.double())
    torch.testing.assert_close(pairs, dense[0, graph[1], graph[0]])


@pytest.mark.parametrize("self_loops", [True, False])
@pytest.mark.parametrize("options", OPTIONS)
def test_both_forms_of_a_batch_agree(options, self_loops):
    model = make(self_loops=self_loops, **options)
    rows, listed = model(as_rows(model)), model(as_batch(model))
    torch.testing.assert_close(rows, listed, rtol=0, atol=1e-10)
    with torch.no_grad():  # bonds may be a mask
        torch.testing.assert_close(model(as_rows(model)), rows, rtol=0, atol=1e-10)
    for text, row in zip(SMILES, model.predict(SMILES), strict=True):  # padding or none
        np.testing.assert_allclose(model.predict([text])[0], row, rtol=0, atol=1e-10)


@pytest.mark.parametrize("options", [{}, {"gate": True}, {"layer": "grit", "walk_length": 4}])
def test_bonds_are_a_mask_where_that_is_faster_and_no_gradient_is_needed(options):
    model = make(graphs=("bonds", "pairs"), **options)
    seen = []
    model.nets[0].encoder.blocks[0].register_forward_pre_hook(lambda _, given: seen.append(given))
    model(as_rows(model))
    model.predict(SMILES)
    listed, predicted = (isinstance(graph, torch.Tensor) for _, graph, *_ in seen)
    assert (listed, predicted) == (True, bool(options))


def test_blocks_of_bonds_are_those_of_atoms_at_most_one_bond_away():
    bonds = make(graphs=("bonds",))
    near = make(graphs=("pairs",), radius=1, self_loops=False, layer_options=())
    assert near.load_state_dict(bonds.state_dict()).missing_keys == []
    np.testing.assert_allclose(bonds.predict(SMILES), near.predict(SMILES), rtol=0, atol=1e-10)


def test_new_networks_read_bonds_and_pairs_in_turn_where_they_can():
    network = make(layers=4).config.network
    assert (network.graphs, network.norm) == (("bonds", "pairs"), "batch")
    for options in ({"layers": 1}, {"layers": 0}, {"layer": "mat"}, {"update_edges": True}):
        network = make(**options).config.network
        assert (network.graphs, network.norm) == (("pairs",), "layer")
    with pytest.raises(molattn.InputError) as error:
        make(layers=1, graphs=("bonds", "pairs"))
    assert error.value.option == "graphs"


def test_a_head_of_bonds_learns_from_the_last_block_of_pairs():
    net = replace(SMALL, graphs=("pairs", "bonds"), update_edges=True, dropout=0.0)
    model = MolAttn(MolAttnConfig((), net, bond_tasks=("b",)))
    batch = model.collate(model.config.reader(Fields()).all(SMILES))
    nodes, _, edges = model.nets[0].encode_graphs(batch)
    outputs = model.nets[0].predict_sites(batch, model.nets[0].site_vectors(batch, nodes, edges))
    outputs["bond"].square().sum().backward()
    silent = [name for name, x in model.named_parameters() if x.grad is None or not x.grad.any()]
    assert not [name for name in silent if "blocks" in name]
    with pytest.raises(molattn.InputError) as error:
        MolAttnConfig((), replace(net, graphs=("bonds",)), bond_tasks=("b",))
    assert error.value.option == "graphs"


@pytest.mark.parametrize("graphs", [("pairs",), ("bonds", "pairs")])
def test_batch_statistics_are_of_atoms_alone_and_predictions_of_no_other_molecule(tmp_path, graphs):
    options = {"layer_options": ("attn_bias=slopes",), "graphs": graphs}
    model = make(norm="batch", dropout=0.0, **options)
    statistics = []
    for form in (as_rows, as_batch):  # with padding, and without
        model = copy.deepcopy(model).train()
        for module in model.modules():
            if isinstance(module, torch.nn.BatchNorm1d):
                module.reset_running_stats()
        model(form(model))
        statistics.append([x for name, x in model.named_buffers() if "running" in name])
    assert len(statistics[0]) == 10  # mean and variance, two norms of each block and a last one
    torch.testing.assert_close(*statistics)
    model(model.collate([model.featurize("C")])).sum().backward()  # a batch of one atom
    model.eval().save_pretrained(tmp_path)
    assert all(bool(x.isfinite().all()) for x in model.state_dict().values())
    loaded = MolAttn.from_pretrained(tmp_path)
    together = loaded.predict(SMILES)
    np.testing.assert_allclose(together, model.predict(SMILES), rtol=0, atol=1e-5)
    for text, row in zip(SMILES, together, strict=True):
        np.testing.assert_allclose(loaded.predict([text])[0], row, rtol=0, atol=1e-5)
    before = model.config.to_dict()
    del before["network"]["norm"], before["network"]["graphs"]  # as saved before there were others
    network = MolAttnConfig.from_dict(before).network
    assert (network.norm, network.graphs) == ("layer", ("pairs",))


@pytest.mark.parametrize("text", ["CCCCCCCCCCCCCO", "c1ccccc1CC.Cl"])
def test_mat_reads_the_distance_in_bonds_and_the_bond(text):
    model = make(layer="mat")
    net, featurizer = model.nets[0], model.config.featurizer
    mol = Chem.MolFromSmiles(text)
    # RDKit's distance between fragments is 1e8.
    far = featurizer.max_distance + 1
    distance = Chem.GetDistanceMatrix(mol)
    distance = np.where(distance > 1000, far, distance.clip(max=far - 1))
    bond = Chem.GetAdjacencyMatrix(mol) + np.eye(mol.GetNumAtoms())
    codes = torch.from_numpy(featurizer(mol).pairs).flatten()
    got = net.pair_embedding(codes).view(*bond.shape, 2)
    np.testing.assert_array_equal(got.numpy(), np.stack([distance, bond], axis=-1))
    assert not any("pair_embedding" in name for name in model.state_dict())
    amounts = torch.zeros(1, sum(featurizer.pair_sizes), dtype=torch.float64)
    assert net.pair_embedding(amounts).tolist() == [[far, 0.0]]  # a pair of which nothing is known


@pytest.mark.slow  # the compiler takes half a minute
def test_the_whole_network_is_compiled_once_for_all_layouts():
    torch.compiler.reset()
    net = NetworkConfig(width=16, heads=2, layers=2, dropout=0.0, head_dropout=0.0)
    model = MolAttn(MolAttnConfig("y", net))
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=counter)
    smiles = ["CCO", "c1ccccc1C(=O)NC", "C" * 30, "F/C=C/C(=O)[O-]", "CC(C)C", "CCN"]
    for part in (smiles, smiles[1:5], smiles[::-1] * 2):
        batch = model.collate([model.featurize(text) for text in part])
        results = []
        for predict in (compiled, model):
            out = predict(batch)
            gradients = torch.autograd.grad(out.square().sum(), [*model.parameters()])
            results.append((out, *gradients))
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)
        assert counter.frame_count == 1


def test_the_weights_decide_whether_there_is_a_projection():
    config = MolAttnConfig(("y",), SMALL)
    plain, projected, new = MolAttn(config), MolAttn(config), MolAttn(config).double()
    width = projected.networks.embedding_width()
    projected.nets[0].register_buffer("projection", torch.randn(width, width))
    new.load_state_dict(projected.state_dict())
    assert new.nets[0].projection.dtype == torch.float64
    torch.testing.assert_close(new.nets[0].projection.float(), projected.nets[0].projection)
    expected = plain.load_state_dict(projected.state_dict()) and plain.embed(["CCO"])
    np.testing.assert_allclose(new.embed(["CCO"]), expected, atol=1e-6)
    new.load_state_dict(MolAttn(config).state_dict())
    assert new.nets[0].projection is None
