"""Tables in and out: formats, rows in = rows out with reason codes, and tables that are wrong."""

import csv
import gzip
import io
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rdkit import Chem
from rdkit.Chem import AllChem

import molattn
from molattn import SmilesError, from_smiles

from ..conftest import rows_of
from .conftest import (
    SETTINGS,
    TINY,
    predict,
    process,
    refuse,
    scores,
    succeed,
    table,
    train,
)

MOLECULES = ("CCO", "c1ccccc1O", "CC(=O)N", "OCC", "ClCCl")
REASONS = {
    "": "empty",
    " ": "empty",
    "NaN": "missing_value",
    "C\u2212C": "non_ascii",
    "C\x07C": "control_character",
    "3.14": "number",
    "VNWKTOKETHGBQD-UHFFFAOYSA-N": "inchi",
    "64-17-5": "registry_number",
    "C2H6O": "formula",
    "aspirin": "name",
    "CCO>>CC=O": "reaction",
    "[#6]~[#7]": "smarts",
    "CC O": "whitespace",
    "[Xx]": "bracket_atom",
    "C(C": "parenthesis",
    "C1CC": "ring_closure",
    "C==C": "syntax",
    "CN(C)(C)(C)C": "valence",
    "c1cccc1": "kekulize",
    "cc": "aromaticity",
    "C" * 40_001: "too_long",
    "C" * 2_001: "too_large",
    "C(" * 300 + "C" + ")" * 300: "too_nested",
}


@pytest.fixture(scope="module")
def wanted(model, tmp_path_factory):
    """What is predicted for the molecules."""
    rows = predict(model, *MOLECULES, output=tmp_path_factory.mktemp("wanted") / "out.csv")
    return [float(row["logS_predicted"]) for row in rows]


def values_of(rows):
    return [float(row["logS_predicted"]) for row in rows]


def sdf(path):
    with Chem.SDWriter(str(path)) as writer:
        for number, smiles in enumerate(MOLECULES):
            mol = Chem.MolFromSmiles(smiles)
            AllChem.Compute2DCoords(mol)
            mol.SetProp("_Name", f"title {number}")
            mol.SetProp("batch", f"B{number}")
            writer.write(mol)


def text(delimiter, code="utf-8", end="\n"):
    def write(path):
        lines = [delimiter.join(("name", "SMILES"))]
        lines += [delimiter.join((f"m{k}", smiles)) for k, smiles in enumerate(MOLECULES)]
        path.write_bytes((end.join(lines) + end).encode(code))

    return write


FRAME = pd.DataFrame({"smiles": MOLECULES, "n": range(5)})
INPUTS = {
    "comma.csv": text(","),
    "semicolon.csv": text(";"),
    "tab.tsv": text("\t"),
    "mark.csv": text(",", "utf-8-sig"),
    "wide.csv": text(",", "utf-16"),
    "dos.csv": text(",", end="\r\n"),
    "packed.csv.gz": lambda path: path.write_bytes(gzip.compress(FRAME.to_csv().encode())),
    "renamed.csv": lambda path: path.write_bytes(gzip.compress(FRAME.to_csv().encode())),
    "list.smi": lambda path: path.write_text("".join(f"{s} name\n" for s in MOLECULES)),
    "mols.sdf": sdf,
    "frame.parquet": lambda path: FRAME.to_parquet(path, index=False),
    "sheet.xlsx": lambda path: FRAME.to_excel(path, index=False),
}


@pytest.mark.parametrize("name", INPUTS)
def test_every_format_is_read(name, model, wanted, tmp_path):
    path = tmp_path / name
    INPUTS[name](path)
    rows = predict(model, path, output=tmp_path / "out.csv")
    np.testing.assert_allclose(values_of(rows), wanted, rtol=2e-6)
    assert {row["error"] for row in rows} == {""}
    if name == "mols.sdf":
        assert [row["batch"] for row in rows] == [f"B{k}" for k in range(5)]


