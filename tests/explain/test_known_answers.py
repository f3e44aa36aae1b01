"""A model that is a sum over atoms and pairs, in which every score can be worked out."""

import re
from collections import Counter
from itertools import permutations

import numpy as np
import pytest

from molattn import InputError
from molattn.chem import parse_smiles
from molattn.explain import METHODS, MethodOptions, explain, measure_faithfulness
from molattn.explain.baseline import average_atom, one_hot
from molattn.explain.explainer import read_instances
from molattn.explain.faithfulness.deletion_insertion import FRACTIONS
from molattn.explain.methods.occlusion import atom_groups

SMILES = "CC(=O)N"


@pytest.fixture
def instance(linear):
    return next(read_instances(linear, [SMILES]))


def compute(name, instance, **options):
    return METHODS[name].compute(instance, MethodOptions(**options))


def test_integrated_gradients_are_features_and_half_of_each_pair(instance, known):
    atoms, average, pairs, nothing = known(instance)
    found = compute("integrated_gradients", instance)
    expected = atoms - average + 0.5 * (pairs.sum(axis=0) + pairs.sum(axis=1))
    np.testing.assert_allclose(found.atoms, expected, rtol=1e-4, atol=1e-5)
    assert found.baseline == pytest.approx(nothing[0] + average.sum(), abs=1e-4)
    i, j = instance.bonds[1]
    assert found.bonds[1] == pytest.approx(pairs[i, j] + pairs[j, i], abs=1e-5)


@pytest.mark.parametrize("orders", [1, 6])
def test_occlusion_takes_the_worth_of_an_atom_and_half_of_its_pairs(instance, known, orders):
    atoms, average, pairs, nothing = known(instance)
    shared = 0.5 * (pairs.sum(axis=0) + pairs.sum(axis=1))
    removed = compute("occlusion", instance, orders=orders)
    np.testing.assert_allclose(removed.atoms, atoms + shared, rtol=1e-4, atol=1e-5)
    assert removed.baseline == pytest.approx(nothing[0], abs=1e-4)
    blanked = compute("occlusion", instance, orders=orders, masking="blank")
    np.testing.assert_allclose(blanked.atoms, atoms - average + shared, rtol=1e-4, atol=1e-5)
    i, j = instance.bonds[0]
    assert blanked.bonds[0] == pytest.approx(pairs[i, j] + pairs[j, i], abs=1e-5)


def test_groups_are_masked_together_and_share_alike(instance, known):
    atoms, _, pairs, _ = known(instance)
    found = compute("occlusion", instance, groups=[[2, 3]]).atoms
    both = pairs + pairs.T
    inside = atoms[[2, 3]].sum() + both[2, 3] + 0.5 * both[np.ix_([2, 3], [0, 1])].sum()
    alone = atoms[0] + 0.5 * both[0].sum()
    np.testing.assert_allclose(found[[2, 3, 0]], [inside / 2, inside / 2, alone], atol=1e-5)


def test_more_orders_come_nearer_to_the_shapley_value_of_all_orders(model):
    instance = next(read_instances(model, ["CC(N)=O"]))
    parts = np.zeros((24, 4))
    for part, order in zip(parts, permutations(range(4)), strict=True):
        kept = np.ones(4, dtype=bool)
        for atom in order:
            before = instance.predict_kept(kept[None])[0]
            kept[atom] = False
            part[atom] = before - instance.predict_kept(kept[None])[0]
    exact = parts.mean(axis=0)
    few, many = (compute("occlusion", instance, orders=n).atoms for n in (2, 400))
    assert np.all(np.abs(many - exact) < 4 * parts.std(axis=0) / 400**0.5 + 1e-6)
    assert np.abs(many - exact).max() < np.abs(few - exact).max()


def test_atoms_that_no_symmetry_tells_apart_have_one_score(model):
    instance = next(read_instances(model, ["CC(C)O"]))
    scores = compute("occlusion", instance, orders=2).atoms
    assert scores[0] == scores[2] != scores[3]


