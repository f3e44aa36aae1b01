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
from molattn.inference import embed_table
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


def values(rows, width):
    return [[float(row[f"embedding_{k}"]) for k in range(width)] for row in rows]


def test_embeddings_are_those_of_plain_graphs_in_any_batch(model):
    batch = Batch.from_data_list([from_smiles(text, self_loops=True) for text in SMILES])
    with torch.no_grad():
        atoms, index = model.nets[0].encode_atoms(batch)
        molecules = model.nets[0].encode(batch)
        predicted = model.nets[0].head(molecules).numpy()
        predicted = model.scaling.in_own_units(model.scaling.to_transformed(predicted))
    assert index.tolist() == [0] * 3 + [1] * 7 + [2] * 4 + [3]
    for size in (1, 2, 64):
        found = model.embed(SMILES, size)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, molecules, atol=1e-5)
        np.testing.assert_allclose(model.embed(SMILES, size, atoms=True), atoms, atol=1e-5)
    np.testing.assert_allclose(predicted, model.predict(SMILES), rtol=1e-5)
    first = atoms[:3].numpy()
    pooled = np.concatenate([first.mean(axis=0), first.max(axis=0)])
    np.testing.assert_allclose(molecules[0], pooled, rtol=1e-5)


def test_every_row_comes_out_in_order_with_its_columns(tmp_path, model):
    source = saved(tmp_path, "smiles,embedding_3\nCCO,1\nnonsense,2\nC,3\n4\nc1ccccc1,5\n")
    output = tmp_path / "out.parquet"
    assert embed_table(model, source, output) == (3, 2)
    rows = pq.read_table(output).to_pylist()
    new = [f"embedding_{n}" + "_" * (n == 3) for n in range(16)]
    assert list(rows[0]) == ["smiles", "embedding_3", *new, "error"]
    assert [row["embedding_3"] for row in rows] == ["1", "2", "3", "", "5"]
    assert [bool(row["error"]) for row in rows] == [False, True, False, True, False]
    found = [[row[name] for name in new] for row in rows if not row["error"]]
    expected = model.embed(["CCO", "C", "c1ccccc1"])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert pq.read_schema(output).field("embedding_15").type == pa.float32()


def test_with_atoms_there_is_a_row_for_each_atom(tmp_path, model):
    texts = [SMILES[0], "nonsense", *SMILES[1:]]
    # A column of the input may have a name of the output, which has none of its columns.
    source = saved(tmp_path, "smiles,atom\n" + "".join(f"{text},x\n" for text in texts))
    output = tmp_path / "out.parquet"
    assert embed_table(model, source, output, EmbedConfig(atoms=True, batch_size=2)) == (4, 1)
    rows = pq.read_table(output).to_pylist()
    width = model.networks.embedding_width(atoms=True)
    assert list(rows[0])[:4] == ["row", "atom", "symbol", "smiles"]
    assert len(rows[0]) == 4 + width + 1
    refused = [(int(row["row"]), row["atom"] or None) for row in rows if row["error"]]
    assert refused == [(3, None)]
    whole = [row for row in rows if not row["error"]]
    read = [(int(row["row"]), int(row["atom"]), row["symbol"], row["smiles"]) for row in whole]
    assert read == [
        (number, atom.GetIdx(), atom.GetSymbol(), text)
        for number, text in enumerate(texts, start=2)
        if text != "nonsense"
        for atom in Chem.MolFromSmiles(text).GetAtoms()
    ]
    expected = model.embed(SMILES, atoms=True)
    np.testing.assert_allclose(values(whole, width), expected, rtol=1e-5, atol=1e-6)


def test_hydrogens_of_the_graph_are_named_after_the_atoms_of_the_input(tmp_path):
    model = made(0, hydrogens=True, atom_tasks=("shift",))
    source, output = saved(tmp_path, "smiles\n[H]OC\n"), tmp_path / "out.csv"
    embed_table(model, source, output, EmbedConfig(atoms=True))
    atoms = [(row["symbol"], row["atom"]) for row in rows_of(output)]
    assert atoms == [("O", "1"), ("C", "2"), ("H", "0"), ("H", "3"), ("H", "4"), ("H", "5")]


def test_atoms_are_those_of_the_standardized_smiles_and_no_features_are_needed(tmp_path):
    model = made(0, features=("pH",), standardize=True)
    source, output = saved(tmp_path, "smiles\n[Na+].[O-]C(C)=O\nOCC\n"), tmp_path / "out.csv"
    embed_table(model, source, output, EmbedConfig(atoms=True))
    rows = rows_of(output)
    assert [row["symbol"] for row in rows] == [*"CCOO", *"OCC"]
    assert [row["standardized_smiles"] for row in rows] == ["CC(=O)O"] * 4 + [""] * 3
    assert [row["smiles"] for row in rows] == ["CC(=O)O"] * 4 + ["OCC"] * 3
    expected = model.embed(["CC(=O)O", "OCC"], atoms=True)
    np.testing.assert_allclose(values(rows, expected.shape[1]), expected, 1e-5, 1e-6)


def test_an_embedding_that_is_no_number_becomes_a_reason(tmp_path, model, monkeypatch):
    for norm in (nn.BatchNorm1d, nn.LayerNorm):
        monkeypatch.setattr(norm, "forward", lambda self, x: x + torch.inf)
    source = saved(tmp_path, "smiles\nCCO\n")
    for atoms in (False, True):
        assert embed_table(model, source, tmp_path / "o.csv", EmbedConfig(atoms=atoms))[1]
        assert [row["error"] for row in rows_of(tmp_path / "o.csv")] == ["not_finite"]
