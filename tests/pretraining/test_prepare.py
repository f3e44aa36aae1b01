import re

import numpy as np
import pandas as pd
import pytest
from rdkit import Chem
from rdkit.Chem import Descriptors, rdFingerprintGenerator
from rdkit.Chem.rdMolDescriptors import CalcAUTOCORR2D, MQNs_

from molattn.chem import Featurizer, parse_smiles
from molattn.chem.pretraining_targets import PRETRAINING_DESCRIPTORS
from molattn.config import MoleculesConfig, PrepareConfig
from molattn.data import prepare
from molattn.data.prepare import prepare_store
from molattn.data.store import INDEX_FILE
from molattn.errors import InputError
from molattn.pretraining.prepare import prepare_molecules
from molattn.pretraining.scaling import descriptor_scaling
from molattn.utils.files import locked


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
    counts, descriptors = store.log_counts(rows), store.descriptors(rows)
    morgan = rdFingerprintGenerator.GetMorganGenerator(radius=3, fpSize=4096)
    pairs = rdFingerprintGenerator.GetAtomPairGenerator(fpSize=4096)
    torsions = rdFingerprintGenerator.GetTopologicalTorsionGenerator(fpSize=4096)
    parts = [slice(0, 4096), slice(4096, 8192), slice(8192, None)]
    for place, (row, record) in enumerate(zip(rows, store.unpack(rows), strict=True)):
        mol = parse_smiles(kept[row])
        expected = featurizer(mol)
        np.testing.assert_array_equal(record.atoms, expected.atoms)
        np.testing.assert_array_equal(record.pairs, expected.pairs)
        for generator, part in zip((morgan, pairs, torsions), parts, strict=True):
            dense = np.log1p(generator.GetCountFingerprintAsNumPy(mol))
            np.testing.assert_allclose(counts[place, part], dense, rtol=1e-6)
        for name, function in (("MolLogP", Descriptors.MolLogP), ("TPSA", Descriptors.TPSA)):
            value = descriptors[place, store.names.index(name)]
            assert value == pytest.approx(function(mol), rel=1e-3, abs=1e-3)
        for name, values in (("AUTOCORR2D_", CalcAUTOCORR2D(mol)), ("MQN", MQNs_(mol))):
            places = [store.names.index(f"{name}{i + 1}") for i in range(len(values))]
            np.testing.assert_allclose(descriptors[place, places], values, rtol=1e-3, atol=1e-6)
    assert store.names == PRETRAINING_DESCRIPTORS
    assert 600 < store.num_bytes / len(store) < 2000


@pytest.mark.parametrize("max_atoms, carbons", [(2500, 2001), (3, 5)])
def test_excluded_molecules_are_read_with_the_limits_of_the_run_if_they_are_higher(
    tmp_path, max_atoms, carbons
):
    (tmp_path / "test.smi").write_text("C" * carbons)
    exclude = (str(tmp_path / "test.smi"),)
    store = prepared(tmp_path, "CCO", max_atoms=max_atoms, exclude=exclude)
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
    assert [record.num_atoms for record in store.unpack(np.arange(2))] == [3, 6]


def test_columns_are_stored_as_numbers(tmp_path):
    text = "smiles,id,emb_1,emb_0\nCCO,a,-400.123,-2e9\nCCC,b,,7\nCCN,c,x,1\nCCCC,d,1e39,0\n"
    store = prepared(tmp_path, text, "m.csv", pretraining_columns=("emb_*",))
    assert store.names == (*PRETRAINING_DESCRIPTORS, "emb_1", "emb_0")
    expected = np.array([[-400.123, -2e9], [np.nan, 7]], dtype=np.float32)
    np.testing.assert_array_equal(store.descriptors(np.arange(2))[:, -2:], expected)
    assert store.about["refused"] == {"invalid_label": 2}
    rejected = (tmp_path / "store" / "rejected.csv").read_text()
    assert "column 'emb_1': got 'x', expected a number or an empty cell" in rejected
    assert "column 'emb_1': got '1e39', expected a number of magnitude below 1e+30" in rejected


