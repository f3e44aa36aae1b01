import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import pytest

from molattn import cli
from molattn.cli import main
from molattn.config import ArchitectureConfig, DataConfig, OptimisationConfig, PredictConfig
from molattn.errors import MolattnError
from molattn.table import bundled_dataset

TINY = (
    "--width 8 --heads 2 --layers 1 --edge-width 4 --epochs 2 --batch-size 8 --device cpu"
).split()
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}
SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.fixture(autouse=True)
def _working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture(scope="session")
def small_table(tmp_path_factory):
    lines = bundled_dataset().read_text(encoding="utf-8").splitlines()
    path = tmp_path_factory.mktemp("cli") / "small.csv"
    path.write_text("\n".join([*lines[:31], *lines[-10:], ",nonsense,1,train"]) + "\n")
    return path


@pytest.fixture(scope="session")
def run_folder(small_table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "run"
    options = ["--target-columns", "logS", "--split-column", "split", "--output", str(folder)]
    assert main(["train", str(small_table), *options, *TINY]) == 0
    return folder


def refused(capsys, code, argv):
    """Run a command that must fail, and return its one line."""
    assert main([str(word) for word in argv]) == code
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    return lines[0]


def shell(*words):
    return subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env=ONE_THREAD,
    )


def test_train_then_predict(run_folder, small_table, tmp_path, capsys):
    assert {path.name for path in run_folder.iterdir()} == {
        "config.yaml",
        "history.csv",
        "learning_curve.png",
        "metrics.json",
        "model",
        "parity.png",
        "predictions.csv",
        "skipped.csv",
    }
    assert main(["predict", str(run_folder), str(small_table), "--output", "out.csv"]) == 0
    printed = capsys.readouterr()
    assert "40 predicted, 1 refused; written to out.csv" in printed.out
    assert printed.err == ""
    with open("out.csv", newline="") as out, open(small_table, newline="") as given:
        rows, wanted = list(csv.DictReader(out)), list(csv.DictReader(given))
    assert [row["smiles"] for row in rows] == [row["smiles"] for row in wanted]
    assert [row["error"] != "" for row in rows] == [False] * 40 + [True]


