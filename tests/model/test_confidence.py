import numpy as np
import pandas as pd
import pytest
import torch

import molattn
from molattn import MolAttn, MolAttnConfig
from molattn.chem.seen_atoms import SeenAtoms
from molattn.config import NetworkConfig, PredictConfig
from molattn.evaluation.scores.scoring import score_confidence
from molattn.inference.predict import predict_table
from molattn.model.confidence import expected_factor, grades, guess_error
from molattn.model.target_transform import IdentityTransform, LogTransform
from molattn.model.training_set import TrainingSet
from molattn.model.uncertainty import Calibration, ConformalScores, Prediction
from molattn.task import Task
from molattn.utils.console import three_digits

from ..conftest import rows_of

SMALL = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
TASKS = (Task("y"), Task("t"), Task("b", "binary", ("no", "yes")))
KNOWN = ["CCO", "CCC", "c1ccccc1"]
HELD_OUT = ["C" * n + end for n in range(1, 21) for end in ("O", "N")]
NEW = ["CCO", "CCCl", "c1ccncc1", "FC(F)F"]
DRUGS = {
    "aspirin": "CC(=O)Oc1ccccc1C(=O)O",
    "caffeine": "Cn1c(=O)c2c(ncn2C)n(C)c1=O",
    "ibuprofen": "CC(C)Cc1ccc(C(C)C(=O)O)cc1",
    "warfarin": "CC(=O)CC(c1ccccc1)c1c(O)c2ccccc2oc1=O",
    "propranolol": "CC(C)NCC(O)COc1cccc2ccccc12",
    "diazepam": "CN1C(=O)CN=C(c2ccccc2)c2cc(Cl)ccc21",
    "omeprazole": "COc1ccc2[nH]c(S(=O)Cc3ncc(C)c(OC)c3C)nc2c1",
    "fluoxetine": "CNCCC(Oc1ccc(C(F)(F)F)cc1)c1ccccc1",
    "ciprofloxacin": "O=C(O)c1cn(C2CC2)c2cc(N3CCNCC3)c(F)cc2c1=O",
    "paracetamol": "CC(=O)Nc1ccc(O)cc1",
    "diclofenac": "O=C(O)Cc1ccccc1Nc1c(Cl)cccc1Cl",
    "haloperidol": "O=C(CCCN1CCC(O)(c2ccc(Cl)cc2)CC1)c1ccc(F)cc1",
    "carbamazepine": "NC(=O)N1c2ccccc2C=Cc2ccccc21",
    "sildenafil": "CCCc1nn(C)c2c1nc([nH]c2=O)-c1cc(S(=O)(=O)N2CCN(C)CC2)ccc1OCC",
}
ODD = ["C[Hg]Cl", "C[As](C)C", "C1CC2CC1C3CC23"]


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = MolAttn(MolAttnConfig(TASKS, SMALL)).eval()
    model.set_target_scaling(
        [0, 0, 0], [2, 1, 1], (IdentityTransform(), LogTransform(), IdentityTransform())
    )
    return model


def labels():
    rng = np.random.default_rng(0)
    columns = rng.normal(size=40), np.exp(rng.normal(size=40)), rng.integers(0, 2, 40)
    return np.column_stack(columns).astype(float)


def test_expected_errors_follow_from_calibration_rows_and_end_at_the_error_of_a_guess(model):
    given = labels()
    model.training_set = TrainingSet.of(TASKS, given)
    model.calibrate(HELD_OUT, given, KNOWN)
    far, close = model.training_similarity(HELD_OUT), model.training_similarity(NEW)
    before, after = model.predict(HELD_OUT), model.predict(NEW)
    guess = np.abs(given[:, 0] - np.median(given[:, 0])).mean()
    near = model.uncertainty.calibration.near
    expected = np.mean(np.abs(given[:, 0] - before[:, 0]) / near[0] ** far) * near[0] ** close
    confidence, found = model.predict_confidence(NEW)
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-6)
    ratio = expected / guess
    wanted = np.where(ratio <= 1 / 3, "high", np.where(ratio <= 2 / 3, "medium", "low"))
    assert [*confidence[:, 0]] == [*wanted]
    # Of logarithms it is half the width of an interval in own units.
    factor = np.abs(np.log(given[:, 1] / before[:, 1])) / near[1] ** far
    np.testing.assert_allclose(
        found[:, 1], after[:, 1] * np.sinh(factor.mean() * near[1] ** close), rtol=1e-5
    )
    # A class is wrong at least as often as the best model is off by the error of a guess.
    rate = np.maximum(np.minimum(after[:, 2], 1 - after[:, 2]), 0.5 * (1 / 3) ** (close / 0.3))
    np.testing.assert_allclose(found[:, 2], rate, rtol=1e-6)


