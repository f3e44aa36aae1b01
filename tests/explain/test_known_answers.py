"""A model that is a sum over atoms and pairs, in which every score can be worked out."""

from collections import Counter
from itertools import permutations

import numpy as np
import pytest

from molattn import InputError
from molattn.chem import parse_smiles
from molattn.data.table import bundled_dataset, open_table
from molattn.explain import METHODS, MethodOptions, explain, measure_faithfulness
from molattn.explain.explainer import read_instances
from molattn.explain.faithfulness import Estimate, Faithfulness, MethodFaithfulness
from molattn.explain.instance import average_atom
from molattn.explain.methods import atom_groups

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
def test_occlusion_is_an_atom_and_half_of_its_pairs(instance, known, orders):
    atoms, _, pairs, nothing = known(instance)
    half = 0.5 * (pairs.sum(axis=0) + pairs.sum(axis=1))
    removed = compute("occlusion", instance, orders=orders)
    np.testing.assert_allclose(removed.atoms, atoms + half, rtol=1e-4, atol=1e-5)
    assert removed.baseline == pytest.approx(nothing[0], abs=1e-4)
    i, j = instance.bonds[0]
    assert removed.bonds[0] == pytest.approx(pairs[i, j] + pairs[j, i], abs=1e-5)


def test_groups_are_masked_together_and_share_their_score(instance, known):
    atoms, _, pairs, _ = known(instance)
    both = pairs + pairs.T
    inside = atoms[[2, 3]].sum() + both[2, 3] + 0.5 * both[np.ix_([2, 3], [0, 1])].sum()
    alone = atoms[0] + 0.5 * both[0].sum()
    for groups in ([[2, 3]], np.array([[2, 3]])):
        found = compute("occlusion", instance, groups=groups).atoms
        np.testing.assert_allclose(found[[2, 3, 0]], [inside / 2, inside / 2, alone], atol=1e-5)


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
    assert atom_groups(mol, [[0, 1], (2, 3)])[:3] == [(0, 1), (2, 3), (4,)]


def test_more_orders_come_nearer_to_the_shapley_value_of_all_orders(model):
    instance = next(read_instances(model, ["CC(N)=O"]))
    changes = np.zeros((24, 4))
    for change, order in zip(changes, permutations(range(4)), strict=True):
        kept = np.ones(4, dtype=bool)
        for atom in order:
            before = instance.predict_kept(kept[None])[0]
            kept[atom] = False
            change[atom] = before - instance.predict_kept(kept[None])[0]
    exact = changes.mean(axis=0)
    few, many = (compute("occlusion", instance, orders=n).atoms for n in (2, 400))
    assert np.all(np.abs(many - exact) < 4 * changes.std(axis=0) / 400**0.5 + 1e-6)
    assert np.abs(many - exact).max() < np.abs(few - exact).max()
    scores = explain(model, "CC(C)O", "occlusion", orders=2).atom_scores
    assert scores[0] == scores[2] != scores[3]  # equivalent atoms


def test_the_order_of_signed_scores_is_the_best_there_is_for_a_sum(linear):
    # Without pairs no order takes more away sooner than that of the atoms' own contributions.
    linear.nets[0].pair_embedding.weight.data.zero_()
    instance = next(read_instances(linear, [SMILES]))
    found = measure_faithfulness(linear, [SMILES, "C"], ["occlusion"])
    values = {}
    for order in permutations(range(4)):
        kept = np.array([[atom not in order[:k] for atom in range(4)] for k in range(5)])
        ends = instance.predict_kept(kept)
        changes = (ends[0] - ends) * np.sign(ends[0] - ends[-1])
        values[order] = (changes[1:] + changes[:-1]).mean() / 2
    first, _, at_random = found.rows
    area, of_random = first.deletion_area.mean, at_random.deletion_area.mean
    assert area == pytest.approx(max(values.values()), abs=1e-5)
    assert min(values.values()) < of_random < area
    assert first.deletion_gain.mean == pytest.approx(area - of_random)
    assert (found.molecules, found.skipped) == (1, 1)
    assert "| occlusion |" in found.table()
    with pytest.raises(InputError):
        measure_faithfulness(linear, ["C", "O"])


def test_each_molecule_is_tested_on_its_most_probable_class(phases):
    model, most_probable = phases

    def tested(smiles):
        return measure_faithfulness(model, smiles, ["integrated_gradients"], target="phase")

    found = tested([*most_probable])
    assert (found.target, found.outputs) == ("phase", Counter(most_probable.values()))
    single = [tested([smiles]) for smiles in most_probable]
    assert [result.target for result in single] == [*most_probable.values()]
    for row in (0, 1):  # the rows whose orders do not depend on the position in the list
        areas = [result.rows[row].deletion_area.mean for result in single]
        assert found.rows[row].deletion_area.mean == pytest.approx(np.mean(areas), rel=1e-5)


ABOVE, NEAR, BELOW = Estimate(0.2, 0.1, 0.3), Estimate(0.0, -0.1, 0.1), Estimate(-0.2, -0.3, -0.1)


def test_only_a_method_that_beats_random_in_both_tests_is_commended():
    area = Estimate(0.5, 0.4, 0.6)

    def summary(molecules=120, **gains):
        controls = {"uniform": (NEAR, NEAR), "random": (NEAR, NEAR)}
        rows = tuple(
            MethodFaithfulness(name, area, area, *both)
            for name, both in {**gains, **controls}.items()
        )
        return Faithfulness("logS", "", molecules, 0, rows, {"logS": molecules})

    found = summary(occlusion=(ABOVE, ABOVE), degree=(ABOVE, NEAR), attention=(BELOW, BELOW))
    assert "both tests): occlusion. Not passed: degree (better in deletion, no " in found.sentence
    assert "attention (worse in deletion, worse in insertion)" in found.sentence
    assert "Passed (" not in summary(attention=(NEAR, NEAR)).sentence
    assert "too few for a verdict" in summary(2, occlusion=(ABOVE, ABOVE)).sentence


def test_the_average_atom_is_counted(linear):
    table = open_table(bundled_dataset())
    column = table.column("smiles", "smiles")
    records = [linear.featurize(row.cells[column]) for row in table]
    expected = np.concatenate([record.atoms for record in records])
    elements = linear.config.featurizer.atom_sizes[0]
    found = average_atom(linear.config.featurizer)
    counts = np.bincount(expected[:, 0], minlength=elements)
    np.testing.assert_allclose(found[:elements], counts / len(expected))
    assert found.sum() == pytest.approx(expected.shape[1])
