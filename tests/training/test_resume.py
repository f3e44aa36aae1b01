import io
from dataclasses import replace

import pytest
from rich.console import Console

from molattn.config import TrainConfig
from molattn.errors import InputError
from molattn.training.checkpoint import CHECKPOINT_FILE, write_checkpoint
from molattn.training.lightning.module import RUN_KEY, STATE_KEY
from molattn.training.resume import resume_checkpoint, resume_message, run_fingerprint
from molattn.version import __version__

CONFIG = TrainConfig.from_options("a.csv", {"target_columns": "y"})


@pytest.fixture
def folder(tmp_path):
    fingerprint = run_fingerprint(CONFIG, None, "a" * 64)
    fingerprint["versions"]["molattn"] = "0.0.1"
    write_checkpoint(
        tmp_path / CHECKPOINT_FILE,
        {RUN_KEY: fingerprint, STATE_KEY: {"epochs": [(1,)]}, "global_step": 7},
    )
    return tmp_path


def test_the_same_run_is_resumed_and_other_versions_are_logged(folder):
    shown = io.StringIO()
    fingerprint = run_fingerprint(CONFIG, None, "a" * 64)
    console = Console(file=shown, width=20)
    checkpoint = resume_checkpoint(folder, CONFIG, "none", fingerprint, "a.csv: it has", console)
    words = (
        f"Run started with molattn 0.0.1, resuming with {__version__}: results may differ in "
        "their last digits\n"
    )
    assert resume_message(checkpoint) == "Resuming after epoch 1, step 7"
    assert shown.getvalue() == words
    assert fingerprint["versions"].keys() == {"molattn", "torch", "rdkit"}


def test_where_there_is_no_checkpoint_there_is_nothing_to_refuse(tmp_path):
    other = run_fingerprint(CONFIG, None, "b" * 64)
    assert resume_checkpoint(tmp_path, CONFIG, "none", other, "a.csv: it has", None) is None


def test_another_run_is_refused_with_what_differs(folder):
    table = "a.csv: it has"
    other = replace(CONFIG, training=replace(CONFIG.training, seed=1))
    with pytest.raises(InputError, match=f"seed: got 1, but the run in {folder} has 0"):
        resume_checkpoint(
            folder, other, "none", run_fingerprint(other, None, "a" * 64), table, None
        )
    fingerprint = run_fingerprint(CONFIG, None, "b" * 64)
    with pytest.raises(InputError, match=rf"{table} changed since .*bbb\.\.\., was aaa"):
        resume_checkpoint(folder, CONFIG, "none", fingerprint, table, None)
    fingerprint = run_fingerprint(CONFIG, "c" * 64, "a" * 64)
    with pytest.raises(InputError, match=r"init_from: the model base has changed since"):
        resume_checkpoint(folder, CONFIG, "base", fingerprint, table, None)