def test_train_tells_scores_baseline_and_skipped_rows(small_table, capsys):
    options = ["--target-columns", "logS", "--target-units", "log mol/L", "--split", "random"]
    assert main(["train", str(small_table), *options, *TINY]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "40 rows used, 1 skipped (line 42:" in printed.out.replace("\n", " ")
    for word in ("RMSE", "MAE", "R²", "logS (log mol/L)", "predict the mean", "runs/small"):
        assert word in printed.out
    metrics = json.loads(Path("runs/small/metrics.json").read_text())
    for part in ("test", "baseline"):
        assert f"{metrics[part]['logS']['rmse']:.3f}" in printed.out


def test_without_a_table_the_bundled_set_is_split_as_published(monkeypatch):
    seen = []

    def train(config, console):
        seen.append(config)
        raise MolattnError("enough")

    monkeypatch.setattr("molattn.training.train", train)
    for options in ([], ["--split", "scaffold"], ["--target-columns", "split"]):
        assert main(["train", *options]) == 1
    published, scaffold, other = (config.data for config in seen)
    assert {Path(config.file) for config in seen} == {bundled_dataset()}
    assert published.target_columns == scaffold.target_columns == ("logS",)
    assert published.target_units == ("log mol/L",)
    assert (published.split_column, published.split) == ("split", None)
    assert (scaffold.split_column, scaffold.split) == (None, "scaffold")
    assert (other.target_columns, other.target_units) == (("split",), ())


def test_runs_do_not_overwrite_each_other_by_default(small_table):
    for _ in range(2):
        assert main(["train", str(small_table), "--target-columns", "logS", *TINY]) == 0
    assert sorted(os.listdir("runs")) == ["small", "small-2"]


@pytest.mark.parametrize(
    "words, expected",
    [
        (["trian"], ["trian", 'Did you mean "train"']),
        (["train", "--epoch", "3"], ["--epoch", "Did you mean --epochs"]),
        (["train", "--epochs", "many"], ["--epochs", "many"]),
        (["train", "--epochs", "0"], ["--epochs", "at least 1"]),
        (["train", "--split", "sorted"], ["--split", "random"]),
        (["train", "a.csv", "b.csv"], ["b.csv"]),
        (["train", "absent.csv", "--target-columns", "y"], ["absent.csv", "no such file"]),
        (["train", "t.csv", "--target-columns", "z"], ["t.csv", "'z'", "--target-columns"]),
        (["train", "t.csv", "--target-columns", "y"], ["t.csv", "line 3", "'y'", "'1,5'"]),
        (["train", "t.csv", "--target-columns", "y", "--output", "t.csv"], ["t.csv", "folder"]),
        (["train", "--heads", "7"], ["7"]),
        (["train", "--readout", "median_of_dreams"], ["median_of_dreams"]),
        (["predict"], ["MODEL"]),
        (["predict", "absent", "t.csv"], ["--output"]),
        (["predict", "absent", "t.csv", "--output", "o.csv"], ["absent", "no such folder"]),
        (["predict", ".", "t.csv", "--output", "o.csv"], ["config.json"]),
    ],
)
def test_wrong_input_is_one_line_and_leaves_nothing(capsys, words, expected):
    Path("t.csv").write_text('smiles,y\nC,1\nCC,"1,5"\n')
    line = refused(capsys, 2, words)
    for word in expected:
        assert word in line
    assert os.listdir() == ["t.csv"]


def test_a_folder_of_something_else_is_not_overwritten(capsys, small_table):
    Path("thesis").mkdir()
    Path("thesis/chapter.tex").write_text("mine")
    words = ["train", small_table, "--target-columns", "logS", "--output", "thesis", *TINY]
    assert "chapter.tex" in refused(capsys, 2, words)
    assert os.listdir("thesis") == ["chapter.tex"]


def test_divergence_is_an_error_of_its_own(capsys, small_table):
    words = ["train", small_table, "--target-columns", "logS", *TINY, "--learning-rate", "1e30"]
    assert "diverged" in refused(capsys, 1, words)
    assert os.listdir() == []


def test_an_unforeseen_error_is_one_line_with_a_hint(capsys, monkeypatch, small_table):
    def broken(*args):
        raise RuntimeError("something\nbroke")

    monkeypatch.setattr("molattn.training.train", broken)
    words = ["train", str(small_table), "--target-columns", "logS"]
    line = refused(capsys, 1, words)
    assert "RuntimeError: something broke" in line
    assert "MOLATTN_TRACEBACK=1" in line
    monkeypatch.setenv("MOLATTN_TRACEBACK", "1")
    with pytest.raises(RuntimeError):
        main(words)


def test_what_a_user_typed_is_escaped_and_cut(capsys):
    line = refused(capsys, 2, ["train", "\x1b[31m" + "é" * 5000])
    assert "\x1b" not in line
    assert line.isascii()
    assert len(line) < 4000


@pytest.mark.parametrize(
    "command, kinds, example",
    [
        ("train", [DataConfig, ArchitectureConfig, OptimisationConfig], "molattn train assay.csv"),
        ("predict", [PredictConfig], "molattn predict runs/solubility"),
    ],
)
def test_help_names_every_option_with_default_and_example(capsys, command, kinds, example):
    assert main([command, "--help"]) == 0
    text = capsys.readouterr().out
    options = [field.name for kind in kinds for field in fields(kind)]
    for name in [*options, "output"]:
        assert f"--{name.replace('_', '-')}" in text
    defaults = [field.default for kind in kinds for field in fields(kind)]
    assert text.count("[default: ") >= sum(default is not None for default in defaults)
    assert example in text
    assert "--empty" not in text
    assert len(text.splitlines()) <= 100  # two screens


def test_help_comes_within_a_second_and_loads_nothing_heavy():
    program = (
        "import sys; from molattn.cli import main; main(['train', '--help']); "
        "print({'torch', 'rdkit', 'lightning', 'pandas', 'matplotlib'} & set(sys.modules))"
    )
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        done = shell("-c", program)
        seconds.append(time.perf_counter() - start)
    assert done.stdout.splitlines()[-1] == "set()"
    assert min(seconds) < 1.0


def test_scripts_are_the_commands(small_table):
    done = shell(SCRIPTS / "train.py", small_table, "--target-columns", "logS", *TINY)
    assert (done.returncode, done.stderr) == (0, "")
    done = shell(SCRIPTS / "predict.py", "runs/small", small_table, "--output", "out.csv")
    assert (done.returncode, done.stderr) == (0, "")
    assert "40 predicted, 1 refused" in done.stdout
    done = shell(SCRIPTS / "train.py", "--epoch", "3")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: Unknown option: --epoch. Did you mean --epochs?\n"
    assert sorted(os.listdir()) == ["out.csv", "runs"]


def test_an_interrupt_ends_with_130_and_one_line(small_table):
    endless = " ".join(TINY).replace("--epochs 2", "--epochs 100000 --patience 100000").split()
    words = ["train", str(small_table), "--target-columns", "logS", *endless]
    process = subprocess.Popen(
        [sys.executable, "-c", "from molattn.cli import run; run()", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ONE_THREAD,
    )
    assert process.stdout is not None
    process.stdout.readline()  # the counts of rows: training follows
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "error: interrupted\n")
    assert os.listdir() == []


def test_the_version_is_told(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == cli.app.version
