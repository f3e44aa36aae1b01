import copy
import io
import os
import pty
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rdkit import Chem
from rdkit.Chem import rdDepictor

from molattn.cli import main
from molattn.config import NetworkConfig
from molattn.explain import explain
from molattn.inference import streaming
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.utils import progress

from ..conftest import rows_of

ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    small = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
    return MolAttn(MolAttnConfig(("y", "z"), small)).eval()


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_molecules_in_place_of_a_file_give_a_table(model_folder, capfd):
    assert main(["predict", str(model_folder), "CCO", "c1ccccc1O", "nonsense"]) == 0
    printed = capfd.readouterr()
    assert "2 rows predicted, 1 with an error, in " in printed.err
    Path("printed.csv").write_text(printed.out)
    Path("in.csv").write_text("smiles\nCCO\nc1ccccc1O\nnonsense\n")
    assert main(["predict", str(model_folder), "in.csv", "--output", "out.csv"]) == 0
    assert rows_of(Path("printed.csv")) == rows_of(Path("out.csv"))
    assert [row["error"] for row in rows_of(Path("out.csv"))] == ["", "", "name"]


@pytest.mark.parametrize("name, table", [("explain", "/atoms.csv"), ("fingerprint", ".csv")])
def test_other_commands_take_molecules_and_standard_input_too(
    model_folder, monkeypatch, name, table
):
    Path("in.csv").write_text("smiles\nCCO\nc1ccccc1O\nnonsense\n")
    for place, inputs in (("a", ["in.csv"]), ("b", ["CCO", "c1ccccc1O", "nonsense"]), ("c", ["-"])):
        output = f"{place}{table}".removesuffix("/atoms.csv")
        with open("in.csv") as file:
            monkeypatch.setattr(sys, "stdin", file)
            assert main([name, str(model_folder), *inputs, "--output", output]) == 0
    first, *others = [Path(f"{place}{table}").read_text() for place in "abc"]
    assert first.rstrip().endswith(",name")
    assert others == [first, first]


def drawn(text, order, write):
    """A molecule with its hydrogen atoms, and its mol block, in some order of its atoms."""
    mol = Chem.AddHs(Chem.MolFromSmiles(text))
    mol = Chem.RenumberAtoms(mol, sorted(range(mol.GetNumAtoms()), key=order))
    rdDepictor.Compute2DCoords(mol)
    return mol, write(mol) + "$$$$\n"


@pytest.mark.parametrize("standardize", [False, True])
def test_atoms_of_an_sdf_have_its_order_and_numbers(model, standardize):
    model = MolAttn(replace(model.config, standardize=standardize)).eval()
    model.save_pretrained("model")
    texts = ["[Na+].CC(=O)Nc1ccc([O-])cc1", "F/C=C/[C@H](O)N", "F/C=C/[C@H](O)N"]
    writers = [Chem.MolToMolBlock, Chem.MolToV3KMolBlock, Chem.MolToMolBlock]
    orders = [lambda n: -n, lambda n: n * 7 % 11, lambda n: n * 5 % 13]
    mols, blocks = zip(*map(drawn, texts, orders, writers), strict=True)
    Path("in.sdf").write_text("".join(blocks))
    for name, output in (("explain", "out"), ("fingerprint", "f.csv")):
        options = ["--method", "occlusion"] if name == "explain" else ["--atoms"]
        assert main([name, "model", "in.sdf", "--output", output, *options]) == 0
    atoms, embedded = rows_of(Path("out/atoms.csv")), rows_of(Path("f.csv"))
    bonds = rows_of(Path("out/bonds.csv"))
    vectors = iter(model.embed(mols, atoms=True))
    for row, mol in enumerate(mols, start=1):
        own = explain(model, mol, "occlusion")
        found = [one for one in atoms if one["row"] == str(row)]
        numbers = [int(one["atom"]) for one in found]
        kept = [
            atom.GetIdx()
            for atom in mol.GetAtoms()
            if atom.GetSymbol() not in ("H", *["Na"] * standardize)
        ]
        assert numbers == kept != [*range(len(kept))]
        symbols = [mol.GetAtomWithIdx(number).GetSymbol() for number in numbers]
        assert [one["symbol"] for one in found] == symbols
        assert {one["smiles"] for one in found} == {own.smiles}
        scores = [float(one["occlusion"]) for one in found]
        np.testing.assert_allclose(scores, own.atom_scores, rtol=1e-4, atol=1e-6)
        pairs = [
            (int(one["atom_1"]), int(one["atom_2"])) for one in bonds if one["row"] == str(row)
        ]
        assert len(pairs) == len(own.bonds)
        assert all(mol.GetBondBetweenAtoms(*pair) for pair in pairs)
        of_row = [one for one in embedded if one["row"] == str(row)]
        assert [int(one["atom"]) for one in of_row] == numbers
        for one in of_row:
            vector = [
                float(one[f"embedding_{k}"]) for k in range(model.embedding_width(atoms=True))
            ]
            np.testing.assert_allclose(vector, next(vectors), rtol=1e-4, atol=1e-5)
            assert one["smiles"] == own.smiles


