import json

import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem import Descriptors, rdFingerprintGenerator
from rdkit.Chem.rdMolDescriptors import CalcAUTOCORR2D, MQNs_

from molattn.chem import Featurizer, parse_smiles
from molattn.chem.pretraining_reader import PRETRAINING_DESCRIPTORS
from molattn.config import MoleculesConfig
from molattn.errors import InputError
from molattn.pretraining.prepare import prepare_molecules
from molattn.pretraining.store import INDEX_FILE, open_store, writing_store
from molattn.training.run_folder import locked_folder


def prepared(tmp_path, text, name="m.smi", **options):
    (tmp_path / name).write_text(text)
    files = [str(tmp_path / name)]
    return prepare_molecules(files, MoleculesConfig(**options), tmp_path / "store")


def test_what_is_stored_is_what_rdkit_gives(store, smiles_file):
    texts = smiles_file.read_text().split()
    assert len(store) == store.about["kept"] == len(texts) - store.about["duplicates"] > 50
    rows = np.array([5, 0, 31])
    featurizer = Featurizer.default()
    seen, kept = set(), []
    for text in texts:  # by another way to know a molecule again
        key = Chem.MolToInchiKey(Chem.MolFromSmiles(text))[:14]
        if key not in seen:
            seen.add(key)
            kept.append(text)
    counts = store.log_counts(rows)
    morgan = rdFingerprintGenerator.GetMorganGenerator(radius=3, fpSize=4096)
    pairs = rdFingerprintGenerator.GetAtomPairGenerator(fpSize=4096)
    torsions = rdFingerprintGenerator.GetTopologicalTorsionGenerator(fpSize=4096)
    parts = [slice(0, 4096), slice(4096, 8192), slice(8192, None)]
    for place, (row, record) in enumerate(zip(rows, store.molecules.unpack(rows), strict=True)):
        mol = parse_smiles(kept[row])
        expected = featurizer(mol)
        np.testing.assert_array_equal(record.atoms, expected.atoms)
        np.testing.assert_array_equal(record.pairs, expected.pairs)
        for generator, part in zip((morgan, pairs, torsions), parts, strict=True):
            dense = np.log1p(generator.GetCountFingerprintAsNumPy(mol))
            np.testing.assert_allclose(counts[place, part], dense, rtol=1e-6)
        for name, function in (("MolLogP", Descriptors.MolLogP), ("TPSA", Descriptors.TPSA)):
            value = store.descriptors[row, store.names.index(name)]
            assert value == pytest.approx(function(mol), rel=1e-3, abs=1e-3)
        for name, values in (("AUTOCORR2D_", CalcAUTOCORR2D(mol)), ("MQN", MQNs_(mol))):
            places = [store.names.index(f"{name}{i + 1}") for i in range(len(values))]
            np.testing.assert_allclose(store.descriptors[row, places], values, rtol=1e-3, atol=1e-6)
    assert store.names == PRETRAINING_DESCRIPTORS
    assert 600 < store.num_bytes / len(store) < 2000


@pytest.mark.parametrize("max_atoms, carbons", [(2500, 2001), (3, 5)])
def test_excluded_molecules_are_read_with_the_limits_of_the_run_if_they_are_higher(
    tmp_path, max_atoms, carbons
):
    (tmp_path / "test.smi").write_text("C" * carbons)
    exclude = (str(tmp_path / "test.smi"),)
    store = prepared(tmp_path, "CCO\n" + "C" * carbons, max_atoms=max_atoms, exclude=exclude)
    assert store.about["excluded_refused"] == {}


def test_each_molecule_is_taken_once_and_the_rest_is_counted(tmp_path):
    (tmp_path / "test.csv").write_text("Smiles,y\nCCCCN,1\nnonsense,2\n")
    text = "SMILES,x\nCCO,1\nOCC,2\nC1CC,3\nCCCC[NH3+],4\n[Cl-].CCCC[NH3+],5\nCCC,6,7\n"
    text += f"{'C' * 31},8\nc1ccccc1,9\n"
    exclude = (str(tmp_path / "test.csv"),)
    store = prepared(tmp_path, text, "m.csv", max_atoms=30, exclude=exclude)
    about = store.about
    assert (about["kept"], about["duplicates"], about["left_out"]) == (2, 1, 2)
    assert about["refused"] == {"ring_closure": 1, "ragged": 1, "too_large": 1}
    assert [record.num_atoms for record in store.molecules.unpack(range(2))] == [3, 6]


