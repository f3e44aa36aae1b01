"""What every test stands on: seeds, threads, example generation and the optional larger data."""

import os
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch

# Small tensors gain nothing from threads, and one thread adds in the same order every time.
torch.set_num_threads(1)

# First calls compile, import and fill caches, so a deadline per example would only flake.
hypothesis.settings.register_profile("local", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 (for libraries that draw from the global state)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of larger real data sets beside the checkout, which not every machine has."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no larger data sets at {folder}")
    return folder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