def test_columns_may_have_any_unit(tmp_path):
    values = np.random.default_rng(0).normal(size=30)
    columns = {"small": 1e-9 * values, "large": 2e6 + values, "constant": 1e-9 * np.ones(30)}
    table = pd.DataFrame({"smiles": ["C" * n for n in range(1, 31)], **columns})
    table.to_csv(tmp_path / "t.csv", index=False)
    config = MoleculesConfig(pretraining_columns=tuple(columns))
    store = prepare_molecules([str(tmp_path / "t.csv")], config, tmp_path / "store")
    scaling = descriptor_scaling(store, np.arange(len(store)))
    assert scaling.names[scaling.num_descriptors :] == ("small", "large")
    scaled = scaling.scaled(store.descriptors(np.arange(len(store))))[:, -2:]
    np.testing.assert_allclose(np.corrcoef(scaled.T, values)[2, :2], 1.0, atol=0.02)


def test_columns_of_several_tables_are_found_by_name(tmp_path):
    (tmp_path / "a.csv").write_text("smiles,emb_1,emb_0\nCCO,1,0\n")
    (tmp_path / "b.csv").write_text("emb_0,emb_1,smiles\n2,3,CCC\n")
    (tmp_path / "c.csv").write_text("smiles,emb_1,emb_2\nCCN,5,4\n")
    config = MoleculesConfig(pretraining_columns=("emb_*",))
    files = [str(tmp_path / name) for name in ("a.csv", "b.csv")]
    store = prepare_molecules(files, config, tmp_path / "store")
    np.testing.assert_array_equal(store.descriptors(np.arange(2))[:, -2:], [[1, 0], [3, 2]])
    with pytest.raises(InputError, match=re.escape("c.csv: no column 'emb_0'")):
        prepare_molecules([*files, str(tmp_path / "c.csv")], config, tmp_path / "other")


def test_a_store_has_its_own_columns(tmp_path):
    (tmp_path / "a.csv").write_text("smiles,emb_1,emb_0\nCCO,1,0\nCCC,2,1\n")
    options = {"pretraining_targets": True, "pretraining_columns": ("emb_0",)}
    prepare_store([tmp_path / "a.csv"], tmp_path / "store", PrepareConfig(**options))
    given = str(tmp_path / "store")
    for columns in ((), ("emb_0",)):
        config = MoleculesConfig(pretraining_columns=columns)
        assert prepare_molecules([given], config, tmp_path / "m").names[-1] == "emb_0"
    config = MoleculesConfig(pretraining_columns=("emb_1",))
    with pytest.raises(InputError, match="was prepared with pretraining_columns 'emb_0', got"):
        prepare_molecules([given], config, tmp_path / "m")
    with pytest.raises(InputError, match="must be the only input"):
        prepare_molecules([given, str(tmp_path / "a.csv")], MoleculesConfig(), tmp_path / "m")


def test_other_columns_are_other_data(tmp_path):
    def digest(value, columns=("emb_0",)):
        folder = tmp_path / f"{value}{len(columns)}"
        folder.mkdir()
        (folder / "a.csv").write_text(f"smiles,emb_0\nCCO,{value}\n")
        config = MoleculesConfig(pretraining_columns=columns)
        return prepare_molecules([str(folder / "a.csv")], config, folder / "store").digest

    assert digest(1) != digest(2)
    assert digest(1, ()) == digest(2, ())


def test_other_isotopes_are_other_data(tmp_path):
    def digest(name, smiles):
        (tmp_path / f"{name}.csv").write_text(f"smiles\n{smiles}\n")
        files = [str(tmp_path / f"{name}.csv")]
        return prepare_molecules(files, MoleculesConfig(), tmp_path / name).digest

    assert digest("a", "CCO") == digest("b", "CCO") != digest("c", "[13CH3]CO")


