"""Help, errors, files of options, plugins, and what is loaded when."""

import csv
import os
import re
import socket
import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import openpyxl
import pytest

from molattn import MolAttn
from molattn.cli import main
from molattn.config import TrainConfig
from molattn.data.table import bundled_dataset
from molattn.errors import MolattnError
from molattn.nn import LAYERS

from .conftest import NETWORK, train

pytestmark = pytest.mark.usefixtures("without_figures")


@pytest.fixture(autouse=True)
def _working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MOLATTN_TOKEN", raising=False)


def test_help_shows_the_common_options_and_help_all_every_one_with_its_default(capsys):
    for command in ("train", "tune", "pretrain", "prepare"):
        assert main([command, "--help"]) == 0
        text = capsys.readouterr().out
        assert len(text.splitlines()) <= 75
        assert "--smiles-column" in text
        assert "--score " not in text
        assert f"molattn {command} --help-all" in text
        assert "[default: ]" not in text
        columns = "--atom-target-columns" in text, "--bond-target-columns" in text
        assert columns == (command in ("train", "tune"),) * 2
    assert main(["train", "--help-all"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "molattn train assay.csv" in shown
    for name, option in TrainConfig.options().items():
        flag = f"--{name.replace('_', '-')}"
        found = re.search(rf" {flag} .*?(?= --|$)", shown)
        assert found, flag
        if isinstance(option.default, float) or type(option.default) is int:
            assert f"[default: {option.default}]" in shown[found.start() :]


def test_the_help_of_models_is_a_screen_and_the_commands_are_in_the_order_of_use(capsys):
    for command in ("predict", "explain", "fingerprint"):
        assert main([command, "--help"]) == 0
        text = capsys.readouterr().out
        assert 24 <= len(text.splitlines()) <= 40
        assert "--device" in text
        assert "--max-seconds" not in text
        assert main([command, "--help-all"]) == 0
        assert "--max-seconds" in capsys.readouterr().out
    assert main([]) == 0
    text = capsys.readouterr().out
    assert len(re.findall("^  molattn (train|predict|check) ", text, re.M)) == 2
    order = [text.index(f"\n  {name} ") for name in ("check", "train", "predict", "serve")]
    assert order == sorted(order)


def test_an_interrupt_while_the_program_is_loaded_is_a_line():
    program = (
        "import sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'cyclopts': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from molattn.cli import run"
    )
    line = [sys.executable, "-c", program]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "error: interrupted\n")


def test_the_only_column_that_is_left_is_the_target(monkeypatch, capsys, fails):
    def stop(config, console, folder):
        raise MolattnError(f"target: {config.data.target_columns}")

    monkeypatch.setattr("molattn.training.run.train", stop)
    Path("one.csv").write_text("Compound ID,SMILES,Split,IC50\na,C,train,1\n")
    Path("two.csv").write_text("name,smiles,y,z\na,C,1,2\n")
    Path("none.csv").write_text("name,smiles\na,C\n")
    Path("case.csv").write_text("smiles,LogS,logs\nC,1,2\n")
    assert "('IC50',)" in fails(1, "train", "one.csv")
    assert "('z',)" in fails(1, "train", "two.csv", "--feature-columns", "Y")
    assert main(["train", "one.csv"]) == 1
    assert "target: IC50 (" in capsys.readouterr().out
    assert "'y', 'z'" in fails(2, "train", "two.csv")
    assert "'name'" in fails(2, "train", "none.csv")
    assert "'LogS', 'logs'" in fails(2, "train", "case.csv", "--target-columns", "LOGS")


def test_german_tables_are_read_with_their_decimal_comma(small_table, fails):
    header, *rows = csv.reader(small_table.read_text().splitlines())
    german = [";".join([*row[:2], row[2].replace(".", ","), row[3]]) for row in rows]
    Path("german.csv").write_text("\n".join([";".join(header), *german]))
    words = train("run", 1, "german.csv")
    assert "--decimal ," in fails(2, *words)
    assert main([*words, "--decimal", ","]) == 0
    assert main(train("points", 1, small_table)) == 0
    assert Path("run/predictions.csv").read_text() == Path("points/predictions.csv").read_text()
    predict = ["predict", "run", "german.csv", "--output", "out.csv"]
    for decimal in (",", "."):
        assert main([*predict, "--decimal", decimal]) == 0
        with open("out.csv") as file:
            assert [row["logS"] for row in csv.DictReader(file)] == [
                row[2].replace(".", ",") for row in rows
            ]
    Path("mixed.csv").write_text("smiles;y\nC;1.234\nCC;2.5\nCCC;1,5\n")
    assert "1.234" in fails(2, "train", "mixed.csv", "--decimal", ",", "--test-size", "0")


@pytest.mark.parametrize("options", [[], ["--sheet", "Data", "--header-row", "3"]])
def test_excel_sheets_are_read_as_their_cells_are_shown(small_table, capsys, fails, options):
    header, *rows = csv.reader(small_table.read_text().splitlines())
    book = openpyxl.Workbook()
    book.active.append(["Cover"])
    sheet = book.create_sheet("Data")
    for row in (["Assay"], [], [*header, "price"]):
        sheet.append(row)
    for number, row in enumerate(rows):
        value = float(row[2])
        forms = {
            0: value,
            1: row[2].replace(".", ","),
            2: value / 100,
            3: f"{row[2]} ± 0.1".replace(".", ","),
        }
        sheet.append([*row[:2], forms[number % 4 if number < 20 else 0], row[3], 0.5])
        sheet.cell(number + 4, 3).number_format = (
            "0.00%" if number % 4 == 2 and number < 20 else "0"
        )
        sheet.cell(number + 4, 5).number_format = "0%"
    book.save("book.xlsx")
    words = ["check", "book.xlsx", "--target-columns", "logS", *options, "--output", "problems.csv"]
    assert main(words) == 0
    log = capsys.readouterr().out
    for words in ("'Data'", "header in row 3", "5 cells of column 'logS' with a percentage"):
        assert words in log
    labels = "'logS': regression, 40 labels from"
    assert main(["check", str(small_table), "--target-columns", "logS"]) == 0
    (expected,) = (line for line in capsys.readouterr().out.splitlines() if labels in line)
    assert expected in log
    assert "--sheet" in fails(2, "check", "book.xlsx", "--target-columns", "logS", "--sheet", "no")
    assert "--header-row" in fails(2, "check", str(small_table), "--header-row", "3")


def test_check_reports_what_may_be_wrong_with_a_table(capsys, fails):
    lines = ["id;SMILES;IC50", "a;CCO;1,5", "b;OCC;40000", "c;CC(N)C(=O)O.Cl;3", "d;=x;3", "e;C;"]
    Path("t.csv").write_text("\n".join([*lines, "f;CC=CC;3", "g;C[C@H](N)C(=O)O;3"]))
    words = ["check", "./t.csv", "--decimal", ",", "--split", "scaffold"]
    assert main([*words, "--output", "problems.csv"]) == 0
    shown = capsys.readouterr().out
    assert "7 rows: 5 used, 2 not (1 syntax, 1 no_label)" in shown
    assert "spans 4.4 orders of magnitude" in shown
    command = "to train: molattn train t.csv --decimal , --target-columns IC50 --standardize"
    folds = "--folds 5 --validation-size 0"
    assert f"{command} --split scaffold {folds}" in shown.splitlines()
    with open("problems.csv") as file:
        found = [(row["line"], row["problem"]) for row in csv.DictReader(file)]
    expected = "3 conflict, 3 duplicate, 4 mixture, 4 stereo, 5 syntax, 6 no_label, 7 stereo"
    assert found == [tuple(one.split()) for one in expected.split(", ")]
    assert "'=x" in Path("problems.csv").read_text()
    Path("classes.csv").write_text("smiles,hit\n" + "C,no\n" * 39 + "CC,yes\n")
    assert main(["check", "classes.csv"]) == 0
    shown = capsys.readouterr().out
    assert "'hit': only 1 of 40 labels are yes" in shown
    assert f"to train: molattn train classes.csv --target-columns hit {folds}" in shown
    assert "'a', 'b'" in fails(2, "check", str(_saved("smiles,a,b\nC,1,2\n")))


def _saved(text):
    Path("saved.csv").write_text(text)
    return Path("saved.csv")


HEAVY = "fastapi lightning matplotlib numpy pandas rdkit scipy sklearn sympy torch"


def loaded_by(*words):
    """Run a command, and return which large packages it has loaded, and its last line."""
    program = (
        "import atexit, sys; from molattn.cli import run; "
        "atexit.register(lambda: print(*sys.modules)); run()"
    )
    line = [sys.executable, "-c", program, *map(str, words)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    return {*done.stdout.splitlines()[-1].split()} & {*HEAVY.split()}, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        "serve --help",
        "train {table} --target-columns wrong",
        "predict base {table} --smiles-column wrong",
    ],
)
def test_help_and_a_wrong_column_load_nothing_heavy(words, small_table):
    loaded, line = loaded_by(*words.format(table=small_table).split())
    assert loaded <= ({"numpy"} if "wrong" in words else set())
    assert ("wrong" in line) == ("wrong" in words)


