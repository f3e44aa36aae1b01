"""A method that is not part of the package: one function and one registration."""

import json
import re

import numpy as np
import pytest

from molattn import InputError
from molattn.config import ExplainConfig
from molattn.explain import (
    METHODS,
    Method,
    Scores,
    explain,
    explain_table,
    measure_faithfulness,
)

from ..conftest import rows_of
from .conftest import GOOD, make


def degree(instance, options):
    degrees = [float(atom.GetDegree()) for atom in instance.mol.GetAtoms()]
    return Scores(np.array(degrees), np.full(len(instance.bonds), 0.5))


def masked_alone(instance, options):
    """Leave-one-out: the prediction without each atom, from that without all of them."""
    n = instance.num_atoms
    kept = np.concatenate([np.eye(n, dtype=bool), np.zeros((1, n), dtype=bool)])
    values = instance.predict_kept(kept, options.masking)
    atoms = values[:-1] - values[-1]
    return Scores(atoms, np.zeros(len(instance.bonds)), float(values[-1]))


@pytest.fixture
def methods():
    added = {
        "degree": Method(degree, signed=False, summary="number of neighbors"),
        "alone": Method(masked_alone, signed=True, summary="an atom by itself", source="Nobody 1"),
    }
    for name, method in added.items():
        assert METHODS.register(name)(method) is method
    yield added
    for name in added:
        del METHODS._items[name]


def test_a_registered_method_explains(methods, model):
    found = explain(model, "CC(=O)N", "degree")
    assert found.atom_scores.tolist() == [1, 3, 1, 1]
    assert found.bond_scores.tolist() == [0.5] * 3
    assert found.method == "degree"
    assert found.signed is False
    assert found.adds_up is found.baseline is None
    assert "degree: importance of each atom (unsigned)" in found.draw()
    signed = explain(model, "C", "alone", masking="blank")
    assert signed.adds_up is True  # with one atom there are no interactions
    assert signed.prediction - signed.baseline == pytest.approx(signed.atom_scores.sum(), abs=1e-6)


def test_a_registered_method_is_tested_with_the_others(methods):
    model = make(tasks=("hydroxyls",))
    names = [row.method for row in measure_faithfulness(model, ["CCO"], random_orders=1).rows]
    assert names == [*METHODS, "uniform", "random"]
    assert {"degree", "alone"} < {*names}


def test_a_registered_method_explains_a_table(methods, explained, table, tmp_path):
    config = ExplainConfig(method=("degree", "alone"), check=True)
    explain_table(explained.parent / "model", table, tmp_path / "out", config)
    atoms = rows_of(tmp_path / "out" / "atoms.csv")
    assert [one["degree"] for one in atoms if one["row"] == "1"][:3] == ["1", "3", "1"]
    given = json.loads((tmp_path / "out" / "explanations.json").read_text())
    assert given["methods"] == ["degree", "alone"]
    assert [row["method"] for row in given["check"]["rows"]] == [
        "degree",
        "alone",
        "uniform",
        "random",
    ]
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "<strong>degree</strong>: number of neighbors</li>" in page
    assert "<strong>alone</strong>: an atom by itself (Nobody 1)</li>" in page
    pictures = {path.name for path in (tmp_path / "out" / "molecules").glob("*.svg")}
    assert {f"{row}_degree.svg" for row in GOOD} < pictures


def test_a_method_that_is_not_registered_is_refused(model):
    with pytest.raises(InputError, match="method: got 'degree', expected one of attention"):
        explain(model, "C", "degree")
    with pytest.raises(InputError, match="did you mean 'occlusion'"):
        explain(model, "C", "oclusion")


def test_no_method_is_registered_twice(methods):
    with pytest.raises(ValueError, match=re.escape("method 'occlusion' is registered already")):
        METHODS.register("occlusion")(methods["degree"])
