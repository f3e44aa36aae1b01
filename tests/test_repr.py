"""What a notebook shows of an object in the last line of a cell."""

from importlib import import_module
from typing import Any

import pandas as pd
import pytest

import molattn
from molattn.explain import explain

MODULES = ("", ".nn", ".nn.functional", ".graph", ".chem", ".explain", ".config", ".evaluation")


def public(module):
    found = import_module(f"molattn{module}")
    for name in getattr(found, "__all__", dir(found)):
        if not name.startswith("_"):
            yield pytest.param(getattr(found, name), id=f"{module} {name}")


@pytest.mark.parametrize("one", [one for module in MODULES for one in public(module)])
def test_public_names_are_short(one):
    assert len(repr(one)) < 1000


@pytest.fixture(scope="module")
def run():
    count = 400  # so that arrays are long, but not so long that NumPy leaves their middle out
    columns: dict[str, list[Any]] = {f"y{n}": [k / 7 for k in range(count)] for n in range(8)}
    columns["smiles"] = ["C" * (k % 20 + 1) + "ONF"[k % 3] for k in range(count)]
    columns["c"] = [f"class {k % 2}" for k in range(count)]
    targets = [name for name in columns if name != "smiles"]
    options = {"epochs": 1, "width": 16, "layers": 1, "heads": 2, "init_from": "none"}
    return molattn.train(pd.DataFrame(columns), targets, bootstrap=0, **options)


@pytest.mark.parametrize(
    "get",
    [
        lambda run: run.run,
        lambda run: run.run.table,
        lambda run: run.run.config,
        lambda run: run.run_scores,
        lambda run: run.run_scores.test,
        lambda run: run.model,
        lambda run: run.model.config,
        lambda run: run.model.config.featurizer,
        lambda run: run.model.uncertainty,
        lambda run: run.model.gaussian_process,
        lambda run: run.model.training_set,
        lambda run: run.model.reference_inputs,
        lambda run: explain(run.model, "CCO"),
        lambda run: molattn.from_smiles("CCO"),
        lambda run: molattn.MolAttnRegressor(),
    ],
)
def test_objects_are_short(run, get):
    assert len(repr(get(run))) < 1000


def test_a_result_says_its_scores_and_how_to_go_on(run):
    shown = repr(run)
    assert len(shown) < 500
    assert "400 rows" in shown
    assert f"{run.run_scores.test.mean['rmse']:.3f}" in shown
    for attribute in ("model", "save"):
        assert hasattr(run, attribute)
        assert f"run.{attribute}" in shown
    assert "y0" in repr(run.model)
    assert "width=16" in repr(run.model)


def test_a_registry_says_its_names():
    assert "edge_attention" in repr(molattn.nn.LAYERS)
