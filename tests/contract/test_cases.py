"""Small inputs that were once read wrongly, with what is right for them."""

import gzip
import json
import math
import re
import signal
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count

import numpy as np
import pandas as pd
import pytest
import torch
from rdkit import Chem
from rdkit.Chem import AllChem
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch_geometric.data import Data
from torch_geometric.utils import from_smiles as bonds_of_pyg

import molattn
from molattn import MolAttn, MolAttnClassifier, MolAttnConfig, MolAttnRegressor, testing
from molattn.config import NetworkConfig
from molattn.explain import explain
from molattn.graph import CompleteGraphs
from molattn.nn import EdgeAttentionConv, GaANConv, GraphNetwork, MATConv

from ..conftest import rows_of
from .conftest import (
    SETTINGS,
    TINY,
    ask,
    command,
    fitted,
    predict,
    refuse,
    scores,
    succeed,
    table,
    train,
)

FAST = {name: SETTINGS[name] for name in SETTINGS.keys() - {"baselines"}}
FAST |= {"epochs": 1, "predictor": "network"}
LONG = "C" * 100
RING = "C1" + "C" * 298 + "C1"


def carbons(count):
    """Alkanes and alcohols of different sizes."""
    return [("C" * n + end, -0.4 * n) for n in range(2, 2 + count // 2) for end in ("", "O")]


# Similarity and leakage


def test_molecules_of_another_size_are_not_like_those_of_the_training(tmp_path):
    given = table(tmp_path / "in.csv", "smiles,logS", carbons(40))
    run = fitted(given, tmp_path / "run", test_size=0, validation_size=0.3)
    words = ["CCCCCCCC", "CCCCCCCCCO", LONG, RING]
    rows = predict(run, *words, output=tmp_path / "out.csv")
    near = [float(row["training_similarity"]) for row in rows]
    assert near[:2] == [1, 1]
    assert near[2] < 0.4
    assert near[3] < near[2]
    width = [float(row["logS_high"]) - float(row["logS_low"]) for row in rows]
    assert min(width[2:]) > 1.2 * width[0]
    model = MolAttn.from_pretrained(run)
    assert model.training_similarity(words) == pytest.approx(near, abs=1e-6)


def test_longer_chains_are_no_leak_and_the_same_molecules_are(tmp_path):
    known = carbons(40)
    frame = pd.DataFrame(known, columns=["smiles", "logS"])
    base = fitted(frame, tmp_path / "a", test_size=0, predictor="network")
    new = [(f"{'C' * n}(=O)O", -n / 2, "train") for n in range(1, 26)]
    longer = [("C" * n, -0.4 * n, "test") for n in range(26, 46)]
    shares = []
    for name, tested in (("b", longer), ("c", [(*known[20], "test"), *longer])):
        given = table(tmp_path / f"{name}.csv", "smiles,logS,split", [*new, *tested])
        options = ["--split-column", "split", "--predictor", "network"]
        run = train(given, tmp_path / name, *options, start=base, epochs=1)
        shares.append(scores(run)["leakage"]["pretrained_test"])
    assert shares == [0, 1]


# Atoms of an SDF


@pytest.fixture(scope="module")
def drawn():
    """A molecule whose atoms are in no order of a SMILES, one hydrogen atom among them."""
    mol = Chem.MolFromSmiles("CC(=O)Nc1ccc(O)cc1")
    mol = Chem.AddHs(mol, onlyOnAtoms=[8])
    mol = Chem.RenumberAtoms(mol, [5, 11, 3, 0, 8, 7, 1, 2, 10, 4, 6, 9])
    AllChem.Compute2DCoords(mol)
    return mol


@pytest.mark.parametrize("force_v3000", [False, True])
def test_atoms_are_in_the_order_of_the_input(model, drawn, force_v3000, tmp_path):
    given = tmp_path / "drawn.sdf"
    block = Chem.MolToMolBlock(drawn, forceV3000=force_v3000)
    given.write_text(f"{block}$$$$\n")
    succeed("explain", model, given, "--method", "occlusion", "--output", tmp_path / "out")
    rows = rows_of(tmp_path / "out" / "atoms.csv")
    heavy = [atom for atom in drawn.GetAtoms() if atom.GetAtomicNum() > 1]
    assert [(row["atom"], row["symbol"]) for row in rows] == [
        (str(atom.GetIdx()), atom.GetSymbol()) for atom in heavy
    ]
    assert {Chem.CanonSmiles(row["smiles"]) for row in rows} == {"CC(=O)Nc1ccc(O)cc1"}
    loaded = MolAttn.from_pretrained(model)
    wanted = explain(loaded, drawn, method="occlusion").atom_scores
    got = [float(row["occlusion"]) for row in rows]
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    pairs = {(int(r["atom_1"]), int(r["atom_2"])) for r in rows_of(tmp_path / "out" / "bonds.csv")}
    assert {frozenset(pair) for pair in pairs} == {
        frozenset((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()))
        for bond in Chem.RemoveHs(drawn, sanitize=False).GetBonds()
    } or all(drawn.GetBondBetweenAtoms(*pair) for pair in pairs)
    succeed("fingerprint", model, given, "--atoms", "--output", tmp_path / "atoms.csv")
    rows = rows_of(tmp_path / "atoms.csv")
    assert [row["symbol"] for row in rows] == [atom.GetSymbol() for atom in heavy]
    embedded = [[float(row[f"embedding_{k}"]) for k in range(8)] for row in rows]
    wanted = loaded.embed([drawn], atoms=True)
    np.testing.assert_allclose(embedded, wanted, rtol=1e-4, atol=1e-5)


def test_atoms_of_a_drawing_by_hand_are_in_its_order(model, tmp_path):
    symbols, bonds = "CNCCCCCOOCC", "4-6 6=8 6-2 2-10 10=5 5-11 11=1 1-9 1-7 7=3 3-10"
    lines = ["paracetamol", "", "", " 11 11  0  0  0  0  0  0  0  0999 V2000"]
    for number, symbol in enumerate(symbols):
        place = f"{math.cos(number):10.4f}{math.sin(number):10.4f}    0.0000"
        lines.append(f"{place} {symbol}   0  0  0  0  0  0  0  0  0  0  0  0")
    for bond in bonds.split():
        one, other = re.split("[-=]", bond)
        lines.append(f"{one:>3}{other:>3}{1 + ('=' in bond):3}  0")
    (tmp_path / "in.sdf").write_text("\n".join([*lines, "M  END", "$$$$", ""]))
    words = [tmp_path / "in.sdf", "--method", "occlusion", "--output", tmp_path / "out"]
    succeed("explain", model, *words)
    rows = rows_of(tmp_path / "out" / "atoms.csv")
    assert "".join(row["symbol"] for row in rows) == symbols
    assert [int(row["atom"]) for row in rows] == [*range(11)]


# The positive class


@pytest.mark.parametrize(
    "positive, negative",
    [
        ("blocker", "nonblocker"),
        ("BBB+", "BBB-"),
        ("Inhibitor", "Noninhibitor"),
        ("Active", "Inactive"),
        ("yes", "no"),
        ("1", "0"),
    ],
)
def test_the_negation_is_not_the_positive_class(positive, negative, molecules, tmp_path):
    labels = [positive if value > -3 else negative for _, value in molecules[:60]]
    words = [smiles for smiles, _ in molecules[:60]]
    frame = pd.DataFrame({"smiles": words, "y": labels})
    model = molattn.train(frame, "y", baselines=False, **FAST).model
    share = model.predict(words)[:, 0]
    # The estimator's columns are in the order of its classes, as in scikit-learn.
    estimator = MolAttnClassifier(**FAST).fit(words, labels)
    column = estimator.classes_.tolist().index(positive)
    np.testing.assert_allclose(
        estimator.predict_proba(words)[:, column], estimator.model_.predict(words)[:, 0], atol=1e-6
    )
    model.save_pretrained(tmp_path / "model")
    rows = predict(tmp_path / "model", *words, output=tmp_path / "out.csv")
    (name,) = (name for name in rows[0] if name.startswith("y_probability"))
    assert name == ("y_probability" if positive == "1" else f"y_probability_{positive}")
    np.testing.assert_allclose([float(row[name]) for row in rows], share, atol=1e-5)
    assert {(float(row[name]) > 0.5, row["y_predicted"]) for row in rows} <= {
        (True, positive),
        (False, negative),
    }


def test_an_option_chooses_the_positive_class(molecules, tmp_path):
    rows = [(smiles, "high" if value > -3 else "low") for smiles, value in molecules[:60]]
    given = table(tmp_path / "in.csv", "smiles,y", rows)
    options = ["--positive-class", "low", "--predictor", "network"]
    low = train(given, tmp_path / "low", *options, target="y", epochs=1)
    high = fitted(given, tmp_path / "high", "y", positive_class=["high"], predictor="network")
    for word, model in (("low", low), ("high", high)):
        (row,) = predict(model, "CCO", output=tmp_path / "out.csv")
        assert (float(row[f"y_probability_{word}"]) > 0.5) == (row["y_predicted"] == word)
    words = ["--target-columns", "y", "--positive-class", "middle", "--output", tmp_path / "no"]
    refuse("--positive-class", "train", given, *words, *TINY)


def test_what_the_labels_do_not_say_is_asked_for(molecules, tmp_path):
    words = [smiles for smiles, _ in molecules[:40]]
    given = table(tmp_path / "in.csv", "smiles,y", [(s, n % 2 + 1) for n, s in enumerate(words)])
    quick = ["--epochs", 1, "--predictor", "network", *TINY]
    done = succeed("train", given, "--target-columns", "y", *quick, "--output", tmp_path / "run")
    assert "--task classification" in " ".join((done.out + done.err).split())
    given = table(tmp_path / "in.csv", "smiles,y", [(smiles, "Active") for smiles in words])
    for options in ([], ["--task", "classification"]):
        words = ["--target-columns", "y", *options, "--output", tmp_path / "no", *TINY]
        assert "Active" in refuse("y", "train", given, *words)


# Stereo groups

CENTER = "C[C@H](O)CCc1ccccc1"
MIRROR = "C[C@@H](O)CCc1ccccc1"
FLAT = "CC(O)CCc1ccccc1"


@pytest.mark.parametrize("group", ["&", "o"])
def test_a_racemate_is_one_molecule_and_no_enantiomer(group, model, tmp_path):
    writings = [f"{CENTER} |{group}1:1|", f"{MIRROR} |{group}1:1|", FLAT]
    blocks = [Chem.MolToV3KMolBlock(Chem.MolFromSmiles(text)) for text in writings]
    (tmp_path / "in.sdf").write_text("".join(f"{block}$$$$\n" for block in blocks))
    given = table(tmp_path / "in.csv", "smiles", [[text] for text in [*writings, CENTER, MIRROR]])
    embeddings = []
    for path in (given, tmp_path / "in.sdf"):
        succeed("fingerprint", model, path, "--output", tmp_path / "out.csv")
        embeddings += [
            [float(row[f"embedding_{k}"]) for k in range(16)]
            for row in rows_of(tmp_path / "out.csv")
        ]
    csv, (one, other), sdf = embeddings[:3], embeddings[3:5], embeddings[5:]
    for found in (*csv, *sdf):
        np.testing.assert_allclose(found, embeddings[2], rtol=1e-5, atol=1e-6)
    assert np.abs(np.subtract(one, other)).max() > 1e-4
    assert np.abs(np.subtract(one, embeddings[2])).max() > 1e-4


def test_two_writings_of_a_racemate_are_duplicates(molecules, tmp_path):
    rows = [*molecules[:40], (f"{CENTER} |&1:1|", -1.0), (f"{MIRROR} |&1:1|", -2.0)]
    given = table(tmp_path / "in.csv", "smiles,logS", rows)
    run = train(given, tmp_path / "run", "--predictor", "network", epochs=1)
    leakage = scores(run)["leakage"]
    assert (leakage["duplicates"], leakage["conflicts"]) == (1, 1)


# Threads and random numbers


def test_trainings_in_threads_are_those_one_after_another(molecules):
    frame = pd.DataFrame(molecules[:50], columns=["smiles", "logS"])

    def trained(seed):
        run = molattn.train(frame, "logS", baselines=False, seed=seed, **FAST | {"epochs": 2})
        return run.model.predict(["CCO", "c1ccccc1"])

    seeds = [0, 1, 0]
    wanted = [trained(seed) for seed in seeds]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(trained, seeds))
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(wanted[0], wanted[2])
    assert (wanted[0] != wanted[1]).any()


def test_random_numbers_of_others_are_left_alone(model, molecules):
    smiles, y = ([*column] for column in zip(*molecules[:40], strict=True))
    frame = pd.DataFrame({"smiles": smiles, "y": y})

    def draws():
        return torch.rand(2).tolist(), np.random.rand(2).tolist()  # noqa: NPY002

    def seeded(call):
        torch.manual_seed(7)
        np.random.seed(7)  # noqa: NPY002
        call()
        return draws()

    wanted = seeded(lambda: None)
    for call in (
        lambda: MolAttn.from_pretrained(model),
        lambda: MolAttn.from_pretrained("base"),
        lambda: MolAttnRegressor(**FAST).fit(smiles, y),
        lambda: molattn.train(frame, "y", baselines=False, **FAST),
    ):
        assert seeded(call) == wanted


# Files


def test_a_line_of_one_space_ends_a_property(model, molecules, tmp_path):
    records = []
    for number, (smiles, value) in enumerate(molecules[:60]):
        block = Chem.MolToMolBlock(Chem.MolFromSmiles(smiles))
        blank = " " if number % 3 == 0 else ""
        records.append(f"{block}>  <ID>\nM{number}\n{blank}\n>  <y>\n{value}\n\n$$$$\n")
    given = tmp_path / "in.sdf"
    given.write_text("".join(records))
    run = train(given, tmp_path / "run", "--predictor", "network", target="y", epochs=1)
    assert rows_of(run / "skipped.csv") == []
    rows = predict(run, given, output=tmp_path / "out.csv")
    assert [row["ID"].strip() for row in rows] == [f"M{n}" for n in range(60)]
    assert [float(row["y"]) for row in rows] == [value for _, value in molecules[:60]]


def test_queries_of_an_sdf_have_a_reason(model, tmp_path):
    block = Chem.MolToMolBlock(Chem.MolFromSmiles("CCO"))
    blocks = [block.replace(" O   0", f" {kind:<3} 0") for kind in "O N F A Q X M AH R R1".split()]
    for kind, line in (("L", "M  ALS   3  2 F N   O   "), ("R#", "M  RGP  1   3   1")):
        changed = block.replace(" O   0", f" {kind:<3} 0")
        blocks.append(changed.replace("M  END", f"{line}\nM  END"))
    blocks.append(Chem.MolToMolBlock(Chem.MolFromSmiles("CC[N+](=O)[O-]")))
    (tmp_path / "in.sdf").write_text("".join(f"{block}$$$$\n" for block in blocks))
    rows = predict(model, tmp_path / "in.sdf", output=tmp_path / "out.csv")
    is_read = [True] * 3 + [False] * 9 + [True]
    assert [row["error"] == "" for row in rows] == is_read
    assert [row["logS_predicted"] != "" for row in rows] == is_read


@pytest.mark.parametrize("name", ["table.csv.zip", "table.json"])
def test_a_format_that_is_not_read_is_refused(model, name, tmp_path):
    given = tmp_path / name
    pd.DataFrame({"smiles": ["CCO"]}).to_csv(tmp_path / "table.csv")
    if name.endswith("zip"):
        pd.DataFrame({"smiles": ["CCO"]}).to_csv(given, compression="zip")
    else:
        given.write_text('[{"smiles": "CCO"}]')
    line = refuse(name, "predict", model, given, "--output", tmp_path / "out.csv")
    assert "csv" in line.replace(str(given), "").lower()  # what is read
    assert not (tmp_path / "out.csv").exists()


def test_a_table_that_expands_too_much_costs_little(tmp_path):
    bomb = tmp_path / "bomb.csv.gz"
    bomb.write_bytes(gzip.compress(b"smiles,logS\n" + b"CCO,1.0\n" * 1_500_000))
    words = ["--target-columns", "logS", "--output", tmp_path / "run", *TINY]
    calls = count()
    sys.setprofile(lambda *_: next(calls))
    try:
        refuse(bomb.name, "train", bomb, *words)
    finally:
        sys.setprofile(None)
    assert next(calls) < 1_500_000  # of functions, fewer than the table has rows


def test_a_replaced_file_keeps_its_mode(model, tmp_path):
    for name, words in (("out.csv", ["predict"]), ("emb.csv", ["fingerprint"])):
        out = tmp_path / name
        out.write_text("old\n")
        out.chmod(0o600)
        succeed(*words, model, "CCO", "--output", out)
        assert stat.S_IMODE(out.stat().st_mode) == 0o600
        assert len(rows_of(out)) == 1


def test_a_damaged_checkpoint_is_refused(small, tmp_path):
    out = tmp_path / "run"
    words = ["--target-columns", "logS", "--output", out, "--epochs", 2, "--init-from", "none"]
    with at_step(8, lambda: signal.raise_signal(signal.SIGINT)):
        done = command("train", small, *words, *TINY)
    assert done.code == 130
    assert len(done.err.splitlines()) == 1
    (file,) = tmp_path.rglob("*.safetensors")
    content = file.read_bytes()
    for place in (0.3, 0.6, 0.95):
        damaged = bytearray(content)
        damaged[int(place * len(content))] ^= 2
        file.write_bytes(damaged)
        refuse(file.name, "train", "--resume", out)
    assert not out.exists()


@contextmanager
def at_step(number, act):
    """Act after a step of the optimizer of a training."""
    steps = count(1)
    handle = register_optimizer_step_post_hook(lambda *_: next(steps) == number and act())
    yield
    handle.remove()


# Rows


def test_a_label_without_a_logarithm_is_skipped(molecules, tmp_path):
    rows = [(smiles, 10**value) for smiles, value in molecules[:60]]
    rows[5:5] = [("CCCCCO", 0), ("CCCCCCO", -1)]
    given = table(tmp_path / "in.csv", "smiles,logS", rows)
    options = ["--target-transform", "log", "--predictor", "network"]
    run = train(given, tmp_path / "run", *options, epochs=1)
    skipped = [(row["line"], row["code"]) for row in rows_of(run / "skipped.csv")]
    assert skipped == [("7", "invalid_label"), ("8", "invalid_label")]


def test_one_unreadable_label_is_missing_and_listed(molecules, tmp_path):
    rows = [[smiles, value, 2 * value] for smiles, value in molecules[:60]]
    rows[3][1] = rows[7][2] = "n.d."
    rows[5][1:] = "?", ""
    rows[9][1] = f"{rows[9][1]} ± 0.1"
    given = table(tmp_path / "in.csv", "smiles,a,b", rows)
    options = ["--predictor", "network"]
    run = train(given, tmp_path / "run", *options, target="a b", epochs=1)
    skipped = [(row["line"], row["code"]) for row in rows_of(run / "skipped.csv")]
    assert skipped == [("7", "invalid_label")]
    unreadable = [(row["line"], row["code"]) for row in rows_of(run / "unreadable.csv")]
    assert unreadable == [("5", "invalid_label"), ("9", "invalid_label")]
    metrics = json.loads((run / "metrics.json").read_text())
    assert (metrics["rows_used"], metrics["labels_unreadable"]) == (59, 2)


def test_words_for_the_parts_of_a_split(molecules, tmp_path):
    parts = ["training"] * 40 + ["validation"] * 10 + ["testing"] * 10
    rows = [(*pair, part) for pair, part in zip(molecules, parts, strict=False)]
    given = table(tmp_path / "in.csv", "smiles,logS,split", rows)
    options = ["--split-column", "split", "--predictor", "network"]
    run = train(given, tmp_path / "run", *options, epochs=1)
    assert len(rows_of(run / "predictions.csv")) == 10


def test_null_in_a_request_is_a_row_with_a_reason(address):
    answer = ask(f"{address}/predict", {"smiles": ["CCO", None, "CCC"]})
    assert answer.status == 200
    errors = [row["error"] for row in answer.json["molecules"]]
    assert errors == [None, "missing_value", None]


# Layers


@pytest.mark.parametrize(
    "conv",
    [EdgeAttentionConv(4, 8, 2), GaANConv(4, 8, 2), MATConv(4, 8, 2), GraphNetwork(4, 8, 2)],
    ids=lambda conv: type(conv).__name__,
)
def test_second_derivatives_of_nothing(conv):
    for sizes in ([], [0], [0, 0]):
        graphs = CompleteGraphs(sizes)
        x = torch.zeros(graphs.num_rows, 4, requires_grad=True)
        edges = torch.zeros(graphs.num_pairs, 2) if isinstance(conv, MATConv) else None
        (force,) = torch.autograd.grad(conv(x, graphs, edges).sum(), x, create_graph=True)
        force.square().sum().backward()
        assert force.shape == (0, 4)


@pytest.mark.parametrize("conv", [EdgeAttentionConv(4, 8, 2, edge_dim=3), GaANConv(4, 8, 2)])
def test_arguments_are_in_the_order_of_pyg(conv):
    x, edge_index = torch.randn(5, 4), torch.randint(0, 5, (2, 9))
    edge_attr = torch.randn(9, 3) if isinstance(conv, EdgeAttentionConv) else None
    _, (_, alpha) = conv(x, edge_index, edge_attr, True)
    assert alpha.shape == (9, 2)


@pytest.mark.parametrize(
    "option, named", [("concat", "combine"), ("add_self_loops", "AddSelfLoops")]
)
def test_an_option_of_pyg_names_its_substitute(option, named):
    with pytest.raises(TypeError, match=named):
        EdgeAttentionConv(4, 8, 2, **{option: True})
    with pytest.raises(TypeError, match="gatv2"):
        GaANConv(4, 8, 2, negative_slope=0.2)


@pytest.mark.parametrize("layer", ["edge_attention", "graph_network"])
def test_every_parameter_of_a_network_learns(layer):
    network = NetworkConfig(
        width=8, heads=2, layers=2, edge_width=4, update_edges=True, layer=layer
    )
    model = MolAttn(MolAttnConfig("y", network))
    batch = model.collate([model.featurize(text) for text in ("CCO", "c1ccccc1")])
    model(batch).sum().backward()
    assert [name for name, one in model.named_parameters() if one.grad is None] == []


def test_a_softmax_that_overflows_is_found():
    class Overflowing(nn.Module):
        def forward(self, x, edge_index):
            sender, receiver = edge_index
            powers = (x[receiver] * x[sender]).sum(-1).exp()
            total = torch.zeros(len(x)).index_add(0, receiver, powers)
            weights = (powers / total[receiver]).unsqueeze(-1)
            return torch.zeros_like(x).index_add(0, receiver, weights * x[sender])

    data = Data(x=torch.randn(5, 4), edge_index=torch.randint(0, 5, (2, 12)))
    with pytest.raises(AssertionError):
        testing.assert_stable(Overflowing(), data)
    testing.assert_stable(EdgeAttentionConv(4, 8, 2), data)


def test_graphs_of_pairs_and_of_bonds():
    smiles = "CC(=O)Oc1ccccc1C(=O)O"
    every = molattn.from_smiles(smiles, pairs="all")
    assert every.num_edges == 13 * 12
    bonds = molattn.from_smiles(smiles, pairs="bonds")
    wanted = bonds_of_pyg(smiles)
    assert set(map(tuple, bonds.edge_index.t().tolist())) == set(
        map(tuple, wanted.edge_index.t().tolist())
    )
    assert bonds.edge_attr.shape == (26, every.edge_attr.size(1))
    with pytest.raises((molattn.InputError, ValueError), match="pairs"):
        molattn.from_smiles(smiles, pairs="guess")
