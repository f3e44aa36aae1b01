import importlib
import shutil
from pathlib import Path

import numpy as np
import pytest

from molattn.model.artefact import PACKAGED


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "scripts")
    return importlib.import_module("compare_embeddings")


def write(path, labels):
    smiles = ["C" * n + end for n in range(1, 21) for end in ("O", "N", "F")]
    rows = [f"{one},{labels(one)}" for one in smiles]
    path.write_text("\n".join(["smiles,y", *rows, rows[0], "not a molecule,1"]) + "\n")
    return f"{path}:y"


def test_each_molecule_is_used_once(script, tmp_path):
    given = write(tmp_path / "t.csv", len).rpartition(":")[0]
    smiles, labels, task = script.read(given, "y", log=True)
    assert len({*smiles}) == len(smiles) == 60
    assert task.kind == "regression"
    expected = np.log([len(one) for one in smiles])
    np.testing.assert_allclose(labels, (expected - expected.mean()) / expected.std())


def test_an_embedding_that_knows_the_labels_has_the_lower_error(script):
    random = np.random.default_rng(0)
    labels = random.normal(size=60)
    smiles = ["C" * (n + 1) for n in range(60)]
    knows = {"first": random.normal(size=(60, 2)), "second": labels[:, None]}
    embeddings = {name: values.astype(np.float32) for name, values in knows.items()}
    found = script.errors(smiles, labels, script.Task("y"), embeddings)
    assert (found[1] < found[0]).all()
    assert found[1, 0] < 0.3 < found[0, 0]
    binary = script.Task("y", "binary", classes=("0", "1"))
    found = script.errors(smiles, labels > 1.0, binary, embeddings)  # few of a class
    assert np.isfinite(found).all()
    assert found[1, 0] == script.LEAST


def test_changes_from_the_first_are_printed(script, tmp_path, capsys):
    shutil.copytree(PACKAGED / "base", tmp_path / "same")
    tables = [
        write(tmp_path / "a.csv", len),
        write(tmp_path / "b.csv", lambda one: int("O" in one)),
    ]
    script.main([tables[1], "--log", tables[0], "--models", "base", str(tmp_path / "same")])
    out = " ".join(capsys.readouterr().out.split())
    for kind in ("alone", "with counts"):
        assert f"{kind}: +0.0 ± 0.0 % of the error of base, lower on 0 of 2 tables" in out
