"""The roads of tables through ``predict`` and the other commands of models."""

import copy
import gzip
import io
import json
import re
import sys
import textwrap
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rdkit import Chem

from molattn import MolAttn
from molattn.cli import main
from molattn.cli.models import input_table
from molattn.cli.options import STREAM
from molattn.config import NetworkConfig, PredictConfig, TableConfig
from molattn.data.table import open_table
from molattn.errors import InputError
from molattn.inference.streaming import with_workers
from molattn.model.model import MolAttnConfig
from molattn.model.training_set import Endpoint
from molattn.utils import console

from ..conftest import rows_of


@pytest.fixture(scope="module")
def model():
    small = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
    model = MolAttn(MolAttnConfig(("y", "z"), small)).eval()
    model.calibrate(["CCO", "CCN"] * 15, np.zeros((30, 2)), ["CCCCO", "c1ccccc1"])
    return model


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def predict(*words):
    return main(["predict", *map(str, words)])


def test_words_a_file_and_standard_input_give_the_same(model_folder, capfd, monkeypatch):
    words = ["CCO", "c1ccccc1O", "nonsense"]
    Path("in.csv").write_text("smiles\nCCO\nc1ccccc1O\nnonsense\n")
    assert predict(model_folder, *words) == 0
    printed = capfd.readouterr()
    assert "2 rows predicted, 1 with an error, in " in printed.err
    Path("a.csv").write_text(printed.out)
    assert predict(model_folder, "in.csv", "--output", "b.csv") == 0
    with open("in.csv") as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert predict(model_folder, "-", "--output", "-") == 0
    Path("c.csv").write_text(capfd.readouterr().out)
    first, *others = [rows_of(Path(f"{name}.csv")) for name in "abc"]
    assert [row["error"] for row in first] == ["", "", "name"]
    assert others == [first, first]
    Path("empty.csv").write_text("smiles\n")
    assert predict(model_folder, "empty.csv", "--output", "d.csv") == 0
    for command, table in (("explain", "out/atoms.csv"), ("fingerprint", "out.csv")):
        texts = []
        for inputs in (["in.csv"], words):
            output = table.partition("/")[0]
            assert main([command, str(model_folder), *inputs, "--output", output]) == 0
            texts.append(rows_of(Path(table)))
        numbers = [[row.pop("row", "") for row in rows][-1] for rows in texts]
        assert numbers == (["4", "3"] if command == "explain" else ["", ""])  # line 4, word 3
        assert texts[0] == texts[1]
        assert texts[0][-1]["error"] == "name"


def test_labels_are_found_by_the_name_or_the_title_of_a_target_in_any_case(model, tmp_path, capsys):
    named = copy.deepcopy(model)
    named.endpoints = {"z": Endpoint("Clearance")}
    named.save_pretrained("named")
    for header in ("Y,clearance", "y,Z"):
        Path("in.csv").write_text(f"smiles,{header}\nCCO,1,2\nCCN,0,1\n")
        assert predict("named", "in.csv", "--output", "o.csv") == 0
        assert "2 rows with labels:" in capsys.readouterr().err
    Path("in.csv").write_text("smiles,Clearance,CLEARANCE\nCCO,1,2\n")
    assert predict("named", "in.csv", "--output", "o.csv") == 0  # one is equal
    Path("in.csv").write_text("smiles,clearance,CLEARANCE\nCCO,1,2\n")
    assert predict("named", "in.csv", "--output", "o.csv") == 2
    assert "'clearance', 'CLEARANCE'" in capsys.readouterr().err
    words = ["explain", "named", "CCO", "--output", "out", "--method", "occlusion", "--target"]
    assert main([*words, "clearance"]) == 0
    assert json.loads(Path("out/explanations.json").read_text())["target"] == "z"
    assert main([*words, "clear"]) == 2


def test_workers_are_for_large_tables_on_more_than_one_core(monkeypatch):
    table = open_table(pd.DataFrame({"smiles": ["C"] * 5000}))
    few = open_table(pd.DataFrame({"smiles": ["C"] * 4999}))
    monkeypatch.setattr("joblib.cpu_count", lambda **_: 16)
    config = PredictConfig(device="cpu")
    assert with_workers(config, table).num_workers == 8
    assert with_workers(replace(config, threads=4), table).num_workers == 4
    assert with_workers(config, few).num_workers == 0
    assert with_workers(replace(config, num_workers=3), few).num_workers == 3
    monkeypatch.setattr("joblib.cpu_count", lambda **_: 1)
    assert with_workers(config, table).num_workers == 0


