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
from molattn.errors import InputError
from molattn.pretraining.batches import descriptor_scaling
from molattn.pretraining.store import prepare_molecules


def prepared(tmp_path, text, name="m.smi", folder="store", **options):
    (tmp_path / name).write_text(text)
    files = [str(tmp_path / name)]
    return prepare_molecules(files, MoleculesConfig(**options), tmp_path / folder)


def test_molecules_and_targets_are_those_of_rdkit(store, smiles_file):
    texts = smiles_file.read_text().split()
    assert len(store) == store.about["kept"] == len(texts) - store.about["duplicates"] > 50
    rows = np.array([5, 0, 31])
    keys = {Chem.MolToInchiKey(Chem.MolFromSmiles(text))[:14]: text for text in texts[::-1]}
    kept = [text for text in texts if text in keys.values()]
    counts, descriptors = store.log_counts(rows), store.descriptors(rows)
    generators = (
        rdFingerprintGenerator.GetMorganGenerator(radius=3, fpSize=4096),
        rdFingerprintGenerator.GetAtomPairGenerator(fpSize=4096),
        rdFingerprintGenerator.GetTopologicalTorsionGenerator(fpSize=4096),
    )
    for index, (row, record) in enumerate(zip(rows, store.unpack(rows), strict=True)):
        mol = parse_smiles(kept[row])
        expected = Featurizer.default()(mol)
        np.testing.assert_array_equal(record.atoms, expected.atoms)
        np.testing.assert_array_equal(record.pairs, expected.pairs)
        for part, generator in enumerate(generators):
            dense = np.log1p(generator.GetCountFingerprintAsNumPy(mol))
            found = counts[index, 4096 * part : 4096 * (part + 1)]
            np.testing.assert_allclose(found, dense, rtol=1e-6)
        for name, function in (("MolLogP", Descriptors.MolLogP), ("TPSA", Descriptors.TPSA)):
            value = descriptors[index, store.names.index(name)]
            assert value == pytest.approx(function(mol), rel=1e-3, abs=1e-3)
        for name, values in (("AUTOCORR2D_", CalcAUTOCORR2D(mol)), ("MQN", MQNs_(mol))):
            columns = [store.names.index(f"{name}{i + 1}") for i in range(len(values))]
            np.testing.assert_allclose(descriptors[index, columns], values, rtol=1e-3, atol=1e-6)
    assert store.names == PRETRAINING_DESCRIPTORS
    assert 600 < store.num_bytes / len(store) < 2000


def test_each_molecule_is_taken_once_and_the_others_are_counted(tmp_path):
    (tmp_path / "test.csv").write_text("Smiles,y\nCCCCN,1\nnonsense,2\nOC#N,1,2\n")
    (tmp_path / "keys.smi").write_text(
        "LFQSCWFLJHTTHZ\nVNWKTOKETHGBQD-UHFFFAOYSA-N\nUNKNOWNKEYXXXX"
    )
    text = "SMILES,x\nCCN,1\nNCC,2\nC1CC,3\nCCCC[NH3+],4\n[Cl-].CCCC[NH3+],5\nCCC,6,7\nCCO,1\n"
    text += f"{'C' * 31},8\nc1ccccc1,9\nC,1\nCC(=O)O.CCCN,1\nN#CO,1\n"
    (tmp_path / "acid.smi").write_text("CC(=O)O\n")
    exclude = tuple(str(tmp_path / name) for name in ("test.csv", "keys.smi", "acid.smi"))
    about = prepared(tmp_path, text, "m.csv", max_atoms=30, exclude=exclude).about
    assert (about["kept"], about["duplicates"], about["left_out"]) == (2, 1, 6)
    assert about["skipped"] == {"ring_closure": 1, "ragged": 1, "too_large": 1}
    assert about["excluded_skipped"] == {"name": 1}
    # Excluded molecules are read with the limits of the run if these are higher.
    (tmp_path / "large.smi").write_text("C" * 2001)
    large = {"max_atoms": 2500, "exclude": (str(tmp_path / "large.smi"),)}
    assert prepared(tmp_path, "CCO", folder="large", **large).about["excluded_skipped"] == {}


def test_columns_are_numbers_of_any_unit_found_by_name(tmp_path):
    text = "smiles,id,emb_1,emb_0\nCCO,a,-400.123,-2e9\nCCC,b,,7\nCCN,c,x,1\nCCCC,d,1e39,0\n"
    store = prepared(tmp_path, text, "m.csv", pretraining_columns=("emb_*",))
    assert store.names == (*PRETRAINING_DESCRIPTORS, "emb_1", "emb_0")
    expected = np.array([[-400.123, -2e9], [np.nan, 7]], dtype=np.float32)
    np.testing.assert_array_equal(store.descriptors(np.arange(2))[:, -2:], expected)
    assert store.about["skipped"] == {"invalid_label": 2}
    (tmp_path / "b.csv").write_text("emb_0,emb_1,smiles\n2,3,CCS\n")
    config = MoleculesConfig(pretraining_columns=("emb_*",))
    files = [str(tmp_path / name) for name in ("m.csv", "b.csv")]
    both = prepare_molecules(files, config, tmp_path / "both")
    np.testing.assert_array_equal(both.descriptors(np.array([2]))[:, -2:], [[3, 2]])
    values = np.random.default_rng(0).normal(size=30)
    columns = {"small": 1e-9 * values, "large": 2e6 + values, "constant": 1e-9 * np.ones(30)}
    table = pd.DataFrame({"smiles": ["C" * n for n in range(1, 31)], **columns})
    options = {"pretraining_columns": tuple(columns), "folder": "units"}
    store = prepared(tmp_path, table.to_csv(index=False), "t.csv", **options)
    scaling = descriptor_scaling(store, np.arange(len(store)))
    assert scaling.names[scaling.num_descriptors :] == ("small", "large")
    scaled = scaling.scaled(store.descriptors(np.arange(len(store))))[:, -2:]
    np.testing.assert_allclose(np.corrcoef(scaled.T, values)[2, :2], 1.0, atol=0.02)


