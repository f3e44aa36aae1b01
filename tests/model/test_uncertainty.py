import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from molattn.chem.fingerprint_index import FingerprintIndex, read_fingerprints
from molattn.config import NetworkConfig, PredictConfig
from molattn.evaluation.scores.scoring import score_uncertainty
from molattn.inference.predict import predict_table
from molattn.model.columns import cell_text
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.target_transform import IdentityTransform, LogTransform, YeoJohnsonTransform
from molattn.model.training_set import TrainingSet
from molattn.model.uncertainty import Uncertainty
from molattn.task import Task

from ..conftest import rows_of

SMALL = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
TASKS = (Task("y"), Task("b", "binary", ("no", "yes")), Task("c", "multiclass", ("u", "v", "w")))
KNOWN = ["CCO", "CCC", "c1ccccc1"]
HELD_OUT = ["C" * n + end for n in range(1, 21) for end in ("O", "N")]
NEW = ["CCO", "CCF", "c1ccncc1"]


def make(seed, members=1):
    torch.manual_seed(seed)
    config = MolAttnConfig(TASKS, SMALL, members=members)
    return MolAttn(config).eval()


def labels():
    rng = np.random.default_rng(0)
    return np.column_stack([rng.normal(size=40), rng.integers(0, 2, 40), rng.integers(0, 3, 40)])


@pytest.fixture(scope="module")
def ensemble():
    model = make(0, members=3)
    model.calibrate(HELD_OUT, labels(), KNOWN)
    return model


