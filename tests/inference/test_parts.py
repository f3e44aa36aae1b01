import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from molattn.cli import main
from molattn.config import EmbedConfig, NetworkConfig, PredictConfig
from molattn.errors import InputError
from molattn.inference import parts, streaming
from molattn.inference.embed import fingerprint_table
from molattn.inference.parts import resume_hint
from molattn.inference.predict import predict_table, screen_table
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.task import Task
from molattn.utils.files import locked

SMILES = ["CCO", "C" * 9, "nonsense", "c1ccccc1O", "", "CC(C)N", "=1+1", "OCC"]
SIZE = 4
ROWS = [
    f"{number},{SMILES[number % len(SMILES)]},{'x' if number % 11 == 5 else number % 7},"
    f"{['no', 'yes', ''][number % 3]}"
    for number in range(40)
]
CONFIG = PredictConfig(batch_size=SIZE)
RESUME = replace(CONFIG, resume=True)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    small = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
    tasks = (Task("y"), Task("toxic", "binary", ("no", "yes")))
    model = MolAttn(MolAttnConfig(tasks, small)).eval()
    targets = np.stack([np.arange(30.0), np.arange(30) % 2], axis=1)
    model.calibrate(["CCO", "CCN"] * 15, targets, ["CCO"])
    return model


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(streaming, "_BLOCK", SIZE)
    monkeypatch.setattr(parts, "_MOST_ROWS", SIZE)
    Path("in.csv").write_text("\n".join(["id,smiles,y,toxic", *ROWS]) + "\n")


def interrupted(output, act, batches):
    """Interrupt what is done after some batches."""
    count, original = iter(range(batches)), streaming.computed

    def computed(*args):
        if next(count, None) is None:
            raise KeyboardInterrupt
        return original(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "computed", computed)
        with pytest.raises(KeyboardInterrupt):
            act()
    assert not Path(output).exists()
    return Path(f"{output}.unfinished")


def content(path):
    """The bytes of a file before it was compressed."""
    kind = {".gz": "gzip", ".zst": "zstd"}.get(Path(path).suffix)
    return pa.input_stream(str(path), compression=kind).read()


def counted(screening):
    """All that was counted, but the time."""
    return json.dumps({**asdict(screening.tally), "seconds": 0.0}, default=list)


@pytest.mark.parametrize("name", ["o.csv", "o.tsv", "o.sdf", "o.csv.gz", "o.csv.zst", "o"])
def test_after_any_part_the_result_is_the_same(model, name):
    whole = screen_table(model, "in.csv", f"whole-{name}", CONFIG)
    assert len(whole.target) > 20
    folder = interrupted(name, lambda: screen_table(model, "in.csv", name, CONFIG), 7)
    shutil.copytree(folder, "kept")
    for count in range(8):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree("kept", folder)
        Path(name).unlink(missing_ok=True)
        for part in sorted(folder.glob("*.rows"))[count:]:
            part.unlink()
        assert counted(screen_table(model, "in.csv", name, RESUME)) == counted(whole)
        assert content(name) == content(f"whole-{name}")
        assert sorted(os.listdir()) == sorted(["in.csv", "kept", name, f"whole-{name}"])


def test_only_the_rows_that_are_missing_are_computed_however_often_it_is_interrupted(
    model, monkeypatch
):
    predict_table(model, "in.csv", "whole.csv", CONFIG)
    for config in (CONFIG, RESUME, RESUME):
        interrupted("o.csv", lambda: predict_table(model, "in.csv", "o.csv", config), 3)  # noqa: B023
    assert resume_hint(Path("o.csv")).startswith("36 rows kept in o.csv.unfinished; ")
    numbers, original = [], streaming.computed

    def computed(spec, batch):
        numbers.extend(row.number for row in batch)
        return original(spec, batch)

    monkeypatch.setattr(streaming, "computed", computed)
    predict_table(model, "in.csv", "o.csv", RESUME)
    assert numbers == [*range(37, len(ROWS) + 1)]
    assert content("o.csv") == content("whole.csv")


@pytest.mark.parametrize("atoms", [False, True])
def test_embeddings_are_resumed(model, atoms):
    config, again = (EmbedConfig(batch_size=SIZE, atoms=atoms, resume=r) for r in (False, True))
    counts = fingerprint_table(model, "in.csv", "whole.csv", config)
    interrupted("o.csv", lambda: fingerprint_table(model, "in.csv", "o.csv", config), 5)
    assert fingerprint_table(model, "in.csv", "o.csv", again) == counts
    assert content("o.csv") == content("whole.csv")


@pytest.mark.parametrize(
    "name, value", [("_MOST_ROWS", 12), ("_MOST_BYTES", 1000), ("_MOST_SECONDS", 1e9)]
)
def test_a_part_ends_by_rows_bytes_or_time(model, monkeypatch, name, value):
    for limit in ("_MOST_ROWS", "_MOST_BYTES", "_MOST_SECONDS"):
        monkeypatch.setattr(parts, limit, value if limit == name else 1e9)
    folder = interrupted("o.csv", lambda: predict_table(model, "in.csv", "o.csv", CONFIG), 7)
    found = [int(part.stem) for part in sorted(folder.glob("*.rows"))]
    assert found == {"_MOST_ROWS": [12, 24], "_MOST_BYTES": [20], "_MOST_SECONDS": []}[name]


