"""One table in every kind of file, from training to predictions."""

import gzip
import json

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rdkit import Chem

from molattn.cli import main
from molattn.config import NetworkConfig
from molattn.data.table import (
    FORMATS,
    FileFormat,
    Row,
    Table,
    TableWriter,
    bundled_dataset,
    check_output,
    open_table,
    write_table,
)
from molattn.errors import REASONS, InputError
from molattn.model.config import MolAttnConfig
from molattn.model.model import MolAttn
from molattn.task import Task

from ...conftest import assert_one_line
from ...strategies import table_files

pytestmark = pytest.mark.usefixtures("without_figures")

SMALL = "--epochs 2 --width 8 --heads 2 --layers 1 --no-baselines --bootstrap 0 --batch-size 8"
OPTIONS = (
    "--target-columns y toxic --task-weights 1 0.5 --feature-columns pH --weight-column w "
    "--split order --order-column when --validation-size 0.2 --test-size 0.2"
)


@pytest.fixture(scope="module")
def frame():
    """Molecules with two targets, some labels missing, a feature, a weight and a date."""
    smiles = pd.read_csv(bundled_dataset())["smiles"][::30]
    canonical = [Chem.CanonSmiles(text) for text in smiles]
    rows = range(len(canonical))
    return pd.DataFrame(
        {
            "smiles": canonical,
            "y": [None if n % 7 == 0 else n / 4 for n in rows],
            "toxic": [["no", "yes", ""][n % 3] for n in rows],
            "pH": [4.5 + n % 5 for n in rows],
            "w": [1 + n % 2 for n in rows],
            "when": [f"2024-01-{n % 28 + 1:02}" for n in rows],
        }
    )


def save(frame, path):
    name = path.name
    if name.endswith((".csv", ".csv.gz")):
        frame.to_csv(path, index=False)
    elif name.endswith(".tsv"):
        frame.to_csv(path, index=False, sep="\t")
    elif name.endswith(".xlsx"):
        frame.to_excel(path, index=False)
    elif name.endswith(".csv.zst"):
        frame.to_csv(path, index=False, compression=None)
        text = path.read_bytes()
        with pa.CompressedOutputStream(str(path), "zstd") as stream:
            stream.write(text)
    elif name.endswith(".parquet"):
        frame.to_parquet(path)
    elif name.endswith(".smi.gz"):
        path.write_bytes(gzip.compress(frame.to_csv(index=False, sep="\t").encode()))
    else:
        with Chem.SDWriter(str(path)) as writer:
            for row in frame.itertuples():
                mol = Chem.MolFromSmiles(row.smiles)
                for name in frame.columns[1:]:
                    value = getattr(row, name)
                    if value != "" and not pd.isna(value):
                        mol.SetProp(name, str(value))
                writer.write(mol)


KINDS = ["csv", "csv.zst", "tsv", "parquet", "xlsx", "smi.gz", "sdf"]