@pytest.fixture(scope="module")
def folder(ensemble, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    ensemble.save_pretrained(folder)
    return folder


def test_intervals_hold_the_part_of_the_calibration_rows_that_was_asked_for(ensemble):
    for level, fewest in ((0.5, 21), (0.9, 37)):  # ceil(41 * level)
        low, high = ensemble.predict_interval(HELD_OUT, level)
        inside = (low[:, 0] <= labels()[:, 0]) & (labels()[:, 0] <= high[:, 0])
        assert abs(inside.sum() - fewest) <= 1  # an end is rounded
        assert np.isnan(low[:, 1:]).all()
    np.testing.assert_allclose((low + high)[:, 0] / 2, ensemble.predict(HELD_OUT)[:, 0])
    for wrong in (0.0, 1.0, 90.0, np.nan):
        with pytest.raises(ValueError, match="between 0 and 1"):
            ensemble.predict_interval(HELD_OUT, wrong)


def test_labels_without_a_logarithm_are_refused_by_a_model_of_logarithms():
    model = MolAttn(MolAttnConfig((Task("y"), Task("half-life")), SMALL)).eval()
    model.set_target_scaling([0.0, 0.0], [1.0, 1.0], (IdentityTransform(), LogTransform()))
    targets = np.column_stack([np.linspace(-1, 1, 40), np.linspace(1, 2, 40)])
    for bad in (0.0, -2.5):
        targets[7, 1] = bad
        with pytest.raises(ValueError, match=f"targets: got {bad:g}.*'half-life'"):
            model.calibrate(HELD_OUT, targets, KNOWN)
        assert model.uncertainty is None
    targets[7, 1] = np.nan
    model.calibrate(HELD_OUT, targets, KNOWN)
    low, high = model.predict_interval(NEW, 0.5)
    assert (low[:, 1] > 0.0).all()
    assert np.isfinite(high).all()


def test_predictions_come_with_intervals_spread_and_similarity(ensemble, folder, tmp_path):
    source, output = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text("smiles\n" + "\nnonsense\n".join(NEW) + "\n")
    predict_table(folder, source, output, PredictConfig(interval=0.8, batch_size=2))
    rows = rows_of(output)
    assert list(rows[0]) == [
        *("smiles", "y_predicted", "y_low", "y_high", "y_std", "y_confidence", "y_expected_error"),
        *("b_predicted", "b_probability_yes", "b_std", "b_confidence", "b_expected_error"),
        *("c_predicted", "c_probability_u", "c_probability_v", "c_probability_w", "c_std"),
        *("c_confidence", "c_expected_error"),
        *("training_similarity", "error"),
    ]
    assert set(rows[1].values()) - {"nonsense", rows[1]["error"]} == {""}
    members, after = ensemble.predict(NEW, members=True), ensemble.predict(NEW)
    low, high = ensemble.predict_interval(NEW, 0.8)
    grades, errors = ensemble.predict_confidence(NEW)
    likeliest = 2 + after[:, 2:].argmax(axis=1)
    for row, place in zip(rows[::2], range(3), strict=True):
        expected = {
            "y_low": low[place, 0],
            "y_high": high[place, 0],
            "y_std": members[:, place, 0].std(ddof=1),
            "b_probability_yes": after[place, 1],
            "b_std": members[:, place, 1].std(ddof=1),
            "c_std": members[:, place, likeliest[place]].std(ddof=1),
            "c_expected_error": errors[place, 2],
            "training_similarity": ensemble.training_similarity(NEW)[place],
        }
        for name, value in expected.items():
            assert float(row[name]) == pytest.approx(value, rel=1e-4, abs=1e-6)
        assert [row[f"{task.name}_confidence"] for task in TASKS] == [*grades[place]]
    predict_table(folder, source, tmp_path / "out.parquet", PredictConfig(interval=0.8))
    written = pq.read_table(tmp_path / "out.parquet")
    assert written.schema.field("y_low").type == pa.float64()
    assert written.schema.field("training_similarity").type == pa.float64()
    assert written.schema.field("c_predicted").type == pa.string()
    assert written["y_low"].to_pylist()[1] is None
    assert written["y_high"].to_pylist()[0] == pytest.approx(high[0, 0], rel=1e-5)


def test_missing_labels_count_in_the_similarity_of_a_task(tmp_path):
    model = MolAttn(MolAttnConfig(("y", "z"), SMALL)).eval()
    prints = read_fingerprints([*KNOWN, *HELD_OUT])
    labeled = np.array([[True, False], [True, True], [False, True]])
    known = FingerprintIndex.from_fingerprints(prints[:3], labeled=labeled)
    outputs = model.predictor.predict_outputs([model.featurize(text) for text in HELD_OUT])
    targets = np.random.default_rng(0).normal(size=(40, 2))
    model.uncertainty = Uncertainty.fit(
        model.config, known, prints[3:], outputs, targets, [1.0, 1.0]
    )
    model.save_pretrained(tmp_path)
    (tmp_path / "in.csv").write_text("smiles\n" + "\n".join(NEW) + "\n")
    predict_table(tmp_path, tmp_path / "in.csv", tmp_path / "out.csv")
    rows = rows_of(tmp_path / "out.csv")
    assert list(rows[0]) == [
        *("smiles", "y_predicted", "y_low", "y_high"),
        *("y_confidence", "y_expected_error", "y_training_similarity"),
        *("z_predicted", "z_low", "z_high"),
        *("z_confidence", "z_expected_error", "z_training_similarity"),
        *("training_similarity", "error"),
    ]
    near = model.uncertainty.calibration.near
    for task, own, at_one in (("y", KNOWN[:2], near[0]), ("z", KNOWN[1:], near[1])):
        similarity = FingerprintIndex.from_fingerprints(read_fingerprints(own)).similarity(NEW)
        for row, value in zip(rows, similarity, strict=True):
            assert float(row[f"{task}_training_similarity"]) == pytest.approx(value)
        # Intervals are as wide as the similarity to molecules with a label of the task says.
        widths = [float(row[f"{task}_high"]) - float(row[f"{task}_low"]) for row in rows]
        assert widths / at_one**similarity == pytest.approx(
            [widths[0]] * 3 / at_one ** similarity[0], rel=1e-5
        )
    assert [float(row["training_similarity"]) for row in rows] == pytest.approx(
        FingerprintIndex.from_fingerprints(read_fingerprints(KNOWN)).similarity(NEW)
    )


@pytest.mark.parametrize(
    "number, text",
    [
        (-0.0, "0"),
        (0.12345678901, "0.1234568"),
        (999.123456789, "999.1235"),
        (10064.20358838198, "10064.204"),
        (-1234567.891234567, "-1234567.891"),
        (1e9 + 0.0123, "1000000000.012"),
        (1.5e30, "1.5e+30"),
    ],
)
def test_a_number_in_a_text_table_has_seven_digits_or_three_decimals(number, text):
    assert cell_text(number) == text


@pytest.mark.parametrize("transform", [IdentityTransform(), YeoJohnsonTransform(0.5, 50.0, 20.0)])
@pytest.mark.parametrize("calibrated", [False, True])
def test_predictions_in_percent_end_where_their_intervals_do(transform, calibrated):
    torch.manual_seed(0)
    model = MolAttn(MolAttnConfig((Task("bound", unit="%"),), SMALL)).eval()
    mean = transform.forward(torch.tensor(100.0)).item() - 0.25
    model.set_target_scaling([mean], [1.0], [transform])
    free = model.predict(NEW)
    assert (free > 100).any()
    assert (free < 100).any()
    targets = np.linspace(90.0, 100.0, len(HELD_OUT))[:, None]
    if calibrated:
        model.calibrate(HELD_OUT, targets, HELD_OUT)
    model.training_set = TrainingSet.of(model.config.tasks, targets)
    np.testing.assert_array_equal(model.predict(NEW), np.minimum(free, 100))
    np.testing.assert_array_equal(model.predict(NEW, members=True)[0], np.minimum(free, 100))
    if calibrated:
        low, high = model.predict_interval(NEW, 0.5)
        assert (high <= 100).all()
        assert (low <= model.predict(NEW)).all()
        assert (model.predict_confidence(NEW)[1] > 0).all()


@pytest.mark.parametrize(
    "unit, largest, ends", [("%", 100.0, True), ("%", 101.0, False), ("mg", 100.0, False)]
)
def test_intervals_of_percent_end_where_percent_do(unit, largest, ends):
    torch.manual_seed(0)
    config = MolAttnConfig((Task("bound", unit=unit),), SMALL)
    model = MolAttn(config).eval()
    targets = np.random.default_rng(0).uniform(0, 100, (len(HELD_OUT), 1))
    targets[0], targets[1] = 0.0, largest
    model.calibrate(HELD_OUT, targets, HELD_OUT)  # so that the intervals of others are wide
    free = model.predict_interval(NEW, 0.97)
    assert (free[0] < 0).all()
    assert (free[1] > 100).any()
    model.training_set = TrainingSet.of(config.tasks, targets)
    low, high = model.predict_interval(NEW, 0.97)
    value = model.predict(NEW)
    assert ((low <= value) & (value <= high)).all()
    if ends:
        np.testing.assert_array_equal(low, np.maximum(free[0], 0))
        np.testing.assert_array_equal(high, np.minimum(free[1], 100))
        labels = np.full_like(value, 50.0)
        records = model.networks.read(NEW, fingerprint=True)
        outputs = model.predictor.predict_outputs(records)
        found = model.predictor.prediction(outputs, records, 0.97)
        scores = score_uncertainty(model, found, outputs, labels, 0.97)["bound"]
        assert scores["mean_width"] == pytest.approx((high - low).mean())
        assert (model.predict_interval(NEW, level=0.99)[1] == np.inf).all()
    else:
        np.testing.assert_array_equal([low, high], free)


def test_a_model_that_was_changed_is_not_calibrated(ensemble, folder):
    assert MolAttn.ensemble([ensemble, ensemble]).uncertainty is None
    model = MolAttn.from_pretrained(folder)
    assert model.training_similarity(["CCO"]) == [1.0]
    model.set_target_scaling([1.0, 0.0, 0.0], [2.0, 1.0, 1.0])
    for ask in (model.predict_interval, model.training_similarity):
        with pytest.raises(ValueError, match="not calibrated"):
            ask(NEW)


@pytest.mark.parametrize("column, label", [(0, np.inf), (1, 0.5), (2, 3.0)])
def test_labels_that_do_not_fit_the_tasks_are_refused(column, label):
    targets = labels()
    with pytest.raises(ValueError, match="targets"):
        make(0).calibrate(HELD_OUT, targets[:, :2], KNOWN)
    targets[4, column] = label
    with pytest.raises(ValueError, match="targets"):
        make(0).calibrate(HELD_OUT, targets, KNOWN)
