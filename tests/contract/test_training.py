"""Training: repeated, scored, in Python as by the command, and for every kind of table."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import betabinom
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import molattn
from molattn import MolAttn, MolAttnClassifier, MolAttnRegressor

from ..conftest import rows_of
from .conftest import SETTINGS, fitted, predict, refuse, scores, succeed, table, train

SPLIT = ["--validation-size", 0.25, "--test-size", 0.25]
FAST = {name: SETTINGS[name] for name in SETTINGS.keys() - {"baselines"}}


@pytest.fixture(scope="module")
def all_molecules(molecules, tmp_path_factory):
    return table(tmp_path_factory.mktemp("tables") / "all.csv", "smiles,logS", molecules)


@pytest.fixture(scope="module")
def run(all_molecules, tmp_path_factory):
    """A run with enough held-out rows to count those within their intervals."""
    return train(all_molecules, tmp_path_factory.mktemp("runs") / "all", *SPLIT)


def test_the_same_seed_gives_the_same_model(run, all_molecules, tmp_path):
    again = train(all_molecules, tmp_path / "again", *SPLIT)
    first, second = (MolAttn.from_pretrained(folder).state_dict() for folder in (run, again))
    assert all((value == second[name]).all() for name, value in first.items())
    for name in ("predictions.csv", "skipped.csv"):
        assert (again / name).read_bytes() == (run / name).read_bytes()
    assert scores(again)["test"] == scores(run)["test"]


def test_scores_are_those_of_before(run):
    found = scores(run)["test"]["logS"]
    assert found["count"] == len(rows_of(run / "predictions.csv")) == 107
    wanted = {"rmse": 0.685, "mae": 0.509, "r2": 0.867, "spearman": 0.929}
    assert {name: found[name] for name in wanted} == pytest.approx(wanted, abs=0.02)


def test_scores_are_those_of_the_predictions(run):
    rows = pd.read_csv(run / "predictions.csv")
    error = rows["logS_predicted"] - rows["logS"]
    found = scores(run)["test"]["logS"]
    assert found["rmse"] == pytest.approx((error**2).mean() ** 0.5, rel=1e-5)
    assert found["mae"] == pytest.approx(error.abs().mean(), rel=1e-5)
    assert found["r2"] == pytest.approx(1 - error.var(ddof=0) / rows["logS"].var(ddof=0), abs=0.05)
    low, high = found["intervals"]["rmse"]
    assert low < found["rmse"] < high


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9])
def test_intervals_cover_what_they_say(run, level, tmp_path):
    held_out = run / "predictions.csv"
    rows = predict(run, held_out, "--interval", level, output=tmp_path / "out.csv")
    names = [f"logS_{end}_" for end in ("low", "high")]  # the run's own have the plain names
    ends = [[float(row[name]) for name in (names[0], "logS", names[1])] for row in rows]
    covered = sum(low <= value <= high for low, value, high in ends)
    validation = scores(run)["validation"]["logS"]["count"]
    rank = int(np.ceil((validation + 1) * level))
    low, high = betabinom(len(rows), rank, validation + 1 - rank).interval(0.999)
    assert low <= covered <= high


def test_python_and_command_are_the_same(run, all_molecules, molecules):
    options = {"validation_size": 0.25, "test_size": 0.25, **SETTINGS}
    result = molattn.train(all_molecules, "logS", **options)
    words = [smiles for smiles, _ in molecules[:20]]
    wanted = MolAttn.from_pretrained(run).predict(words)
    np.testing.assert_array_equal(result.model.predict(words), wanted)
    assert result.scores["logS"]["rmse"] == scores(run)["test"]["logS"]["rmse"]
    frame = pd.DataFrame(molecules, columns=["smiles", "logS"])
    same = molattn.train(frame, "logS", **options)
    np.testing.assert_array_equal(same.model.predict(words), wanted)


def test_folds_and_a_final_model(small, tmp_path):
    options = ["--folds", 2, "--validation-size", 0, "--final", "--predictor", "network"]
    run = train(small, tmp_path / "run", *options, epochs=1)
    assert {path.name for path in run.iterdir()} >= {"fold_1", "fold_2", "model", "metrics.json"}
    tested = [row["smiles"] for n in (1, 2) for row in rows_of(run / f"fold_{n}/predictions.csv")]
    assert sorted(tested) == sorted(row["smiles"] for row in rows_of(small))
    (row,) = predict(run, "CCO", output=tmp_path / "out.csv")
    assert float(row["logS_low"]) <= float(row["logS_predicted"]) <= float(row["logS_high"])


def test_a_column_says_which_rows_are_for_the_test(molecules, tmp_path):
    parts = ["train"] * 60 + ["val"] * 15 + ["test"] * 15
    rows = [(*pair, part) for pair, part in zip(molecules, parts, strict=False)]
    given = table(tmp_path / "in.csv", "smiles,logS,set", rows)
    run = train(given, tmp_path / "run", "--split-column", "set", "--predictor", "network")
    tested = [row["smiles"] for row in rows_of(run / "predictions.csv")]
    assert tested == [smiles for smiles, _ in molecules[75:90]]
    words = ["--target-columns", "logS", "--split-column", "absent", "--output", tmp_path / "no"]
    refuse("--split-column", "train", given, *words)


def test_a_network_starts_from_the_packaged_weights(small, tmp_path):
    words = ["train", small, "--target-columns", "logS", "--no-baselines", "--epochs", 1]
    run = tmp_path / "run"
    succeed(*words, "--output", run, "--predictor", "network", "--device", "cpu")
    assert MolAttn.from_pretrained(run).embed(["CCO"]).shape[1] > 100
    refuse("absent", *words, "--init-from", "absent", "--output", tmp_path / "other")


def test_a_gaussian_process_alone(small, tmp_path):
    words = ["--target-columns", "logS", "--predictor", "gaussian_process", "--no-baselines"]
    runs = [tmp_path / name for name in "ab"]
    for run in runs:
        succeed("train", small, *words, "--output", run)
    first, second = (MolAttn.from_pretrained(run).predict(["CCO", "CCCCCC"]) for run in runs)
    np.testing.assert_array_equal(first, second)
    assert scores(runs[0])["test"]["logS"]["rmse"] < 2
    assert first[0] > first[1]  # ethanol is more soluble than hexane


def test_two_classes(molecules, tmp_path):
    labels = [int(value > -2) for _, value in molecules]
    rows = [(smiles, label) for (smiles, _), label in zip(molecules, labels, strict=True)]
    given = table(tmp_path / "in.csv", "smiles,y", rows[:200])
    run = train(given, tmp_path / "run", target="y")
    found = scores(run)["test"]["y"]
    assert 0.7 < found["roc_auc"] <= 1
    for row in predict(run, given, output=tmp_path / "out.csv"):
        assert row["y_predicted"] == str(int(float(row["y_probability"]) > 0.5))
        assert "y_low" not in row


def test_several_classes(molecules, tmp_path):
    words = ("high", "low", "medium")
    labels = ["low" if y < -4 else "medium" if y < -2 else "high" for _, y in molecules]
    rows = [(smiles, label) for (smiles, _), label in zip(molecules, labels, strict=True)]
    given = table(tmp_path / "in.csv", "smiles,y", rows[:120])
    run = fitted(given, tmp_path / "run", "y")
    for row in predict(run, given, output=tmp_path / "out.csv"):
        shares = {word: float(row[f"y_probability_{word}"]) for word in words}
        assert sum(shares.values()) == pytest.approx(1, abs=1e-5)
        assert shares[row["y_predicted"]] == max(shares.values())


def test_two_targets_with_gaps(molecules, tmp_path):
    rows = [
        (smiles, value if n % 3 else "", 2 * value if n % 2 else "NA")
        for n, (smiles, value) in enumerate(molecules[:150])
    ]
    given = table(tmp_path / "in.csv", "smiles,a,b", rows)
    run = train(given, tmp_path / "run", "--validation-size", 0.25, target="a b")
    skipped = rows_of(run / "skipped.csv")
    assert [int(row["line"]) for row in skipped] == [n + 2 for n in range(0, 150, 6)]
    assert {row["code"] for row in skipped} == {"no_label"}
    row = predict(run, "CCO", output=tmp_path / "out.csv")[0]
    for name in "ab":
        assert float(row[f"{name}_low"]) <= float(row[f"{name}_predicted"])
        assert 0 <= float(row[f"{name}_training_similarity"]) <= 1


def test_censored_labels(molecules, tmp_path):
    rows = [(s, f">{y}" if n % 5 == 0 else y) for n, (s, y) in enumerate(molecules[:150])]
    given = table(tmp_path / "in.csv", "smiles,logS", rows)
    run = train(given, tmp_path / "run")
    assert rows_of(run / "skipped.csv") == []
    held_out = rows_of(run / "predictions.csv")
    measured = [row for row in held_out if not row["logS"].startswith(">")]
    assert scores(run)["test"]["logS"]["count"] == len(measured) < len(held_out)
    relations = [(s, y, ">" if n % 5 == 0 else "=") for n, (s, y) in enumerate(molecules[:150])]
    given = table(tmp_path / "relations.csv", "smiles,logS,relation", relations)
    other = fitted(given, tmp_path / "other", relation_columns=["relation"])
    words = ["CCO", "CCCCCC"]
    first, second = (MolAttn.from_pretrained(folder).predict(words) for folder in (run, other))
    np.testing.assert_array_equal(first, second)


def test_labels_with_limits(molecules, tmp_path):
    rows = [
        (smiles, "" if n % 4 else y, y - 0.1 * (n % 3), y + 0.2 * (n % 3), 0.1 * (n % 5))
        for n, (smiles, y) in enumerate(molecules[:150])
    ]
    asked = table(tmp_path / "in.csv", "smiles,logS,low,high,se", rows)
    options = ["--interval-columns", "low", "high", "--std-columns", "se"]
    run = train(asked, tmp_path / "run", *options)
    tested = pd.read_csv(run / "predictions.csv")
    guess = tested["logS_predicted"]
    label = tested["logS"].fillna((tested["low"] + tested["high"]) / 2)
    distances = [
        (values - values.clip(tested["low"], tested["high"])).abs().mean()
        for values in (guess, pd.Series(label.mean(), guess.index))
    ]
    found = scores(run)["test"]["logS"]
    assert found["count"] == len(tested)
    assert found["st_rae"] == pytest.approx(distances[0] / distances[1], rel=1e-4)
    assert found["interval_mae"] == pytest.approx(distances[0], rel=1e-4)
    shown = succeed("predict", run, asked, "--output", tmp_path / "out.csv")
    assert "ST-RAE" in shown.out + shown.err
    # What predict writes is not taken for measurements.
    options = ("--target-columns", "logS", "--interval-columns", "logS_low", "logS_high")
    refuse("interval-columns", "train", tmp_path / "out.csv", *options)


def test_features_descriptors_and_a_second_molecule(molecules, tmp_path):
    solvents = ("O", "CCO", "C(C")
    rows = [
        (smiles, solvents[n % 2], n % 7, value) for n, (smiles, value) in enumerate(molecules[:90])
    ]
    given = table(tmp_path / "in.csv", "solute,solvent,pH,y", rows)
    columns = {"smiles_column": "solute", "partner_column": "solvent", "feature_columns": ["pH"]}
    options = {"descriptors": "all", "morgan_counts": 16, "predictor": "network"}
    run = fitted(given, tmp_path / "run", "y", **columns, **options)
    new = [("CCO", "O", 1), ("CCO", "CCO", 1), ("CCO", "O", 6), ("CCO", "C(C", 1), ("CCO", "", 1)]
    new += [("CCO", "O", ""), ("CCO", "O", "acid"), ("C(", "O", 1)]
    asked = table(tmp_path / "new.csv", "solute,solvent,pH", new)
    done = predict(run, asked, "--smiles-column", "solute", output=tmp_path / "out.csv")
    reasons = "partner_parenthesis partner_empty missing_feature bad_feature parenthesis".split()
    assert [row["error"] for row in done] == ["", "", "", *reasons]
    assert len({row["y_predicted"] for row in done[:3]}) == 3
    without = table(tmp_path / "without.csv", "solute,solvent", [("CCO", "O")])
    refuse("pH", "predict", run, without, "--smiles-column", "solute")
    model = MolAttn.from_pretrained(run)
    value = model.predict(["CCO"], partners=["O"], features=[[1.0]])
    assert float(done[0]["y_predicted"]) == pytest.approx(float(value[0, 0]), rel=1e-5)


def test_standardized_molecules(molecules, tmp_path):
    rows = [(f"{smiles}.[Na+].[Cl-]", y) for smiles, y in molecules[:40]]
    given = table(tmp_path / "in.csv", "smiles,logS", rows)
    run = fitted(given, tmp_path / "run", standardize=True, predictor="network")
    words = ["CC(=O)[O-].[Na+]", "CC(=O)O"]
    salt, acid = predict(run, *words, output=tmp_path / "out.csv")
    assert (salt["standardized_smiles"], acid["standardized_smiles"]) == ("CC(=O)O", "")
    assert salt["logS_predicted"] == acid["logS_predicted"]


def test_an_ensemble(small, tmp_path):
    run = fitted(small, tmp_path / "run", ensemble=2, predictor="network")
    row, _ = predict(run, "CCO", "CCCC", output=tmp_path / "out.csv")
    assert float(row["logS_std"]) > 0
    model = MolAttn.from_pretrained(run)
    members = model.predict(["CCO"], members=True)
    assert members.mean() == pytest.approx(float(row["logS_predicted"]), rel=1e-5)
    assert model.embed(["CCO"]).shape == (1, 32)


def test_a_regressor_of_scikit_learn(molecules):
    smiles, y = ([*column] for column in zip(*molecules[:90], strict=True))
    estimator = MolAttnRegressor(**FAST, predictor="network", random_state=3)
    assert estimator.get_params()["width"] == 8
    assert clone(estimator).get_params() == estimator.get_params()
    first = clone(estimator).fit(smiles, y).predict(smiles[:5])
    np.testing.assert_array_equal(first, clone(estimator).fit(smiles, y).predict(smiles[:5]))
    assert first.shape == (5,)
    pipeline = make_pipeline(FunctionTransformer(list), clone(estimator).set_params(epochs=1))
    assert cross_val_score(pipeline, smiles, y, cv=2).shape == (2,)
    with pytest.raises(ValueError, match="epoch"):
        MolAttnRegressor(epochs=0).fit(smiles, y)
    with pytest.raises(ValueError, match="C\\(C"):
        clone(estimator).fit([*smiles, "C(C"], [*y, 1.0])


def test_a_classifier_of_scikit_learn(molecules):
    smiles, y = ([*column] for column in zip(*molecules[:90], strict=True))
    labels = np.where(np.array(y) > -3, "soluble", "insoluble")
    estimator = MolAttnClassifier(**FAST, predictor="network").fit(smiles, labels)
    assert estimator.classes_.tolist() == ["insoluble", "soluble"]
    shares = estimator.predict_proba(smiles[:10])
    np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-6)
    assert (estimator.predict(smiles[:10]) == estimator.classes_[shares.argmax(axis=1)]).all()
    assert json.dumps(estimator.get_params(), default=str)
