"""Shift: what a classifier can tell from training molecules."""

import numpy as np
import pytest
from rich.console import Console

from molattn import MolAttn, MolAttnConfig
from molattn.chem.fingerprint_index import read_fingerprints
from molattn.chem.shift import shift_auc, shift_lines
from molattn.config import NetworkConfig
from molattn.data.table import bundled_dataset
from molattn.inference import predict_table
from molattn.task import Task

from ..conftest import rows_of, saved

SMILES = [row["smiles"] for row in rows_of(bundled_dataset())]
RINGS = [text for text in SMILES if "1" in text]
CHAINS = [text for text in SMILES if "1" not in text]


def test_only_molecules_of_another_kind_are_told_from_training_molecules():
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(SMILES))
        prints = read_fingerprints([SMILES[n] for n in order])
        alike = shift_auc(prints[200:], prints[:200], seed)
        assert alike == pytest.approx(0.5, abs=0.08)
        assert shift_lines(alike, "these") == []
    far = shift_auc(read_fingerprints(RINGS), read_fingerprints(CHAINS))
    assert far is not None
    assert far > 0.95
    assert f"AUC {far:.2f}" in shift_lines(far, "these")[0]
    assert shift_auc(prints, prints[:49]) is None


SHORT = sorted(RINGS[::2], key=len)[:60]  # unlike the others, but training molecules


@pytest.mark.parametrize(
    "smiles, is_shifted",
    [(RINGS[1::6], False), (CHAINS[1::6], True), (SHORT, False), (SHORT * 5 + CHAINS[1::6], True)],
)
def test_a_shift_of_a_predicted_table_is_logged(tmp_path, smiles, is_shifted):
    config = MolAttnConfig((Task("y"),), NetworkConfig(width=8, heads=2, layers=1))
    model = MolAttn(config).eval()
    model.calibrate(RINGS[:20], np.zeros((20, 1)), RINGS[::2])
    table = saved(tmp_path, "\n".join(["smiles", *smiles, ""]))
    console = Console(record=True)
    predict_table(model, table, tmp_path / "out.csv", console=console)
    assert ("shift: " in console.export_text()) == is_shifted
