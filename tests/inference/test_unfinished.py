import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from molattn.cli import main
from molattn.config import EmbedConfig, NetworkConfig, PredictConfig
from molattn.data.table import TableWriter
from molattn.data.table.formats import FORMATS, FileFormat
from molattn.errors import InputError
from molattn.inference import streaming, unfinished
from molattn.inference.embed import fingerprint_table
from molattn.inference.predict import predict_table, screen_table
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.task import Task

SMILES = ["CCO", "C" * 9, "nonsense", "c1ccccc1O", "", "CC(C)N", "=1+1", "OCC"]
SIZE = 4
HEADER = "id,smiles,y,toxic"
ROWS = [
    f"{number},{SMILES[number % len(SMILES)]},{'x' if number % 11 == 5 else number % 7},"
    f"{['no', 'yes', ''][number % 3]}"
    for number in range(40)
]


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    small = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
    tasks = (Task("y"), Task("toxic", "binary", ("no", "yes")))
    model = MolAttn(MolAttnConfig(tasks, small)).eval()
    known = [row.split(",")[1] for row in ROWS[:1]]
    model.calibrate(
        ["CCO", "CCN"] * 15,
        np.stack([np.arange(30.0), np.arange(30) % 2], axis=1),
        known,
    )
    return model


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(streaming, "_ROWS_PER_ENTRY", SIZE)
    Path("in.csv").write_text("\n".join([HEADER, *ROWS]) + "\n")


def options(**given):
    return PredictConfig(batch_size=SIZE, **given)


def interrupted(output, act, batches):
    """Do something that is interrupted after so many batches."""
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


def assert_same(one, two):
    """Check all of two screenings but the time."""
    assert one.seconds > 0.0
    assert two.seconds > 0.0
    for name in one._fields:
        if name != "seconds":
            np.testing.assert_equal(getattr(one, name), getattr(two, name))


@pytest.mark.parametrize("name", ["o.csv", "o.tsv", "o.sdf", "o.csv.gz", "o.csv.zst", "o"])
def test_wherever_the_rows_and_the_journal_are_cut_the_result_is_the_same(model, name):
    whole = screen_table(model, "in.csv", f"whole-{name}", options())
    assert whole.labeled > 20
    assert whole.unusable
    folder = interrupted(name, lambda: screen_table(model, "in.csv", name, options()), 7)
    shutil.copytree(folder, "kept")
    sizes = [Path("kept", part).stat().st_size for part in ("rows", "journal.jsonl")]
    assert min(sizes) > 0

    @given(st.data())
    @settings(max_examples=25)
    def check(data):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree("kept", folder)
        Path(name).unlink(missing_ok=True)
        for part, size in zip(("rows", "journal.jsonl"), sizes, strict=True):
            with open(folder / part, "r+b") as file:
                file.truncate(data.draw(st.one_of(st.just(size), st.integers(0, size))))
                if data.draw(st.booleans()):  # a row that was not committed, or a block of zeros
                    file.seek(0, os.SEEK_END)
                    file.write(data.draw(st.binary(max_size=9)))
        assert_same(screen_table(model, "in.csv", name, options(resume=True)), whole)
        assert content(name) == content(f"whole-{name}")
        assert sorted(os.listdir()) == sorted(["in.csv", "kept", name, f"whole-{name}"])

    check()


@settings(max_examples=25)
@given(place=st.integers(0), byte=st.integers(1, 255))
def test_damaged_rows_are_written_again(model, tmp_path_factory, place, byte):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("damaged"))
        patch.setattr(streaming, "_ROWS_PER_ENTRY", SIZE)
        Path("in.csv").write_text("\n".join([HEADER, *ROWS]) + "\n")
        predict_table(model, "in.csv", "whole.csv", options())
        folder = interrupted("o.csv", lambda: predict_table(model, "in.csv", "o.csv", options()), 7)
        rows = bytearray((folder / "rows").read_bytes())
        rows[place % len(rows)] ^= byte
        (folder / "rows").write_bytes(rows)
        predict_table(model, "in.csv", "o.csv", options(resume=True))
        assert content("o.csv") == content("whole.csv")