@pytest.mark.parametrize("name", ["out.csv.gz", "out.tsv", "out.parquet", "out.xlsx", "out.sdf"])
def test_every_format_is_written(name, model, wanted, tmp_path):
    given = table(tmp_path / "in.csv", "smiles,id", [*((s, s) for s in MOLECULES), ("C(C", "x")])
    out = tmp_path / name
    style = ["--style", "machine"] if name == "out.xlsx" else []
    succeed("predict", model, given, "--output", out, *style)
    if name == "out.sdf":
        records = out.read_text().split("$$$$\n")[:-1]
        mols = [Chem.MolFromMolBlock(record) for record in records]
        assert [Chem.MolToSmiles(mol) for mol in mols] == [
            Chem.CanonSmiles(smiles) for smiles in (*MOLECULES, "")
        ]
        frame = pd.DataFrame(
            [mol.GetPropsAsDict() for mol in Chem.SDMolSupplier(str(out), sanitize=False)]
        )
    else:
        read = {"parquet": pd.read_parquet, "xlsx": pd.read_excel}
        frame = read.get(name.split(".")[1], pd.read_csv)(
            out, **({"sep": "\t"} if name == "out.tsv" else {})
        )
    assert frame["id"].tolist() == [*MOLECULES, "x"]
    assert frame["error"].tolist()[-1] == "parenthesis"
    np.testing.assert_allclose(frame["logS_predicted"][:-1].astype(float), wanted, rtol=2e-6)
    assert frame["error"].isin(["", "parenthesis"]).sum() + frame["error"].isna().sum() == 6


def test_a_pipe_is_read_and_written(model, wanted):
    done = process("predict", model, "-", stdin="\n".join(("smiles", *MOLECULES)).encode())
    assert done.returncode == 0
    rows = list(csv.DictReader(done.stdout.decode().splitlines()))
    np.testing.assert_allclose(values_of(rows), wanted, rtol=2e-6)


def test_every_row_has_its_row_and_its_reason(model, wanted, tmp_path):
    words = [(smiles, smiles) for pair in zip(MOLECULES, MOLECULES, strict=True) for smiles in pair]
    bad = list(REASONS.items())
    mixed = [*words[:4], *bad, *words[4:]]
    given = table(tmp_path / "in.csv", "smiles,id", [(t, k) for k, (t, _) in enumerate(mixed)])
    rows = predict(model, given, output=tmp_path / "out.csv")
    assert [row["id"] for row in rows] == [str(k) for k in range(len(mixed))]
    reasons = [REASONS.get(text, "") for text, _ in mixed]
    assert [row["error"] for row in rows] == reasons
    for row, reason in zip(rows, reasons, strict=True):
        assert (row["logS_predicted"] == "") == (reason != "")
        assert "nan" not in (row["logS_predicted"], row["training_similarity"])
    got = values_of(row for row in rows if not row["error"])
    np.testing.assert_allclose(got, np.repeat(wanted, 2), rtol=2e-6)
    for smiles, reason in bad:
        with pytest.raises(SmilesError) as error:
            from_smiles(smiles)
        assert error.value.code == reason


def test_every_reason_is_documented():
    page = (Path(__file__).parents[2] / "docs" / "reasons.md").read_text()
    for reason in set(REASONS.values()):
        assert f"| `{reason}` |" in page


def test_equal_molecules_have_equal_predictions(model, tmp_path):
    same = ["OCC", "CCO", "C(O)C", "[CH3][CH2][OH]", "[H]OCC", "[CH3:7]CO", " CCO "]
    rows = predict(
        model, table(tmp_path / "in.csv", "smiles", zip(same)), output=tmp_path / "o.csv"
    )
    values = [float(row["logS_predicted"]) for row in rows]
    np.testing.assert_allclose(values, values[0], rtol=1e-5)


def test_all_rows_bad_is_no_error_in_a_table_and_one_for_words(model, tmp_path):
    given = table(tmp_path / "in.csv", "smiles", [("C(C",), ("xyzzy",)])
    rows = predict(model, given, output=tmp_path / "out.csv")
    assert [row["error"] for row in rows] == ["parenthesis", "name"]
    refuse("C(C", "predict", model, "C(C")


