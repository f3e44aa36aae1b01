import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from rdkit import Chem
from torch import nn
from torch_geometric.data import Batch

from molattn import MolAttn, from_smiles
from molattn.config import EmbedConfig, NetworkConfig
from molattn.errors import SmilesError
from molattn.inference.embed import fingerprint_table
from molattn.model.model import MolAttnConfig

from ..conftest import rows_of, saved

SMILES = ["CCO", "c1ccccc1Cl", "[Na+].[O-]C=O", "C"]


def made(seed, **options):
    torch.manual_seed(seed)
    small = NetworkConfig(width=8, heads=2, layers=1, edge_width=4, readout="mean+max")
    return MolAttn(MolAttnConfig(("y",), small, **options)).eval()


@pytest.fixture(scope="module")
def model():
    return made(0)


def embedding(row, width):
    return [float(row[f"embedding_{place}"]) for place in range(width)]


def test_the_head_predicts_from_the_embedding(model):
    found = model.embed(SMILES, batch_size=3)
    assert found.shape == (4, 16)
    assert found.dtype == np.float32
    with torch.no_grad():
        predicted = model.unscale(model.nets[0].head(torch.from_numpy(found)))
    np.testing.assert_allclose(predicted, model.predict(SMILES), rtol=1e-5)


def test_embeddings_are_those_of_plain_graphs_and_of_any_batch(model):
    graphs = [from_smiles(text, self_loops=True) for text in SMILES]
    with torch.no_grad():
        atoms, index = model.nets[0].encode_atoms(Batch.from_data_list(graphs))
        molecules = model.nets[0].encode(Batch.from_data_list(graphs))
    assert index.tolist() == [0] * 3 + [1] * 7 + [2] * 4 + [3]
    for size in (1, 2, 64):
        np.testing.assert_allclose(model.embed(SMILES, size), molecules, atol=1e-5)
        np.testing.assert_allclose(model.embed(SMILES, size, atoms=True), atoms, atol=1e-5)


def test_the_readout_of_atoms_is_the_molecule(model):
    atoms = model.embed(["CCO"], atoms=True)
    pooled = np.concatenate([atoms.mean(axis=0), atoms.max(axis=0)])
    np.testing.assert_allclose(model.embed(["CCO"])[0], pooled, rtol=1e-5)


def test_members_stand_beside_each_other(model):
    other = made(1)
    joined = MolAttn.ensemble([model, other])
    for atoms in (False, True):
        found = [one.embed(SMILES, atoms=atoms) for one in (model, other)]
        np.testing.assert_allclose(joined.embed(SMILES, atoms=atoms), np.hstack(found), rtol=1e-6)
        assert joined.embedding_width(atoms=atoms) == np.hstack(found).shape[1]


def test_a_text_that_is_no_molecule_is_named(model):
    with pytest.raises(SmilesError, match="position 1"):
        model.embed(["CCO", "nonsense"])
    with pytest.raises(TypeError, match="expected a list"):
        model.embed("CCO")
    assert model.embed([]).shape == (0, 16)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_every_row_comes_out_in_order_with_its_columns(tmp_path, model, model_folder, kind):
    source = saved(tmp_path, "id,smiles\n1,CCO\n2,nonsense\n3,C\n4\n5,c1ccccc1\n")
    output = tmp_path / f"out.{kind}"
    assert fingerprint_table(model_folder, source, output) == (3, 2)
    rows = rows_of(output) if kind == "csv" else pq.read_table(output).to_pylist()
    assert list(rows[0]) == ["id", "smiles", *(f"embedding_{n}" for n in range(16)), "error"]
    assert [row["id"] for row in rows] == list("12345")
    assert [bool(row["error"]) for row in rows] == [False, True, False, True, False]
    assert rows[1]["embedding_0"] in ("", None)
    found = [embedding(row, 16) for row in rows if not row["error"]]
    np.testing.assert_allclose(found, model.embed(["CCO", "C", "c1ccccc1"]), rtol=1e-5, atol=1e-6)
    if kind == "parquet":
        assert pq.read_schema(output).field("embedding_15").type == pa.float32()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_with_atoms_there_is_a_row_for_each_atom(tmp_path, model, model_folder, kind):
    texts = [SMILES[0], "nonsense", *SMILES[1:]]
    # A column of the input may have a name of the output, which has none of its columns.
    source = saved(tmp_path, "smiles,atom\n" + "".join(f"{text},x\n" for text in texts))
    output = tmp_path / f"out.{kind}"
    counts = fingerprint_table(model_folder, source, output, EmbedConfig(atoms=True, batch_size=2))
    assert counts == (4, 1)
    rows = rows_of(output) if kind == "csv" else pq.read_table(output).to_pylist()
    width = model.embedding_width(atoms=True)
    assert list(rows[0])[:4] == ["row", "atom", "symbol", "smiles"]
    assert len(rows[0]) == 4 + width + 1
    refused = [row for row in rows if row["error"]]
    assert [(int(row["row"]), row["atom"] or None) for row in refused] == [(2, None)]
    whole = [row for row in rows if not row["error"]]
    expected = [
        (number, atom.GetIdx(), atom.GetSymbol(), text)
        for number, text in enumerate(texts, start=1)
        if text != "nonsense"
        for atom in Chem.MolFromSmiles(text).GetAtoms()
    ]
    read = [(int(row["row"]), int(row["atom"]), row["symbol"], row["smiles"]) for row in whole]
    assert read == expected
    found = [embedding(row, width) for row in whole]
    np.testing.assert_allclose(found, model.embed(SMILES, atoms=True), rtol=1e-5, atol=1e-6)


