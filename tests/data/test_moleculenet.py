import functools
import gzip
import http.server
import threading

import pytest
import torch
from torch_geometric.datasets import MoleculeNet

from molattn import from_smiles
from molattn.data.moleculenet import DATASETS, named_dataset
from molattn.errors import MolattnError

ESOL = (
    "Compound ID,Number of Rings,measured log solubility in mols per litre,smiles\n"
    'Amigdalin,3,-0.77,CCO\n"1,2-Dichloro",0,-1.5,ClCCCl\nBenzene,1,-1.64,c1ccccc1\n'
)
TOX21 = ",".join(f"T{n}" for n in range(12)) + ",mol_id,smiles\n" + "0,1" + "," * 11 + "x,CCO\n"


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Files where PyG looks for those of MoleculeNet, and what was asked for."""
    files = tmp_path / "served"
    files.mkdir()
    (files / "delaney-processed.csv").write_text(ESOL)
    (files / "tox21.csv.gz").write_bytes(gzip.compress(TOX21.encode()))
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            asked.append(self.path)

    handler = functools.partial(Handler, directory=str(files))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as http_server:
        threading.Thread(target=http_server.serve_forever, daemon=True).start()
        monkeypatch.setattr(MoleculeNet, "url", f"http://127.0.0.1:{http_server.server_port}/{{}}")
        yield asked
        http_server.shutdown()


def test_every_set_of_pyg_has_its_name():
    assert set(DATASETS) == set(MoleculeNet.names)


def test_a_set_is_downloaded_once_with_its_columns(server, tmp_path, capfd):
    root = tmp_path / "sets"
    found = named_dataset("Esol", root)
    assert found.path.read_text() == ESOL
    assert found.smiles_column == "smiles"
    assert found.target_columns == ("measured log solubility in mols per litre",)
    assert found.target_units == ("log mol/L",)
    assert named_dataset("ESOL", root) == found
    assert len(server) == 1
    assert [path.name for path in root.iterdir()] == ["esol"]
    assert tuple(capfd.readouterr()) == ("", "")


def test_many_targets_and_gzip(server, tmp_path):
    found = named_dataset("tox21", tmp_path)
    assert found.target_columns == tuple(f"T{n}" for n in range(12))
    assert (found.smiles_column, found.target_units) == ("smiles", ())
    assert found.path.read_text() == TOX21


def test_pyg_reads_what_was_downloaded_with_our_molecules(server, tmp_path):
    named_dataset("esol", tmp_path)
    molecules = MoleculeNet(str(tmp_path), "ESOL", from_smiles=from_smiles)
    assert len(server) == 1
    assert [data.num_nodes for data in molecules] == [3, 4, 6]
    torch.testing.assert_close(molecules.y, torch.tensor([[-0.77], [-1.5], [-1.64]]))
    assert molecules[2].num_edges == 30


def test_a_missing_file_leaves_what_was_there(server, tmp_path):
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets" / "mine").write_text("")
    with pytest.raises(MolattnError, match=r"Lipo: cannot be downloaded .*404"):
        named_dataset("Lipo", tmp_path / "sets")
    assert [path.name for path in (tmp_path / "sets").iterdir()] == ["mine"]


@pytest.mark.parametrize("name, file", [("esol", "delaney-processed.csv"), ("tox21", "tox21.csv")])
def test_a_table_that_is_none_is_told(tmp_path, name, file):
    path = tmp_path / name / "raw" / file
    path.parent.mkdir(parents=True)
    path.write_text("a\n1\n")
    with pytest.raises(MolattnError, match=rf"{file}: got 1 columns"):
        named_dataset(name, tmp_path)
