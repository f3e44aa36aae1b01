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
    parse_smiles,
)
from molattn.data.table import bundled_dataset
from molattn.errors import InputError
from molattn.explain import explain

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
    is_single = bond.GetBondType() == Chem.BondType.SINGLE and not bond.IsInRing()
    return is_single and all(atom.GetDegree() > 1 for atom in ends)


def mine() -> Featurizer:
    """Own features between default ones, of which some are left out, and last."""
    return Featurizer(
        atom_columns=(NEIGHBORS, *ATOM_COLUMNS[1:4], DONOR, *ATOM_COLUMNS[6:8], ATOM_COLUMNS[0]),
        bond_columns=(*BOND_COLUMNS, ROTATABLE),
    )


@pytest.fixture(scope="module", autouse=True)
def _registered():
    with pytest.MonkeyPatch.context() as patch:
        for registry in (ATOM_FEATURES, BOND_FEATURES, FEATURIZERS):
            patch.setattr(registry, "data", dict(registry.data))
        ATOM_FEATURES.register("donor")(is_donor)
        ATOM_FEATURES.register("hetero_neighbors")(hetero_neighbors)
        BOND_FEATURES.register("rotatable")(is_rotatable)
        FEATURIZERS.register("mine")(mine)
        yield


@pytest.mark.parametrize("text", TEXTS)
def test_codes_are_those_of_the_default_with_the_own_ones_among_them(text):
    mol, own, default = parse_smiles(text), mine(), Featurizer.default()
    record, plain = own(mol), default(mol)
    for index, column in enumerate(own.atom_columns):
        if column.name in default.atom_names:
            expected = plain.atoms[:, default.atom_names.index(column.name)].tolist()
        else:
            values = [ATOM_FEATURES[column.name](atom) for atom in mol.GetAtoms()]
            expected = [column.code(value) for value in values]
        assert record.atoms[:, index].tolist() == expected
    pairs, rotatable = own.pair_table[record.pairs], own.pair_names.index("rotatable")
    np.testing.assert_array_equal(
        np.delete(pairs, rotatable, axis=-1), default.pair_table[plain.pairs]
    )
    expected = np.zeros(record.pairs.shape, dtype=int)
    for bond in mol.GetBonds():
        i, j = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        expected[i, j] = expected[j, i] = is_rotatable(bond)
    np.testing.assert_array_equal(pairs[..., rotatable], expected)


def test_a_model_with_own_features_trains_saves_loads_predicts_and_explains(tmp_path, monkeypatch):
    lines = bundled_dataset().read_text(encoding="utf-8").splitlines()[:61]
    (tmp_path / "few.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    options = {"width": 8, "heads": 2, "layers": 1, "edge_width": 4, "device": "cpu", "epochs": 1}
    options |= {"featurizer": "mine", "init_from": "none", "bootstrap": 0, "baselines": False}
    run = molattn.train(tmp_path / "few.csv", "logS", **options)
    assert run.model.config.featurizer == mine()
    run.save(tmp_path / "run")
    assert "featurizer: mine" in (tmp_path / "run" / "config.yaml").read_text()
    model = molattn.MolAttn.from_pretrained(tmp_path / "run")
    texts = ["NCCO", "OC(=O)c1ccncc1", "C[C@H](N)CC1CC1"]
    found = model.predict(texts)
    np.testing.assert_array_equal(found, run.model.predict(texts))
    np.testing.assert_allclose(model.predict(["OCCN"]), found[:1], rtol=1e-5)
    for method in ("occlusion", "integrated_gradients", "attention"):
        assert len(explain(model, "NCCO", method=method).atom_scores) == 4
    with torch.no_grad():  # the features reach the network
        embedding = dict(model.named_parameters())["nets.0.atom_embedding.weight"]
        sizes = model.config.featurizer.atom_sizes
        index = model.config.featurizer.atom_names.index("donor")
        start = sum(sizes[:index])
        embedding[start : start + sizes[index]] += torch.tensor([[-5.0], [5.0]])
    assert not np.array_equal(model.predict(texts), found)
    for registry, name in ((ATOM_FEATURES, "donor"), (BOND_FEATURES, "rotatable")):
        with monkeypatch.context() as patch:
            items = {key: item for key, item in registry.data.items() if key != name}
            patch.setattr(registry, "data", items)
            with pytest.raises(InputError, match=f"feature '{name}': not registered"):
                molattn.MolAttn.from_pretrained(tmp_path / "run")


def test_an_unknown_name_or_value_is_refused(monkeypatch):
    monkeypatch.setattr(ATOM_FEATURES, "data", dict(ATOM_FEATURES.data))
    with pytest.raises(ValueError, match="'element' is registered already"):
        ATOM_FEATURES.register("element")(is_donor)
    ATOM_FEATURES.register("three")(lambda atom: 3)
    closed = Featurizer(atom_columns=(Column("three", (1, 2), is_open=False),))
    with pytest.raises(InputError, match="got 3"):
        closed(parse_smiles("C"))
    with pytest.raises(InputError, match="at most 255 joint codes, got 372"):
        Featurizer(bond_columns=(*BOND_COLUMNS, Column("rotatable", (False, True))))