def test_only_the_rows_that_are_missing_are_computed(model, monkeypatch, capsys):
    predict_table(model, "in.csv", "whole.csv", options())
    interrupted("o.csv", lambda: predict_table(model, "in.csv", "o.csv", options()), 7)
    numbers, original = [], streaming.computed

    def computed(spec, batch):
        numbers.extend(row.number for row in batch)
        return original(spec, batch)

    monkeypatch.setattr(streaming, "computed", computed)
    predict_table(model, "in.csv", "o.csv", options(resume=True))
    assert numbers == [*range(7 * SIZE + 1, len(ROWS) + 1)]


def test_it_can_be_interrupted_again_and_again(model):
    whole = screen_table(model, "in.csv", "whole.csv", options())
    for resume in (False, True, True):
        act = lambda: screen_table(model, "in.csv", "o.csv", options(resume=resume))  # noqa: B023, E731
        interrupted("o.csv", act, 3)
    assert unfinished.resume_hint(Path("o.csv")).startswith("36 rows kept in o.csv.unfinished; ")
    assert_same(screen_table(model, "in.csv", "o.csv", options(resume=True)), whole)
    assert content("o.csv") == content("whole.csv")


@pytest.mark.parametrize("atoms", [False, True])
def test_embeddings_are_resumed(model, atoms):
    config, again = (EmbedConfig(batch_size=SIZE, atoms=atoms, resume=r) for r in (False, True))
    counts = fingerprint_table(model, "in.csv", "whole.csv", config)
    interrupted("o.csv", lambda: fingerprint_table(model, "in.csv", "o.csv", config), 5)
    assert fingerprint_table(model, "in.csv", "o.csv", again) == counts
    assert content("o.csv") == content("whole.csv")


@pytest.fixture
def left(model, model_folder):
    """What is left of an interrupted run of the command."""
    words = ["predict", str(model_folder), "in.csv", "--batch-size", str(SIZE)]
    words += ["--output", "o.csv"]
    interrupted("o.csv", lambda: predict_table(model_folder, "in.csv", "o.csv", options()), 7)
    return words