def test_the_order_of_signed_scores_is_the_best_there_is_for_a_sum(linear):
    # Without pairs no order takes more away sooner than that of the atoms' own worth.
    linear.nets[0].pair_embedding.weight.data.zero_()
    instance = next(read_instances(linear, [SMILES]))
    found = measure_faithfulness(
        linear, [SMILES, "C"], ["occlusion", "attention"][:1], random_orders=200
    )
    values = {}
    for order in permutations(range(4)):
        kept = np.array([[atom not in order[:k] for atom in range(4)] for k in range(5)])
        ends = instance.predict_kept(kept)
        losses = (ends[0] - ends) * np.sign(ends[0] - ends[-1])
        values[order] = (losses[1:] + losses[:-1]).mean() / 2
    first, _, at_random = found.rows
    assert first.deletion_area.mean == pytest.approx(max(values.values()), abs=1e-5)
    assert at_random.deletion_area.mean == pytest.approx(np.mean([*values.values()]), rel=0.1)
    assert first.deletion_gain.mean == pytest.approx(
        first.deletion_area.mean - at_random.deletion_area.mean
    )
    assert (found.molecules, found.skipped, len(FRACTIONS)) == (1, 1, len(first.deletion))
    assert first.deletion[0] == first.insertion[-1] == 0
    assert first.deletion[-1] == first.insertion[0] > 0
    assert found.to_dict()["rows"][0]["beats_random"] is True
    assert "| occlusion |" in found.table()


def test_verdicts_follow_the_intervals(linear):
    some = ["CCO", "CC(=O)N", "CCN(C)C", "OCC(=O)O", "CCCl", "CC#N", "CSC", "NCCO"]
    for measure, verdict in (("support", "beats random"), ("distance", None)):
        found = measure_faithfulness(linear, some, ["integrated_gradients"], measure=measure)
        signed, uniform, at_random = found.rows
        assert at_random.verdict == "no better than random"
        assert not uniform.beats_random
        assert verdict in (None, signed.verdict)
        assert signed.deletion_gain.low <= signed.deletion_gain.mean <= signed.deletion_gain.high
    with pytest.raises(InputError, match="none with two or more atoms"):
        measure_faithfulness(linear, ["C", "O"])
    with pytest.raises(InputError, match="measure: got 'size'"):
        measure_faithfulness(linear, some, measure="size")


def test_of_several_classes_each_molecule_is_tested_on_its_likeliest(of_phases):
    model, likeliest = of_phases

    def tested(smiles, target):
        return measure_faithfulness(model, smiles, ["integrated_gradients"], target=target)

    found = tested([*likeliest], "phase")
    assert (found.target, found.outputs) == ("phase", Counter(likeliest.values()))
    apart = [tested([smiles], name) for smiles, name in likeliest.items()]
    for place in (0, 1):  # the rows whose orders do not depend on a molecule's place in the list
        areas = [one.rows[place].deletion_area.mean for one in apart]
        assert found.rows[place].deletion_area.mean == pytest.approx(np.mean(areas), rel=1e-5)
    smiles, name = next(iter(likeliest.items()))
    alone = tested([smiles, smiles], "phase")
    assert (alone.target, alone.outputs) == (name, {name: 2})


def test_groups_are_named_or_listed():
    mol = parse_smiles("c1ccccc1CC(=O)OC")
    assert atom_groups(mol, "atoms") == [(i,) for i in range(11)]
    assert atom_groups(mol, "rings")[0] == (0, 1, 2, 3, 4, 5)
    assert len(atom_groups(mol, "rings")) == 6
    fused = atom_groups(parse_smiles("c1ccc2ccccc2c1C1CC1"), "rings")
    assert sorted(map(len, fused)) == [3, 10]
    for kind in ("rings", "brics"):
        assert sorted(sum(atom_groups(mol, kind), ())) == [*range(11)]
    assert len(atom_groups(mol, "brics")) > 1
    assert atom_groups(mol, np.array([[0, 1], [2, 3]]))[:3] == [(0, 1), (2, 3), (4,)]
    for bad in ([[0], [0]], [[11]], [[]], [[-1]]):
        for given in (bad, np.array(bad)):
            with pytest.raises(InputError, match=re.escape(f"groups: got {bad}, expected lists")):
                atom_groups(mol, given)


@pytest.mark.parametrize("groups", [[[0, 1], [2, 3]], [(0, 1), np.array([2, 3])]])
def test_an_array_of_groups_is_a_list_of_lists(model, groups):
    expected = explain(model, "CCOC", "occlusion", groups=groups).atom_scores
    found = explain(model, "CCOC", "occlusion", groups=np.array([[0, 1], [2, 3]])).atom_scores
    np.testing.assert_array_equal(found, expected)


def test_the_average_atom_is_counted(linear):
    featurizer = linear.config.featurizer
    record = linear.featurize("CO")
    expected = one_hot(record.atoms, featurizer.atom_sizes).mean(axis=0)
    np.testing.assert_allclose(average_atom([record], featurizer), expected)
