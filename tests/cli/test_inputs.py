import gzip
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rdkit import Chem

from molattn.cli.inputs import open_inputs, open_stream
from molattn.config import PredictConfig, TableConfig
from molattn.data.table import SMILESList
from molattn.errors import InputError

CONFIG = TableConfig()


def test_words_that_are_no_files_are_molecules():
    words = ["CCO", "[Na+].[Cl-]", "F/C=C/F", "nonsense", "C" * 300]
    table = open_inputs(words, TableConfig(smiles_column="structure"))
    assert isinstance(table, SMILESList)
    assert table.header == ["structure"]
    assert [(row.line, *row.cells) for row in table] == [*enumerate(words, start=1)]


def test_an_existing_path_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "CCO").write_text("smiles\nCC\n")
    assert [row.cells for row in open_inputs(["CCO"], CONFIG)] == [["CC"]]
    with pytest.raises(InputError, match="INPUT: got 2 inputs, one of which is the file 'CCO'"):
        open_inputs(["CCC", "CCO"], CONFIG)


@pytest.mark.parametrize(
    "words",
    [["mols.csv"], ["ethanol"], ["data/mols"], ["CCO", "mols.sdf.gz"], ["CCO", "C:\\mols"], ["C("]],
)
def test_neither_a_file_nor_a_molecule_is_told_as_both(words):
    with pytest.raises(InputError) as error:
        open_inputs(words, CONFIG)
    assert str(error.value).startswith(f"{words[-1]}: no such file, and not a SMILES: ")


def test_an_empty_word_is_a_row_or_an_error_and_no_folder():
    with pytest.raises(InputError, match=r"^'': no such file, and not a SMILES: .* empty"):
        open_inputs([""], CONFIG)
    assert [row.cells for row in open_inputs(["CCO", ""], CONFIG)] == [["CCO"], [""]]


def test_a_molecule_beyond_a_limit_has_a_row_of_its_own():
    assert next(iter(open_inputs(["CCCC"], TableConfig(max_atoms=3)))).cells == ["CCCC"]


def sdf():
    block = Chem.MolToMolBlock(Chem.MolFromSmiles("CCO"))
    return f"{block}> <y>\n1\n\n$$$$\n".encode()


def parquet():
    stream = io.BytesIO()
    pq.write_table(pa.table({"smiles": ["CCO"], "y": [1]}), stream)
    return stream.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"smiles,y\nCCO,1\n",
        gzip.compress(b"smiles,y\nCCO,1\n", mtime=0),
        b"smiles\ty\nCCO\t1\n",
        "smiles,y\nCCO,1\n".encode("utf-16"),
        parquet(),
        sdf(),
        gzip.compress(sdf(), mtime=0),
        b"CCO 1\n",
    ],
)
def test_standard_input_is_recognized_by_its_content(content):
    table = open_stream(io.BytesIO(content), CONFIG)
    for _ in range(2):
        cells = next(iter(table)).cells
        assert (cells[0], cells[-1]) == ("CCO", "1")


def test_a_column_named_as_a_molecule_is_a_column():
    table = open_stream(io.BytesIO(b"C\nCCO\n"), PredictConfig(smiles_column="C"))
    assert [row.cells for row in table] == [["CCO"]]


@pytest.mark.parametrize(
    "content",
    [
        b"SN\tsmiles\ty\n1\tCCO\t-1\n",
        b"NO\tSMILES\r\n1\tCCO\r\n",
        b'N\t"smiles"\n1\tCCO\n',
        b"C N,smiles\n1,CCO\n",
    ],
)
def test_a_first_column_named_as_a_molecule_does_not_hide_that_of_the_smiles(content):
    table = open_stream(io.BytesIO(content), CONFIG)
    column = table.column("smiles", "--smiles-column")
    assert [row.cells[column] for row in table] == ["CCO"]


@pytest.mark.parametrize(
    "content, words",
    [
        (b"", "standard input: the file is empty"),
        (b"name\nx\n", "standard input: no column 'smiles'"),
        (b"%PDF-1", "standard input: no column 'smiles'"),
        (b"\x1f\x8b123", "standard input: damaged"),
        (b"PAR1", "standard input: not a readable Parquet file"),
    ],
)
def test_an_error_names_standard_input(content, words):
    with pytest.raises(InputError) as error:
        open_stream(io.BytesIO(content), CONFIG).column("smiles", "--smiles-column")
    assert str(error.value).startswith(words)