def test_every_kind_of_file_trains_the_same_model(frame, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scores, predictions = [], []
    for kind in KINDS:
        save(frame, tmp_path / f"t.{kind}")
        words = f"t.{kind} {OPTIONS} {SMALL} --output {kind}"
        assert main(["train", *words.split()]) == 0
        metrics = json.loads((tmp_path / kind / "metrics.json").read_text())
        assert metrics["rows_used"] + metrics["rows_skipped"] == len(frame)
        assert [task["kind"] for task in metrics["tasks"]] == ["regression", "binary"]
        assert main(["predict", kind, f"t.{kind}", "--output", f"{kind}.csv"]) == 0
        scores.append(metrics["test"])
        table = open_table(tmp_path / f"{kind}.csv")
        places = [
            table.column(name, "")
            for name in (
                "smiles",
                "y_predicted",
                "toxic_predicted",
                "toxic_probability_yes",
                "error",
            )
        ]
        predictions.append([[row.cells[place] for place in places] for row in table])
    assert len(predictions[0]) == len(frame)
    for kind, score, prediction in zip(KINDS, scores, predictions, strict=True):
        assert score == scores[0], kind
        assert prediction == predictions[0], kind


def test_rows_that_weigh_nothing_teach_nothing(frame, tmp_path, monkeypatch):
    """Tables that differ in the labels of such rows alone give the same network."""
    monkeypatch.chdir(tmp_path)
    count = len(frame)
    part = ["train"] * (count - 12) + ["val", "test"] * 6
    weights = [n % 3 for n in range(count - 12)] + [1] * 12
    networks = []
    for wrong, heavy in ((0, 0), (1, 0), (1, 1)):
        toxic = [(n // 2 + wrong * (weights[n] == 0)) % 2 for n in range(count)]
        other = frame.assign(toxic=toxic, part=part, w=[weight + heavy for weight in weights])
        save(other, tmp_path / "t.csv")
        words = f"t.csv --target-columns toxic --weight-column w --split-column part {SMALL}"
        assert main(["train", *words.split(), "--output", "run", "--overwrite"]) == 0
        networks.append((tmp_path / "run" / "model" / "model.safetensors").read_bytes())
    assert networks[0] == networks[1] != networks[2]


def test_a_part_that_weighs_nothing_is_refused(frame, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    part = ["train"] * (len(frame) - 12) + ["val", "test"] * 6
    for name, place in (("training", "train"), ("validation", "val")):
        weights = [float(where != place) for where in part]
        save(frame.assign(part=part, w=weights), tmp_path / "t.csv")
        words = "t.csv --target-columns y --weight-column w --split-column part"
        assert main(["train", *words.split()]) == 2
        assert f"t.csv, column 'w': the weight of every {name} row is 0" in capsys.readouterr().err


class JsonLines(Table):
    """A format of a user's own: a JSON object a line."""

    def __init__(self, path):
        self.path = path
        self.header = list(json.loads(path.read_text().splitlines()[0]))

    def __iter__(self):
        for line, text in enumerate(self.path.read_text().splitlines(), start=1):
            yield Row(line, [str(value) for value in json.loads(text).values()])


class JsonLinesWriter(TableWriter):
    def __init__(self, file, header, types):
        self.file, self.header = file, header

    def write(self, cells):
        row = dict(zip(self.header, map(str, cells), strict=True))
        self.file.write(f"{json.dumps(row)}\n".encode())


@pytest.fixture
def json_lines(monkeypatch):
    monkeypatch.setattr(FORMATS, "_items", dict(FORMATS))
    FORMATS.register("jsonl")(
        FileFormat("JSON Lines", (".jsonl",), JsonLines, JsonLinesWriter, is_text=False)
    )


def test_a_registered_format_is_read_and_written_by_its_suffix(json_lines, tmp_path):
    path = tmp_path / "t.JSONL"
    check_output(path)
    with write_table(path, ["smiles", "y"]) as write:
        write(["CCO", 1.5])
        write(["PK\x03\x04", "\0"])
    table = open_table(path)
    assert isinstance(table, JsonLines)
    assert table.header == ["smiles", "y"]
    assert [row.cells for row in table] == [["CCO", "1.5"], ["PK\x03\x04", "\0"]]
    path.rename(tmp_path / "t.csv")
    with pytest.raises(InputError, match="got JSON"):
        open_table(tmp_path / "t.csv")


def test_a_format_that_is_only_read_is_refused_as_output(json_lines, tmp_path):
    FORMATS.register("xyz")(FileFormat("XYZ", (".xyz",), JsonLines, signature=b"XYZ"))
    with pytest.raises(
        InputError,
        match=r"XYZ files cannot be written, expected \.csv, .*, \.smi, \.jsonl, ",
    ):
        check_output(tmp_path / "t.xyz")
    (tmp_path / "t.xyz").write_text("abc")
    with pytest.raises(InputError, match="got something else, expected a file in XYZ format"):
        open_table(tmp_path / "t.xyz")
    with pytest.raises(ValueError, match="registered already"):
        FORMATS.register("xyz")(FORMATS["csv"])


def test_predict_reads_and_writes_a_registered_format(json_lines, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    network = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
    MolAttn(MolAttnConfig((Task("y"),), network)).save_pretrained("model")
    (tmp_path / "t.csv").write_text("smiles\nCCO\nnonsense\n")
    (tmp_path / "t.jsonl").write_text('{"smiles": "CCO"}\n{"smiles": "nonsense"}\n')
    assert main(["predict", "model", "t.csv", "--output", "p.csv"]) == 0
    assert main(["predict", "model", "t.jsonl", "--output", "p.jsonl"]) == 0
    first, second = open_table(tmp_path / "p.csv"), open_table(tmp_path / "p.jsonl")
    assert first.header == second.header
    assert [row.cells for row in first] == [row.cells for row in second]


@given(
    content=table_files() | st.binary(max_size=99),
    suffix=st.sampled_from(".csv .tsv .smi .sdf .parquet .xlsx .txt .csv.gz".split()),
)
def test_any_file_has_rows_that_fit_its_header_or_one_error(tmp_path_factory, content, suffix):
    path = tmp_path_factory.getbasetemp() / f"any{suffix}"
    path.write_bytes(content)
    try:
        table = open_table(path)
        rows = list(table)
    except InputError as error:
        assert_one_line(error)
        return
    assert all(len(row.cells) == len(table.header) for row in rows)
    assert all(row.code in REASONS for row in rows if row.fault is not None)
    assert [row.cells for row in table] == [row.cells for row in rows]
    copy = path.with_name("copy.csv")
    header = ["line", *table.header]
    with write_table(copy, header) as write:
        for row in rows:
            write([row.line, *row.cells])
    assert open_table(copy).header == header
    assert [row.cells for row in open_table(copy)] == [[str(r.line), *r.cells] for r in rows]


def test_a_header_that_is_not_in_utf_8_is_refused(tmp_path):
    (tmp_path / "t.csv").write_bytes("smiles,Löslichkeit\nC,1\n".encode("latin-1"))
    with pytest.raises(InputError, match="the header is not in UTF-8; save the table as UTF-8"):
        open_table(tmp_path / "t.csv").column("Löslichkeit", "--target-columns")


@pytest.mark.parametrize(
    "name, content",
    [
        ("t.csv", b"smiles,\0\nC,1\n"),
        ("t.smi", b"smiles name \0\nCCCCCCCCCC 1 2\n"),
        ("t.sdf", b"a\n\n\n  0  0\nM  END\n> <\0y>\n1\n\n$$$$\n"),
    ],
)
def test_a_column_name_with_nul_is_refused_in_every_text_format(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match="binary data"):
        open_table(tmp_path / name)
