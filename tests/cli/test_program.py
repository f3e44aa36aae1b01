import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import fields
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from molattn import MolAttn, cli
from molattn.cli import main
from molattn.config import (
    DataConfig,
    EmbedConfig,
    ExplainConfig,
    FineTuningConfig,
    MoleculesConfig,
    NetworkConfig,
    PredictConfig,
    PrepareConfig,
    PretrainLoopConfig,
    PretrainNetworkConfig,
    ReportConfig,
    SupervisedConfig,
    TuneConfig,
)
from molattn.data.table import bundled_dataset
from molattn.errors import MolattnError
from molattn.model.artefact import (
    CALIBRATION_FILE,
    CONFIG_FILE,
    FINGERPRINTS_FILE,
    GAUSSIAN_PROCESS_FILE,
    WEIGHTS_FILE,
)
from molattn.model.checkpoints import FORMAT
from molattn.nn import LAYERS
from molattn.version import __version__

pytestmark = pytest.mark.usefixtures("without_figures")

TINY = (
    "--width 8 --heads 2 --layers 1 --edge-width 4 --epochs 2 --batch-size 8 --device cpu"
).split()
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}
FILES = (
    CONFIG_FILE,
    WEIGHTS_FILE,
    FINGERPRINTS_FILE,
    CALIBRATION_FILE,
    GAUSSIAN_PROCESS_FILE,
    "training_labels.json",
    "reference_inputs.json",
)
SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture(autouse=True)
def _working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


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
        "coverage.png",
        "history.csv",
        "learning_curve.png",
        "metrics.json",
        "model",
        "parity.png",
        "predictions.csv",
        "report.html",
        "similarity.png",
        "skipped.csv",
    }
    assert main(["predict", str(run_folder), str(small_table), "--output", "out.csv"]) == 0
    printed = capsys.readouterr()
    assert "errors: 1 name\n" in printed.err
    assert re.search(
        r"40 rows with labels; \d+ have the fingerprint of a training molecule", printed.err
    )
    assert "40 rows predicted, 1 with an error; written to out.csv, in " in printed.err
    assert printed.out == ""
    with open("out.csv", newline="") as out, open(small_table, newline="") as given:
        rows, wanted = list(csv.DictReader(out)), list(csv.DictReader(given))
    assert [row["smiles"] for row in rows] == [row["smiles"] for row in wanted]
    assert [row["error"] != "" for row in rows] == [False] * 40 + [True]


def test_predictions_name_the_positive_class(capsys):
    rows = "".join(f"{'C' * n},{'non' * (n % 4 > 0)}blocker\n" for n in range(1, 41))
    Path("t.csv").write_text(f"smiles,y\n{rows}")
    for given, positive in ([], "blocker"), (["--positive-class", "nonblocker"], "nonblocker"):
        options = ["--target-columns", "y", *given, "--no-baselines", "--output", positive]
        assert main(["train", "t.csv", *options, *TINY]) == 0
        assert main(["predict", positive, "CCO", "--output", "out.csv"]) == 0
        with open("out.csv", newline="") as out:
            (row,) = csv.DictReader(out)
        is_positive = row["y_predicted"] == positive
        assert (float(row[f"y_probability_{positive}"]) > 0.5) == is_positive
    capsys.readouterr()
    argv = ["train", "t.csv", "--target-columns", "y", "--positive-class", "block"]
    assert "--positive-class" in refused(capsys, 2, argv)
    Path("t.csv").write_text("smiles,y\nC,Active\nCC,Active\n")
    argv = ["train", "t.csv", "--target-columns", "y"]
    assert "all labels are 'Active'" in refused(capsys, 2, argv)


