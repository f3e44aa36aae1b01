import importlib.util
import re
from pathlib import Path

import torch
from torch_geometric.data import Batch

SCRIPT = Path(__file__).parents[2] / "scripts" / "example_gine.py"
ADDED = "# +\n"


def load():
    spec = importlib.util.spec_from_file_location("example_gine", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_prints_the_errors_of_both_models(capsys):
    load().main(["--epochs", "1", "--rows", "24"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["GINE", "GINE with attention"]
    assert all(0 < float(re.findall(r"RMSE (\S+)", line)[0]) < float("inf") for line in lines)


def test_the_lines_added_are_as_many_as_it_says():
    text = SCRIPT.read_text()
    count = sum(line.endswith(ADDED) for line in text.splitlines(keepends=True))
    assert f"in {count} lines" in text.partition("\n")[0]
    assert count < 10


def test_without_the_lines_added_it_is_the_stock_model():
    lines = SCRIPT.read_text().splitlines(keepends=True)
    stock = {"__name__": "stock"}
    exec("".join(line for line in lines if not line.endswith(ADDED)), stock)
    assert not [name for name, value in stock.items() if "molattn.nn" in repr(value)]
    module = load()
    batch = Batch.from_data_list(module.molecules(["CCO", "c1ccccc1", "C"], [0.0, 0.0, 0.0]))
    models = []
    for make in (stock["GINE"], module.GINE):
        torch.manual_seed(0)
        models.append(make(attention=False))
    torch.testing.assert_close(models[0](batch), models[1](batch))
