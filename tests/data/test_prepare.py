"""Stores against the tables that they are made from."""

import io
import json
import random
import re
import shutil
from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from molattn.chem import Featurizer
from molattn.chem.descriptors import DescriptorCalculator
from molattn.chem.fingerprints import SubstructureCounter
from molattn.chem.limits import read_molecule
from molattn.chem.reader import Fields, MoleculeReader
from molattn.cli import main
from molattn.config import DataConfig, MoleculeLimits, PrepareConfig
from molattn.data import prepare
from molattn.data.dataset import read_training_table
from molattn.data.prepare import prepare_store
from molattn.data.store import BASELINE, INDEX_FILE, PREPARED, REJECTED_FILE, StoreIndex
from molattn.data.table import bundled_dataset, open_table
from molattn.errors import InputError, SmilesError

from ..conftest import assert_one_line, rows_of, saved

SALTS = ["CC(=O)[O-].[Na+]", "F/C=C/[C@H](F)Cl", "C[S+](C)[O-]", "OCC", "C" * 300, "N->[Cu+2]<-N"]


@pytest.fixture(scope="module", autouse=True)
def _small_shards():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare, "SHARD_ROWS", 64)
        patch.setattr(prepare, "_BLOCK_ROWS", 16)
        yield


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """200 labeled molecules, and rows of each kind that has none."""
    rows = [(row["smiles"], row["logS"], row["split"]) for row in rows_of(bundled_dataset())[:200]]
    rows += [(text, str(place), "train") for place, text in enumerate(SALTS)]
    lines = [",".join(row) for row in rows]
    lines[10:10] = ["C1CC,1,train", "CCO,1,train,one more", ",2,val", "=1+1,3,test", "ethanol,,"]
    lines[90:90] = ["C" * 60 + "*[Q],0,test"]
    path = tmp_path_factory.mktemp("table") / "in.csv"
    path.write_text("smiles,logS,split\n" + "\n".join(lines) + "\n")
    return path


ALL = replace(PREPARED, baseline_numbers=BASELINE)
LABELED = PrepareConfig(target_columns=("logS",), split_column="split")


@pytest.fixture(scope="module")
def store(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores") / "store"
    prepare_store([table], folder, LABELED)
    return folder


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def assert_same(one, other):
    assert type(one) is type(other)
    if isinstance(one, SmilesError):
        assert (one.code, one.reason) == (other.code, other.reason)
        return
    for field in fields(one):
        values = getattr(one, field.name), getattr(other, field.name)
        assert type(values[0]) is type(values[1]), field.name
        assert getattr(values[0], "dtype", None) == getattr(values[1], "dtype", None)
        np.testing.assert_equal(*values)


def test_a_store_has_the_rows_of_the_table(table, store):
    rows, stored = list(open_table(table)), open_table(store)
    assert stored.header == ["smiles", "logS", "split"]
    assert [(row.line, row.cells) for row in stored] == [(row.line, row.cells) for row in rows]
    assert [row.reason for row in rows if row.code] == [
        row.reason for row, other in zip(stored, rows, strict=True) if other.code
    ]
    assert len(rows) == stored.count() == 212
    assert stored.unit == "line"
    assert stored.where(rows[100].line) == "line 102"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"fields": Fields(fingerprint=True, smiles=True)},
        {"fields": ALL},
        {"fields": ALL, "standardize": "parent"},
        {"fields": Fields(scaffold=True, symbols=True)},
        {"fields": Fields(DescriptorCalculator(("MolWt", "TPSA"), 16), smiles=True)},
        {"fields": Fields(counts=SubstructureCounter())},
        {"standardize": True},
        {"unify": False},
        {"limits": MoleculeLimits(max_atoms=9)},
        {"limits": MoleculeLimits(max_length=9)},
        {"featurizer": replace(Featurizer.default(), max_distance=3)},
    ],
    ids=lambda options: " ".join(options) or "graph",
)
def test_molecules_of_a_store_are_those_of_the_table_whatever_is_asked(table, store, options):
    options = {"featurizer": Featurizer.default(), **options}
    records = [
        list(MoleculeReader(**options)([row.structure(0) for row in open_table(path)]))
        for path in (table, store)
    ]
    for one, other in zip(*records, strict=True):
        assert_same(one, other)
    assert any(isinstance(record, SmilesError) for record in records[0])


