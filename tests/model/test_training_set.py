from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
from scipy.stats import percentileofscore

from molattn.api import train
from molattn.chem.fingerprint_index import FingerprintIndex, read_fingerprints
from molattn.errors import InputError
from molattn.model.artefact import LABELS_FILE, MOLECULES_FILE, ModelFiles
from molattn.model.model import MolAttn
from molattn.model.training_set import (
    LabelDistribution,
    TrainingMolecules,
    TrainingSet,
    percentile,
)
from molattn.task import Task

TASKS = (Task("y"), Task("b", "binary", ("no", "yes")))
SMILES = ["CCO", "OCC", "CCN", "c1ccccc1", "CCCC"]
TARGETS = np.array([[1.0, 0.0], [2.0, np.nan], [np.nan, 1.0], [4.0, 1.0], [5.0, 0.0]])
PRINTS = read_fingerprints(SMILES)
KNOWN = FingerprintIndex.from_fingerprints(PRINTS[:4])  # the last is a validation row
FILE = Path("molecules")


def molecules():
    return TrainingMolecules.of(np.arange(5) + 2, SMILES, TARGETS, PRINTS, KNOWN)


def test_percentiles_are_those_of_scipy():
    labels = np.random.default_rng(0).normal(size=5000)
    found = LabelDistribution.of(Task("y"), np.append(labels, np.nan))
    assert found.count == 5000
    assert (found.quantiles[0], found.quantiles[-1]) == (labels.min(), labels.max())
    for value in (-9.0, -1.3, 0.0, 0.4, 2.0, 9.0):
        assert percentile(value, found.quantiles) == pytest.approx(
            percentileofscore(labels, value), abs=0.3
        )


def test_percentiles_of_few_and_equal_labels():
    assert LabelDistribution.of(Task("y"), np.full(3, np.nan)) == LabelDistribution(0)
    assert percentile(1.0, ()) is None
    constant = LabelDistribution.of(Task("y"), np.full(3, 2.0))
    assert [percentile(value, constant.quantiles) for value in (1.0, 2.0, 3.0)] == [
        0.0,
        50.0,
        100.0,
    ]
    half = LabelDistribution.of(Task("y"), np.repeat([0.0, 1.0], 500))
    assert percentile(0.0, half.quantiles) == pytest.approx(25.0, abs=1.0)
    assert percentile(1.0, half.quantiles) == pytest.approx(75.0, abs=1.0)


@pytest.mark.parametrize(
    "low, high, expected",
    [(95.0, 3.0, True), (100.0, np.nan, False), (140.0, 3.0, False), (np.nan, 0.0, False)],
)
def test_censored_labels_may_be_beyond_0_and_100_percent(low, high, expected):
    percent, targets = Task("y", unit="%"), np.array([[0.0], [100.0], [np.nan], [np.nan]])
    bounds = np.full((2, 4, 1), np.nan)
    bounds[0, 2], bounds[1, 3] = low, high
    made = TrainingSet.of([percent], targets, bounds=bounds)
    read = TrainingSet.from_files(
        ModelFiles(Path("m"), made.to_files([percent]), None), [percent], None
    )
    assert read == made
    assert read.are_shares(percent, 0) == expected
    assert TrainingSet.of([percent], targets).are_shares(percent, 0)


def test_labels_of_classes_are_counted():
    found = LabelDistribution.of(TASKS[1], TARGETS[:, 1])
    assert (found.count, found.classes, found.quantiles) == (4, (2, 2), ())


def test_the_nearest_training_molecules_come_with_their_labels():
    near, other = molecules().nearest(["CCO", "c1ccccc1"], 3, KNOWN, TASKS)
    # Two rows of one molecule; the row that is no training row is not found.
    assert [(one.row, one.smiles, one.similarity) for one in near[:2]] == [
        (2, "CCO", 1.0),
        (3, "OCC", 1.0),
    ]
    assert [one.labels for one in near[:2]] == [{"y": 1.0, "b": "no"}, {"y": 2.0, "b": None}]
    assert near[2].smiles == "CCN"
    assert (other[0].smiles, other[0].labels) == ("c1ccccc1", {"y": 4.0, "b": "yes"})
    assert len(molecules().nearest(["CCO"], 100, KNOWN, TASKS)[0]) == 4