def test_a_formula_of_a_table_is_no_formula_of_a_spreadsheet(model, tmp_path):
    given = table(tmp_path / "in.csv", "smiles,note", [("CCO", "=1+1"), ("[Na+].[Cl-]", "-5")])
    rows = predict(model, given, output=tmp_path / "out.csv")
    assert [row["note"] for row in rows] == ["'=1+1", "-5"]
    succeed("predict", model, given, "--no-escape-formulas", "--output", tmp_path / "out.csv")
    assert rows_of(tmp_path / "out.csv")[0]["note"] == "=1+1"


# Mistakes, and input that is meant to do harm.
WRONG = r"""
NULL <NA> .. -inf #VALUE! {} InChI= InChI=1S/ =cmd|'/C'!A0 @SUM(1+1)*cmd '; {{7*7}} CC\ CC\N\
( ) ((( C(())O ()C C1(CC1 C)C [+N] [N: [] [Zz] [Hh] [C@TH3] [R2] [Lg] [OH3+ C] ]C[
-O CC- C!C C>O R RCOOH T C=.C .=C C1C 1CC1 C1CCCO2 C12CC C11 O0O0 C%1C C%(1C
O(C)(C)C N(C)(C)(C)O c1ccccc1(O)C C#C#C [BH5] [H][H][H] F=F CF(C)
o1ccccc1 cco c1ccccccc1c n c1cc2ccccc2c1 c1ccc2c1cccc2 c1ccccc1=c C1=CC=cC=C1c
[99999999999C] [K+99999999999] [C+1.5] [K+147413648] [65537H] [C;!R] [r6] [#6] [!C]
CCO>>CC CC>O>CO CC.>>C C(C)(C)(C)(C)C CC(C)=C(C)(C)C
"""
RIGHT = r"""
NO ON I B [Cl-] [CH3] [N]=O [3H][3H] [235U] C%(99999)CCC%(99999) C1CC=1 C9CCCCC9 O=c1cccc1
[nH]1cccccc1 [te]1cccc1 O=[Os](=O)(=O)=O N->[Cu+2]<-N [Na+].[Cl-] C[N+](C)(C)CC(=O)[O-]
CN=[N+]=[N-] F/C=C/F C[C@](F)(Cl)Br C[C@@](C)(C)C c1ccccc1.C123C45C16C21C34C561
InChI=1S/C2H6O/c1-2-3/h3H,2H2,1H3
"""


def test_a_table_of_wrong_molecules_has_a_reason_for_each(model, tmp_path):
    right = RIGHT.split()
    words = [
        *WRONG.split(),
        *right,
        "CC\N{GREEK CAPITAL LETTER OMICRON}",
        "\N{ZERO WIDTH SPACE}CC",
        "\xa0",
    ]
    given = table(tmp_path / "in.csv", "smiles,id", [(text, n) for n, text in enumerate(words)])
    rows = predict(model, given, output=tmp_path / "out.csv")
    assert [row["id"] for row in rows] == [str(n) for n in range(len(words))]
    assert [row["smiles"] for row in rows if not row["error"]] == right
    assert all((row["error"] == "") == (row["logS_predicted"] != "") for row in rows)


def written(rows, header="smiles,y", line="{},{}"):
    return "".join(f"{text}\n" for text in [header, *(line.format(*row) for row in rows)])


def with_gaps(rows):
    """Classes, of which one in ten is missing."""
    return [(s, "" if n % 10 == 4 else int(y > -3)) for n, (s, y) in enumerate(rows)]


