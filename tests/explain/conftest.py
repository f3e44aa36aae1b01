"""Small models whose explanations are cheap or known exactly, and a table that one explained."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from molattn.config import ExplainConfig, NetworkConfig
from molattn.explain.folder import explain_table
from molattn.graph import CodedEdges
from molattn.model.gaussian_process import GaussianProcessHead
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.task import Task

SMALL = NetworkConfig(width=16, heads=2, layers=2, edge_width=8, readout="mean")
TASKS = (
    Task("logS", unit="log mol/L"),
    Task("toxic", "binary", ("no", "yes")),
    Task("phase", "multiclass", ("gas", "liquid", "solid")),
)


def make(seed=0, **options):
    network = options.pop("network", SMALL)
    torch.manual_seed(seed)
    model = MolAttn(MolAttnConfig(options.pop("tasks", TASKS), network, **options)).eval()
    with torch.no_grad():  # away from the start, where attention is nearly the mean
        for name, weight in model.named_parameters():
            if name.endswith(("lin_query.weight", "lin_key.weight", "lin_edge_key.weight")):
                weight.mul_(4)
            if name.endswith("head.fourier.out.weight"):  # it begins with next to nothing
                weight.mul_(16)
    scales = [2.0 if task.kind == "regression" else 1.0 for task in model.config.tasks]
    model.set_target_scaling([3.0 * (scale > 1) for scale in scales], scales)
    return model


@pytest.fixture(scope="session")
def model():
    return make()


@pytest.fixture(scope="session")
def phases():
    """A model, and molecules of which each class of phase is the most probable for some."""
    model = make()
    smiles = [text for text in LEARNED if len(text) > 1]
    with torch.no_grad():
        bias = model.nets[0].head.mlp[-1].bias
        bias[2:] -= torch.tensor(model.predict(smiles)[:, 2:]).log().mean(0)
    classes = model.predict(smiles)[:, 2:].argmax(axis=1).tolist()
    chosen = [classes.index(k) for k in range(3)]
    chosen += [place for place in range(len(smiles)) if place not in chosen][:3]
    names = TASKS[2].output_names
    return model, {smiles[place]: names[classes[place]] for place in chosen}


class SumOfPairs(nn.Module):
    """In place of the encoder: each atom adds up the features of its pairs."""

    def forward(self, x, graph, edges):
        edges = edges.dense() if isinstance(edges, CodedEdges) else edges
        sums = []
        for block, mask in zip(graph.blocks, graph.pair_masks, strict=True):
            other = mask & ~torch.eye(block.nodes, dtype=torch.bool)
            sums.append((block.pairs(edges) * other.unsqueeze(-1)).sum(dim=2).flatten(0, 1))
        return x + torch.cat(sums)


@pytest.fixture
def linear():
    """A model that is a sum over atoms and pairs, so that every score is known."""
    network = replace(SMALL, readout="sum", edge_width=16)
    model = make(tasks=("y",), network=network)
    model.nets[0].encoder = SumOfPairs()
    model.nets[0].head = nn.Linear(16, 1)
    return model


@pytest.fixture
def known(linear):
    """What each atom, the average atom, each ordered pair and nothing at all are worth in it."""

    def of(instance):
        net = linear.nets[0]
        worth = 2.0 * net.head.weight[0]
        with torch.no_grad():
            atoms = instance.atoms @ net.atom_embedding.weight @ worth
            average = instance.baseline_atoms @ net.atom_embedding.weight @ worth
            pairs = (instance.pairs @ net.pair_embedding.weight @ worth).fill_diagonal_(0)
            nothing = 2.0 * net.head.bias + 3.0
        return (part.double().numpy() for part in (atoms, average, pairs, nothing))

    return of


METHODS = ("integrated_gradients", "attention")
# None of these texts may become part of the page's own code.
EVIL = "</script><script>alert(1)</script>"
TARGET = 'logS <b onclick="alert(2)">&'
ROWS = ["CC(=O)Oc1ccccc1C(=O)O", EVIL, "C", "Cn1cnc2c1c(=O)n(C)c(=O)n2C", "C(C)(C)(C)(C)C"]
GOOD = {2: ROWS[0], 4: ROWS[2], 5: ROWS[3]}  # by the line of the file


@pytest.fixture(scope="session")
def small_model():
    torch.manual_seed(0)
    small = NetworkConfig(width=16, heads=2, layers=2, edge_width=4, gate=True)
    model = MolAttn(MolAttnConfig(tasks=(Task(TARGET, unit="log mol/L"), Task("y")), network=small))
    model.set_target_scaling([-3.0, 0.0], [2.0, 1.0])
    known = ["C" * count for count in range(1, 41)]
    labels = np.random.default_rng(0).normal(-3, 2, size=(len(known), 2))
    model.calibrate(known, labels, known)
    return model.eval()


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "a <img src=x onerror=alert(3)>.csv"
    path.write_text("\n".join(["smiles", *ROWS]) + "\n")
    return path


@pytest.fixture(scope="session")
def explained(small_model, table, tmp_path_factory):
    """The folder of explanations of the table, by two methods."""
    folder = tmp_path_factory.mktemp("explained")
    small_model.save_pretrained(folder / "model")
    counts = explain_table(folder / "model", table, folder / "out", ExplainConfig(method=METHODS))
    assert counts == (3, 2)
    return folder / "out"


LEARNED = (
    "CCO CCN CC(=O)N c1ccccc1 Cc1ccccc1O C O CC(C)C(=O)O CCCl CC#N OCC(O)CO c1ccncc1C CSC "
    "CCOC(=O)C CC(=O)Nc1ccccc1"
).split()


def with_process(model, share, partners=None, features=None):
    """Give a model with kernels a Gaussian process of random labels, and its share."""
    seconds = partners or [None] * len(LEARNED)
    records = [model.featurize(*both) for both in zip(LEARNED, seconds, strict=True)]
    _, read = model.networks.predict(records, features=features)
    draw = np.random.default_rng(0)
    labels = [
        draw.normal(size=len(LEARNED))
        if task.kind == "regression"
        else draw.integers(len(task.classes), size=len(LEARNED)).astype(float)
        for task in model.config.tasks
    ]
    process = GaussianProcessHead.fit(model.config, read, np.column_stack(labels))
    shares = np.full(len(model.config.tasks), share)
    model.gaussian_process = replace(process, shares=shares)
    return model