def test_train_tells_scores_baseline_and_skipped_rows(small_table, capsys):
    options = ["--target-columns", "logS", "--target-units", "log mol/L", "--split", "random"]
    assert main(["train", str(small_table), *options, *TINY]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "40 rows used, 1 skipped (line 42:" in printed.out.replace("\n", " ")
    for word in ("RMSE", "MAE", "R²", "logS (log mol/L)", "mean baseline", "random forest"):
        assert word in printed.out
    metrics = json.loads(Path("runs/small/metrics.json").read_text())
    assert "Results written to runs/small" in printed.out
    for part in ("test", "baseline", "random_forest"):
        assert f"{metrics[part]['logS']['rmse']:.3f}" in printed.out


def test_without_a_table_the_bundled_set_is_split_as_published(monkeypatch):
    seen = []

    def train(config, console, folder):
        seen.append(config)
        raise MolattnError("enough")

    monkeypatch.setattr("molattn.training.run.train", train)
    asked = ([], ["--split", "scaffold"], ["--target-columns", "split"], ["--test-size", "0.4"])
    for options in asked:
        assert main(["train", *options]) == 1
    published, scaffold, other, larger = (config.data for config in seen)
    assert {Path(config.file) for config in seen} == {bundled_dataset()}
    assert published.target_columns == scaffold.target_columns == ("logS",)
    assert published.target_units == ("log mol/L",)
    assert (published.split_column, published.split) == ("split", None)
    assert (scaffold.split_column, scaffold.split) == (None, "scaffold")
    assert (larger.split_column, larger.test_size) == (None, 0.4)
    assert (other.target_columns, other.target_units) == (("split",), ())


def test_runs_do_not_overwrite_each_other_by_default(small_table):
    for _ in range(2):
        assert main(["train", str(small_table), "--target-columns", "logS", *TINY]) == 0
    assert sorted(os.listdir("runs")) == ["small", "small-2"]


@pytest.mark.parametrize(
    "words, expected",
    [
        (["trian"], ["trian", "did you mean train?"]),
        (["train", "--epoch", "3"], ["--epoch", "did you mean --epochs?"]),
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
        (["predict", "absent", "t.csv"], ["absent", "no such folder"]),
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

    monkeypatch.setattr("molattn.training.run.train", broken)
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
    assert line.isprintable()
    assert len(line) < 4000


SECTIONS = {
    "train": [DataConfig, NetworkConfig, SupervisedConfig, FineTuningConfig, ReportConfig],
    "tune": [
        TuneConfig,
        DataConfig,
        NetworkConfig,
        SupervisedConfig,
        FineTuningConfig,
        ReportConfig,
    ],
    "pretrain": [MoleculesConfig, PretrainNetworkConfig, PretrainLoopConfig],
    "prepare": [PrepareConfig],
    "predict": [PredictConfig],
    "explain": [ExplainConfig],
    "fingerprint": [EmbedConfig],
}
EXAMPLES = {
    "train": "molattn train assay.csv",
    "tune": "molattn tune assay.csv",
    "pretrain": "molattn pretrain --resume",
    "prepare": "molattn prepare library.smi.gz",
    "predict": "molattn predict runs/solubility",
    "explain": "molattn explain runs/solubility",
    "fingerprint": "molattn fingerprint runs/solubility",
}


def test_a_saved_model_is_verified(run_folder, tmp_path, capsys):
    folder = shutil.copytree(run_folder / "model", tmp_path / "model")
    assert main(["verify", str(folder)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in shown[:-1]} == {*FILES}
    for line in shown[:-1]:
        name, size, state = line.split()
        assert (int(size.replace(",", "")), state) == ((folder / name).stat().st_size, "ok")
    assert shown[-1] == (
        f"{folder}: format {FORMAT}, saved by molattn {__version__}; all files as saved; "
        "the model can be loaded"
    )
    assert main(["verify", "base-small"]) == 0
    assert "format 3, saved by molattn 0.1.0; all files as saved" in capsys.readouterr().out
    (folder / "calibration.json").unlink()
    weights = bytearray((folder / WEIGHTS_FILE).read_bytes())
    weights[-1] ^= 1
    (folder / WEIGHTS_FILE).write_bytes(weights)
    assert main(["verify", str(folder)]) == 2
    shown = capsys.readouterr()
    assert "calibration.json                              -  is missing" in shown.out
    assert shown.err.startswith(
        f"error: {folder}: model.safetensors is not as manifest.json lists it, "
        "calibration.json is missing; copy the folder again"
    )
    assert "no such folder" in refused(capsys, 2, ["verify", "absent"])


def test_verify_mentions_an_unfinished_run_beside_the_model(run_folder, tmp_path, capsys):
    folder = shutil.copytree(run_folder, tmp_path / "run")
    assert main(["verify", str(folder)]) == 0
    assert "unfinished" not in capsys.readouterr().out
    unfinished = shutil.copytree(folder, tmp_path / "run.unfinished")
    line = f"{unfinished}: an unfinished run, which is not checked"
    assert main(["verify", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == line
    assert main(["verify", str(unfinished)]) == 0
    assert "which is not checked" not in capsys.readouterr().out


def test_a_model_of_an_earlier_format_is_verified_without_digests(capsys):
    golden = Path(__file__).parents[1] / "model" / "golden" / "regression_4"
    assert main(["verify", str(golden)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "format 4, saved by molattn 0.1.0; without a manifest" in shown


def test_the_help_of_verify_has_an_example(capsys):
    assert main(["verify", "--help"]) == 0
    text = capsys.readouterr().out
    assert "molattn verify runs/solubility" in text
    assert "MODEL" in text


@pytest.mark.parametrize("command", SECTIONS)
def test_help_all_names_every_option_with_default_and_example(capsys, command):
    assert main([command, "--help-all"]) == 0
    text = capsys.readouterr().out
    assert "--output" in text
    for option in (field for kind in SECTIONS[command] for field in fields(kind)):
        name, default = f"--{option.name.replace('_', '-')}", option.default
        if isinstance(default, bool):
            words = re.search(rf"--\[no-\]{name[2:]} [^-]*(-[^-]+)*?(?=--|\n\S)", text)
            assert words
            assert ("on by default" in " ".join(words[0].split())) == default
        elif default in (None, ()):
            assert re.search(rf"{name} [A-Z|]+", text)
        elif isinstance(default, tuple):
            assert re.search(rf"{name} [A-Z|.]+={re.escape(', '.join(default))}\s", text)
        else:
            assert re.search(rf"{name} [A-Z|]+={re.escape(str(default))}\s", text)
    assert EXAMPLES[command] in text
    assert "--empty" not in text
    assert "…" not in text
    assert len(text.splitlines()) <= 160


# What a chemist needs first; what nobody reads unasked.
COMMON = """
--output --config --resume --overwrite --dataset --smiles-column --target-columns --split
--split-column --validation-size --test-size --folds --init-from --backbone-lr-scale --epochs
--ensemble --seed
"""
RARE = """
--score --combine --edge-value --distances --pairs --self-loops --huber-delta --label-smoothing
--positive-weight --attention-dropout --checkpoint-steps --cluster-cutoff
"""


@pytest.mark.parametrize("columns", ["80", "100"])
@pytest.mark.parametrize("command, most_lines", [("train", 45), ("tune", 52), ("pretrain", 45)])
def test_help_is_one_screen_of_common_options(capsys, monkeypatch, command, most_lines, columns):
    monkeypatch.setenv("COLUMNS", columns)
    assert main([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert len(text.splitlines()) <= most_lines
    assert max(map(len, text.splitlines())) <= int(columns)
    assert EXAMPLES[command] in text
    assert f"molattn {command} --help-all" in text
    shown = {f"--{name}" for name in re.findall(r"^  --(?:\[no-\])?([a-z-]+)", text, re.MULTILINE)}
    declared = {
        f"--{field.name.replace('_', '-')}"
        for kind in SECTIONS[command]
        for field in fields(kind)
        if field.metadata.get("common") in (True, command)
    }
    assert declared <= shown
    assert not shown & {*RARE.split()}
    if command == "train":
        assert {*COMMON.split()} <= shown


@pytest.mark.parametrize("command", ["predict", "explain", "fingerprint"])
def test_help_of_a_command_with_few_options_shows_all(capsys, command):
    assert main([command, "--help"]) == main([command, "--help-all"]) == 0
    text = capsys.readouterr().out
    assert text[: len(text) // 2] == text[len(text) // 2 :]


def test_an_option_that_help_does_not_show_is_an_option_still(capsys):
    line = refused(capsys, 2, ["train", "--huber-delta", "0"])
    assert "--huber-delta: got 0" in line


HEAVY = {
    "fastapi",
    "lightning",
    "matplotlib",
    "numpy",
    "pandas",
    "rdkit",
    "scipy",
    "sklearn",
    "sympy",
    "torch",
}


def loaded_by(*words):
    """Run a command, and return which large packages, or parts of torch, it has loaded."""
    program = (
        "import atexit, sys; from molattn.cli import run; "
        "atexit.register(lambda: print(*sys.modules)); run()"
    )
    loaded = set(shell("-c", program, *words).stdout.splitlines()[-1].split())
    return loaded & HEAVY | {
        part for part in ("torch._dynamo.convert_frame", "scipy.optimize") if part in loaded
    }


def test_help_loads_nothing_heavy():
    assert loaded_by("train", "--help") == set()


@pytest.mark.parametrize(
    "words",
    [
        ("train", "{table}", "--target-columns", "wrong"),
        ("tune", "{table}", "--target-columns", "logS", "--feature-columns", "wrong"),
        ("predict", "base", "{table}", "--smiles-column", "wrong"),
        ("predict", "{run}", "{table}", "--smiles-column", "wrong"),
        ("fingerprint", "{run}", "{table}", "--smiles-column", "wrong", "--output", "o.csv"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_wrong_column_is_told_before_anything_heavy_is_loaded(words, small_table, run_folder):
    words = [word.format(table=small_table, run=run_folder) for word in words]
    assert loaded_by(*words) == set()
    assert "no column 'wrong'" in shell("-m", "molattn", *words).stderr


def test_a_prediction_loads_no_more_than_it_needs(run_folder):
    loaded = loaded_by("predict", run_folder, "CCO")
    assert loaded == {"numpy", "rdkit", "scipy", "torch"}


PLUGIN = """
from molattn.nn import LAYERS
LAYERS.register("layer_of_a_plugin")(LAYERS["edge_attention"])
"""


def plugged(monkeypatch, tmp_path, module, text):
    """Make a module an entry point, as if its package were installed."""
    (tmp_path / f"{module}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    points = EntryPoints([EntryPoint("mine", module, "molattn.plugins")])
    monkeypatch.setattr(
        "molattn.utils.registry.entry_points", lambda group: points.select(group=group)
    )


def test_an_installed_plugin_registers_its_layer(small_table, monkeypatch, tmp_path):
    words = ["train", str(small_table), "--target-columns", "logS", "--no-baselines", *TINY]
    words += ["--layer", "layer_of_a_plugin", "--output", "run"]
    assert main(words) == 2
    plugged(monkeypatch, tmp_path, "a_plugin", PLUGIN)
    monkeypatch.setattr(LAYERS, "_items", dict(LAYERS._items))
    assert main(words) == 0
    assert MolAttn.from_pretrained("run").config.network.layer == "layer_of_a_plugin"


def test_a_broken_plugin_is_named(small_table, monkeypatch, tmp_path, capsys):
    plugged(monkeypatch, tmp_path, "broken_plugin", "import no_such_module")
    words = ["train", str(small_table), "--target-columns", "logS"]
    line = refused(capsys, 1, words)
    assert "broken_plugin: the plugin 'mine'" in line
    assert "ModuleNotFoundError: No module named 'no_such_module'" in line
    assert main(["train", "--help"]) == main(["--version"]) == 0


def test_scripts_are_the_commands(small_table):
    words = [small_table, "--target-columns", "logS", "--no-baselines", *TINY]
    done = shell(SCRIPTS / "train.py", *words)
    assert (done.returncode, done.stderr) == (0, "")
    done = shell(SCRIPTS / "predict.py", "runs/small", small_table, "--output", "out.csv")
    assert (done.returncode, done.stdout) == (0, "")
    assert "40 rows predicted, 1 with an error" in done.stderr
    done = shell(SCRIPTS / "train.py", "--epoch", "3")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: unknown option --epoch; did you mean --epochs?\n"
    assert sorted(os.listdir()) == ["out.csv", "runs"]


def start(*words):
    """Start a training that lasts, and wait for its first checkpoint in runs/small."""
    process = subprocess.Popen(
        [sys.executable, "-c", "from molattn.cli import run; run()", "train", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ONE_THREAD,
    )
    while not Path("runs/small.unfinished/checkpoint.safetensors").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    return process


LONG = [*TINY[:-6], "--epochs", "30", "--patience", "30", "--batch-size", "8", "--device", "cpu"]


def test_a_killed_run_is_found_and_resumed_by_its_name_bit_for_bit(small_table, capsys):
    words = [small_table, "--target-columns", "logS", "--no-baselines", *LONG]
    process = start(*words, "--output", "runs/small")
    process.kill()
    process.communicate()
    assert os.listdir("runs") == ["small.unfinished"]
    unfinished = ["train", "--resume", "runs/small"]
    line = refused(capsys, 2, ["train", *words, "--output", "runs/small"])
    assert "--resume runs/small continues it" in line
    order = ["--split", "order"]
    for option, value, was, *more in (
        ("--epochs", 31, 30),
        ("--width", 16, 8),
        ("--split", "scaffold", "None"),
        ("--order-column", "logS", "None", *order),
    ):
        line = refused(capsys, 2, [*unfinished, option, value, *more])
        assert f"{option}: got" in line
        assert f"has {was}" in line
    assert "--resume cannot be used with --output" in refused(
        capsys, 2, [*unfinished, "--output", "x"]
    )
    assert "--resume cannot be used with --config" in refused(
        capsys, 2, [*unfinished, "--config", "x"]
    )
    assert main(unfinished) == 0
    shown = capsys.readouterr().out
    assert "Resuming after epoch" in shown
    assert "Results written to runs/small" in shown
    assert os.listdir("runs") == ["small"]
    assert main(["train", *map(str, words), "--output", "runs/whole"]) == 0
    resumed, whole = (Path("runs", name, "model", WEIGHTS_FILE) for name in ("small", "whole"))
    assert resumed.read_bytes() == whole.read_bytes()
    assert (
        Path("runs/small/predictions.csv").read_text()
        == Path("runs/whole/predictions.csv").read_text()
    )
    capsys.readouterr()
    assert main(unfinished) == 0
    assert "is finished" in capsys.readouterr().out


def test_an_interrupt_ends_with_130_and_the_way_to_go_on(small_table):
    endless = [word.replace("30", "100000") for word in LONG]
    process = start(small_table, "--target-columns", "logS", *endless)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    line = (
        "error: interrupted; checkpoint runs/small.unfinished/checkpoint.safetensors; to resume: "
        "molattn train --resume runs/small\n"
    )
    assert (process.returncode, errors) == (130, line)
    assert os.listdir("runs") == ["small.unfinished"]


def test_a_damaged_checkpoint_is_refused_by_name(small_table, capsys, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("molattn.evaluation.scoring.score_run", interrupt)
        words = [str(small_table), "--target-columns", "logS", *TINY, "--output", "runs/t"]
        assert main(["train", *words]) == 130
    (path,) = Path("runs").rglob("*checkpoint.safetensors")
    content = bytearray(path.read_bytes())
    content[-9] ^= 4
    path.write_bytes(content)
    capsys.readouterr()
    line = refused(capsys, 2, ["train", "--resume", "runs/t"])
    assert str(path) in line
    assert "remove" in line
    path.unlink()
    assert main(["train", "--resume", "runs/t"]) == 0


def test_a_changed_table_is_refused_by_name(small_table, capsys, monkeypatch):
    Path("t.csv").write_bytes(small_table.read_bytes())

    def interrupt(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("molattn.evaluation.scoring.score_run", interrupt)
        words = ["t.csv", "--target-columns", "logS", *TINY, "--output", "runs/t"]
        assert main(["train", *words]) == 130
    Path("t.csv").write_bytes(small_table.read_bytes() + b"x,CC,1,train\n")
    capsys.readouterr()
    line = refused(capsys, 2, ["train", "--resume", "runs/t"])
    assert "t.csv: the file has changed" in line
    Path("other.csv").write_bytes(small_table.read_bytes() + b"x,CC,1,train\n")
    line = refused(capsys, 2, ["train", "other.csv", "--resume", "runs/t"])
    assert "other.csv: the file has changed" in line
    Path("t.csv").write_bytes(small_table.read_bytes())
    with monkeypatch.context() as patch:
        patch.setattr("molattn.evaluation.scoring.score_run", interrupt)
        assert main(["train", "--resume", "runs/t"]) == 130
    capsys.readouterr()
    Path("t.csv").rename("moved.csv")
    assert main(["train", "moved.csv", "--resume", "runs/t"]) == 0
    assert str(Path("moved.csv").absolute()) in Path("runs/t/config.yaml").read_text()
    assert "no unfinished run" in refused(capsys, 2, ["train", "--resume", "runs/u"])


def test_the_config_of_a_run_repeats_it_and_the_command_line_wins(
    run_folder, small_table, tmp_path, capsys
):
    config = str(run_folder / "config.yaml")
    assert main(["train", "--config", config, "--output", "again"]) == 0
    weights = [path / "model" / WEIGHTS_FILE for path in (run_folder, tmp_path / "again")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert Path("again/config.yaml").read_text() == Path(config).read_text()
    Path("few.yaml").write_text("training: {epochs: 1, seed: 3}\nreport: {baselines: false}\n")
    few = [str(small_table), "--config", "few.yaml", "--target-columns", "logS", *TINY]
    assert main(["train", *few, "--output", "few"]) == 0
    metrics = json.loads(Path("few/metrics.json").read_text())
    assert (metrics["members"][0]["epochs"], metrics["seed"]) == (2, 3)  # TINY says 2
    assert "baseline" not in metrics
    capsys.readouterr()
    Path("few.yaml").write_text("training: {epoch: 1}")
    line = refused(capsys, 2, ["train", "--config", "few.yaml"])
    assert "few.yaml, training: unknown option 'epoch', did you mean 'epochs'?" in line
    Path("few.yaml").write_text("training: {epochs: many}")
    assert "epochs" in refused(capsys, 2, ["train", "--config", "few.yaml"])


def test_the_version_is_told(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == cli.app.version


@pytest.mark.parametrize(
    "words, line",
    [
        ("blah", "unknown command 'blah'; expected train, pretrain, predict, tune,"),
        ("train -x", "unknown option -x; see molattn train --help"),
        ("train --epochs", "--epochs: got no value; see molattn train --help"),
        ("train --target-columns", "--target-columns: got no value; see molattn train --help"),
        ("train --epochs 1 --epochs 2", "--epochs: given more than once"),
        ("train --epochs many", "--epochs: got 'many', expected a whole number"),
        ("train --warmup long", "--warmup: got 'long', expected a number"),
        ("train --gate=maybe", "--gate: got 'maybe', expected true or false"),
        ("train --split size", "--split: got 'size', expected one of random, scaffold, cluster,"),
        ("train --freeze all", "--freeze: got 'all', expected a whole number or one of auto, "),
        ("train a.csv b.csv", "unexpected argument 'b.csv'; see molattn train --help"),
        ("predict model", "INPUT is missing; see molattn predict --help"),
        ("fingerprint model a.csv", "--output is missing; see molattn fingerprint --help"),
        ("train --config c.yaml", "c.yaml, epochs: got 'few', expected a whole number"),
        ("train --config d.yaml", "d.yaml, learning_rate: got -1.0, expected a positive number"),
        ("train --config d.yaml --learning-rate -2", "--learning-rate: got -2.0, expected a pos"),
        ("train --config e.yaml", "e.yaml, epochs: got '1.5', expected a whole number"),
        ("train --epochs 1.5", "--epochs: got '1.5', expected a whole number"),
        ("train --freeze 1.5", "--freeze: got '1.5', expected a whole number or one of auto, "),
    ],
)
def test_a_wrong_command_line_is_told_as_all_errors(capsys, words, line):
    Path("c.yaml").write_text("training: {epochs: few}\n")
    Path("d.yaml").write_text("training: {learning_rate: -1}\n")
    Path("e.yaml").write_text("training: {epochs: 1.5}\n")
    assert refused(capsys, 2, words.split()).startswith(f"error: {line}")
