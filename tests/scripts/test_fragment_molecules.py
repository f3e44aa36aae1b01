import gzip
import importlib
import random
from pathlib import Path

import pytest
from rdkit import Chem

from molattn.chem import parse_smiles
from molattn.data.table import bundled_dataset

MOLECULES = [
    "Cc1ccc(CCNC(=O)CCCO)cc1",
    "O=[N+]([O-])c1ccc(CCCl)cc1C(=O)OCC",
    "CC(C)(C)OC1CCN(C)CC1",
    "CCNS(=O)(=O)CCCOC",
]


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[2] / "scripts")
        yield importlib.import_module("fragment_molecules")


def lines(path):
    return gzip.decompress(path.read_bytes()).decode().splitlines()


@pytest.mark.parametrize("smiles", MOLECULES)
def test_fragments_are_parts_of_their_molecule_with_whole_groups_and_rings(script, smiles):
    mol = parse_smiles(smiles)
    draw = random.Random(0)
    found = {text for _ in range(30) for text in script.fragments(mol, draw)}
    assert found
    for text in found:
        piece = parse_smiles(text)
        assert 3 <= piece.GetNumAtoms() < mol.GetNumAtoms()
        assert mol.HasSubstructMatch(Chem.MolFromSmarts(text.replace("[nH]", "n")))
        assert not any(atom.GetNumRadicalElectrons() for atom in piece.GetAtoms())
        assert text.count("[N+]") == text.count("[O-]")  # a nitro group stays whole
        assert "[SH" not in text  # and a sulfonyl group
        assert len(Chem.GetSSSR(piece)) <= len(Chem.GetSSSR(mol))


def test_hydrogen_takes_the_place_of_what_is_cut_off(script):
    draw = random.Random(0)
    found = {text for _ in range(9) for text in script.fragments(parse_smiles("CCCOCCC"), draw)}
    assert found <= {"CCC", "CCO", "CCCO", "CCOC", "COC", "CCCOC", "CCOCC"}
    assert found & {"CCC", "CCCO"}
    # Nothing to cut, nothing cut off, an atom that is not known.
    for smiles in ("c1ccccc1", "CCC.CC", "*=CCCCO"):
        assert "CCC" not in list(script.fragments(parse_smiles(smiles), draw))


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a machine of one core
def test_the_same_input_gives_the_same_file_in_any_number_of_processes(script, tmp_path, capsys):
    written = {}
    for name, words in (("one", ""), ("two", "--num-workers 2"), ("other", "--seed 1")):
        written[name] = tmp_path / f"{name}.smi.gz"
        command = f"{bundled_dataset()} --rounds 1 --output {written[name]} {words}"
        script.main(command.split())
    assert written["one"].read_bytes() == written["two"].read_bytes()
    assert lines(written["one"]) != lines(written["other"])
    found = lines(written["one"])
    assert len(set(found)) == len(found) > 50
    rows = len(bundled_dataset().read_text(encoding="utf-8").splitlines()) - 1
    told = f"{len(found)} fragments of {rows} texts (0 refused); written to {written['one']}"
    assert told in capsys.readouterr().out


def test_wrong_input_is_one_line_and_leaves_what_was_there(script, tmp_path):
    output = tmp_path / "out.smi.gz"
    output.write_text("former")
    with pytest.raises(SystemExit, match=r"error: .* no column 'names'"):
        script.main([str(bundled_dataset()), "--smiles-column", "names", "--output", str(output)])
    assert output.read_text() == "former"
    assert [path.name for path in tmp_path.iterdir()] == ["out.smi.gz"]
    nothing = tmp_path / "nothing.smi"
    nothing.write_text("methane\nC\n")
    with pytest.raises(
        SystemExit, match=r"error: .*nothing.smi: no fragment of 2 texts \(1 refused\)"
    ):
        script.main([str(nothing), "--output", str(output)])
    nowhere = tmp_path / "nowhere" / "out.smi.gz"
    with pytest.raises(SystemExit, match=rf"error: {nowhere}: No such file"):
        script.main([str(nothing), "--output", str(nowhere)])
    faulty = tmp_path / "faulty.csv"
    faulty.write_text("smiles,y\nCCOC,1,2,3\nC,1\n")
    with pytest.raises(SystemExit, match=r"no fragment of 2 texts \(1 refused\)"):
        script.main([str(faulty), "--output", str(output)])
    with pytest.raises(SystemExit):
        script.main([str(nothing), "--output", str(output), "--rounds", "0"])
    assert output.read_text() == "former"
    assert [path.name for path in tmp_path.glob("out*")] == ["out.smi.gz"]
