import numpy as np
import pandas as pd
import pytest
from scipy.stats import percentileofscore

from molattn.api import train
from molattn.chem.fingerprint_index import FingerprintIndex, read_fingerprints
from molattn.model.artefact import MOLECULES_FILE
from molattn.model.model import MolAttn
from molattn.model.training_set import LabelDistribution, TrainingMolecules, TrainingSet, percentile
from molattn.task import Task

TASKS = (Task("y"), Task("b", "binary", ("no", "yes")))
SMILES = ["CCO", "OCC", "CCN", "c1ccccc1", "CCCC"]
TARGETS = np.array([[1.0, 0.0], [2.0, np.nan], [np.nan, 1.0], [4.0, 1.0], [5.0, 0.0]])
PRINTS = read_fingerprints(SMILES)


def test_percentiles_are_those_of_scipy():
    labels = np.random.default_rng(0).normal(size=5000)
    found = LabelDistribution.of(Task("y"), np.append(labels, np.nan))
    assert found.count == 5000
    assert (found.quantiles[0], found.quantiles[-1]) == (labels.min(), labels.max())
    for value in (-9.0, -1.3, 0.0, 0.4, 2.0, 9.0):
        expected = percentileofscore(labels, value)
        assert percentile(value, found.quantiles) == pytest.approx(expected, abs=0.3)


def test_percentiles_of_few_and_equal_labels():
    assert LabelDistribution.of(Task("y"), np.full(3, np.nan)) == LabelDistribution(0)
    assert percentile(1.0, ()) is None
    equal = LabelDistribution.of(Task("y"), np.ones(4)).quantiles
    assert [percentile(value, equal) for value in (0.0, 1.0, 2.0)] == [0.0, 50.0, 100.0]
    classes = LabelDistribution.of(TASKS[1], TARGETS[:, 1])
    assert (classes.count, classes.classes, classes.quantiles) == (4, (2, 2), ())


@pytest.mark.parametrize(
    "low, high, expected",
    [(95.0, 3.0, True), (100.0, np.nan, False), (140.0, 3.0, False), (np.nan, 0.0, False)],
)
def test_censored_labels_may_be_beyond_0_and_100_percent(low, high, expected):
    percent, targets = Task("y", unit="%"), np.array([[0.0], [100.0], [np.nan], [np.nan]])
    bounds = np.full((2, 4, 1), np.nan)
    bounds[0, 2], bounds[1, 3] = low, high
    assert TrainingSet.of([percent], targets, bounds=bounds).is_percentage(percent, 0) == expected
    assert TrainingSet.of([percent], targets).is_percentage(percent, 0)


def test_the_nearest_training_molecules_come_with_their_labels():
    known = FingerprintIndex.from_fingerprints(PRINTS[:4])  # the last is a validation row
    molecules = TrainingMolecules.of(np.arange(5) + 2, SMILES, TARGETS, PRINTS, known)
    near, other = molecules.nearest(["CCO", "c1ccccc1"], 3, known, TASKS)
    # Two rows of one molecule; the row that is no training row is not found.
    assert [one[:3] for one in near[:2]] == [(2, "CCO", 1.0), (3, "OCC", 1.0)]
    assert [one.labels for one in near[:2]] == [{"y": 1.0, "b": "no"}, {"y": 2.0, "b": None}]
    assert near[2].smiles == "CCN"
    assert (other[0].smiles, other[0].labels) == ("c1ccccc1", {"y": 4.0, "b": "yes"})
    assert len(molecules.nearest(["CCO"], 100, known, TASKS)[0]) == 4


@pytest.mark.parametrize("keep", [False, True])
def test_a_trained_model_keeps_its_training_set(tmp_path, keep):
    table = {
        "smiles": ["C" * n + end for n in range(1, 11) for end in ("O", "N", "F", "Cl")],
        "y": [float(n) for n in range(40)],
    }
    options = {"epochs": 1, "width": 8, "heads": 2, "layers": 1, "edge_width": 4}
    options |= {"init_from": "none", "baselines": False, "keep_training_molecules": keep}
    model = train(pd.DataFrame(table), "y", **options).model
    (labels,) = model.training_set.labels
    assert labels.count == 36  # the training and validation rows
    assert 0.0 <= labels.quantiles[0] < labels.quantiles[-1] <= 39.0
    model.save_pretrained(tmp_path)
    assert (tmp_path / MOLECULES_FILE).exists() == keep
    if keep:
        (near,) = MolAttn.from_pretrained(tmp_path).nearest(["CCCCO"], 2)
        assert near == model.nearest(["CCCCO"], 2)[0]
        assert near[0].labels == {"y": table["y"][table["smiles"].index(near[0].smiles)]}
        with pytest.raises(ValueError, match="count"):
            model.nearest(["CCO"], 0)
        # Other fingerprints have other places.
        model.calibrate(table["smiles"], np.array(table["y"])[:, None], ["C", "CC"])
    with pytest.raises(ValueError, match="keep_training_molecules"):
        model.nearest(["CCO"])