@pytest.mark.parametrize("size, at_zero", [(0.3, 1.0), (2.0, 2.0), (0.0, 1.0)])
def test_a_molecule_unlike_all_others_has_the_error_of_a_guess_and_is_never_high(size, at_zero):
    similarity = np.linspace(0.1, 0.9, 40)
    fitted = ConformalScores.fit(np.full(40, size), similarity, guess=1.0)
    calibration = Calibration((TASKS[0],), (fitted,))
    new = np.array([[0.0], [0.29], [1.0]])
    errors = calibration.expected_errors(np.zeros((3, 1)), new, np.ones(1))
    assert errors[0] == pytest.approx(at_zero)
    found = grades(errors, np.ones(1))[:, 0].tolist()
    assert found[0] == "low"
    assert found[1] != "high"
    assert found[2] == ("low" if size > 1 else "high")
    # Intervals widen by the same curve.
    half_widths = calibration.half_widths(new, 0.5)
    if 0 < size < 1:
        np.testing.assert_allclose(half_widths / half_widths[0], errors / errors[0], rtol=1e-6)


def test_each_confidence_says_what_it_rests_on_and_is_low_for_what_was_never_seen(model, tmp_path):
    model.calibrate(HELD_OUT, labels(), KNOWN)
    index = model.uncertainty.fingerprints
    index.set_errors(index.fingerprints, np.array([[1.0, np.nan, np.nan]] * 2 + [[4.0, 1.0, 0.0]]))
    records = model.networks.read(KNOWN)
    index.seen = SeenAtoms.of(records, np.ones((3, 3), dtype=bool), model.config.featurizer)
    smiles = ["CCC", "CC[Sn]"]
    reasons = model.explain_confidence(smiles)
    assert reasons[0][0].startswith("nearest 1.00; errors nearby ")
    assert reasons[0][0].endswith(" times the mean")
    assert reasons[0][2] == "nearest 1.00; expected error at least 0.01"
    values = model.predict(smiles)[:, 1]
    factors = expected_factor(model.predict_confidence(smiles)[1][:, 1], values)
    texts = [f"expected error a factor of {three_digits(factor)}" for factor in factors]
    assert reasons[0][1].endswith(f"; {texts[0]}")
    seen = "tin never seen"
    assert [text.partition("; ")[2] for text in reasons[1]] == [seen, f"{seen}; {texts[1]}", seen]
    confidence, errors = model.predict_confidence(smiles)
    assert (confidence[1] == "low").all()
    guess = model.predictor.guess_errors()
    assert errors[1, 2] == pytest.approx(guess[2])
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "new.csv").write_text("smiles\nCCC\nCC[Sn]\n")
    options = PredictConfig(explain_confidence=True)
    predict_table(tmp_path / "model", tmp_path / "new.csv", tmp_path / "out.csv", options)
    rows = rows_of(tmp_path / "out.csv")
    assert [[row[f"{task.name}_confidence_reason"] for task in TASKS] for row in rows] == reasons


def test_the_confidence_of_a_class_names_the_least_error_of_its_similarity(model):
    model.calibrate(HELD_OUT, labels(), KNOWN)
    reasons = model.explain_confidence(NEW)
    similarity = model.training_similarity(NEW)
    assert (similarity < 0.9).any()
    least = 0.5 * (1 / 3) ** (similarity / 0.3)
    assert [texts[2] for texts in reasons] == [
        f"nearest {value:.2f}; expected error at least {error:.2f}"
        for value, error in zip(similarity, least, strict=True)
    ]


def test_too_few_labels_give_no_confidence_and_say_so_once(model):
    given = labels()
    given[9:, 0] = given[29:, 2] = np.nan
    model.calibrate(HELD_OUT, given, KNOWN)
    found, errors = model.predict_confidence(NEW)
    assert (found[:, [0, 2]] == "").all()
    assert (found[:, 1] != "").all()
    assert [*np.isnan(errors).all(axis=0)] == [True, False, True]
    lines = model.uncertainty.calibration.shortfalls(0.5)
    assert [line.split(":")[0] for line in lines if "no confidence" in line] == ["'y'", "'b'"]


@pytest.mark.parametrize(
    "count, text",
    [
        (9, "calibrated on 9 labels: no confidence (at least 10 needed)"),
        (
            6,
            "calibrated on 6 labels: no 0.9 interval (at least 9 needed) and no confidence (at "
            "least 10 needed)",
        ),
        (10, "intervals calibrated on 10 labels (highest possible level 0.909)"),
    ],
)
def test_one_line_says_what_too_few_labels_do_not_calibrate(model, count, text):
    few = labels()
    few[count:, 0] = np.nan
    model.calibrate(HELD_OUT, few, KNOWN)
    lines = model.uncertainty.calibration.lines(0.9)
    assert [line for line in lines if line.startswith("'y':")] == [f"'y': {text}"]