def test_other_columns_and_isotopes_are_other_data(tmp_path):
    digests = {}
    for number, (text, columns) in enumerate(
        [("CCO,1", ("x",)), ("CCO,2", ("x",)), ("CCO,1", ()), ("CCO,2", ()), ("[13CH3]CO,2", ())]
    ):
        given = {"pretraining_columns": columns, "folder": f"store{number}"}
        digests[text, len(columns)] = prepared(
            tmp_path, f"smiles,x\n{text}\n", "a.csv", **given
        ).digest
    assert len({*digests.values()}) == 4
    assert digests["CCO,1", 0] == digests["CCO,2", 0]


@pytest.mark.parametrize(
    "text, options",
    [
        ("smiles,emb_1\nCCO,1\n", {"pretraining_columns": ("emb_*", "absent")}),
        ("smiles\nCCO\n", {"exclude": ("none.csv",)}),
        ("smiles\nC(=\n", {}),
        ("a,b\n1,2\n", {}),
    ],
)
def test_what_cannot_be_prepared_is_refused(tmp_path, text, options, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "none.csv").write_text("smiles\nethanol\npropane\n")
    with pytest.raises(InputError):
        prepared(tmp_path, text, "m.csv", **options)


def test_prepared_molecules_are_used_again_for_the_same_files_alone(tmp_path, monkeypatch):
    text = "smiles,parent\nCCO,CCC\nCCC,CCN\n"
    first = prepared(tmp_path, text, "m.csv")
    monkeypatch.setattr(prepare, "_write_shards", None)
    assert prepared(tmp_path, text, "m.csv").about == first.about
    (tmp_path / "test.smi").write_text("CCC\n")
    other = prepared(tmp_path, text, "m.csv", exclude=(str(tmp_path / "test.smi"),))
    assert (len(other), other.about["left_out"]) == (1, 1)
    for changed, options in (
        ("smiles,parent\nCCN,CCC\n", {}),
        (text, {"max_atoms": 9}),
        (text, {"smiles_column": "parent"}),
    ):
        with pytest.raises(InputError):
            prepared(tmp_path, changed, "m.csv", **options)


def test_a_store_with_targets_is_used_as_it_is(tmp_path, smiles_file, monkeypatch):
    monkeypatch.setattr(prepare, "SHARD_ROWS", 16)
    monkeypatch.setattr(prepare, "_BLOCK_ROWS", 8)
    lines = [*smiles_file.read_text().split(), "C1CC", "C" * 31, "C" * 12, "C" * 12]
    limits = {"max_atoms": 30, "max_length": 40}
    expected = prepared(tmp_path, "\n".join(lines), folder="limited", **limits)
    rows = np.random.default_rng(0).permutation(len(expected))
    for name, has_targets in (("targets", True), ("plain", False)):
        options = PrepareConfig(pretraining_targets=has_targets)
        prepare_store([tmp_path / "m.smi"], tmp_path / name, options)
        given, folder = [str(tmp_path / name)], tmp_path / f"of_{name}"
        found = prepare_molecules(given, MoleculesConfig(**limits), folder)
        assert folder.exists() != has_targets
        assert {**found.about, "files": expected.about["files"]} == expected.about
        np.testing.assert_array_equal(found.descriptors(rows), expected.descriptors(rows))
        np.testing.assert_array_equal(found.log_counts(rows), expected.log_counts(rows))
        for one, other in zip(found.unpack(rows), expected.unpack(rows), strict=True):
            np.testing.assert_array_equal(one.pairs, other.pairs)
    (tmp_path / "a.csv").write_text("smiles,emb_1,emb_0\nCCO,1,0\nCCC,2,1\n")
    columns = {"pretraining_targets": True, "pretraining_columns": ("emb_0",)}
    prepare_store([tmp_path / "a.csv"], tmp_path / "columns", PrepareConfig(**columns))
    given = str(tmp_path / "columns")
    assert prepare_molecules([given], MoleculesConfig(), tmp_path / "m").names[-1] == "emb_0"
    for files, config in (
        ([given], MoleculesConfig(pretraining_columns=("emb_1",))),
        ([given, str(tmp_path / "a.csv")], MoleculesConfig()),
    ):
        with pytest.raises(InputError):
            prepare_molecules(files, config, tmp_path / "m")
    monkeypatch.setattr("molattn.pretraining.store.PRETRAINING_DESCRIPTORS", ("absent",))
    with pytest.raises(InputError, match="another release"):
        prepare_molecules([str(tmp_path / "targets")], MoleculesConfig(), tmp_path / "other")