@pytest.fixture
def kept(model_folder):
    """The command whose rows are kept."""
    words = ["predict", str(model_folder), "in.csv", "--batch-size", str(SIZE)]
    words += ["--output", "o.csv"]
    interrupted("o.csv", lambda: predict_table(model_folder, "in.csv", "o.csv", CONFIG), 7)
    return words


def refused(words, capsys):
    assert main([*words, "--resume"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert resume_hint(Path("o.csv")).startswith("28 rows kept")
    return line


def test_another_option_input_or_model_is_refused(kept, capsys, model):
    assert "interval: got 0.8" in refused([*kept, "--interval", "0.8"], capsys)
    torch.manual_seed(1)
    other = MolAttn(model.config)
    other.uncertainty = model.uncertainty
    other.save_pretrained("other")
    assert "MODEL: " in refused([kept[0], "other", *kept[2:]], capsys)
    with open("in.csv", "a") as file:
        file.write("40,CCO,1,no\n")
    assert "INPUT: " in refused(kept, capsys)


def test_another_version_is_reported(kept, capsys, monkeypatch):
    monkeypatch.setattr("molattn.version.version", lambda package: "0.0")
    assert main([*kept, "--resume"]) == 0
    assert "resuming with 0.0" in capsys.readouterr().err


def test_what_another_process_writes_is_not_touched(kept, capsys):
    with locked(Path("o.csv.unfinished")):
        assert "another process" in refused(kept, capsys)
        assert main(kept) == 2
    assert main([*kept, "--resume"]) == 0


def test_without_the_option_the_rows_are_replaced(kept, capsys):
    assert main(kept) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("replaced, as --resume is not given: 28 rows kept")
    assert sorted(os.listdir()) == ["in.csv", "o.csv"]


def test_with_nothing_to_resume_it_begins_or_is_refused(model_folder, capsys):
    words = ["predict", str(model_folder), "in.csv", "--output", "o.csv", "--resume"]
    assert main(words) == 0
    whole = content("o.csv")
    assert main(words) == 2
    assert content("o.csv") == whole
    assert sorted(os.listdir()) == ["in.csv", "o.csv"]


@pytest.mark.parametrize("output", ["o.parquet", "o.xlsx", "-"])
def test_outputs_that_cannot_be_resumed_are_refused(model_folder, capsys, output):
    assert main(["predict", str(model_folder), "in.csv", "--output", output, "--resume"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--resume" in line
    assert os.listdir() == ["in.csv"]


def test_a_foreign_folder_of_that_name_is_not_touched(model_folder, capsys):
    Path("o.csv.unfinished").mkdir()
    Path("o.csv.unfinished/mine").write_text("mine")
    assert main(["predict", str(model_folder), "in.csv", "--output", "o.csv"]) == 2
    assert "'mine'" in capsys.readouterr().err
    assert Path("o.csv.unfinished/mine").read_text() == "mine"


def test_a_wrong_row_leaves_nothing(model):
    with open("in.csv", "a") as file:
        file.write('"\n')
    with pytest.raises(InputError):
        predict_table(model, "in.csv", "o.csv", CONFIG)
    assert os.listdir() == ["in.csv"]


# The process tells when it has written some parts, and then waits to be killed.
WAITING = """
import sys
from molattn.cli.program import run
from molattn.inference import parts, streaming

write, streaming._BLOCK, parts._MOST_ROWS, left = parts.write_file, 4, 4, [7]

def write_file(*args):
    left[0] -= 1
    if left[0] < 0:
        print("waiting", flush=True)
        sys.stdin.read()
    write(*args)

if __name__ == "__main__":
    parts.write_file = write_file
    run()
"""


@pytest.mark.parametrize(
    "name, one, workers",
    [("o.csv", signal.SIGTERM, "0"), ("o.tsv.gz", signal.SIGKILL, "1")],
)
def test_a_killed_process_is_resumed_byte_for_byte(model, model_folder, capsys, one, workers, name):
    Path("waiting.py").write_text(WAITING)
    screen_table(model, "in.csv", f"whole-{name}", CONFIG)
    words = ["predict", str(model_folder), "in.csv", "--batch-size", str(SIZE), "--output", name]
    words += ["--num-workers", workers]
    process = subprocess.Popen(
        [sys.executable, "waiting.py", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    with process:
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(one)
        errors = process.stderr.read()
    if one == signal.SIGTERM:
        assert process.returncode == 143
        assert f"28 rows kept in {name}.unfinished" in errors.splitlines()[-1]
    else:
        assert process.returncode == -one
    assert not Path(name).exists()
    assert main([*words, "--resume"]) == 0
    assert "resuming: 28 rows" in capsys.readouterr().err
    assert content(name) == content(f"whole-{name}")
    assert sorted(os.listdir()) == sorted(["in.csv", "waiting.py", name, f"whole-{name}"])