def test_a_gpu_that_is_not_there_is_refused(model_folder, monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    assert predict(model_folder, "CCO", "--device", "gpu") == 2
    assert "--device: got gpu" in capsys.readouterr().err


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_shows_names_and_units_with_the_reason_of_a_refused_row(
    model_folder, monkeypatch
):
    small = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
    MolAttn(MolAttnConfig(("-logS",), small)).save_pretrained("formula")
    for model, words in ((model_folder, ["--smiles-column", "structure"]), ("formula", [])):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", Terminal())
            assert predict(model, "CCCCO", "C(", *words) == 0
            text = sys.stdout.getvalue()
        assert "Interval or probability" in text
        assert "no prediction: parenthesis" in text


def test_a_terminal_shows_a_row_for_each_atom(monkeypatch):
    small = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
    MolAttn(MolAttnConfig((), small, atom_tasks=("shift",))).save_pretrained("shifts")
    terminal = Terminal()
    terminal.buffer = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", terminal)
    assert predict("shifts", "CCO", "--atoms") == 0
    assert terminal.buffer.getvalue().count(b"CCO") == 3


LOGARITHMS = ("caco2_wang", "solubility_aqsoldb", "ld50_zhu")


def check_overview(book, converted):
    """Check the sheet of aspirin, no value as undesired, a refused row, and ethanol."""
    assert book.sheetnames == ["Overview", "Predictions", "Columns"]
    sheet = book["Overview"]
    titles = [cell.value for cell in sheet[1]]
    assert titles[:3] == [
        "Structure",
        "Caco-2 permeability (10^-6 cm/s)",
        "Human intestinal absorption: probability of good intestinal absorption",
    ]
    assert titles[-2:] == [
        "Drug-induced liver injury: probability of causing liver injury",
        "P-gp inhibition: probability of inhibition",
    ]
    assert (len(titles), sheet.auto_filter.ref) == (12, sheet.dimensions)
    assert sheet["B2"].value == pytest.approx(converted[titles[1]])
    assert re.fullmatch('"\u2713 "#,##0.0" (high|medium)"', sheet["B2"].number_format)
    assert re.fullmatch('"\u2713 "0%" (high|medium)"', sheet["C2"].number_format)
    colored = [cell for cell in sheet[2][1:11] if cell.fill.fill_type]
    assert {cell.fill.fgColor.rgb for cell in colored} == {"00DFF3EA"}
    assert len(colored) > 5
    assert not any('low"' in cell.number_format for cell in colored)
    assert not sheet["L2"].fill.fill_type
    assert sheet["B4"].number_format == '#,##0.0" low"'  # of ethanol, neither mark nor color
    table = book["Predictions"]
    fills = [cell.fill.fill_type for cell in (sheet["B4"], table["B4"], table["B2"])]
    assert fills == [None, None, "solid"]
    assert sheet["B3"].value.startswith("parenthesis")
    for one in (sheet, book["Predictions"]):
        for cell in one[1]:
            width = one.column_dimensions[cell.column_letter].width - 3
            lines = len(textwrap.wrap(cell.value, int(width)))
            assert one.row_dimensions[1].height >= 15.0 * lines
            assert max(map(len, cell.value.split())) <= width


def test_an_excel_file_is_for_people_unless_machines_are_asked_for(tmp_path):
    smiles = "CC(=O)Oc1ccccc1C(=O)O"
    file = tmp_path / "drugs.xlsx"
    assert predict("admet", smiles, "C(", "CCO", "--structures", "--output", file) == 0
    book = openpyxl.load_workbook(file)
    sheet, columns = book["Predictions"], book["Columns"]
    titles = [cell.value for cell in sheet[1]]
    assert titles[:2] == ["smiles", "Caco-2 permeability, predicted (log cm/s)"]
    assert [len(one._images) for one in (book["Overview"], sheet)] == [2, 0]
    assert (sheet.freeze_panes, sheet.auto_filter.ref) == ("B2", sheet.dimensions)
    model = MolAttn.from_pretrained("admet")
    frame = model.predict_frame(["C(", smiles])
    assert [*titles[1:-6], "error"] == [*frame.columns]  # then that of the parent, three converted
    assert titles[-2:] == ["Parent", "Error"]
    named = [columns.cell(row, 1).value for row in range(2, columns.max_row + 1)]
    assert named == [*titles[1:], "Overview"]
    assert [cell.value for cell in columns[2][1:3]] == ["caco2_wang_predicted", "log cm/s"]
    value = sheet.cell(2, 2)
    assert value.value == pytest.approx(frame.iloc[1, 0], rel=1e-5)
    assert [frame.iloc[0, :-1].isna().all(), "parenthesis" in frame.iloc[0, -1]] == [True, True]
    is_shown = [not sheet.column_dimensions[cell.column_letter].hidden for cell in sheet[1]]
    shown = [title for title, one in zip(titles, is_shown, strict=True) if one]
    assert shown[6:8] == [
        "Human intestinal absorption, class (1 = good intestinal absorption)",
        "Human intestinal absorption, probability of good intestinal absorption",
    ]
    assert value.number_format == "#,##0.00"
    assert sheet.cell(3, len(titles)).value == "parenthesis: Unbalanced parentheses."

    names = [f"{model.endpoints[name].title}, predicted" for name in LOGARITHMS]
    logs = [frame.filter(regex=name).iloc[1, 0] for name in names]
    mass = 180.16
    converted = dict(zip(titles[-5:-2], [cell.value for cell in sheet[2]][-5:-2], strict=True))
    assert converted == {
        "Caco-2 permeability (10^-6 cm/s)": pytest.approx(10.0 ** (logs[0] + 6.0), rel=1e-4),
        "Aqueous solubility (µg/mL)": pytest.approx(1e3 * mass * 10.0 ** logs[1], rel=1e-4),
        "Acute oral toxicity (mg/kg)": pytest.approx(1e3 * mass * 10.0 ** -logs[2], rel=1e-4),
    }
    check_overview(book, converted)

    assert predict("admet", smiles, "--style", "machine", "--output", file) == 0
    names = [cell.value for cell in openpyxl.load_workbook(file)["Sheet1"][1]]
    assert names[1] == "caco2_wang_predicted"
    assert predict("admet", smiles, "--structures", "--output", tmp_path / "drugs.csv") == 2
    assert predict("admet", smiles, "--style", "readable", "--neighbors", "1") == 2


def test_a_salt_is_converted_with_its_own_molar_mass(tmp_path):
    file = tmp_path / "salt.xlsx"
    assert predict("admet", "[Na+].CC(=O)Oc1ccccc1C(=O)[O-]", "--output", file) == 0
    row = pd.read_excel(file, sheet_name="Predictions").iloc[0]
    assert row["Parent"] == "CC(=O)Oc1ccccc1C(=O)O"
    logs = row["Aqueous solubility, predicted (log mol/L)"]
    dose = row["Acute oral toxicity, predicted (log(1/(mol/kg)))"]
    assert row["Aqueous solubility (µg/mL)"] == pytest.approx(202.14e3 * 10.0**logs, rel=1e-4)
    assert row["Acute oral toxicity (mg/kg)"] == pytest.approx(180.16e3 * 10.0**-dose, rel=1e-4)


def test_measured_and_predicted_values_of_an_excel_file_have_headings_of_their_own(
    model_folder, tmp_path
):
    table, file = tmp_path / "in.csv", tmp_path / "out.xlsx"
    table.write_text("smiles,y\nCCO,1\n")
    assert predict(model_folder, table, "--output", file) == 0
    assert pd.read_excel(file, nrows=1).columns[:3].tolist() == ["smiles", "y", "y, predicted"]


def test_a_full_disk_behind_standard_output(model_folder, monkeypatch, capsys):
    stream = open("/dev/full", "w")  # noqa: SIM115 (closing it fails)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        assert predict(model_folder, "CCO", "--output", "-") == 1
    with suppress(OSError):
        stream.close()
    assert capsys.readouterr().err.splitlines() == ["error: No space left on device"]


def test_closed_standard_output_is_refused(model_folder, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        code = predict(model_folder, "CCO")
    assert code == 2
    assert "--output" in capsys.readouterr().err


def test_what_the_log_says_of_rows_and_confidence(model_folder, capsys):
    def log(text):
        Path("in.csv").write_text(text)
        assert predict(model_folder, "in.csv", "--output", "o.csv") == 0
        return capsys.readouterr().err

    printed = log("smiles,y\nN#N,1\nc1ccccc1,\n")
    assert re.search(r"^confidence: (\d (high|medium|low)(, )?)+$", printed, re.M)
    assert "1 row with labels:" in printed
    printed = log("smiles\nC(\n")
    assert "every row has an error; if the SMILES are in another column" in printed
    printed = log("smiles;y\nCCO;1\nC(;2\n")
    assert "in.csv: cells are separated by semicolons" in printed
    assert "\n1 row predicted, 1 with an error; written to o.csv, in " in printed


def test_progress_is_logged(model_folder, capsys, monkeypatch):
    clock = count(step=20).__next__  # seconds, 20 more at each look
    monkeypatch.setattr(console, "time", SimpleNamespace(monotonic=clock))
    Path("in.csv").write_text("smiles\n" + "CCO\n" * 100 + "nonsense\n" * 28)
    assert predict(model_folder, "in.csv", "--batch-size", "8") == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "predicting: " in line]
    assert lines
    assert all(" of 128 rows" in line for line in lines)


CONFIG = TableConfig()


def rows(words, config=CONFIG):
    return [row.cells for row in input_table(words, config)]


def test_words_that_are_no_files_are_molecules():
    words = ["CCO", "[Na+].[Cl-]", "F/C=C/F", "nonsense", "C" * 300, "", "-"]
    table = input_table([*words[:-1], STREAM], TableConfig(smiles_column="structure"))
    assert table.header == ["structure"]
    assert [(row.line, *row.cells) for row in table] == [*enumerate(words, start=1)]
    assert rows(["CCCC"], TableConfig(max_atoms=3)) == [["CCCC"]]  # which has a reason code


def test_an_existing_path_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("CCO", "-"):
        (tmp_path / name).write_text("smiles\nCC\n")
        assert rows([f"./{name}"]) == [["CC"]]
    assert rows(["CCO"]) == [["CC"]]
    with pytest.raises(InputError, match="'CCO'"):
        rows(["CCC", "CCO"])


@pytest.mark.parametrize(
    "words",
    [["mols.csv"], ["ethanol"], ["data/mols"], ["CCO", "mols.sdf.gz"], ["CCO", "C:\\mols"], [""]],
)
def test_neither_a_file_nor_a_molecule_is_refused_as_both(words):
    with pytest.raises(InputError) as error:
        rows(words)
    assert "no such file, and not a SMILES" in str(error.value)
    assert words[-1] in str(error.value)


def sdf():
    block = Chem.MolToMolBlock(Chem.MolFromSmiles("CCO"))
    return f"{block}> <y>\n1\n\n$$$$\n".encode()


def parquet():
    stream = io.BytesIO()
    pq.write_table(pa.table({"smiles": ["CCO"], "y": [1]}), stream)
    return stream.getvalue()


def stream_table(monkeypatch, content, config=CONFIG):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    return input_table([STREAM], config)


@pytest.mark.parametrize(
    "content",
    [
        b"smiles,y\nCCO,1\n",
        gzip.compress(b"smiles,y\nCCO,1\n", mtime=0),
        b"N\tsmiles\ty\n1\tCCO\t1\n",
        "smiles;y\nCCO;1\n".encode("utf-16"),
        parquet(),
        gzip.compress(sdf(), mtime=0),
        b"CCO 1\n",
    ],
)
def test_standard_input_is_recognized_by_its_content(content, monkeypatch):
    table = stream_table(monkeypatch, content)
    index = table.column("smiles", "--smiles-column")
    for _ in range(2):
        cells = next(iter(table)).cells
        assert (cells[index], cells[-1]) == ("CCO", "1")


@pytest.mark.parametrize("content", [b"", b"name\nx\n", b"%PDF-1", b"\x1f\x8b123", b"PAR1"])
def test_an_error_names_standard_input(content, monkeypatch):
    with pytest.raises(InputError, match="standard input: "):
        stream_table(monkeypatch, content)
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="standard input is closed"):
        input_table([STREAM], CONFIG)
