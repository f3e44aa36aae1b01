import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def python(code, *, cwd=ROOT, **environment):
    """Run code in a fresh interpreter and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "module,absent",
    [
        ("molattn.errors", "torch rdkit lightning pandas"),
        ("molattn.chem", "torch torch_geometric lightning pandas"),
        ("molattn.cli", "torch rdkit pandas scipy"),
        ("molattn.model.artefact", "torch rdkit pandas"),
        ("molattn.data.check", "torch pandas"),
        ("molattn.evaluation.compare.comparison_page", "torch matplotlib sklearn"),
        ("molattn.evaluation.compare.run_list", "torch matplotlib sklearn"),
        # It loads molattn.graph; torch-geometric loads pandas by itself.
        ("molattn.nn", "rdkit lightning matplotlib"),
    ],
)
def test_import_loads_no_more_than_it_needs(module, absent):
    loaded = python(f"import sys, {module}; print(*sys.modules)").split()
    assert module in loaded
    assert not {*absent.split()} & {*loaded}


def test_commands_that_need_no_network_load_no_torch(tmp_path):
    """Which would take most of their time."""
    from molattn.config import TrainConfig

    rows = "smiles,y,y_predicted\nCCO,1.5,1.25\nc1ccccc1O,2.5,2\nCCCN,3,3.5\n"
    config = TrainConfig.from_options("t.csv", {"target_columns": ("y",)}).to_dict()
    metrics = {
        "tasks": [{"name": "y", "kind": "regression"}],
        "test": {"y": {"rmse": 0.5}},
        "test_mean": {},
    }
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        (folder / "metrics.json").write_text(json.dumps(metrics))
        (folder / "predictions.csv").write_text(rows)
    commands = [
        "--help",
        "verify base-small",
        "runs . --output runs.csv",
        "check a/predictions.csv --target-columns y",
        "compare a b --output compared",
    ]
    lines = [
        "import sys",
        "from molattn.cli import main",
        f"codes = [main(words.split()) for words in {commands}]",
        "print(codes, [name for name in sys.modules if name.startswith('torch')])",
    ]
    shown = python("\n".join(lines), cwd=tmp_path, PYTHONPATH=str(ROOT)).splitlines()
    assert shown[-1] == f"{[0] * len(commands)} []"
    assert "finished" in (tmp_path / "runs.csv").read_text()


def test_a_prediction_leaves_nothing_in_the_temporary_folder(tmp_path, monkeypatch):
    """No modules that PyG generates, no folder of torch's compiler."""
    import molattn

    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)  # torch sets it in this process
    molattn.MolAttn(molattn.MolAttnConfig("y")).save_pretrained(tmp_path / "model")
    words = ["predict", str(tmp_path / "model"), "CCO"]
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    code = f"from molattn.cli import main; raise SystemExit(main({words}))"
    assert "CCO" in python(code, TMPDIR=str(temporary))
    assert [*temporary.iterdir()] == []


def test_import_rule_holds():
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_versions_agree():
    import molattn

    assert molattn.__version__ == PROJECT["version"]
    newest = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == PROJECT["version"]


def test_constraints_pin_what_the_project_asks_for():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    pinned = {canonicalize_name(name): version for name, version in pins.items()}
    asked = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]
    for requirement in map(Requirement, asked):
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)])


def test_lowest_versions_are_those_that_users_may_install():
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "maintenance" / "lowest_versions.py"],
        capture_output=True,
        text=True,
        check=True,
    )
    lowest = {pin.name: pin for pin in map(Requirement, done.stdout.split())}
    extras = PROJECT["optional-dependencies"]
    asked = [*PROJECT["dependencies"], *extras["serve"], *extras["excel"], *extras["ray"]]
    for requirement in map(Requirement, asked):
        (version,) = (one.version for one in lowest[requirement.name].specifier)
        assert str(requirement.specifier) == f">={version}" or requirement.name == "torch"
