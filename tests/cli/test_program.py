import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import fields
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from molattn import MolAttn
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
from molattn.nn import LAYERS

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


@pytest.mark.parametrize("command", SECTIONS)
def test_help_all_names_every_option_with_default_and_example(capsys, command):
    assert main([command, "--help-all"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for option in (field for kind in SECTIONS[command] for field in fields(kind)):
        name = option.name.replace("_", "-")
        found = re.search(rf" --{name} .*?(?= --|$)", text)
        assert found, name
        if isinstance(option.default, int | float) and not isinstance(option.default, bool):
            assert f"[default: {option.default}]" in text[found.start() :]
    assert EXAMPLES[command] in text
    assert "--empty" not in text


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


@pytest.mark.parametrize("command", ["train", "tune", "pretrain"])
def test_help_shows_the_common_options_alone(capsys, command):
    assert main([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert len(text.splitlines()) <= 75
    assert f"molattn {command} --help-all" in text
    shown = {*re.findall(r"^ *(--[a-z-]+)", text, re.MULTILINE)}
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
    run_folder, small_table, tmp_path
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


@pytest.mark.parametrize(
    "words, line",
    [
        ("blah", "blah train, pretrain, predict"),
        ("trian", "trian train"),
        ("train -x", "-x"),
        ("train --epoch 3", "--epoch --epochs"),
        ("train --epochs", "--epochs"),
        ("train --target-columns", "--target-columns"),
        ("train --epochs 1 --epochs 2", "--epochs"),
        ("train --epochs 1.5", "--epochs: '1.5'"),
        ("train --warmup long", "--warmup: 'long'"),
        ("train --gate=maybe", "--gate maybe"),
        ("train --freeze all", "--freeze: 'all' 'encoder'"),
        ("train a.csv b.csv", "b.csv"),
        ("train t.csv --target-columns y", "t.csv line 3 'y' '1,5'"),
        ("train t.csv --target-columns y --output t.csv", "t.csv folder"),
        ("train --readout median_of_dreams", "median_of_dreams"),
        ("predict .", "INPUT"),
        ("predict . t.csv", "config.json"),
        ("train --config c.yaml", "c.yaml, epochs: 'few'"),
        ("train --config d.yaml", "d.yaml, learning_rate: '-1'"),
        ("train --config d.yaml --learning-rate -2", "--learning-rate: '-2'"),
        ("train --config e.yaml", "e.yaml, 'epoch', did you mean 'epochs'?"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_leaves_nothing(capsys, words, line):
    Path("c.yaml").write_text("training: {epochs: few}\n")
    Path("d.yaml").write_text("training: {learning_rate: -1}\n")
    Path("e.yaml").write_text("training: {epoch: 1}\n")
    Path("t.csv").write_text('smiles,y\nC,1\nCC,"1,5"\n')
    before = os.listdir()
    shown = refused(capsys, 2, words.split())
    assert [word for word in line.split() if word not in shown] == []
    assert os.listdir() == before