@pytest.fixture
def reads(monkeypatch):
    """Texts that are read as molecules."""
    texts = []

    def read(text, *arguments, **options):
        texts.append(text)
        return read_molecule(text, *arguments, **options)

    monkeypatch.setattr("molattn.chem.reader.read_molecule", read)
    return texts


@pytest.mark.usefixtures("without_figures")
def test_training_and_prediction_read_no_molecule_of_a_store(table, store, reads, tmp_path, capsys):
    run, split = str(tmp_path / "run"), ["--split-column", "split"]
    small = "--width 8 --heads 2 --layers 1 --epochs 1 --init-from none".split()
    words = ["train", str(store), "--target-columns", "logS", *split, *small]
    assert main([*words, "--output", run]) == 0
    for model in (run, "admet"):
        assert main(["predict", model, str(store), "--output", str(tmp_path / "a.csv")]) == 0
    assert reads == ["CC(=O)[O-].[Na+]"]  # by admet, whose solubility is of the uncharged form
    assert str(store) not in capsys.readouterr().err
    words = ["predict", "admet", str(table), "--output", str(tmp_path / "b.csv")]
    assert main(words) == 0
    assert len(reads) > 200
    rows = [rows_of(tmp_path / name) for name in ("a.csv", "b.csv")]
    assert len(rows[0]) == len(rows[1]) == 212
    assert rows[0] == rows[1]


def test_what_a_store_does_not_hold_is_said_before_it_is_read(store, reads, tmp_path):
    shown = io.StringIO()
    config = DataConfig(target_columns=("logS",), split="scaffold", morgan_counts=16)
    read_training_table(store, config, Featurizer.default(), Console(file=shown, width=200))
    assert len(reads) > 100
    first = shown.getvalue().splitlines()[0]
    assert str(store) in first
    assert "descriptors, scaffolds" in first


def test_labels_of_atoms_are_read_from_a_store(tmp_path):
    (tmp_path / "in.csv").write_text('smiles,y\nOC,"[1, 2]"\nCN,"{1: 4, 0: 3}"\n')
    prepare_store([tmp_path / "in.csv"], tmp_path / "store", PrepareConfig(target_columns=("y",)))
    config = DataConfig(target_columns=(), atom_target_columns=("y",))
    read = read_training_table(tmp_path / "store", config, Featurizer.default())
    values = read.sites["atom"].targets[:, 0]
    assert values[~np.isnan(values)].tolist() == [1.0, 2.0, 3.0, 4.0]


def test_rejected_rows_are_listed_with_their_reasons(table, store):
    rejected = rows_of(store / REJECTED_FILE)
    assert [(row["line"], row["code"]) for row in rejected] == [
        ("12", "ring_closure"),
        ("13", "ragged"),
        ("14", "empty"),
        ("15", "syntax"),
        ("16", "name"),
        ("92", "bracket_atom"),
    ]
    assert rejected[3]["smiles"] == "'=1+1"
    assert all(row["reason"] for row in rejected)
    index = json.loads((store / INDEX_FILE).read_text())
    assert sum(index["rejected"].values()) + index["molecules"] == index["rows"] == 212
    assert len(index["shards"]) == 4


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a machine of one core
def test_worker_processes_write_the_same(table, store, tmp_path):
    prepare_store([table], tmp_path / "two", replace(LABELED, num_workers=2))
    assert contents(tmp_path / "two") == contents(store)


