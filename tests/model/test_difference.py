import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import molattn
from molattn import MolAttn, MolAttnConfig
from molattn.chem.fingerprint_index import FingerprintIndex, read_fingerprints
from molattn.cli import main
from molattn.config import NetworkConfig, PredictConfig
from molattn.errors import InputError
from molattn.inference import predict_table
from molattn.model.uncertainty import error_correlation

SMALL = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
CHAINS = [head + "C" * n + end for n in range(1, 11) for head in "NC" for end in ("O", "F", "Cl")]
ONES = ["CCCCBr", "NCCCS", "CCO"]
OTHERS = ["CCCCCBr", "NCCS", "c1ccccc1"]


@pytest.fixture(scope="module")
def with_process() -> MolAttn:
    """A model that predicts by a Gaussian process: a number, a logarithm, a class."""
    rng = np.random.default_rng(0)
    sizes = np.array([len(one) + one.count("N") for one in CHAINS]) + rng.normal(size=len(CHAINS))
    values = {"number": sizes, "amount": np.exp(0.6 * sizes), "long": (sizes > 7).astype(int)}
    frame = pd.DataFrame({"smiles": CHAINS, **values})
    options = {"predictor": "gaussian_process", "validation_size": 0.4, "test_size": 0.0}
    options |= {"target_transform": ["none", "log", "none"], "descriptors": "none"}
    return molattn.train(frame, target_columns=[*values], **options).model


@pytest.fixture(scope="module")
def of_networks() -> MolAttn:
    """A model without a Gaussian process, whose errors of similar molecules are alike."""
    model = MolAttn(MolAttnConfig(("y",), SMALL)).eval()
    model.calibrate(CHAINS, np.random.default_rng(0).normal(size=(len(CHAINS), 1)), CHAINS[:20])
    model.uncertainty = with_correlation(model, 0.8)
    return model


def with_correlation(model, correlation):
    uncertainty = model.uncertainty
    parts = [*uncertainty.calibration.parts]
    parts[:2] = [replace(scores, correlation=correlation) for scores in parts[:2]]
    parts = tuple(parts)
    return replace(uncertainty, calibration=replace(uncertainty.calibration, parts=parts))


@pytest.mark.parametrize("name", ["with_process", "of_networks"])
def test_a_molecule_differs_from_itself_by_exactly_nothing(name, request):
    model = request.getfixturevalue(name)
    difference, low, high = model.predict_difference(["CCCCO", "C1CC1"], ["OCCCC", "C1CC1"])
    is_log = np.array([one.kind == "log" for one in model.config.target_transforms])
    is_number = np.array([not task.classes for task in model.config.tasks])
    for values in (difference, low[:, is_number], high[:, is_number]):
        np.testing.assert_array_equal(values, np.tile(is_log[: values.shape[1]], (2, 1)))


def test_ends_are_quantiles_of_a_sample_of_the_joint_posterior(with_process):
    process = with_process.gaussian_process
    rows = np.argsort(process.rows)
    _, inputs = with_process.networks.predict(with_process.networks.read([*CHAINS, *ONES, *OTHERS]))
    known = np.arange(len(CHAINS))[process.rows[rows] - 1]
    kernel = process.kernel.at(inputs)(inputs).astype(np.float64)
    error = with_process.predictor.least_std(0)
    noise = max(process.noises[0], error**2 / (1 - error**2))
    rng = np.random.default_rng(0)
    difference, low, high = with_process.predict_difference(ONES, OTHERS)
    half_widths = [
        (top - bottom)[:, 0] / 2
        for bottom, top in map(with_process.predict_interval, (ONES, OTHERS))
    ]
    for pair, widths in enumerate(zip(*half_widths, strict=True)):
        index = len(CHAINS) + pair + np.array([0, len(ONES)])
        among = kernel[np.ix_(known, known)] + noise * np.eye(len(known))
        cross = kernel[np.ix_(index, known)]
        joint = kernel[np.ix_(index, index)] - cross @ np.linalg.inv(among) @ cross.T
        joint = (joint + joint.T) / 2  # the kernel has single precision
        labels = rng.multivariate_normal([0, 0], joint + noise * np.eye(2), 200_000)
        errors = labels / labels.std(axis=0) * widths
        ends = np.quantile(errors[:, 0] - errors[:, 1], [0.05, 0.95]) / 1.645
        ends += difference[pair, 0]
        assert [low[pair, 0], high[pair, 0]] == pytest.approx(ends, rel=0.02, abs=0.02)


