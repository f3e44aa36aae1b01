"""Memory does not grow with molecules and tables."""

import itertools
import os
import subprocess
import sys

import pytest

from molattn.data.table import bundled_dataset

from ..conftest import rows_of

pytestmark = pytest.mark.faults

# Prints by how many MB the peak of the memory grew, after a warm-up.
MEASURE = """
import resource, sys
from pathlib import Path
import torch
from molattn.config import NetworkConfig
from molattn.inference import predict_table
from molattn.model.model import MolAttn, MolAttnConfig

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

torch.set_num_threads(1)
model = MolAttn(MolAttnConfig(("y",), NetworkConfig(width=128, layers=4)))
optimizer = torch.optim.AdamW(model.parameters())

def predict(records):
    model.predictor.values(model.predictor.predict_outputs(records))

def train(records):
    model(model.collate(records)).square().mean().backward()
    optimizer.step()

def stream(path):
    predict_table(MolAttn(MolAttnConfig(("y",), NetworkConfig(width=8, heads=2, layers=1))), path,
                  Path(path).with_name("out.csv"))

few, many = sys.argv[1:] or ([model.featurize("CCO")] * 64, [model.featurize("C" * 1000)])
"""


def measured(name, *arguments):
    code = f"{MEASURE}\n{name}(few)\nbefore = peak()\n{name}(many)\nprint(peak() - before)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return float(subprocess.check_output(command, env=environment, text=True))


def test_a_molecule_of_1000_atoms_needs_little_memory():
    assert measured("predict") < 100
    assert measured("train") < 400


def test_memory_does_not_grow_with_the_rows_of_a_table(tmp_path):
    smiles = [row["smiles"] for row in rows_of(bundled_dataset())][:300]
    few, many = (tmp_path / name for name in ("few.csv", "many.csv"))
    for path, count in ((few, 10_000), (many, 100_000)):
        rows = itertools.islice(itertools.cycle(smiles), count)
        path.write_text("row,smiles\n" + "".join(f"{n},{text}\n" for n, text in enumerate(rows)))
    assert measured("stream", few, many) < 100
    assert [int(row["row"]) for row in rows_of(tmp_path / "out.csv")] == [*range(100_000)]
