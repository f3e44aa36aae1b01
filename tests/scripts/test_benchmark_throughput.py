import importlib
from argparse import Namespace
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[2] / "scripts")
        yield importlib.import_module("benchmark_throughput")


def test_each_command_is_one_that_molattn_takes(script, tmp_path):
    from molattn.cli import main

    options = {"steps": script.STEPS, "engines": ["local"], "precisions": ["fp32"]}
    cases = [*script.cases(Namespace(**options, processes=[1, 2]))]
    assert [case.processes for case in cases] == [1, 2] * 3
    table = tmp_path / "t.csv"
    table.write_text("smiles\nCCO\nCCN\n")
    for case in cases[:4]:
        words = case.command(table, "base", tmp_path / f"{case.step}_{case.processes}")
        assert main(words[3:]) == 0
    assert (tmp_path / "prepare_2" / "index.json").is_file()
    assert (tmp_path / "predict_2.csv").read_text().count("\n") == 3
    words = cases[-1].command(table, "base", tmp_path / "out")
    assert words[words.index("--devices") + 1] == "2"
    ray = script.Case("predict", "ray", 1).command(table, "base", tmp_path / "out")
    assert ray[ray.index("--num-workers") + 1] == "1"


def test_too_few_molecules_are_an_error(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "unlabeled", lambda count: ["CCO"] * count)
    with pytest.raises(script.CommandError, match="there are only 1"):
        script.sources(None, tmp_path, [2, 10], ["predict"])
