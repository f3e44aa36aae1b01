"""The extensions that the documentation shows work as printed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.docs

TEXT = (Path(__file__).parents[1] / "docs" / "extending.md").read_text()
BLOCKS = re.findall(r"## An? ([a-z ]+)\n.*?```python\n(.*?)```", TEXT, re.DOTALL)

USE = {
    "layer": "train(layer='mine')",
    "readout": "train(readout='sharp+mean')",
    "attention score": "train(score='distance')",
    "file format": "train('t.jsonl')",
    "metric": "assert 'bias' in train().scores['y']",
    "explanation method": "explain(train().model, 'CCO', method='degree')",
    "featurizer": "train(featurizer='mine').model.predict(['CCO'])",
}

SETUP = """
import json, os, sys, tempfile
import molattn
from molattn.explain import explain
os.chdir(tempfile.mkdtemp())
rows = [{"smiles": "C" * n + "O", "y": n} for n in range(1, 21)]
open("t.jsonl", "w").write("\\n".join(map(json.dumps, rows)))
open("t.csv", "w").write("smiles,y\\n" + "\\n".join(f"{r['smiles']},{r['y']}" for r in rows))
small = dict(width=8, heads=2, layers=1, epochs=1, baselines=False)
def train(table="t.csv", **options):
    return molattn.train(table, "y", device="cpu", **small, **options)
"""


def test_every_kind_of_extension_is_shown():
    assert [kind for kind, _ in BLOCKS] == list(USE)


def test_extensions_take_ten_lines_and_work():
    for kind, code in BLOCKS:
        assert len([line for line in code.splitlines() if line.strip()]) <= 10, kind
    # In one process of its own, as registries are global and starting takes seconds.
    script = "\n".join([SETUP, *(f"{code}\n{USE[kind]}" for kind, code in BLOCKS)])
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
