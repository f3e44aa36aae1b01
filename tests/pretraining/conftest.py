import csv
from itertools import islice

import pytest

from molattn.config import (
    MoleculesConfig,
    PretrainConfig,
    PretrainLoopConfig,
    PretrainNetworkConfig,
)
from molattn.data.table import bundled_dataset
from molattn.pretraining.store import prepare_molecules

SMALL = PretrainNetworkConfig(width=8, heads=2, layers=1, edge_width=4, dropout=0.1)


@pytest.fixture(scope="session")
def smiles_file(tmp_path_factory):
    """A file of sixty molecules."""
    with open(bundled_dataset(), encoding="utf-8", newline="") as file:
        smiles = [row["smiles"] for row in islice(csv.DictReader(file), 60)]
    path = tmp_path_factory.mktemp("molecules") / "some.smi"
    path.write_text("\n".join(smiles) + "\n")
    return path


@pytest.fixture(scope="session")
def store(smiles_file, tmp_path_factory):
    """These molecules, prepared."""
    folder = tmp_path_factory.mktemp("prepared")
    return prepare_molecules([str(smiles_file)], MoleculesConfig(), folder)


@pytest.fixture
def config(smiles_file, store, tmp_path):
    """A run of a small network on them."""
    return PretrainConfig(
        (str(smiles_file),),
        MoleculesConfig(validation_molecules=6),
        SMALL,
        PretrainLoopConfig(epochs=2, batch_size=16, checkpoint_steps=2, device="cpu"),
    )