def test_the_interval_is_narrower_than_of_independent_errors(with_process, of_networks):
    for model in (with_process, of_networks):
        difference, low, high = model.predict_difference(ONES[:2], OTHERS[:2])
        apart = sum(
            ((top - bottom)[:, 0] / 2) ** 2
            for bottom, top in (model.predict_interval(side[:2]) for side in (ONES, OTHERS))
        )
        assert ((high - low)[:, 0] < 2.0 * np.sqrt(apart)).all()
        values = model.predict(ONES[:2]) - model.predict(OTHERS[:2])
        np.testing.assert_allclose(difference[:, 0], values[:, 0], rtol=1e-5, atol=1e-6)
        wider = model.predict_difference(ONES[:2], OTHERS[:2], level=0.95)
        assert ((wider.high - wider.low) >= (high - low))[:, 0].all()


def test_errors_of_networks_are_alike_as_far_as_molecules_are(of_networks):
    _, low, high = of_networks.predict_difference(ONES, OTHERS, level=0.8)
    ends = [of_networks.predict_interval(side, level=0.8) for side in (ONES, OTHERS)]
    one, other = ((top - bottom)[:, 0] / 2 for bottom, top in ends)
    prints = map(read_fingerprints, (OTHERS, ONES))
    alike = 0.8 * FingerprintIndex(next(prints)).similarities(next(prints)).diagonal()
    half = np.sqrt(one**2 + other**2 - 2 * alike * one * other)
    np.testing.assert_allclose((high - low)[:, 0] / 2, half, rtol=1e-5)


def test_networks_do_not_know_what_the_gaussian_process_does_not_know(with_process):
    both = copy.copy(with_process)
    both.gaussian_process = replace(with_process.gaussian_process, shares=np.full(3, 0.4))
    alone = correlations(with_process)
    both.uncertainty = with_correlation(with_process, None)
    np.testing.assert_allclose(correlations(both), alone, atol=1e-6)
    both.uncertainty = with_correlation(with_process, 0.95)
    alike = 0.95 * FingerprintIndex(read_fingerprints(OTHERS)).similarities(read_fingerprints(ONES))
    expected = 0.4 * alone + 0.6 * np.maximum(alone, alike.diagonal())
    assert (expected > alone).any()
    np.testing.assert_allclose(correlations(both), expected, atol=1e-6)


def correlations(model):
    """Return the correlations of errors that intervals of the first target imply."""
    _, low, high = model.predict_difference(ONES, OTHERS)
    ends = [model.predict_interval(side) for side in (ONES, OTHERS)]
    first, second = ((top - bottom)[:, 0] for bottom, top in ends)
    return (first**2 + second**2 - (high - low)[:, 0] ** 2) / (2 * first * second)


def test_a_target_learned_as_a_logarithm_has_a_ratio(with_process):
    ratio, low, high = with_process.predict_difference(ONES, OTHERS)
    value, other = with_process.predict(ONES), with_process.predict(OTHERS)
    np.testing.assert_allclose(ratio[:, 1], value[:, 1] / other[:, 1], rtol=1e-4)
    back = with_process.predict_difference(OTHERS, ONES)
    np.testing.assert_allclose(back.low[:, 1], 1 / high[:, 1], rtol=1e-4)
    np.testing.assert_allclose(back.high[:, 0], -low[:, 0], rtol=1e-4)
    np.testing.assert_allclose(ratio[:, 2], (value - other)[:, 2], atol=1e-5)
    assert np.isnan(low[:, 2]).all()