# Each with the number of its rows that are skipped.
ACCEPTED = {
    "mark": (lambda rows: f"\ufeff{written(rows)}", 0),
    "delimiter_at_the_end": (lambda rows: written(rows, "smiles,y,", "{},{},"), 0),
    "comma_in_a_name": (lambda rows: written(rows, "name,smiles,y", '"2,3-diol",{},{}'), 0),
    "spaces": (lambda rows: written(rows, line="{}, {} "), 0),
    "classes": (lambda rows: written(with_gaps(rows)), 4),
    "two_targets": (
        lambda rows: written([(rows[0][0], ""), *rows[1:]], "smiles,y,z", "{0},{1},{1}"),
        1,
    ),
}
REJECTED = {
    "no_target.csv": lambda rows: written(rows, "smiles,z"),
    "workbook.csv": lambda rows: zipped("xl/worksheets/sheet1.xml", "<worksheet/>"),
    "empty.csv": lambda rows: "",
    "header.csv": lambda rows: written([]),
    "target_twice.csv": lambda rows: written(rows, "smiles,y,y", "{0},{1},{1}"),
    "decimal_commas.csv": lambda rows: written(rows, line="{},0,{}"),
    "one_label.csv": lambda rows: written([rows[0], *((smiles, "") for smiles, _ in rows[1:])]),
    "numbers.csv": lambda rows: written(enumerate(range(40))),
    "cut.csv.gz": lambda rows: gzip.compress(written(rows).encode())[:-20],
}


def zipped(name, text):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, text)
    return file.getvalue()


def saved(path, content):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_table_that_is_written_unusually_is_trained_with(name, molecules, tmp_path):
    content, skipped = ACCEPTED[name]
    path = saved(tmp_path / "in.csv", content(molecules[:40]))
    targets = ["y", "z"] if name == "two_targets" else ["y"]
    options = {"predictor": "network", "epochs": 1}
    options["task"] = ["classification" if name == "classes" else "regression"] * len(targets)
    result = molattn.train(path, targets, **SETTINGS | options)
    assert result.scores["y"]["count"] == 4
    assert [row.code for row in result.run.table.skipped] == ["no_label"] * skipped


@pytest.mark.parametrize("name", REJECTED)
def test_a_table_without_rows_to_train_with_is_refused(name, molecules, tmp_path):
    path = saved(tmp_path / name, REJECTED[name](molecules[:40]))
    refuse(name, "train", path, "--target-columns", "y", "--output", tmp_path / "run", *TINY)
    assert list(tmp_path.iterdir()) == [path]


def test_a_row_that_cannot_be_used_is_skipped_with_its_line(small, tmp_path):
    lines = small.read_text().splitlines()
    lines[3:3] = ["C(C,1", "CCCCO,n.d.", "CCCCO,", "CCCCO,1,2"]
    given = tmp_path / "in.csv"
    given.write_text("\n".join(lines) + "\n")
    run = train(given, tmp_path / "run", "--predictor", "network", epochs=1)
    skipped = {row["line"]: row["code"] for row in rows_of(run / "skipped.csv")}
    assert skipped == {"4": "parenthesis", "5": "invalid_label", "6": "no_label", "7": "ragged"}
    assert scores(run)["test"]["logS"]["count"] == 12


def test_a_refused_prediction_leaves_the_old_file(model, small, tmp_path):
    out = tmp_path / "out.csv"
    out.write_text("mine\n")
    broken = tmp_path / "broken.csv.gz"
    broken.write_bytes(gzip.compress(small.read_bytes())[:-20])
    refuse(broken.name, "predict", model, broken, "--output", out)
    assert out.read_text() == "mine\n"
    assert {path.name for path in tmp_path.iterdir()} == {"out.csv", "broken.csv.gz"}


def test_a_file_that_expands_too_much_is_refused(model, tmp_path):
    bomb = tmp_path / "bomb.csv.gz"
    bomb.write_bytes(gzip.compress(b"smiles\n" + b"C" * 8_000_000))
    refuse(bomb.name, "predict", model, bomb, "--output", tmp_path / "out.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["bomb.csv.gz"]


def test_a_folder_of_something_else_is_not_replaced(small, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("mine")
    words = ["--target-columns", "logS", "--output", tmp_path / "thesis", "--overwrite"]
    refuse("thesis", "train", small, *words)
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "mine"
    shutil.copy(small, tmp_path / "a.csv")
    refuse("a.csv", "predict", "base-small", tmp_path / "a.csv", "--output", tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_bytes() == small.read_bytes()