@pytest.mark.parametrize("shards", [1, 3])
def test_an_interrupted_store_is_resumed_byte_for_byte(
    table, store, tmp_path, shards, monkeypatch, capsys
):
    folder, written = tmp_path / "store", []

    def interrupted(path, arrays):
        if len(written) == shards:
            raise KeyboardInterrupt
        written.append(path.name)
        return write(path, arrays)

    write = prepare.write_shard
    with monkeypatch.context() as patch:
        patch.setattr(prepare, "write_shard", interrupted)
        words = "prepare --target-columns logS --split-column split".split()
        assert main([*words, str(table), "--output", str(folder)]) == 130
    error = capsys.readouterr().err
    assert re.fullmatch(rf"error: interrupted; {shards} shards? kept in .*with --resume\n", error)
    assert not folder.exists()
    changed = replace(LABELED, max_atoms=5, resume=True)
    with pytest.raises(InputError, match="max_atoms") as raised:
        prepare_store([table], folder, changed)
    assert_one_line(raised.value)
    other = saved(tmp_path, "smiles,logS,split\nC,1,train\n")
    with pytest.raises(InputError, match=r"in\.csv"):
        prepare_store([other], folder, replace(LABELED, resume=True))
    shown = Console(file=io.StringIO(), width=200)
    prepare_store([table], folder, replace(LABELED, resume=True, num_workers=0), shown)
    assert f"resuming after {64 * shards} rows" in shown.file.getvalue()
    assert contents(folder) == contents(store)
    assert not list(tmp_path.glob("*.unfinished"))


def test_a_finished_store_is_replaced_only_if_that_is_asked_for(table, store, tmp_path):
    folder = shutil.copytree(store, tmp_path / "store")
    with pytest.raises(InputError, match="overwrite"):
        prepare_store([table], folder, LABELED)
    before = contents(folder)
    assert prepare_store([table], folder, replace(LABELED, resume=True)) == StoreIndex.read(folder)
    with pytest.raises(InputError, match="split_column"):
        prepare_store([table], folder, replace(LABELED, resume=True, split_column=None))
    assert contents(folder) == before
    prepare_store([table], folder, PrepareConfig(overwrite=True))
    assert open_table(folder).header == ["smiles"]
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("x")
    with pytest.raises(InputError, match=r"contains 'mine.txt', which is not part of a store"):
        prepare_store([table], tmp_path / "notes", LABELED)
    with pytest.raises(InputError, match="resume: cannot be used with"):
        PrepareConfig(resume=True, overwrite=True)


@pytest.mark.ray
def test_a_store_is_the_same_from_a_ray_cluster(table, store, tmp_path, monkeypatch, ray_cluster):
    monkeypatch.setattr(prepare, "_RAY_BLOCK_ROWS", 32)
    config = replace(LABELED, engine="ray", ray_address=ray_cluster.address)
    commit = prepare.write_shard

    def interrupted(path, arrays):
        if path.name == "shard_00001.arrow":
            raise KeyboardInterrupt
        commit(path, arrays)

    with monkeypatch.context() as patch:
        patch.setattr(prepare, "write_shard", interrupted)
        with pytest.raises(KeyboardInterrupt):
            prepare_store([table], tmp_path / "store", config)
    prepare_store([table], tmp_path / "store", replace(config, resume=True))
    assert contents(tmp_path / "store") == contents(store)


def test_tables_of_several_formats_become_one_store(table, tmp_path, capsys):
    (tmp_path / "more.smi").write_text("CCO first\nC1CC second\n")
    (tmp_path / "other.tsv").write_text("id\tSMILES\n1\tCCN\n2\tnonsense\n")
    words = ["prepare", *(str(tmp_path / name) for name in ("more.smi", "other.tsv"))]
    assert main([*words, "--output", str(tmp_path / "store")]) == 0
    shown = capsys.readouterr().out
    assert "2 molecules prepared, 2 rows rejected; written to" in shown
    stored = open_table(tmp_path / "store")
    assert [(row.line, row.cells) for row in stored] == [
        (1, ["CCO"]),
        (2, ["C1CC"]),
        (3, ["CCN"]),
        (4, ["nonsense"]),
    ]
    assert stored.where(3) == "row 3"
    rejected = [(row["file"], row["line"]) for row in rows_of(tmp_path / "store" / REJECTED_FILE)]
    assert rejected == [("more.smi", "2"), ("other.tsv", "3")]
    assert main([*words, str(table), "--target-columns", "logS", "--output", "x"]) == 2
    assert "more.smi: no column 'logS' (--target-columns)" in capsys.readouterr().err
    assert main(["prepare", "--output", "x"]) == 2
    assert "INPUT is missing" in capsys.readouterr().err