@pytest.mark.parametrize(
    "columns, said",
    [
        (("absent",), "no column 'absent' (pretraining_columns)"),
        (("emb_*", "absent"), "no column 'absent' (pretraining_columns)"),
        (("emb_*", "emb_1"), "got 'emb_1' more than once"),
        (("s*",), "got 'smiles' more than once, or in another option too"),
    ],
)
def test_columns_that_cannot_be_are_an_error(tmp_path, columns, said):
    with pytest.raises(InputError, match=re.escape(said)):
        prepared(tmp_path, "smiles,emb_1\nCCO,1\n", "m.csv", pretraining_columns=columns)


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
    with pytest.raises(InputError, match=r"exclude: .*test\.csv has no valid SMILES"):
        prepared(tmp_path, "CCO\n", exclude=exclude)


@pytest.mark.parametrize("salt", ["CC(=O)O.CCCN", "CCCN.CC(=O)O"])
def test_a_salt_is_excluded_by_either_of_two_equal_parts(tmp_path, salt):
    (tmp_path / "test.smi").write_text("CC(=O)O\n")
    exclude = (str(tmp_path / "test.smi"),)
    assert prepared(tmp_path, f"{salt}\nCCO\n", exclude=exclude).about["left_out"] == 1


def test_prepared_molecules_are_used_again_for_the_same_files_alone(tmp_path, monkeypatch):
    first = prepared(tmp_path, "CCO\nCCC\n")
    monkeypatch.setattr(prepare, "_write_shards", None)
    assert prepared(tmp_path, "CCO\nCCC\n").about == first.about
    for text, options, message in (
        ("CCO\nCCN\n", {}, r"m\.smi: the file has changed since"),
        ("CCO\nCCC\n", {"max_atoms": 9}, "max_atoms: got 9, but"),
        ("CCO\nCCC\n", {"max_length": 99}, "max_length: got 99, but"),
        ("CCO\nCCC\n", {"max_seconds": 5.0}, "max_seconds: got 5.0, but"),
    ):
        with pytest.raises(InputError, match=message):
            prepared(tmp_path, text, **options)


def test_other_molecules_are_excluded_from_the_same_store(tmp_path):
    (tmp_path / "test.smi").write_text("CCC\n")
    exclude = (str(tmp_path / "test.smi"),)
    stores = [prepared(tmp_path, "CCO\nCCC\nCCN\n", exclude=own) for own in ((), exclude)]
    assert [(len(one), one.about["left_out"]) for one in stores] == [(3, 0), (2, 1)]


