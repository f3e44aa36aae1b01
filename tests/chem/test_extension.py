"""Atom and bond features added from outside the package, from training to explanation."""

import numpy as np
import pytest
import torch
from rdkit import Chem

import molattn
from molattn.chem import (
    ATOM_COLUMNS,
    ATOM_FEATURES,
    BOND_COLUMNS,
    BOND_FEATURES,
    FEATURIZERS,
    Column,
    Featurizer,
    PackedMolecules,
    featurize_smiles,
    parse_smiles,
)
from molattn.config import (
    DataConfig,
    MoleculesConfig,
    PretrainConfig,
    PretrainLoopConfig,
    PretrainNetworkConfig,
)
from molattn.data.table import bundled_dataset
from molattn.errors import InputError, SmilesError
from molattn.explain import explain
from molattn.pretraining import pretrain
from molattn.training.fine_tuning import load_pretrained

SMALL = {"width": 8, "heads": 2, "layers": 1, "edge_width": 4, "device": "cpu", "seed": 0}
TEXTS = ["CCO", "C", "[Na+].[Cl-]", "OC(=O)c1ccncc1", "C[C@H](N)CC1CC1", "F/C=C/F", "C" * 300]

# All that a user writes, in a file of their own.
DONOR = Column("donor", (False, True), is_open=False)
NEIGHBORS = Column("hetero_neighbors", (0, 1, 2))
ROTATABLE = Column("rotatable", (False, True), is_open=False)


def is_donor(atom: Chem.Atom) -> bool:
    return atom.GetAtomicNum() in (7, 8) and atom.GetTotalNumHs() > 0


def hetero_neighbors(atom: Chem.Atom) -> int:
    return sum(other.GetAtomicNum() not in (1, 6) for other in atom.GetNeighbors())


def is_rotatable(bond: Chem.Bond) -> bool:
    ends = (bond.GetBeginAtom(), bond.GetEndAtom())
    return (
        bond.GetBondType() == Chem.BondType.SINGLE
        and not bond.IsInRing()
        and all(atom.GetDegree() > 1 for atom in ends)
    )


def mine() -> Featurizer:
    """Own features between default ones, of which some are left out, and last."""
    return Featurizer(
        atom_columns=(NEIGHBORS, *ATOM_COLUMNS[1:4], DONOR, *ATOM_COLUMNS[6:8], ATOM_COLUMNS[0]),
        bond_columns=(*BOND_COLUMNS, ROTATABLE),
    )


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in (ATOM_FEATURES, BOND_FEATURES, FEATURIZERS):
        monkeypatch.setattr(registry, "_items", dict(registry._items))
    ATOM_FEATURES.register("donor")(is_donor)
    ATOM_FEATURES.register("hetero_neighbors")(hetero_neighbors)
    BOND_FEATURES.register("rotatable")(is_rotatable)
    FEATURIZERS.register("mine")(mine)


