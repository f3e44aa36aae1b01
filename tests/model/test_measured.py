from dataclasses import replace

import numpy as np
import pytest
import torch

from molattn.chem.fingerprint_index import read_fingerprints
from molattn.config import NetworkConfig, PredictConfig
from molattn.inference import predict_table
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.readable import readable_values
from molattn.model.target_transform import IdentityTransform, LogTransform
from molattn.model.training_set import TrainingMolecules, TrainingSet
from molattn.task import Task

from ..conftest import rows_of, saved

SMALL = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
TASKS = (Task("y", unit="mg"), Task("toxic", "binary", ("no", "yes")))
ALANINE = "C[C@H](N)C(=O)O"
NAN = np.nan
TRAINING = {
    "CCO": [1.0, 0],
    "OCC": [100.0, 1],
    ALANINE: [NAN, 0],
    "CC(N)C(=O)O": [5.0, 1],
    "CC(=O)[O-].[Na+]": [7.0, NAN],
    "C[N+](=O)[O-]": [3.0, 0],
    "[Na+].[Cl-]": [9.0, 0],
}
OTHERS = ["C" * n for n in range(1, 31)]


def keeping(standardize=False, **options):
    """A calibrated model that keeps the molecules of TRAINING."""
    torch.manual_seed(0)
    config = MolAttnConfig(TASKS, SMALL, standardize=standardize, **options)
    transforms = LogTransform(), IdentityTransform()
    model = MolAttn(replace(config, target_transforms=transforms)).eval()
    inputs = {"features": np.ones((30, 1))} if "features" in options else {}
    labels = [[1.0 + n / 30, n % 2] for n in range(30)]
    prints = read_fingerprints([*TRAINING])
    model.calibrate(OTHERS, labels, prints, **inputs)
    targets = np.array([*TRAINING.values()], float)
    rows = np.arange(len(prints)), [*TRAINING], targets, prints
    molecules = TrainingMolecules.of(*rows, model.uncertainty.fingerprints)
    model.training_set = TrainingSet.of(TASKS, targets, molecules)
    return model


@pytest.fixture(scope="module")
def model():
    return keeping()


@pytest.mark.parametrize(
    "smiles, labels",
    [
        ("C(O)C", [10.0, "no / yes"]),  # both rows, on the scale that is learned
        (ALANINE, [5.0, "no"]),  # its own label, or else that of the molecule without stereo
        ("C[C@@H](N)C(=O)O", [5.0, "yes"]),
        ("CC(N)C(=O)O", [5.0, "yes"]),
        ("[Na+].CC([O-])=O", [7.0, None]),
        ("CC(=O)O", [None, None]),
        ("C[N+]([O-])=O", [3.0, "no"]),
        ("CCCCCO", [None, None]),
    ],
)
def test_the_labels_of_a_training_molecule_are_found(model, smiles, labels):
    (measured,) = model.measured([smiles])
    assert [*measured] == ["y", "toxic"]
    assert [*measured.values()] == [pytest.approx(labels[0]), labels[1]]


def test_labels_of_stereoisomers_are_remarked_and_no_labels_of_the_molecule(tmp_path):
    model = keeping()
    chloride = "C[C@H](Cl)O"
    prints = read_fingerprints([chloride, chloride, "C[C@@H](Br)O"])
    rows = np.arange(3), [chloride, chloride, "C[C@@H](Br)O"]
    targets = np.array([[2.0, NAN], [8.0, 0], [NAN, 1]])
    model.calibrate(OTHERS, np.ones((30, 2)), prints)
    molecules = TrainingMolecules.of(*rows, targets, prints, model.uncertainty.fingerprints)
    model.training_set = TrainingSet.of(TASKS, targets, molecules)
    asked = ["C[C@@H](Cl)O", "CC(Cl)O", chloride, "C[C@H](Br)O", "CC(I)O"]
    assert [*model.measured(asked[:1])[0].values()] == [None, None]
    table = predicted(model, tmp_path, "smiles\n" + "\n".join(asked) + "\n", interval=0.99)
    assert [row["y_measured"] for row in table] == ["", "", "4", "", ""]
    isomer = "measured of a stereoisomer: "
    texts = [row["measured_remark"] for row in table]
    assert texts[0] == texts[1] == f"y: {isomer}4.00; toxic: {isomer}no"
    assert isomer not in texts[2]
    assert texts[3:] == [f"toxic: {isomer}yes", ""]
    values = readable_values(model.config, {}, [*table[0]], [*table[0].values()])
    assert [value.measured for value in values] == ["4.00 (stereoisomer)", "no (stereoisomer)"]


