"""Interrupted tables: whatever was written of them, the result is that of an uninterrupted run."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from molattn.cli import main
from molattn.config import EmbedConfig, NetworkConfig, PredictConfig
from molattn.errors import InputError
from molattn.inference import embed_table, parts, predict_table, streaming
from molattn.inference.parts import resume_hint
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
CONFIG, RESUME = (PredictConfig(batch_size=SIZE, resume=resume) for resume in (False, True))


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
    monkeypatch.setattr(streaming, "_BLOCK_ROWS", SIZE)
    monkeypatch.setattr(parts, "_MOST_ROWS", SIZE)
    Path("in.csv").write_text("\n".join(["id,smiles,y,toxic", *ROWS]) + "\n")


def interrupted(output, act, blocks):
    """Interrupt what is done after some blocks."""
    count, original = iter(range(blocks)), streaming.compute_rows

    def compute_rows(*args):
        if next(count, None) is None:
            raise KeyboardInterrupt
        return original(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "compute_rows", compute_rows)
        with pytest.raises(KeyboardInterrupt):
            act()
    assert not Path(output).exists()
    return Path(f"{output}.unfinished")


def content(path):
    """The bytes of a file before it was compressed."""
    kind = {".gz": "gzip", ".zst": "zstd"}.get(Path(path).suffix)
    return pa.input_stream(str(path), compression=kind).read()


@pytest.mark.parametrize("name", ["o.sdf", "o.csv.zst"])
def test_after_any_part_the_result_is_the_same(model, name):
    whole = predict_table(model, "in.csv", f"whole-{name}", CONFIG).tally
    folder = interrupted(name, lambda: predict_table(model, "in.csv", name, CONFIG), 7)
    shutil.copytree(folder, "kept")
    for count in (0, 1, 4, 7):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree("kept", folder)
        Path(name).unlink(missing_ok=True)
        for part in sorted(folder.glob("*.rows"))[count:]:
            part.unlink()
        tally = predict_table(model, "in.csv", name, RESUME).tally
        assert repr(replace(tally, seconds=0)) == repr(replace(whole, seconds=0))
        assert content(name) == content(f"whole-{name}")
        assert sorted(os.listdir()) == sorted(["in.csv", "kept", name, f"whole-{name}"])


def test_only_the_rows_that_are_missing_are_computed(model, monkeypatch):
    monkeypatch.setattr(parts, "_MOST_ROWS", 12)
    for config in (CONFIG, RESUME):
        folder = interrupted("o.csv", lambda: predict_table(model, "in.csv", "o.csv", config), 5)  # noqa: B023
    assert [int(part.stem) for part in sorted(folder.glob("*.rows"))] == [12, 24]
    numbers, original = [], streaming.compute_rows

    def compute_rows(spec, batch):
        numbers.extend(row.table_row.line for row in batch)
        return original(spec, batch)

    monkeypatch.setattr(streaming, "compute_rows", compute_rows)
    predict_table(model, "in.csv", "o.csv", RESUME)
    assert numbers == [*range(26, len(ROWS) + 2)]  # lines, of which the first is the header


def test_embeddings_are_resumed(model):
    config, again = (EmbedConfig(batch_size=SIZE, atoms=True, resume=r) for r in (False, True))
    counts = embed_table(model, "in.csv", "whole.csv", config)
    interrupted("o.csv", lambda: embed_table(model, "in.csv", "o.csv", config), 5)
    assert embed_table(model, "in.csv", "o.csv", again) == counts
    assert content("o.csv") == content("whole.csv")


@pytest.fixture
def kept(model_folder, capsys):
    """The command whose rows are kept."""
    words = ["predict", str(model_folder), "in.csv", "--batch-size", str(SIZE)]
    words += ["--output", "o.csv"]

    def command():
        if main(words) == 130:
            raise KeyboardInterrupt

    interrupted("o.csv", command, 7)
    assert "28 rows kept in o.csv.unfinished" in capsys.readouterr().err
    return words


def test_another_run_is_refused_and_without_the_option_the_rows_are_replaced(kept, capsys, model):
    def refused(words):
        assert main([*words, "--resume"]) == 2
        assert resume_hint(Path("o.csv")).startswith("28 rows kept")
        return capsys.readouterr().err

    assert "interval: got 0.8" in refused([*kept, "--interval", "0.8"])
    torch.manual_seed(1)
    other = MolAttn(model.config)
    other.uncertainty = model.uncertainty
    other.save_pretrained("other")
    assert "MODEL: " in refused([kept[0], "other", *kept[2:]])
    with locked(Path("o.csv.unfinished")):
        assert "another process" in refused(kept)
        assert main(kept) == 2
    with open("in.csv", "a") as file:
        file.write("40,CCO,1,no\n")
    assert "INPUT: " in refused(kept)
    assert main(kept) == 0
    assert "replaced, as --resume is not given: 28 rows kept" in capsys.readouterr().err
    assert sorted(os.listdir()) == ["in.csv", "o.csv", "other"]


@pytest.mark.parametrize(
    "kind", ["a changed digit", "a cut part", "a missing part", "a count", "a copy"]
)
def test_damaged_or_missing_parts_are_refused(kept, capsys, kind):
    whole = {part.name: part.read_bytes() for part in Path("o.csv.unfinished").iterdir()}
    first, second, *_ = sorted(Path("o.csv.unfinished").glob("*.rows"))
    written = second.read_bytes()
    if kind == "a changed digit":
        digit = written.rindex(b"4")
        second.write_bytes(written[:digit] + b"5" + written[digit + 1 :])
    elif kind == "a cut part":
        second.write_bytes(written[: written.rstrip(b"\n").rindex(b"\n") + 1])
    elif kind == "a count":
        second.rename(second.with_name("000000000009.rows"))
    elif kind == "a copy":
        second.write_bytes(first.read_bytes())
    else:
        first.unlink()
    assert main([*kept, "--resume"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not Path("o.csv").exists()
    for name, before in whole.items():
        Path("o.csv.unfinished", name).write_bytes(before)
    Path("o.csv.unfinished/000000000009.rows").unlink(missing_ok=True)
    assert main([*kept, "--resume"]) == 0
    assert main([*kept[:-1], "again.csv"]) == 0
    assert content("o.csv") == content("again.csv")


def test_what_is_no_interrupted_run_is_not_touched(model, model_folder, capsys):
    Path("o.csv.unfinished").mkdir()
    Path("o.csv.unfinished/mine").write_text("mine")
    assert main(["predict", str(model_folder), "in.csv", "--output", "o.csv"]) == 2
    assert "'mine'" in capsys.readouterr().err
    assert Path("o.csv.unfinished/mine").read_text() == "mine"
    with open("in.csv", "a") as file:  # a table that cannot be read leaves nothing
        file.write('"\n')
    with pytest.raises(InputError):
        predict_table(model, "in.csv", "p.csv", CONFIG)
    assert sorted(os.listdir()) == ["in.csv", "o.csv.unfinished"]
