"""Synthetic data whose functional groups are known, and how well methods find their atoms."""

import importlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from molattn import InputError
from molattn.chem import parse_smiles
from molattn.explain import METHODS, Method, Scores

from ..explain.conftest import SMALL, SumOfPairs, make

SIGNED = ("integrated_gradients", "occlusion")


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[2] / "scripts")
        yield importlib.import_module("ground_truth")


def test_ground_truth_atoms_are_found_where_the_model_is_the_rule(script):
    # A model in which an atom counts by its hydrogens, if it is an oxygen: of alcohols, the group.
    dataset = script.synthetic_dataset("hydroxyls", ["CCO", "OCCO", "CC", "C=O", "O"])
    assert dataset.targets.tolist() == [1, 2, 0, 0, 0]
    network = replace(SMALL, readout="sum", edge_width=16)
    model = make(tasks=("hydroxyls",), network=network)
    net = model.nets[0]
    net.encoder = SumOfPairs()
    net.head = nn.Linear(16, 1)
    net.pair_embedding.weight.data.zero_()
    net.atom_embedding.weight.data.zero_()
    code = model.config.featurizer.atom_columns[0].code(8)
    net.atom_embedding.weight.data[code, 0] = 1.0
    net.head.weight.data.fill_(1.0)
    for row in script.ground_truth_auroc(model, dataset, SIGNED):
        assert row.molecules == 2
        assert row.auroc.mean == (0.5 if row.method == "uniform" else 1.0)
    net.head.weight.data.zero_()
    scores = script.ground_truth_auroc(model, dataset, SIGNED)
    assert {row.auroc.mean for row in scores} == {0.5}


def test_a_registered_method_is_compared_with_the_others(script, monkeypatch):
    def degree(instance, options):
        degrees = [float(atom.GetDegree()) for atom in instance.mol.GetAtoms()]
        return Scores(np.array(degrees), np.full(len(instance.bonds), 0.5))

    method = Method(degree, signed=False, summary="number of neighbors")
    monkeypatch.setitem(METHODS._items, "degree", method)
    dataset = script.synthetic_dataset("hydroxyls", ["CCO", "CC"])
    found = script.ground_truth_auroc(make(tasks=("hydroxyls",)), dataset)
    scores = {row.method: row.auroc.mean for row in found}
    assert scores["degree"] == 0.25  # the oxygen has one neighbor, as has one of the two carbons
    assert [*scores] == [*METHODS, "uniform"]


def test_synthetic_data_is_a_table_to_train_on(script, tmp_path):
    dataset = script.synthetic_dataset("amides")
    assert dataset.smarts == "[NX3][CX3]=[OX1]"
    test = dataset.subset("test")
    assert 200 < len(test.smiles) < 300
    dataset.to_csv(tmp_path / "amides.csv")
    lines = (tmp_path / "amides.csv").read_text().splitlines()
    assert lines[0] == "smiles,amides,split,ground_truth_atoms"
    assert len(lines) == len(dataset.smiles) + 1
    for smiles, count, mask in zip(
        dataset.smiles, dataset.targets, dataset.ground_truth, strict=True
    ):
        assert (count > 0) == mask.any()
        assert len(mask) == parse_smiles(smiles).GetNumAtoms()
    alcohols = script.synthetic_dataset("hydroxyls", ["CCO", "CC", "OCCO"])
    assert alcohols.targets.tolist() == [1, 0, 2]
    assert alcohols.ground_truth[0].tolist() == [False, False, True]
    assert script.synthetic_dataset("[Cl]", ["CCl", "C"]).targets.tolist() == [1, 0]
    with pytest.raises(InputError, match="group: got 'widgets'"):
        script.synthetic_dataset("widgets")
    with pytest.raises(InputError, match="equally often in every molecule"):
        script.synthetic_dataset("[Cl]", ["C", "CC"])


def test_auroc_is_the_share_of_pairs_in_the_right_order(script):
    scores, known = np.array([-3.0, 1.0, 2.0, 0.5]), np.array([True, False, False, True])
    assert script.atom_auroc(scores, known) == 0.5
    assert script.atom_auroc(np.array([1.0, 1.0 + 1e-12]), known[:2]) == 0.5