def test_molecules_come_back_as_they_were():
    again = TrainingMolecules.from_bytes(molecules().to_bytes(), FILE, KNOWN, TASKS)
    assert again.to_bytes() == molecules().to_bytes()
    assert again.nearest(["CCO"], 4, KNOWN, TASKS) == molecules().nearest(["CCO"], 4, KNOWN, TASKS)


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("rows", None, "missing array 'rows'"),
        ("rows", np.arange(4), "array 'targets'"),
        ("targets", TARGETS[:, :1], "array 'targets'"),
        ("targets", TARGETS + 0.5, "labels that do not fit the tasks"),
        ("targets", np.where(TARGETS > 4.0, np.inf, TARGETS), "labels that do not fit the tasks"),
        ("places", np.arange(5, dtype=np.int32), "fingerprints that the model does not have"),
        ("smiles", np.frombuffer(b"[1, 2, 3, 4, 5]", np.uint8), "expected the SMILES"),
        ("smiles", np.frombuffer(b"{", np.uint8), "expected the SMILES"),
    ],
)
def test_a_file_of_something_else_is_refused(name, value, message):
    tensors = safetensors.numpy.load(molecules().to_bytes())
    del tensors[name]
    if value is not None:
        tensors[name] = value
    with (
        np.errstate(invalid="ignore"),
        pytest.raises(InputError, match=f"^molecules: {message}"),
    ):
        TrainingMolecules.from_bytes(safetensors.numpy.save(tensors), FILE, KNOWN, TASKS)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"y": 3, "b": {"count": 4, "classes": [2, 2]}}',
        '{"y": {"count": 1}, "b": {"count": 4, "classes": [2, 2]}}',
        '{"y": {"count": 0}, "b": {"count": 4, "classes": [2]}}',
        '{"y": {"count": 0, "below": "1"}, "b": {"count": 4, "classes": [2, 2]}}',
    ],
)
def test_labels_of_something_else_are_refused(text):
    files = ModelFiles(Path("m"), {LABELS_FILE: text.encode()}, None)
    with pytest.raises(InputError, match=LABELS_FILE):
        TrainingSet.from_files(files, TASKS, KNOWN)


@pytest.mark.parametrize("keep", [False, True])
def test_a_trained_model_keeps_its_training_set(tmp_path, keep):
    table = {
        "smiles": ["C" * n + end for n in range(1, 11) for end in ("O", "N", "F", "Cl")],
        "y": [float(n) for n in range(40)],
    }
    options = {"epochs": 1, "width": 8, "heads": 2, "layers": 1, "edge_width": 4}
    trained = train(
        pd.DataFrame(table),
        "y",
        keep_training_molecules=keep,
        init_from="none",
        baselines=False,
        **options,
    )
    trained.model.save_pretrained(tmp_path)
    assert (tmp_path / MOLECULES_FILE).exists() == keep
    model = MolAttn.from_pretrained(tmp_path)
    (labels,) = model.training_set.labels
    assert labels.count == 36  # the training and validation rows
    assert 0.0 <= labels.quantiles[0] < labels.quantiles[-1] <= 39.0
    if not keep:
        with pytest.raises(InputError, match="train with keep_training_molecules"):
            model.nearest(["CCO"])
        return
    (near,) = model.nearest(["CCCCO"], 2)
    assert near == trained.model.nearest(["CCCCO"], 2)[0]
    for one in near:
        assert one.labels == {"y": table["y"][table["smiles"].index(one.smiles)]}
        assert one.similarity == FingerprintIndex.from_fingerprints(
            read_fingerprints([one.smiles])
        ).similarity(["CCCCO"])
    with pytest.raises(InputError, match="count: got 0, expected a whole number of at least 1"):
        model.nearest(["CCO"], 0)
    # Other fingerprints have other places.
    model.calibrate(table["smiles"], np.array(table["y"])[:, None], ["C", "CC"])
    with pytest.raises(InputError, match="keeps no training molecules"):
        model.nearest(["CCO"])
