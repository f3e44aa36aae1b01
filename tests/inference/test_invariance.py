"""What must not change predictions, with a model as users train it; and memory."""

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
from rdkit import Chem

import molattn
from molattn.config import PredictConfig
from molattn.data.table import bundled_dataset
from molattn.inference import predict_table

from ..conftest import rows_of, saved

pytestmark = pytest.mark.faults

COLUMNS = ("logS_predicted", "logS_low", "logS_high")


@pytest.fixture(scope="module")
def smiles():
    return [row["smiles"] for row in rows_of(bundled_dataset())][:300]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "molecules.csv"
    path.write_text("".join(bundled_dataset().read_text().splitlines(keepends=True)[:301]))
    options = {"split": "random", "epochs": 3, "baselines": False, "bootstrap": 0}
    return molattn.train(path, "logS", **options).model


@pytest.fixture
def predicted(model, tmp_path):
    """Predict SMILES as a table, ``[rows, columns]`` in standard deviations of the targets."""

    def predict(smiles, batch_size=64):
        table = saved(tmp_path, "smiles\n" + "".join(f"{text}\n" for text in smiles))
        predict_table(model, table, tmp_path / "out.csv", PredictConfig(batch_size=batch_size))
        rows = rows_of(tmp_path / "out.csv")
        assert [row["smiles"] for row in rows] == smiles
        cells = [[row[name] or np.nan for name in COLUMNS] for row in rows]
        return np.array(cells, dtype=float) / model.target_scale.item()

    return predict


def assert_near(found, expected, atol=1e-5):
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


def test_neither_batches_nor_order_nor_bad_rows_change_a_prediction(predicted, smiles):
    alone, rng = predicted(smiles, 1), np.random.default_rng(0)
    for size in (2, 7, 64, len(smiles)):
        assert_near(predicted(smiles, size), alone)
    order = rng.permutation(len(smiles))
    assert_near(predicted([smiles[row] for row in order]), alone[order])
    bad = ["", "nonsense", "C(C", "c1cccc1", "C" * 3000, "C(C)(C)(C)(C)C"]
    rows = np.sort(rng.choice(len(smiles), 60))
    mixed = [*np.insert(np.array(smiles, dtype=object), rows, rng.choice(bad, 60))]
    is_bad = np.insert(np.zeros(len(smiles), bool), rows, True)
    found = predicted(mixed)
    assert np.isnan(found[is_bad]).all()
    assert_near(found[~is_bad], predicted(smiles), atol=2e-6)  # of 7 digits in the table


def test_writing_a_smiles_in_another_order_of_atoms_changes_no_prediction(predicted, smiles):
    some = smiles[::3]
    expected = predicted(some)
    for seed in range(10):
        written = [
            Chem.MolToRandomSmilesVect(Chem.MolFromSmiles(text), 1, randomSeed=seed)[0]
            for text in some
        ]
        assert_near(predicted(written), expected)


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
    model.values(model.predict_outputs(records))

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


def test_memory_does_not_grow_with_the_rows_of_a_table(smiles, tmp_path):
    few, many = (tmp_path / name for name in ("few.csv", "many.csv"))
    for path, count in ((few, 10_000), (many, 100_000)):
        rows = itertools.islice(itertools.cycle(smiles), count)
        path.write_text("row,smiles\n" + "".join(f"{n},{text}\n" for n, text in enumerate(rows)))
    assert measured("stream", few, many) < 100
    assert [int(row["row"]) for row in rows_of(tmp_path / "out.csv")] == [*range(100_000)]
