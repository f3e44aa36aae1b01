import gzip
import io
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rdkit import Chem

from molattn.cli.models import input_table
from molattn.cli.options import STREAM
from molattn.config import TableConfig
from molattn.errors import InputError

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


def test_a_column_named_as_a_molecule_is_a_column(monkeypatch):
    table = stream_table(monkeypatch, b"C\nCCO\n", TableConfig(smiles_column="C"))
    assert [row.cells for row in table] == [["CCO"]]


@pytest.mark.parametrize("content", [b"", b"name\nx\n", b"%PDF-1", b"\x1f\x8b123", b"PAR1"])
def test_an_error_names_standard_input(content, monkeypatch):
    with pytest.raises(InputError, match="standard input: "):
        stream_table(monkeypatch, content)
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="standard input is closed"):
        input_table([STREAM], CONFIG)
