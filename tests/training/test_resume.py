import io
from dataclasses import replace

import pytest
from rich.console import Console

from molattn.config import TrainConfig
from molattn.errors import InputError
from molattn.training.checkpoint import CHECKPOINT_FILE, write_checkpoint
from molattn.training.lightning.loop import ABOUT
from molattn.training.resume import check_same_run, run_fingerprint
from molattn.version import __version__

CONFIG = TrainConfig.from_options("a.csv", {"target_columns": "y"})


@pytest.fixture
def folder(tmp_path):
    about = run_fingerprint(CONFIG, None, "a" * 64)
    about["versions"]["molattn"] = "0.0.1"
    write_checkpoint(tmp_path / CHECKPOINT_FILE, {ABOUT: about})
    return tmp_path


def test_the_same_run_goes_on_and_other_versions_are_told(folder):
    shown = io.StringIO()
    about = run_fingerprint(CONFIG, None, "a" * 64)
    console = Console(file=shown, width=20)
    check_same_run(folder, CONFIG, "none", about, "a.csv: it has", console)
    told = f"begun with molattn 0.0.1, going on with {__version__}: digits may differ\n"
    assert shown.getvalue() == told
    assert about["versions"].keys() == {"molattn", "torch", "rdkit"}


def test_where_there_is_no_checkpoint_there_is_nothing_to_refuse(tmp_path):
    other = run_fingerprint(CONFIG, None, "b" * 64)
    check_same_run(tmp_path, CONFIG, "none", other, "a.csv: it has", None)


def test_another_run_is_refused_with_what_differs(folder):
    table = "a.csv: it has"
    other = replace(CONFIG, training=replace(CONFIG.training, seed=1))
    with pytest.raises(InputError, match=f"--seed: got 1, but the run in {folder} has 0"):
        check_same_run(folder, other, "none", run_fingerprint(other, None, "a" * 64), table, None)
    about = run_fingerprint(CONFIG, None, "b" * 64)
    with pytest.raises(InputError, match=rf"{table} changed since .*bbb\.\.\., was aaa"):
        check_same_run(folder, CONFIG, "none", about, table, None)
    about = run_fingerprint(CONFIG, "c" * 64, "a" * 64)
    with pytest.raises(InputError, match=r"--init-from: the model base has changed since"):
        check_same_run(folder, CONFIG, "base", about, table, None)