def test_a_store_with_targets_is_used_as_it_is(tmp_path, smiles_file, monkeypatch):
    monkeypatch.setattr(prepare, "SHARD_ROWS", 16)
    monkeypatch.setattr(prepare, "_BLOCK_ROWS", 8)
    lines = [*smiles_file.read_text().split(), "C1CC", "C" * 31, "C" * 12, "C" * 12]
    source = tmp_path / "m.smi"
    source.write_text("\n".join(lines))
    limits = {"max_atoms": 30, "max_length": 40}
    config = MoleculesConfig(**limits)
    expected = prepare_molecules([str(source)], config, tmp_path / "limited")
    folders = [tmp_path / "targets", tmp_path / "plain"]
    for folder, has_targets in zip(folders, (True, False), strict=True):
        prepare_store([source], folder, PrepareConfig(pretraining_targets=has_targets))
    for folder in folders:
        found = prepare_molecules([str(folder)], config, tmp_path / f"of_{folder.name}")
        counted = {**found.about, "files": expected.about["files"]}
        assert counted == expected.about
        assert found.about["refused"] == {"ring_closure": 1, "too_large": 1} | (
            {"too_long": n} if (n := sum(len(line) > 40 for line in lines)) else {}
        )
        rows = np.random.default_rng(0).permutation(len(expected))
        np.testing.assert_array_equal(found.descriptors(rows), expected.descriptors(rows))
        np.testing.assert_array_equal(found.log_counts(rows), expected.log_counts(rows))
        for one, other in zip(found.unpack(rows), expected.unpack(rows), strict=True):
            np.testing.assert_array_equal(one.atoms, other.atoms)
            np.testing.assert_array_equal(one.pairs, other.pairs)
    assert not (tmp_path / "of_targets").exists()
    monkeypatch.setattr("molattn.pretraining.store.PRETRAINING_DESCRIPTORS", ("absent",))
    with pytest.raises(InputError, match="targets of pretraining, or those of another release"):
        prepare_molecules([str(folders[0])], config, tmp_path / "other")


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a machine of one core
def test_other_processes_prepare_the_same(tmp_path, smiles_file, monkeypatch):
    monkeypatch.setattr(prepare, "_BLOCK_ROWS", 16)  # several for each
    monkeypatch.setattr(prepare, "SHARD_ROWS", 64)
    rows = [f"{text},1" for text in smiles_file.read_text().split()] * 2
    rows[30:30] = ["C1CC,1", "ethanol,1"]
    rows[90:90] = ["CCO"]  # as many of each reason, but not read in this order
    (tmp_path / "m.csv").write_text("\n".join(["smiles,y", *rows, "CCCCCCCCCC,1"]) + "\n")
    (tmp_path / "test.csv").write_text(f"smiles,y\n{rows[0]}\n")
    options = MoleculesConfig(exclude=(str(tmp_path / "test.csv"),))
    stores = []
    for num_workers in (0, 2):
        place = tmp_path / str(num_workers)
        files = [str(tmp_path / "m.csv")]
        stores.append(prepare_molecules(files, options, place, num_workers=num_workers))
    names = {path.name for path in (tmp_path / "0").iterdir()}
    assert names == {path.name for path in (tmp_path / "2").iterdir()}
    assert {"shard_00000.arrow", "shard_00001.arrow", INDEX_FILE} < names
    for name in names:
        assert (tmp_path / "0" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()
    about = stores[1].about
    assert about == stores[0].about
    assert (about["left_out"], about["duplicates"]) == (2, 59)
    assert list(about["refused"].items()) == [("name", 1), ("ragged", 1), ("ring_closure", 1)]


def test_another_column_of_the_same_file_is_other_molecules(tmp_path):
    text = "smiles,parent\nCCO.Cl,CCO\n"
    prepared(tmp_path, text, "m.csv")
    with pytest.raises(InputError, match=r"smiles_column: got 'parent', but .* has 'smiles'"):
        prepared(tmp_path, text, "m.csv", smiles_column="parent")


def test_one_process_prepares_and_any_number_read(tmp_path):
    (tmp_path / "store.unfinished").mkdir()
    with (
        locked(tmp_path / "store.unfinished"),
        pytest.raises(InputError, match="another process is writing to this folder"),
    ):
        prepared(tmp_path, "CCO\n")
    prepared(tmp_path, "CCO\n")
    assert len(prepared(tmp_path, "CCO\n")) == 1


def test_molecules_are_excluded_by_inchi_key(tmp_path):
    keys = ["LFQSCWFLJHTTHZ", "VNWKTOKETHGBQD-UHFFFAOYSA-N", "UNKNOWNKEYXXXX", "C" * 14]
    (tmp_path / "keys.smi").write_text("\n".join(keys))
    exclude = (str(tmp_path / "keys.smi"),)
    store = prepared(tmp_path, "CCO\nC\nCCN\n" + "C" * 14, exclude=exclude)
    assert (len(store), store.about["left_out"]) == (1, 3)
    assert store.about["excluded_refused"] == {}


def test_molecules_without_a_bond_can_be_stored(tmp_path):
    store = prepared(tmp_path, "C\nN\n")
    assert [record.num_atoms for record in store.unpack(np.array([1, 0]))] == [1, 1]


def test_nothing_left_is_refused(tmp_path):
    for _ in range(2):  # the first leaves nothing that the second could take
        with pytest.raises(InputError, match=r"no molecules to train on .*1 parenthesis"):
            prepared(tmp_path, "C(=\n")
    with pytest.raises(InputError, match="no column 'smiles'"):
        prepared(tmp_path, "a,b\n1,2\n", "m.csv")