def test_no_features_are_needed(tmp_path):
    made(0, features=("pH",)).save_pretrained(tmp_path / "model")
    source = saved(tmp_path, "smiles\nCCO\n")
    assert fingerprint_table(tmp_path / "model", source, tmp_path / "out.csv") == (1, 0)


def test_an_embedding_that_is_no_number_becomes_a_reason(tmp_path, model_folder, monkeypatch):
    monkeypatch.setattr(nn.LayerNorm, "forward", lambda self, x: x + torch.inf)
    source = saved(tmp_path, "smiles\nCCO\n")
    for atoms in (False, True):
        config = EmbedConfig(atoms=atoms)
        assert fingerprint_table(model_folder, source, tmp_path / "o.csv", config) == (0, 1)
        assert [row["error"] for row in rows_of(tmp_path / "o.csv")] == ["not_finite"]


def test_a_column_of_the_input_is_not_overwritten(tmp_path, model_folder):
    source = saved(tmp_path, "smiles,embedding_3\nC,x\n")
    assert fingerprint_table(model_folder, source, tmp_path / "out.csv") == (1, 0)
    (row,) = rows_of(tmp_path / "out.csv")
    assert list(row)[:2] == ["smiles", "embedding_3"]
    assert row["embedding_3"] == "x"
    assert list(row)[5:7] == ["embedding_3_", "embedding_4"]
    assert np.isfinite(float(row["embedding_3_"]))


def test_wide_rows_are_written_in_small_groups(tmp_path, model_folder, monkeypatch):
    monkeypatch.setattr("molattn.data.table.parquet._CELLS_AT_ONCE", 18 * 4)
    source = saved(tmp_path, "smiles\n" + "CC\n" * 10)
    fingerprint_table(model_folder, source, tmp_path / "out.parquet")
    assert pq.ParquetFile(tmp_path / "out.parquet").metadata.num_row_groups == 3


def test_atoms_are_those_of_the_standardized_smiles(tmp_path):
    torch.manual_seed(0)
    small = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
    model = MolAttn(MolAttnConfig("y", small, standardize=True)).eval()
    source, output = saved(tmp_path, "smiles\n[Na+].[O-]C(C)=O\nOCC\n"), tmp_path / "out.csv"
    fingerprint_table(model, source, output, EmbedConfig(atoms=True))
    rows = rows_of(output)
    assert [row["symbol"] for row in rows] == [*"CCOO", *"OCC"]
    assert [row["standardized_smiles"] for row in rows] == ["CC(=O)O"] * 4 + [""] * 3
    assert [row["smiles"] for row in rows] == ["CC(=O)O"] * 4 + ["OCC"] * 3
    width = model.embedding_width(atoms=True)
    found = [[float(row[f"embedding_{k}"]) for k in range(width)] for row in rows]
    np.testing.assert_allclose(found, model.embed(["CC(=O)O", "OCC"], atoms=True), 1e-5, 1e-6)