def test_a_store_of_another_featurizer_or_release_is_one_error(store, tmp_path):
    other = replace(Featurizer.default(), max_distance=3)
    with pytest.raises(InputError, match="prepared with featurizer 'default', which is") as first:
        open_table(store).check_featurizer(other)
    open_table(store).check_featurizer(Featurizer.default())
    folder = shutil.copytree(store, tmp_path / "store")
    index = StoreIndex.read(folder)
    index._replace(featurizer={**index.featurizer, "version": 99}).write(folder)
    with pytest.raises(InputError, match="featurizer version") as second:
        open_table(folder).check_featurizer(Featurizer.default())
    for raised in (first, second):
        assert_one_line(raised.value)
    index._replace(versions={**index.versions, "rdkit": "2000.1"}).write(folder)
    assert "2000.1" in open_table(folder).remarks[0]


@pytest.mark.parametrize("rule", ["parents", "drawings"])
def test_molecules_of_a_store_of_other_rules_are_read_again(tmp_path, monkeypatch, rule, reads):
    texts = ["CC(=O)[O-].[Na+]", "C[S+](C)[O-]", "CCO"]
    path = tmp_path / "in.csv"
    path.write_text("smiles\n" + "\n".join(texts) + "\n")
    with monkeypatch.context() as patch:  # the rules of another release
        if rule == "parents":
            patch.setattr("molattn.chem.limits.parent_of", lambda mol: mol)
        prepare_store([path], tmp_path / "store", PrepareConfig())
    index = StoreIndex.read(tmp_path / "store")
    index._replace(versions={**index.versions, rule: "other"}).write(tmp_path / "store")
    reader = MoleculeReader(Featurizer.default(), Fields(smiles=True), standardize="parent")
    stored = open_table(tmp_path / "store")
    reads.clear()
    molecules = [*reader([row.structure(0) for row in stored])]
    assert [one.smiles for one in molecules] == ["CC(=O)O", "CS(C)=O", "CCO"]
    assert reads == texts
    assert reader.missing(stored.prepared) == [f"{rule} by today's rules"]
    reads.clear()
    as_drawn = replace(reader, standardize=False)
    assert [one.smiles for one in as_drawn([row.structure(0) for row in stored])][1] == "CS(C)=O"
    assert len(reads) == (0 if rule == "parents" else 3)


def test_a_damaged_store_is_one_error(store, tmp_path):
    rng = random.Random(0)
    # rejected.csv is for people: no command reads it.
    for name in [path.name for path in store.iterdir() if path.name != REJECTED_FILE]:
        content = (store / name).read_bytes()
        flipped = bytearray(content)
        flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
        for damaged in (flipped, b"", content[:100], None):
            folder = shutil.copytree(store, tmp_path / "store", dirs_exist_ok=True)
            (folder / name).unlink()
            if damaged is not None:
                (folder / name).write_bytes(damaged)
            with pytest.raises(InputError) as raised:
                list(open_table(folder))
            assert_one_line(raised.value)
    with pytest.raises(InputError, match="prepare"):
        open_table(tmp_path)


def test_rows_with_a_formula_without_a_value_in_a_column_of_the_store_are_rejected(tmp_path):
    rows = {"smiles": ["C", "CC", "CCC"], "y": [1, 2, 3], "relation": [">", '=">"', ">"]}
    frame = pd.DataFrame({**rows, "set": ["train", "train", "=D2"], "note": ["", "", ""]})
    frame.assign(note=["=D2", "", ""]).to_excel(tmp_path / "t.xlsx", index=False)
    config = PrepareConfig(
        target_columns=("y",), relation_columns=("relation",), split_column="set"
    )
    prepare_store([tmp_path / "t.xlsx"], tmp_path / "store", config)
    rejected = rows_of(tmp_path / "store" / REJECTED_FILE)
    assert [row["code"] for row in rejected] == 2 * ["uncalculated"]
