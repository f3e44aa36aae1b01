import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import torch
from starlette.testclient import TestClient

from molattn.config import NetworkConfig, ServeConfig
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.serve.app import make_app
from molattn.serve.catalog import load_models
from molattn.task import Task

SMALL = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
TASKS = (
    Task("logS", unit="log mol/L"),
    Task("toxic", "binary", ("no", "yes")),
    Task("phase", "multiclass", ("gas", "liquid", "solid")),
)
KNOWN = ["C" * n for n in range(1, 13)] + ["C" * n + "O" for n in range(1, 13)]


@pytest.fixture(scope="session")
def model_folders(tmp_path_factory):
    """Folders of a calibrated model of three tasks, and of one of two molecules and a feature."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("models")
    mixed = MolAttn(MolAttnConfig(TASKS, SMALL)).eval()
    mixed.set_target_scaling([1.0, 0.0, 0.0], [2.0, 1.0, 1.0])
    labels = [[n / 5, n % 2, n % 3] for n in range(len(KNOWN))]
    mixed.calibrate(KNOWN, labels, KNOWN)
    pair = MolAttn(
        MolAttnConfig(("y",), SMALL, partner_column="solvent", features=("temperature",))
    ).eval()
    for name, model in {"mixed": mixed, "pair": pair}.items():
        model.save_pretrained(folder / name)
    return [folder / "mixed", folder / "pair"]


@pytest.fixture(scope="session")
def catalog(model_folders):
    return load_models(model_folders)


@pytest.fixture
def served(catalog):
    """Open a client of a server with options; a context manager."""

    @contextmanager
    def opened(models=None, **options):
        config = ServeConfig(**options)
        state = make_app(models or catalog, config).state
        with TestClient(
            state.guard, base_url="http://localhost", raise_server_exceptions=False
        ) as one:
            one.worker = state.worker
            yield one

    return opened


@pytest.fixture
def client(served):
    with served() as one:
        yield one


def run_apart(main):
    """Run a coroutine in a thread of its own: playwright keeps a running loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, main).result()
