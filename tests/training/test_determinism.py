"""The same options and seed give the same model, whatever surrounds the process."""

import hashlib
import os
import subprocess
import sys

import pytest

from molattn.data.table import bundled_dataset

COMMAND = [sys.executable, "-m", "molattn", "train"]
OPTIONS = "--target-columns logS --split random --epochs 2 --validation-size 0.2 --no-baselines"
SURROUNDINGS = {
    "C": {"PYTHONHASHSEED": "0", "LC_ALL": "C", "TZ": "UTC"},
    "other": {"PYTHONHASHSEED": "1", "LC_ALL": "de_DE.UTF-8", "TZ": "Asia/Kathmandu"},
}


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def molecules(tmp_path):
    path = tmp_path / "molecules.csv"
    path.write_text("".join(bundled_dataset().read_text().splitlines(keepends=True)[:200]))
    return path


@pytest.mark.faults
def test_hash_seed_locale_time_zone_folder_and_caches_change_no_bit(molecules, tmp_path):
    found = []
    for name, variables in SURROUNDINGS.items():
        folder = tmp_path / name
        (folder / "home").mkdir(parents=True)  # with cold caches
        home = {key: str(folder / "home") for key in ("HOME", "MPLCONFIGDIR", "XDG_CACHE_HOME")}
        for run in ("cold", "warm"):
            subprocess.run(
                [*COMMAND, molecules, *OPTIONS.split(), "--output", run],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **home, **variables},
                cwd=folder,
                check=True,
                capture_output=True,
            )
            files = [*sorted((folder / run / "model").iterdir()), folder / run / "predictions.csv"]
            found.append({path.name: digest(path) for path in files})
    assert all(one == found[0] for one in found)