def test_hydrogen_atoms_of_a_smiles_count(model_folder):
    assert main(["explain", str(model_folder), "[H]OC", "--output", "out"]) == 0
    atoms = rows_of(Path("out/atoms.csv"))
    assert [(one["atom"], one["symbol"]) for one in atoms] == [("1", "O"), ("2", "C")]


def test_a_racemate_is_one_molecule_and_said(model_folder, capfd):
    texts = ["C[C@H](O)CC |&1:1|", "C[C@@H](O)CC |&1:1|", "C[C@H](O)CC |o1:1|", "CC(O)CC"]
    Path("in.csv").write_text("smiles,y\n" + "".join(f"{text},1.0\n" for text in texts))
    mols = [Chem.MolFromSmiles(text) for text in texts]
    Path("in.sdf").write_text("".join(f"{Chem.MolToV3KMolBlock(mol)}$$$$\n" for mol in mols))
    for name in ("in.csv", "in.sdf"):
        capfd.readouterr()
        assert main(["predict", str(model_folder), name, "--output", "out.csv"]) == 0
        assert "3 molecules with stereo groups" in capfd.readouterr().err
        values = {f"{float(row['y_predicted']):.5g}" for row in rows_of(Path("out.csv"))}
        assert len(values) == 1
    with open("in.csv", "a") as file:
        file.writelines(f"{'C' * size},{size}\n" for size in range(1, 41))
    options = "--no-baselines --epochs 1 --init-from none --width 8 --heads 2 --layers 1".split()
    main(["train", "in.csv", "--target-columns", "y", "--output", "run", *options])
    said = capfd.readouterr().out
    assert "3 molecules with stereo groups" in said
    assert "1 molecule occurs in more than one row" in said


@pytest.mark.parametrize("name", ["explain", "fingerprint", "prepare"])
def test_only_predict_writes_to_standard_output(model_folder, capsys, name):
    model = [] if name == "prepare" else [str(model_folder)]
    Path("in.csv").write_text("smiles\nCCO\n")
    assert main([name, *model, "in.csv", "--output", "-"]) == 2
    expected = "error: --output: got -, expected a path; only predict writes to standard output\n"
    assert capsys.readouterr().err == expected
    assert [path.name for path in Path().iterdir()] == ["in.csv"]


@pytest.mark.parametrize("name", ["predict", "explain", "fingerprint"])
def test_a_missing_file_is_told_as_both(model_folder, capsys, name):
    assert main([name, str(model_folder), "mols.csv", "--output", "out.csv"]) == 2
    line = capsys.readouterr().err
    assert line.startswith("error: mols.csv: no such file, and not a SMILES: ")
    assert line.count("\n") == 1


@pytest.mark.parametrize("output", [[], ["--output", "-"]])
def test_a_dash_is_standard_input_and_output(model_folder, capfd, monkeypatch, output):
    Path("in.csv").write_text("id;smiles\n1;CCO\n2;\n")
    with open("in.csv") as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert main(["predict", str(model_folder), "-", *output]) == 0
    printed = capfd.readouterr()
    assert printed.err.splitlines()[0] == "standard input: cells are separated by semicolons"
    rows = printed.out.splitlines()
    assert rows[0] == "id,smiles,y_predicted,z_predicted,error"
    assert [row.split(",")[0] for row in rows[1:]] == ["1", "2"]
    assert rows[2] == "2,,,,empty"


def test_a_file_named_as_a_dash_is_a_file_with_its_folder(model_folder):
    Path("-").write_text("smiles\nCCO\n")
    assert main(["predict", str(model_folder), "./-", "--output", "./-.csv"]) == 0
    assert len(rows_of(Path("-.csv"))) == 1


@pytest.mark.parametrize("command", ["train", "fingerprint"])
def test_a_dash_is_refused_where_it_means_nothing(command, capsys):
    assert main([command, "-"]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_aligned_on_a_terminal(model_folder):
    main_end, end = pty.openpty()
    command = [sys.executable, "-m", "molattn", "predict", str(model_folder), "C", "CCCCO"]
    with os.fdopen(main_end, "rb", buffering=0) as reader:
        done = subprocess.run(command, stdout=end, stderr=subprocess.PIPE, env=ONE_THREAD)
        os.close(end)
        lines = io.BytesIO()
        try:
            while part := reader.read(4096):
                lines.write(part)
        except OSError:  # the other end is closed
            pass
    assert done.returncode == 0
    header, *rows = lines.getvalue().decode().splitlines()
    assert header.split() == ["smiles", "y_predicted", "z_predicted", "error"]
    place = header.index("y_predicted")
    for row, smiles in zip(rows, ["C", "CCCCO"], strict=True):
        assert row[:place] == smiles.ljust(place)
        assert row[place] != " "


def piped(model_folder, *words, **streams):
    command = [sys.executable, "-m", "molattn", "predict", str(model_folder), *words]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, env=ONE_THREAD, **streams)