def test_grades_are_thirds_of_the_error_of_a_guess():
    errors = np.array([[0.0, 0.16], [0.3, 0.17], [0.31, 0.34], [0.61, np.nan]])
    guesses = np.array([0.9, guess_error(TASKS[2], np.zeros(0), 1.0)])
    wanted = [["high", "high"], ["high", "medium"], ["medium", "low"], ["low", ""]]
    assert grades(errors, guesses).tolist() == wanted
    assert guess_error(Task("c", "multiclass", ("u", "v", "w")), np.zeros(0), 1.0) == pytest.approx(
        2 / 3
    )
    assert guess_error(Task("y"), np.array([0.0, 1.0, 5.0]), 1.0) == pytest.approx(5 / 3)
    normal = np.random.default_rng(0).normal(0, 3, 100_000)
    assert guess_error(Task("y"), np.zeros(0), 3.0) == pytest.approx(
        np.abs(normal).mean(), rel=0.02
    )


def test_errors_of_each_confidence_are_compared_with_the_expected_ones():
    nothing = np.full((4, 2), np.nan)
    prediction = Prediction(
        *(np.array([[1.0, 0.9], [2.0, 0.2], [3.0, 0.6], [4.0, 0.7]]), nothing, nothing, nothing),
        *(nothing[:, 0], nothing),
        confidence=np.array([["high", "high"], ["high", "high"], ["low", "low"], ["low", ""]]),
        expected_error=np.array([[0.1, 0.1], [0.3, 0.2], [0.8, 0.4], [0.9, 0.3]]),
        closeness=nothing,
    )
    targets = np.array([[1.5, 1], [2.0, 1], [5.0, np.nan], [np.nan, 1]])
    found = score_confidence((Task("y"), TASKS[2]), prediction, targets)
    assert found["y"]["high"] == {"count": 2, "error": 0.25, "expected_error": pytest.approx(0.2)}
    assert found["y"]["low"] == {"count": 1, "error": 2.0, "expected_error": pytest.approx(0.8)}
    assert found["b"] == {"high": {"count": 2, "error": 0.5, "expected_error": pytest.approx(0.15)}}


def test_common_drugs_are_mostly_not_low_and_odd_molecules_are_lower():
    admet = MolAttn.from_pretrained("admet")
    drugs = admet.predict_confidence([*DRUGS.values()])[0]
    for name, row in zip(DRUGS, drugs, strict=True):
        assert (row != "low").mean() > 0.6, name
    assert (drugs != "").all()
    odd = admet.predict_confidence(ODD)[0]
    assert (odd == "low").mean() > 2 * (drugs == "low").mean()


def test_intervals_of_probabilities_are_quantiles_of_a_sample_of_the_posterior(tmp_path):
    smiles = [head + "C" * n + end for n in range(1, 9) for head in "NC" for end in ("O", "F")]
    active = np.random.default_rng(0).random(len(smiles)) < np.repeat(np.linspace(0, 1, 8), 4)
    frame = pd.DataFrame({"smiles": smiles, "active": active.astype(int), "y": np.arange(32.0)})
    options = {"predictor": "gaussian_process", "validation_size": 0.4, "test_size": 0.0}
    model = molattn.train(frame, target_columns=["active", "y"], **options).model
    (tmp_path / "new.csv").write_text("smiles\n" + "\n".join(NEW))
    options = PredictConfig(explain_confidence=True, interval=0.8)
    predict_table(model, tmp_path / "new.csv", tmp_path / "out.csv", options)
    rows = pd.read_csv(tmp_path / "out.csv")
    assert not [name for name in rows if name.startswith("y_probability")]
    low, middle, high = (rows[f"active_probability{end}"] for end in ("_low", "", "_high"))

    process = model.gaussian_process
    _, inputs = model.networks.predict(model.networks.read([*smiles, *NEW]))
    learned = process.rows - 1
    kernel = process.kernel.at(inputs)(inputs).astype(np.float64)
    between = kernel[np.ix_(learned, learned)] + process.noises[0] * np.eye(len(learned))
    cross = kernel[learned, len(smiles) :]
    unknown = 1 - (cross * np.linalg.solve(between, cross)).sum(axis=0)
    scale = (1 - process.means[0] ** 2) / (1 + process.noises[0])
    mean = process.means[0] + cross.T @ process.weights[:, 0]
    shape = 100_000, len(NEW)
    latent = mean + np.sqrt(scale * unknown) * np.random.default_rng(0).normal(size=shape)
    platt = process.scalings[0]
    logits = (platt.scale * latent + platt.bias[1] - platt.bias[0]).ravel()
    outputs = np.column_stack([logits, np.zeros_like(logits)])
    sample = model.uncertainty.calibration.calibrated(outputs)[:, 0].reshape(shape)
    for column, quantile in ((low, 0.1), (middle, 0.5), (high, 0.9)):
        np.testing.assert_allclose(column, np.quantile(sample, quantile, axis=0), atol=0.01)