def test_rows_of_an_excluded_table_that_keep_nothing_out_are_counted(tmp_path):
    (tmp_path / "test.csv").write_text("smiles,y\nCCCCN,1,2\nCCC,1\nethanol,2\nOCC(,1,2\n")
    exclude = (str(tmp_path / "test.csv"),)
    store = prepared(tmp_path, "NCCCC\nCCC\nCCO\n", exclude=exclude)
    assert (store.about["kept"], store.about["left_out"]) == (1, 2)
    assert store.about["excluded_refused"] == {"name": 1, "ragged": 1}


@pytest.mark.parametrize("text", ["smiles\nethanol\npropane\n", "smiles\n"])
def test_an_excluded_table_without_a_molecule_is_refused(tmp_path, text):
    (tmp_path / "good.csv").write_text("smiles\nCCC\n")
    (tmp_path / "test.csv").write_text(text)
    exclude = (str(tmp_path / "good.csv"), str(tmp_path / "test.csv"))
    with pytest.raises(InputError, match=r"--exclude: .*test\.csv has no valid SMILES"):
        prepared(tmp_path, "CCO\n", exclude=exclude)


@pytest.mark.parametrize("salt", ["CC(=O)O.CCCN", "CCCN.CC(=O)O"])
def test_a_salt_is_excluded_by_either_of_two_equal_parts(tmp_path, salt):
    (tmp_path / "test.smi").write_text("CC(=O)O\n")
    exclude = (str(tmp_path / "test.smi"),)
    assert prepared(tmp_path, f"{salt}\nCCO\n", exclude=exclude).about["left_out"] == 1


def test_prepared_molecules_are_used_again_for_the_same_files_alone(tmp_path, monkeypatch):
    first = prepared(tmp_path, "CCO\nCCC\n")
    monkeypatch.setattr("molattn.pretraining.prepare.writing_store", None)
    assert prepared(tmp_path, "CCO\nCCC\n").about == first.about
    for text, options in (
        ("CCO\nCCN\n", {}),
        ("CCO\nCCC\n", {"max_atoms": 9}),
        ("CCO\nCCC\n", {"max_length": 99}),
        ("CCO\nCCC\n", {"max_seconds": 5.0}),
    ):
        with pytest.raises(
            InputError, match=r"prepared with other (files|max_(atoms|length|seconds))"
        ):
            prepared(tmp_path, text, **options)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a machine of one core