@pytest.mark.parametrize(
    "words, parts",
    [
        ("train -x", "-x"),
        ("train --epochs 1 --epochs 2", "--epochs"),
        ("train --freeze all", "--freeze: 'all' 'encoder'"),
        ("train --layer foo", "--layer: 'foo' edge_attention"),
        ("train t.csv --target-columns y --folds 3 --patience 2", "--patience: --no-final"),
        ("train --resume a --config b", "--resume: --config"),
        ("train a.csv --dataset esol", "--dataset a.csv"),
        ("train t.csv --target-columns y", "t.csv line 3 'y' '1,5'"),
        ("train t.csv --target-columns y --output t.csv", "t.csv folder"),
        ("train --config c.yaml", "c.yaml, epochs: 'few'"),
        ("train --config d.yaml", "d.yaml, learning_rate: '-1'"),
        ("train --config d.yaml --learning-rate -2", "--learning-rate: '-2'"),
        ("train --config g.yaml", "g.yaml networks network"),
        ("train --config h.yaml", "h.yaml network patience training"),
        ("pretrain", "INPUT"),
        ("tune t.csv --target-columns y --resume a", "a --resume"),
        ("fingerprint base CCO --output -", "--output: -"),
        ("prepare t.csv --output -", "--output: -"),
        ("serve --host 0.0.0.0 --token secret\t", "--token: ASCII"),
        ("serve --max-queue 100", "--max-queue: --max-molecules"),
        ("serve --port 0 --reference missing.csv", "missing.csv"),
        ("train \x1b[31m" + "é" * 5000, "\\x1b"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_leaves_nothing(fails, words, parts):
    Path("c.yaml").write_text("training: {epochs: few}\n")
    Path("d.yaml").write_text("training: {learning_rate: -1}\n")
    Path("g.yaml").write_text("networks: {width: 8}")
    Path("h.yaml").write_text("network: {patience: 7}")
    Path("t.csv").write_text('smiles,y\nC,1\nCC,"1,5"\n')
    before = os.listdir()
    line = fails(2, *words.split(" "))
    assert [part for part in parts.split() if part not in line] == []
    assert line.isprintable()
    assert len(line) < 4000
    assert os.listdir() == before


def test_errors_that_are_not_of_the_input_have_another_code(fails, monkeypatch, small_table):
    words = ["train", small_table, "--target-columns", "logS", *NETWORK, "--learning-rate", "1e30"]
    assert "diverged" in fails(1, *words)
    assert os.listdir() == []

    def broken(*args):
        raise RuntimeError("something\nbroke")

    monkeypatch.setattr("molattn.training.run.train", broken)
    line = fails(1, *words)
    assert "RuntimeError: something broke" in line
    assert "MOLATTN_TRACEBACK=1" in line
    monkeypatch.setenv("MOLATTN_TRACEBACK", "1")
    with pytest.raises(RuntimeError):
        main([str(word) for word in words])


@pytest.mark.parametrize("package", ["fastapi", "swagger_ui_bundle"])
def test_a_server_that_cannot_start_says_why(fails, monkeypatch, package, whole):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert str(port) in fails(2, "serve", whole, "--port", port)
    assert "model" in fails(2, "serve", whole, whole, "--port", "0")
    for name in [one for one in sys.modules if one.startswith("molattn.serve")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    line = fails(2, "serve")
    assert package in line
    assert "pip install 'molattn[serve]'" in line


def test_without_a_table_the_bundled_set_is_split_as_published(monkeypatch):
    seen = []

    def stop(config, console, folder):
        seen.append(config)
        raise MolattnError("enough")

    monkeypatch.setattr("molattn.training.run.train", stop)
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


def test_a_training_logs_its_scores(small_table, capsys):
    words = ["train", small_table, "--target-columns", "logS", "--target-units", "log mol/L"]
    assert main([*map(str, words), *NETWORK, "--epochs", "1", "--split", "random"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    for word in ("RMSE", "MAE", "R²", "logS (log mol/L)", "mean baseline", "random forest"):
        assert word in printed.out
    assert "Results written to runs/in" in printed.out


def test_the_command_line_wins_over_the_file_of_options(small_table):
    Path("few.yaml").write_text("training: {epochs: 1, seed: 3}\nreport: {baselines: true}\n")
    assert main([*train("few", 2, small_table), "--config", "few.yaml"]) == 0
    text = Path("few/config.yaml").read_text()
    assert [f"{option}\n" in text for option in ("epochs: 2", "seed: 3", "baselines: false")] == [
        True
    ] * 3


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
    words = [*train(table=small_table, epochs=1), "--layer", "layer_of_a_plugin"]
    assert main(words) == 2
    plugged(monkeypatch, tmp_path, "a_plugin", PLUGIN)
    monkeypatch.setattr(LAYERS, "data", dict(LAYERS.data))
    assert main(words) == 0
    assert MolAttn.from_pretrained("run").config.network.layer == "layer_of_a_plugin"


def test_a_file_of_layers_is_run_only_where_it_is_given(small_table, monkeypatch, fails):
    monkeypatch.setattr(LAYERS, "data", dict(LAYERS.data))
    monkeypatch.setattr("molattn.utils.registry.IMPORTED", imported := {})
    for module in ("molattn.model.model", "molattn.training.resolve", "molattn.utils.workers"):
        monkeypatch.setattr(f"{module}.IMPORTED", imported)
    Path("my_layers.py").write_text(PLUGIN)
    Path("broken.py").write_text("1 / 0")
    words = [*train(table=small_table, epochs=1), "--layer", "layer_of_a_plugin"]
    assert "ZeroDivisionError" in fails(2, *words, "--import", "broken.py")
    assert "none.py" in fails(2, *words, "--import", "none.py")
    assert main([*words, "--import", "my_layers.py"]) == 0
    whole = ["predict", "run", str(small_table), "--batch-size", "8", "--output"]
    both = ["--import", "my_layers.py", "--num-workers"]
    assert main([*whole, "a.csv", *both, "0"]) == main([*whole, "b.csv", *both, "2"]) == 0
    assert Path("a.csv").read_text() == Path("b.csv").read_text()
    imported.clear()
    del LAYERS["layer_of_a_plugin"], sys.modules["my_layers"]
    for command in ("predict", "fingerprint", "explain"):
        line = fails(2, command, "run", "CCO", "--output", "c.csv")
        assert "--import: expected my_layers.py, which registers" in line
    assert main(["verify", "run"]) == 0
    assert main(["predict", "run", "CCO", "--import", "my_layers.py"]) == 0
    Path("other").mkdir()
    Path("other/my_layers.py").write_text(PLUGIN)
    assert "other/my_layers.py" in fails(
        2, "predict", "run", "CCO", "--import", "other/my_layers.py"
    )
    monkeypatch.delitem(sys.modules, "my_layers")


def test_a_broken_plugin_is_named(monkeypatch, tmp_path, fails):
    plugged(monkeypatch, tmp_path, "broken_plugin", "import no_such_module")
    line = fails(1, "train")
    assert "broken_plugin: the plugin 'mine'" in line
    assert "no_such_module" in line
    assert main(["train", "--help"]) == main(["--version"]) == 0