def test_there_is_no_interval_where_nothing_is_known_of_both_errors(of_networks, with_process):
    plain = MolAttn(of_networks.config).eval()
    assert np.isnan(plain.predict_difference(ONES, OTHERS).low).all()
    plain.uncertainty = with_correlation(of_networks, None)
    difference, low, high = plain.predict_difference(ONES, OTHERS)
    assert np.isfinite(difference).all()
    assert np.isnan([low, high]).all()
    _, low, high = with_process.predict_difference(ONES, OTHERS, level=0.999)  # too few labels
    assert np.isinf([low[:, 0], high[:, 0]]).all()
    with pytest.raises(ValueError, match="references: got 2, expected 3"):
        of_networks.predict_difference(ONES, OTHERS[:2])


def test_the_correlation_of_errors_is_estimated_from_below():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(400, 2))
    similarity = np.exp(-((points[:, None] - points) ** 2).sum(axis=-1))
    for true in (0.0, 0.5, 0.9):
        covariance = (1 - true) * np.eye(400) + true * similarity
        errors = 3 + 2 * rng.multivariate_normal(np.zeros(400), covariance)
        assert true - 0.2 <= error_correlation(errors, similarity) <= true + 0.05
    assert error_correlation(errors[:4], similarity[:4, :4]) == 0.0
    assert error_correlation(np.zeros(400), similarity) == 0.0


def test_a_table_has_differences_from_a_column(with_process, tmp_path):
    with_process.save_pretrained(tmp_path / "m")
    frame = pd.DataFrame({"smiles": [*ONES, "CCF", "CCF"], "lead": [*OTHERS, "C1CC", None]})
    frame.to_csv(tmp_path / "in.csv", index=False)
    words = ["--difference-from", "lead", "--output", str(tmp_path / "out.csv")]
    assert main(["predict", str(tmp_path / "m"), str(tmp_path / "in.csv"), *words]) == 0
    written = pd.read_csv(tmp_path / "out.csv")
    difference, low, high = with_process.predict_difference(ONES, OTHERS)
    expected = {
        **{"number_difference": difference[:, 0], "number_difference_low": low[:, 0]},
        **{"amount_ratio": difference[:, 1], "amount_ratio_high": high[:, 1]},
        "long_probability_difference": difference[:, 2],
    }
    for name, values in expected.items():
        np.testing.assert_allclose(written[name][:3], values, rtol=1e-4, atol=1e-6)
        assert written[name][3:].isna().all()
    assert written["difference_error"].fillna("").tolist() == ["", "", "", "ring_closure", "empty"]
    assert written["number_predicted"].notna().all()


def test_a_table_without_any_valid_reference_keeps_its_predictions(with_process, tmp_path):
    frame = pd.DataFrame({"smiles": ONES, "lead": ["C1CC", "", "x"]})
    predict_table(with_process, frame, tmp_path / "out.csv", PredictConfig(difference_from="lead"))
    written = pd.read_csv(tmp_path / "out.csv")
    assert written["difference_error"].tolist() == ["ring_closure", "empty", "syntax"]
    assert written["amount_ratio"].isna().all()
    assert written["amount_predicted"].notna().all()


def test_a_target_with_the_column_of_a_difference_is_refused(tmp_path):
    model = MolAttn(MolAttnConfig(("x", "x_difference"), SMALL)).eval()
    model.calibrate(CHAINS, np.zeros((len(CHAINS), 2)), CHAINS[:20])
    frame = pd.DataFrame({"smiles": ["CCO"], "lead": ["CCN"]})
    predict_table(model, frame, tmp_path / "out.csv")
    message = "difference_from: 'x_difference_high' is a column of another target too"
    with pytest.raises(InputError, match=message):
        predict_table(model, frame, tmp_path / "out.csv", PredictConfig(difference_from="lead"))


def test_model_of_atoms_alone_has_no_differences(tmp_path):
    model = MolAttn(MolAttnConfig((), atom_tasks=("shift",))).eval()
    frame = pd.DataFrame({"smiles": ["CCO"], "lead": ["C"]})
    with pytest.raises(InputError, match="predicts atoms and bonds alone"):
        predict_table(model, frame, tmp_path / "out.csv", PredictConfig(difference_from="lead"))


def test_a_column_of_references_that_is_missing_is_named(with_process, tmp_path, capsys):
    with_process.save_pretrained(tmp_path / "m")
    words = ["predict", str(tmp_path / "m"), "CCO", "--difference-from", "lead"]
    assert main(words) == 2
    assert "--difference-from" in capsys.readouterr().err
