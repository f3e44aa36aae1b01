import importlib
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from molattn import MolAttn

TEXTS = ["CCO", "c1ccccc1O", "not a molecule", "CC(=O)N", "Cl"]


class Teacher:
    """In place of MiniMol: two numbers a molecule, and one that it cannot read."""

    def __call__(self, smiles):
        if smiles == ["Cl"]:
            raise ValueError("no bond")
        return np.array([[len(one), one.count("C") + 1e-6] for one in smiles])


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "scripts")
    module = importlib.import_module("embed_teachers")
    monkeypatch.setattr(module, "load_minimol", Teacher)
    return module


def test_a_table_of_embeddings_is_written(script, tmp_path, capsys):
    (tmp_path / "m.smi").write_text("\n".join(TEXTS) + "\n")
    words = [str(tmp_path / "m.smi"), "--output", str(tmp_path / "t.parquet")]
    script.main(words)
    assert "3 of 5 molecules embedded" in capsys.readouterr().out
    found = pq.read_table(tmp_path / "t.parquet").to_pydict()
    assert sorted(found["smiles"]) == sorted(["CCO", "c1ccccc1O", "CC(=O)N"])
    assert found["minimol_0"] == [len(one) for one in found["smiles"]]
    assert found["minimol_1"] == [one.count("C") for one in found["smiles"]]
    expected = MolAttn.from_pretrained("base").embed(found["smiles"])
    columns = np.stack([found[f"base_{place}"] for place in range(expected.shape[1])], axis=1)
    np.testing.assert_allclose(columns, expected, atol=1e-4)
    script.main([*words, "--molecules", "2", "--models"])
    fewer = pq.read_table(tmp_path / "t.parquet")
    assert fewer.num_rows <= 2
    assert fewer.column_names == ["smiles", "minimol_0", "minimol_1"]


def test_a_table_without_a_molecule_is_one_error(script, tmp_path):
    (tmp_path / "m.smi").write_text("not a molecule\n")
    with pytest.raises(SystemExit, match=r"error: .*no molecule could be embedded"):
        script.main([str(tmp_path / "m.smi"), "--output", str(tmp_path / "t.parquet")])
    assert {path.name for path in tmp_path.iterdir()} == {"m.smi"}