def refused(words, capsys):
    assert main([*words, "--resume"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert Path("o.csv.unfinished/rows").stat().st_size > 0
    return line


def test_other_options_are_refused(left, capsys):
    assert refused([*left, "--interval", "0.8"], capsys) == (
        "error: --interval: got 0.8, but the run in o.csv.unfinished has 0.9; use the same value, "
        "or start a new run"
    )


def change_run(change):
    """Change what the journal says of the run that was interrupted."""
    journal = Path("o.csv.unfinished/journal.jsonl")
    first, rest = journal.read_text().split("\n", 1)
    run = json.loads(first)
    change(run["run"])
    journal.write_text(json.dumps(run) + "\n" + rest)


def test_an_option_that_the_interrupted_run_did_not_know_is_refused(left, capsys):
    change_run(lambda run: run["options"].pop("interval"))
    assert "--interval: got 0.9, but the run in o.csv.unfinished has None" in refused(left, capsys)


def test_rows_that_another_process_has_just_left_are_checked(left, capsys, monkeypatch):
    def locked(folder, path):
        change_run(lambda run: run["options"].update(interval=0.5))
        return lock(folder, path)

    lock = unfinished._locked_journal
    monkeypatch.setattr(unfinished, "_locked_journal", locked)
    assert "--interval: got 0.9, but the run in o.csv.unfinished has 0.5" in refused(left, capsys)


def test_another_input_is_refused(left, capsys):
    with open("in.csv", "a") as file:
        file.write("40,CCO,1,no\n")
    assert refused(left, capsys).startswith(
        "error: INPUT: the table has changed since the run in o.csv.unfinished was started (SHA-256"
    )


def test_another_model_is_refused(left, capsys, model):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        other = MolAttn(model.config)
    other.uncertainty = model.uncertainty
    other.save_pretrained("other")
    left[1] = "other"
    line = refused(left, capsys)
    assert line.startswith("error: MODEL: the model has changed since the run in o.csv.unfinished")


def test_another_version_is_told(left, capsys):
    change_run(lambda run: run["versions"].update(torch="1.0"))
    assert main([*left, "--resume"]) == 0
    assert "Run started with torch 1.0, resuming with " in capsys.readouterr().err


def test_what_another_process_writes_is_not_touched(left, capsys):
    with open("o.csv.unfinished/journal.jsonl", "ab") as journal:
        assert unfinished.lock_file(journal.fileno())
        words = "o.csv: another process is writing this file; wait for it to end"
        assert refused(left, capsys) == f"error: {words}"
        assert main(left) == 2
        assert capsys.readouterr().err == f"error: {words}\n"
    assert main([*left, "--resume"]) == 0


def test_an_interruption_while_the_rows_are_checked_keeps_them(left, capsys, monkeypatch):
    before = Path("o.csv.unfinished/rows").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(unfinished, "_borne_out", Mock(side_effect=KeyboardInterrupt))
        assert main([*left, "--resume"]) == 130
    assert "28 rows kept in o.csv.unfinished; to resume: " in capsys.readouterr().err
    assert Path("o.csv.unfinished/rows").read_bytes() == before
    assert main([*left, "--resume"]) == 0
    assert "resuming after 28 rows" in capsys.readouterr().err


def test_without_the_option_the_rows_are_replaced(left, capsys):
    assert main(left) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "28 rows kept in o.csv.unfinished: replaced, as --resume is not given"
    assert not any("resuming" in line for line in lines)
    assert sorted(os.listdir()) == ["in.csv", "o.csv"]


def test_with_nothing_to_resume_it_begins_or_is_refused(model_folder, capsys):
    words = ["predict", str(model_folder), "in.csv", "--output", "o.csv", "--resume"]
    assert main(words) == 0
    told = "o.csv: no rows of an interrupted run; starting with the first\n"
    assert told in capsys.readouterr().err
    whole = content("o.csv")
    assert main(words) == 2
    assert capsys.readouterr().err == (
        "error: --resume: o.csv exists, and there is no interrupted run (o.csv.unfinished) to go "
        "on with; leave out --resume to replace it\n"
    )
    assert content("o.csv") == whole
    assert sorted(os.listdir()) == ["in.csv", "o.csv"]


def test_a_whole_table_whose_run_was_killed_while_cleaning_up_is_resumed(
    model_folder, capsys, monkeypatch
):
    words = ["predict", str(model_folder), "in.csv", "--output", "o.csv", "--resume"]

    def act():
        with monkeypatch.context() as patch:
            patch.setattr(unfinished, "_remove", Mock())
            assert main(words) == 0
        assert sorted(os.listdir("o.csv.unfinished")) == ["journal.jsonl"]

    act()
    whole = content("o.csv")
    capsys.readouterr()
    act()
    assert "resuming after 40 rows" in capsys.readouterr().err
    assert content("o.csv") == whole
    assert main(words) == 0
    assert sorted(os.listdir()) == ["in.csv", "o.csv"]
    assert content("o.csv") == whole
    for changed in (whole + b"more\n", whole[:-9], whole[:-1] + b" "):
        Path("o.csv").unlink()
        act()
        Path("o.csv").write_bytes(changed)
        assert main(words) == 2
        assert content("o.csv") == changed


@pytest.mark.parametrize(
    "output, told",
    [
        ("o.parquet", "--resume: o.parquet: Parquet files cannot be resumed, expected "),
        ("o.xlsx", "--resume: o.xlsx: Excel files cannot be resumed, expected "),
        ("-", "--resume needs a file to write to (--output)"),
    ],
)
def test_outputs_that_cannot_be_resumed_are_refused(model_folder, capsys, output, told):
    assert main(["predict", str(model_folder), "in.csv", "--output", output, "--resume"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {told}")
    assert os.listdir() == ["in.csv"]


def test_a_foreign_folder_of_that_name_is_not_touched(model_folder, capsys):
    Path("o.csv.unfinished").mkdir()
    Path("o.csv.unfinished/mine").write_text("mine")
    assert main(["predict", str(model_folder), "in.csv", "--output", "o.csv"]) == 2
    assert "contains 'mine', which is not part of an interrupted run" in capsys.readouterr().err
    assert Path("o.csv.unfinished/mine").read_text() == "mine"


def test_a_format_of_another_package_can_be_resumed(model, monkeypatch):
    class Lines(TableWriter):
        def __init__(self, file, header, types):
            self.file = file
            self.write(header)

        def write(self, cells):
            self.file.write((json.dumps([str(cell) for cell in cells]) + "\n").encode())

    one = FileFormat("lines", (".lines",), lambda path: None, Lines, is_resumable=True)
    monkeypatch.setitem(FORMATS._items, "lines", one)
    predict_table(model, "in.csv", "whole.lines", options())
    interrupted("o.lines", lambda: predict_table(model, "in.csv", "o.lines", options()), 7)
    predict_table(model, "in.csv", "o.lines", options(resume=True))
    assert content("o.lines") == content("whole.lines")


def test_a_wrong_row_leaves_nothing_and_a_failing_disk_leaves_rows(model, monkeypatch):
    with open("in.csv", "a") as file:
        file.write('"\n')
    with pytest.raises(InputError, match="cannot be split into cells"):
        predict_table(model, "in.csv", "o.csv", options())
    assert os.listdir() == ["in.csv"]
    Path("in.csv").write_text("\n".join([HEADER, *ROWS]) + "\n")
    original = streaming._Blocks.__iter__

    def failing(blocks):
        for number, batch in enumerate(original(blocks)):
            if number == 3:
                raise InputError("in.csv: Input/output error") from OSError(5, "Input/output error")
            yield batch

    monkeypatch.setattr(streaming._Blocks, "__iter__", failing)
    with pytest.raises(InputError, match="Input/output error"):
        predict_table(model, "in.csv", "o.csv", options())
    assert unfinished.resume_hint(Path("o.csv")).startswith("12 rows kept")


# The process tells when it has kept some blocks of rows, and then waits to be killed.
WAITING = """
import sys
from molattn.cli.program import run
from molattn.inference import streaming
from molattn.inference.unfinished import UnfinishedTable

original, streaming._ROWS_PER_ENTRY, left = UnfinishedTable.commit, 4, [7]

def commit(*args):
    left[0] -= 1
    if left[0] < 0:
        print("waiting", flush=True)
        sys.stdin.read()
    original(*args)

if __name__ == "__main__":
    UnfinishedTable.commit = commit
    run()
"""


@pytest.mark.parametrize(
    "name, one, workers",
    [
        ("o.csv", signal.SIGTERM, "0"),
        ("o.sdf", signal.SIGKILL, "0"),
        ("o.tsv.gz", signal.SIGKILL, "1"),
    ],
)
def test_a_killed_process_is_resumed_byte_for_byte(model, model_folder, capsys, one, workers, name):
    Path("waiting.py").write_text(WAITING)
    whole = screen_table(model, "in.csv", f"whole-{name}", options())
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
        told = process.stderr.read()
    if one == signal.SIGTERM:
        assert process.returncode == 143
        assert told.splitlines()[-1] == (
            f"error: terminated (SIGTERM); 28 rows kept in {name}.unfinished; to resume: the same "
            "command with --resume"
        )
    else:
        assert process.returncode == -one
    assert not Path(name).exists()
    assert main([*words, "--resume"]) == 0
    printed = capsys.readouterr().err
    assert "resuming after 28 rows" in printed
    assert f"{whole.labeled} rows with labels" in printed
    assert f"{whole.counts.done} rows predicted, {whole.counts.errors} with an error" in printed
    assert content(name) == content(f"whole-{name}")
    assert sorted(os.listdir()) == sorted(["in.csv", "waiting.py", name, f"whole-{name}"])