def test_a_closed_pipe_ends_it_quietly(model_folder):
    Path("in.csv").write_text("smiles\n" + "CCO\n" * 20)
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as pipe, open("in.csv") as file:
        done = piped(model_folder, "-", "--output", "-", stdin=file, stdout=pipe)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_behind_standard_output_is_one_line(model_folder):
    with open("/dev/full", "wb") as full:
        done = piped(model_folder, "CCO", stdout=full)
    assert done.returncode == 1
    assert done.stderr.endswith("error: standard output: No space left on device\n")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), BrokenPipeError(32, "x")]
)
def test_an_error_of_another_file_is_not_taken_for_standard_output(
    model_folder, capfd, monkeypatch, error
):
    def failing(*args, **kwargs):
        raise error

    monkeypatch.setattr(streaming, "computed", failing)
    assert main(["predict", str(model_folder), "CCO"]) == 1
    line = capfd.readouterr().err.splitlines()[-1]
    assert line == f"error: {error.strerror}"


def test_targets_with_molecules_beyond_the_domain_are_listed(capsys):
    assert main(["predict", "admet", "CC(=O)Oc1ccccc1C(=O)OC", "--output", "o.csv"]) == 0
    (line,) = (one for one in capsys.readouterr().err.splitlines() if "below 0.4" in one)
    (row,) = rows_of("o.csv")
    far = [name for name, text in row.items() if name.endswith("_training_similarity")]
    far = [name for name in far if float(row[name]) < 0.4]
    assert len(far) == 6
    assert line.startswith("of 1 molecule, beyond the domain")
    assert line.endswith(", and 1 more target")
    for listed in line.partition(": ")[2].split(", ")[:5]:
        name, _, count = listed.partition(" ")
        assert (f"{name}_training_similarity" in far, count) == (True, "1")


def test_one_of_a_kind_is_not_plural(model, capsys):
    known = copy.deepcopy(model)
    known.calibrate(["CCO", "CCN"] * 15, np.zeros((30, 2)), ["CCCCO", "c1ccccc1"])
    known.save_pretrained("known")
    Path("in.csv").write_text("smiles,y\nc1ccccc1,1\n")
    assert main(["predict", "known", "in.csv", "--output", "o.csv"]) == 0
    assert "beyond the domain" not in capsys.readouterr().err
    Path("in.csv").write_text("smiles,y\nN#N,1\nc1ccccc1,\n")
    assert main(["predict", "known", "in.csv", "--output", "o.csv"]) == 0
    printed = capsys.readouterr().err
    assert "1 molecule beyond the domain of the model" in printed
    assert "1 row with labels:" in printed
    Path("in.csv").write_text("smiles\nC(\n")
    assert main(["predict", "known", "in.csv", "--output", "o.csv"]) == 0
    assert "every row has an error; if the SMILES are in another column" in capsys.readouterr().err
    Path("in.csv").write_text("smiles\nCCO\nC(\n")
    assert main(["predict", "known", "in.csv", "--output", "o.csv"]) == 0
    assert "\n1 row predicted, 1 with an error; " in capsys.readouterr().err


def test_closed_standard_streams_are_told(model_folder, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["predict", str(model_folder), "-"]) == 2
    assert capsys.readouterr().err == "error: standard input is closed; expected a table\n"
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        code = main(["predict", str(model_folder), "CCO"])
    assert code == 2
    assert capsys.readouterr().err == "error: standard output is closed; use --output\n"


def test_predictions_are_scored_if_the_input_has_labels(model_folder, capsys):
    smiles = ["C" * n + "O" for n in range(1, 21)]
    labels = np.linspace(-1.0, 1.0, 20)
    lines = [f"{one},{label}," for one, label in zip(smiles, labels, strict=True)]
    lines[0] += "x"
    Path("in.csv").write_text("smiles,y,z\n" + "\n".join(lines) + "\n")
    assert main(["predict", str(model_folder), "in.csv", "--output", "out.csv"]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    predicted = [float(row["y_predicted"]) for row in rows_of(Path("out.csv"))]
    rmse = np.sqrt(np.mean((labels - predicted) ** 2))
    first = "(first: got 'x', expected a number or an empty cell)"
    assert f"'z': 1 label cannot be read {first}\n20 rows with labels:\n" in printed.err
    words = printed.err.split()
    assert words[words.index("molattn") + 1] == f"{rmse:.3f}"
    low, high = (float(words[words.index("molattn") + place]) for place in (2, 4))
    assert low < rmse < high
    assert "20 rows predicted, 0 with an error; written to out.csv, in " in printed.err


def test_progress_is_logged(model_folder, capsys, monkeypatch):
    monkeypatch.setattr(progress, "_SECONDS_PER_LINE", 0.01)
    Path("in.csv").write_text("smiles\n" + "CCO\n" * 100 + "nonsense\n" * 28)
    assert main(["predict", str(model_folder), "in.csv", "--batch-size", "8"]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "predicting: " in line]
    assert lines
    assert all(" of 128 rows" in line for line in lines)