def test_other_processes_prepare_the_same(tmp_path, smiles_file, monkeypatch):
    monkeypatch.setattr("molattn.pretraining.prepare._BLOCK_ROWS", 16)  # several for each
    rows = [f"{text},1" for text in smiles_file.read_text().split()] * 2
    rows[30:30] = ["C1CC,1", "ethanol,1"]
    rows[90:90] = ["CCO"]  # as many of each reason, but not read in this order
    (tmp_path / "m.csv").write_text("\n".join(["smiles,y", *rows, "CCCCCCCCCC,1"]) + "\n")
    (tmp_path / "test.csv").write_text(f"smiles,y\n{rows[0]}\n")
    options = MoleculesConfig(exclude=(str(tmp_path / "test.csv"),))
    for num_workers in (0, 2):
        place = tmp_path / str(num_workers)
        prepare_molecules([str(tmp_path / "m.csv")], options, place, num_workers=num_workers)
    names = {path.name for path in (tmp_path / "0").iterdir()}
    assert names == {path.name for path in (tmp_path / "2").iterdir()}
    assert {"atoms", "counts", "descriptors", INDEX_FILE} < names
    for name in names:
        assert (tmp_path / "0" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()
    about = open_store(tmp_path / "2").about
    assert (about["left_out"], about["duplicates"]) == (2, 59)
    assert list(about["refused"].items()) == [("name", 1), ("ragged", 1), ("ring_closure", 1)]


def test_another_column_of_the_same_file_is_other_molecules(tmp_path):
    text = "smiles,parent\nCCO.Cl,CCO\n"
    prepared(tmp_path, text, "m.csv")
    with pytest.raises(InputError, match="prepared with other smiles_column: smiles, not parent"):
        prepared(tmp_path, text, "m.csv", smiles_column="parent")


def test_one_process_prepares_and_any_number_read(tmp_path):
    (tmp_path / "store").mkdir()
    with (
        locked_folder(tmp_path / "store"),
        pytest.raises(InputError, match="store: another process is writing to this folder"),
    ):
        prepared(tmp_path, "CCO\n")
    prepared(tmp_path, "CCO\n")
    with locked_folder(tmp_path / "store"):
        assert len(prepared(tmp_path, "CCO\n")) == 1


def test_a_store_is_there_whole_or_not_at_all(tmp_path):
    with (
        pytest.raises(RuntimeError, match="killed"),
        writing_store(tmp_path, Featurizer.default(), ("MolWt",), {}),
    ):
        raise RuntimeError("killed")
    assert open_store(tmp_path) is None
    store = prepared(tmp_path, "CCO\n")
    assert len(store) == 1
    for name in ("descriptors", "codes", "atom_starts"):
        content = (tmp_path / "store" / name).read_bytes()
        (tmp_path / "store" / name).write_bytes(bytes([content[0] ^ 1]) + content[1:])
        with pytest.raises(InputError, match=f"cannot be read .{name} is damaged"):
            open_store(tmp_path / "store")
        (tmp_path / "store" / name).write_bytes(content)
    (tmp_path / "store" / "counts").write_bytes(b"\1")
    with pytest.raises(InputError, match="cannot be read"):
        open_store(tmp_path / "store")


def test_a_damaged_index_of_a_store_is_an_input_error(tmp_path):
    prepared(tmp_path, "CCO\n")
    path = tmp_path / "store" / INDEX_FILE
    index = json.loads(path.read_text())
    digests = [{**index, "sha256": digests} for digests in ([], {}, None)]
    for content in ("{}", "[" * 100_000, *map(json.dumps, digests)):
        path.write_text(content)
        with pytest.raises(InputError, match="prepared molecules cannot be read"):
            open_store(tmp_path / "store")


def test_a_store_of_another_version_is_refused(tmp_path):
    prepared(tmp_path, "CCO\n")
    path = tmp_path / "store" / INDEX_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 3}))
    with pytest.raises(InputError, match="version 3, expected 4"):
        open_store(tmp_path / "store")


def test_molecules_are_excluded_by_inchi_key(tmp_path):
    keys = ["LFQSCWFLJHTTHZ", "VNWKTOKETHGBQD-UHFFFAOYSA-N", "UNKNOWNKEYXXXX", "C" * 14]
    (tmp_path / "keys.smi").write_text("\n".join(keys))
    exclude = (str(tmp_path / "keys.smi"),)
    store = prepared(tmp_path, "CCO\nC\nCCN\n" + "C" * 14, exclude=exclude)
    assert (len(store), store.about["left_out"]) == (1, 3)
    assert store.about["excluded_refused"] == {}


def test_molecules_without_a_bond_can_be_stored(tmp_path):
    store = prepared(tmp_path, "C\nN\n")
    assert [record.num_atoms for record in store.molecules.unpack([1, 0])] == [1, 1]


def test_nothing_left_is_refused(tmp_path):
    for _ in range(2):  # the first leaves nothing that the second could take
        with pytest.raises(InputError, match=r"no molecules to train on .*1 parenthesis"):
            prepared(tmp_path, "C(=\n")
    with pytest.raises(InputError, match="no column 'smiles'"):
        prepared(tmp_path, "a,b\n1,2\n", "m.csv")