def test_a_model_that_reads_parents_merges_the_labels_of_parents_and_salts():
    model = keeping("parent")
    salt, acid = model.measured(["CC(=O)[O-].[K+]", "CC(=O)O"])
    assert salt == acid == {"y": 7.0, "toxic": None}
    assert model.as_given().measured(["CC(=O)O", "CC(=O)[O-].[Na+]"]) == [
        {"y": None, "toxic": None},
        {"y": 7.0, "toxic": None},
    ]


def test_a_task_of_molecules_as_written_has_the_labels_of_this_form_alone():
    model = keeping("parent", written_tasks=("y",))
    molecules = model.measured(["CC(=O)[O-].[Na+]", "CC(=O)[O-].[K+]", "CC(=O)O", "OCC"])
    assert [one["y"] for one in molecules] == [7.0, None, None, pytest.approx(10.0)]
    assert molecules[3]["toxic"] == "no / yes"


def test_models_without_molecules_or_with_more_inputs_have_no_measured_labels(tmp_path):
    model = keeping(features=("pH",))
    with pytest.raises(ValueError, match="pH"):
        model.measured(["CCO"])
    assert "y_measured" not in predicted(model, tmp_path, "smiles,pH\nCCO,1\n")[0]
    model = keeping()
    model.calibrate(OTHERS, np.ones((30, 2)), OTHERS)
    with pytest.raises(ValueError, match="keep_training_molecules"):
        model.measured(["CCO"])
    assert "y_measured" not in predicted(model, tmp_path, "smiles\nCCO\n")[0]


def predicted(model, folder, text, **options):
    predict_table(model, saved(folder, text), folder / "out.csv", PredictConfig(**options))
    return rows_of(folder / "out.csv")


def test_labels_stand_beside_predictions_with_a_remark_where_they_contradict(model, tmp_path):
    text = "smiles,y_measured\n" + "".join(f"{smiles},2\n" for smiles in (*TRAINING, "CCCO", "C("))
    rows = predicted(model, tmp_path, text, interval=0.5)
    header = [*rows[0]]
    assert header.index("y_measured_") == header.index("y_high") + 1
    assert header.index("toxic_measured") == header.index("toxic_probability_yes") + 1
    labels = [[row["y_measured_"], row["toxic_measured"]] for row in rows]
    assert labels[0] == labels[1] == ["10", "no / yes"]
    assert labels[-2:] == [["", ""]] * 2
    for row in rows[:-2]:
        low, high = float(row["y_low"]), float(row["y_high"])
        is_outside = bool(row["y_measured_"]) and not low <= float(row["y_measured_"]) <= high
        assert ("y: measured" in row["measured_remark"]) == is_outside
        label = row["toxic_measured"]
        is_other = label in ("no", "yes") and label != row["toxic_predicted"]
        assert (f"toxic: measured {label}, predicted" in row["measured_remark"]) == is_other
    assert rows[0]["measured_remark"].startswith("y: measured 10.0, outside of ")
    assert rows[0]["measured_remark"].endswith(f", confidence {rows[0]['y_confidence']}")
    frame = model.predict_frame(["CCO", "C("], level=0.5)
    assert frame["y, measured (mg)"].iloc[0] == pytest.approx(10.0)
    assert frame["Measured otherwise"].iloc[0] == rows[0]["measured_remark"]


def test_remark_on_another_property_is_not_taken_for_its_own():
    tasks = Task("S"), Task("logS")
    columns = ["S_predicted", "S_measured", "logS_predicted", "logS_measured", "measured_remark"]
    cells = ["1", "1", "2", "5", "logS: measured 5.00, outside of 1.00 to 3.00"]
    values = readable_values(MolAttnConfig(tasks), {}, columns, cells)
    assert [value.measured for value in values] == ["1.00", "5.00 (otherwise)"]


def test_expected_error_of_a_logarithm_is_a_factor():
    config = MolAttnConfig(("x", "y"), target_transforms=(IdentityTransform(), LogTransform()))
    columns = ["predicted", "confidence", "expected_error", "confidence_reason"]
    columns = [f"{name}_{column}" for name in "xy" for column in columns]
    cells = ["2", "high", "1.5", "near", "2", "high", "1.5", "far"]  # half of 4 - 1
    values = readable_values(config, {}, columns, cells)
    assert [value.confidence for value in values] == ["high (±1.50)", "high (factor 2.00)"]
    assert [value.reason for value in values] == ["near", "far"]