def unregister(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for registry in (ATOM_FEATURES, BOND_FEATURES):
        items = {key: item for key, item in registry._items.items() if key != name}
        monkeypatch.setattr(registry, "_items", items)


def table(tmp_path, count=60):
    lines = bundled_dataset().read_text(encoding="utf-8").splitlines()[: count + 1]
    path = tmp_path / "few.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def trained(tmp_path, **options):
    options = {**SMALL, "epochs": 1, "init_from": "none", **options}
    return molattn.train(table(tmp_path), "logS", bootstrap=0, baselines=False, **options)


@pytest.mark.parametrize("text", TEXTS)
def test_codes_are_those_of_the_default_with_the_own_ones_among_them(text):
    mol, own, default = parse_smiles(text), mine(), Featurizer.default()
    record, plain = own(mol), default(mol)
    assert record.atoms.dtype == record.pairs.dtype == np.uint8
    for place, column in enumerate(own.atom_columns):
        if column.name in default.atom_names:
            expected = plain.atoms[:, default.atom_names.index(column.name)].tolist()
        else:
            values = [ATOM_FEATURES[column.name](atom) for atom in mol.GetAtoms()]
            expected = [column.code(value) for value in values]
        assert record.atoms[:, place].tolist() == expected
    pairs = own.pair_table[record.pairs]
    np.testing.assert_array_equal(
        np.delete(pairs, own.pair_names.index("rotatable"), axis=-1),
        default.pair_table[plain.pairs],
    )
    expected = np.zeros(record.pairs.shape, dtype=int)
    for bond in mol.GetBonds():
        i, j = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        expected[i, j] = expected[j, i] = is_rotatable(bond)
    np.testing.assert_array_equal(pairs[..., own.pair_names.index("rotatable")], expected)


def test_codes_follow_the_order_of_the_atoms():
    mol, own = parse_smiles("OC(=O)c1ccncc1CCN"), mine()
    order = np.random.default_rng(0).permutation(mol.GetNumAtoms())
    record, permuted = own(mol), own(Chem.RenumberAtoms(mol, order.tolist()))
    np.testing.assert_array_equal(permuted.atoms, record.atoms[order])
    np.testing.assert_array_equal(permuted.pairs, record.pairs[order][:, order])


def test_features_that_are_all_own_need_no_default_ones():
    own = Featurizer(atom_columns=(DONOR,))
    assert own(parse_smiles("NCO")).atoms.tolist() == [[1], [0], [1]]


def test_packed_molecules_keep_own_features():
    own = mine()
    records = [read for read in featurize_smiles(TEXTS, own) if not isinstance(read, SmilesError)]
    packed = PackedMolecules.pack(records, own)
    for record, again in zip(records, packed.unpack(range(len(packed))), strict=True):
        np.testing.assert_array_equal(again.atoms, record.atoms)
        np.testing.assert_array_equal(again.pairs, record.pairs)


def test_from_smiles_takes_a_featurizer_or_its_name():
    for chosen in ("mine", mine()):
        data = molattn.from_smiles("CCO", featurizer=chosen)
        assert data["x"][:, mine().atom_names.index("donor")].tolist() == [0, 0, 1]
        rotatable = data["edge_attr"][:, mine().pair_names.index("rotatable")]
        assert rotatable.tolist() == [0] * 6
    with pytest.raises(InputError, match=r"featurizer: got 'mein', .* did you mean 'mine'"):
        molattn.from_smiles("CCO", featurizer="mein")


def test_train_save_load_predict_and_explain(tmp_path, monkeypatch):
    run = trained(tmp_path, featurizer="mine")
    assert run.model.config.featurizer == mine()
    run.save(tmp_path / "run")
    model = molattn.MolAttn.from_pretrained(tmp_path / "run")
    texts = ["NCCO", "OC(=O)c1ccncc1", "C[C@H](N)CC1CC1"]
    found = model.predict(texts)
    np.testing.assert_array_equal(found, run.model.predict(texts))
    np.testing.assert_allclose(model.predict(["OCCN"]), found[:1], rtol=1e-5)
    for method in ("occlusion", "integrated_gradients", "attention"):
        explanation = explain(model, "NCCO", method=method)
        assert len(explanation.atom_scores) == 4
    with torch.no_grad():  # the features reach the network
        embedding = dict(model.named_parameters())["nets.0.atom_embedding.weight"]
        sizes = model.config.featurizer.atom_sizes
        place = model.config.featurizer.atom_names.index("donor")
        start = sum(sizes[:place])
        embedding[start : start + sizes[place]] += torch.tensor([[-5.0], [5.0]])
    assert not np.array_equal(model.predict(texts), found)
    for name in ("donor", "rotatable"):
        with monkeypatch.context() as patch:
            unregister(patch, name)
            with pytest.raises(InputError, match=rf"feature '{name}': not registered.*import the"):
                molattn.MolAttn.from_pretrained(tmp_path / "run")
    assert "featurizer: mine" in (tmp_path / "run" / "config.yaml").read_text()


def test_fine_tuning_needs_the_same_featurizer(tmp_path):
    first = trained(tmp_path, featurizer="mine")
    first.save(tmp_path / "first")
    again = trained(tmp_path, featurizer="mine", init_from=str(tmp_path / "first"))
    assert again.model.config.featurizer == mine()
    with pytest.raises(InputError, match=r"differs in atom_columns: .*featurizer"):
        trained(tmp_path, init_from=str(tmp_path / "first"))


def test_auto_begins_with_the_packaged_model_for_its_featurizer_alone():
    def chosen(**options):
        config = molattn.config.TrainConfig.from_options("", options)
        return load_pretrained(config)[0].fine_tuning.init_from

    assert chosen() == "base"
    assert chosen(featurizer="mine") == "none"


def test_the_estimator_has_the_option():
    from molattn.sklearn import MolAttnRegressor

    texts = ["CCO", "CCC", "CCN", "CCCC", "OCCO", "NCCN", "CC(=O)O", "CCCl", "CCBr", "c1ccccc1"] * 2
    options = {key: value for key, value in SMALL.items() if key != "seed"}
    options |= {"epochs": 1, "init_from": "none"}
    regressor = MolAttnRegressor(featurizer="mine", **options).fit(texts, np.arange(20.0))
    assert regressor.model_.config.featurizer == mine()


def test_a_pretraining_has_the_option(tmp_path):
    lines = table(tmp_path).read_text(encoding="utf-8").splitlines()
    config = PretrainConfig(
        (str(tmp_path / "few.csv"),),
        MoleculesConfig(featurizer="mine", molecules_folder=str(tmp_path / "store")),
        PretrainNetworkConfig(width=8, heads=2, layers=1, edge_width=4),
        PretrainLoopConfig(epochs=1, batch_size=16, device="cpu"),
    )
    assert len(lines) == 61
    for name in ("run", "other"):
        (tmp_path / name).mkdir()
    run = pretrain(config, tmp_path / "run")
    assert run.model.config.featurizer == mine()
    assert run.scores["atoms"].keys() == set(mine().atom_names)
    default = MoleculesConfig(molecules_folder=str(tmp_path / "store"))
    with pytest.raises(InputError, match="featurizer: got 'default', but"):
        pretrain(PretrainConfig(config.files, default, *list(vars(config).values())[2:]), tmp_path)


def test_an_unknown_name_or_value_is_refused(tmp_path):
    with pytest.raises(
        InputError, match=r"featurizer: got 'theirs', expected one of default, mine"
    ):
        trained(tmp_path, featurizer="theirs")
    with pytest.raises(InputError, match="featurizer: got ''"):
        DataConfig(featurizer="")
    with pytest.raises(ValueError, match="'element' is registered already"):
        ATOM_FEATURES.register("element")(is_donor)
    ATOM_FEATURES.register("three")(lambda atom: 3)
    closed = Featurizer(atom_columns=(Column("three", (1, 2), is_open=False),))
    with pytest.raises(InputError, match=r"feature 'three': got 3, expected one of \(1, 2\)"):
        closed(parse_smiles("C"))
    with pytest.raises(InputError, match="distinct names"):
        Featurizer(atom_columns=(DONOR, DONOR))
    with pytest.raises(InputError, match="bond features: expected"):
        Featurizer(bond_columns=(ROTATABLE, *BOND_COLUMNS))
    with pytest.raises(InputError, match="bond features: expected"):
        Featurizer(bond_columns=(*BOND_COLUMNS, ROTATABLE, ROTATABLE))
    wide = Column("rotatable", (False, True))
    with pytest.raises(InputError, match="at most 255 joint codes, got 372"):
        Featurizer(bond_columns=(*BOND_COLUMNS, wide))
