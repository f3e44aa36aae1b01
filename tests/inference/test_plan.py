from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

import molattn
from molattn import MolAttn
from molattn.cli.program import main
from molattn.config import PlanConfig
from molattn.errors import InputError
from molattn.inference.plan import (
    ACQUISITIONS,
    Candidates,
    expected_improvement,
    plan_table,
    probability_between,
    select_batch,
)

CHAINS = ["C" * n + end for n in range(1, 16) for end in ("O", "N", "C(=O)O", "c1ccccc1")]


def make_candidates(size, seed):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(size, size))
    noise, cost = rng.uniform(0.1, 1.0, size), rng.uniform(1.0, 3.0, size)
    return Candidates(rng.normal(size=size), root @ root.T / size, noise, cost)


def test_expected_improvement_is_the_integral():
    mean, std, best = np.array([0.3, -2.0]), np.array([0.7, 1.5]), 0.5
    for m, s, found in zip(mean, std, expected_improvement(mean, std, best), strict=True):
        density = norm(m, s).pdf
        expected, _ = quad(lambda y, f=density: (y - best) * f(y), best, m + 12.0 * s)
        assert found == pytest.approx(expected, rel=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 12), st.integers(0, 99), st.sampled_from(sorted(ACQUISITIONS)))
def test_each_choice_is_the_best_after_those_before(size, seed, acquisition):
    candidates, best, taken = make_candidates(size, seed), 0.2, []
    mean, covariance, noise, cost = candidates
    for choice in select_batch(candidates, 6, best, acquisition):
        # Gaussian conditioning on noisy labels of those before, densely.
        cross = covariance[:, taken]
        known = covariance[np.ix_(taken, taken)] + np.diag(noise[taken])
        left = covariance - cross @ np.linalg.inv(known) @ cross.T if taken else covariance
        std = np.sqrt(left.diagonal())
        highest = max([best, *mean[taken]])
        scores = ACQUISITIONS[acquisition](mean, std, highest) / cost
        scores[taken] = -np.inf
        assert choice.index == np.argmax(scores)
        assert choice.std == pytest.approx(std[choice.index])
        taken.append(choice.index)
    assert len(taken) == min(6, size)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plan")
    labels = [len(one) + 0.1 * (index % 3) for index, one in enumerate(CHAINS)]
    frame = pd.DataFrame({"smiles": CHAINS, "length": labels}).sample(frac=1.0, random_state=0)
    options = {
        "predictor": "gaussian_process",
        "validation_size": 0.3,
        "test_size": 0.0,
        "descriptors": "none",
    }
    molattn.train(frame, target_columns=["length"], **options).model.save_pretrained(folder / "m")
    library = ["C" * n + "F" for n in range(1, 25)] + ["FC", "C1CC", CHAINS[0]]
    price = [1.0] * 24 + [0.5, 1.0, 1.0]
    pd.DataFrame({"smiles": library, "price": price}).to_csv(folder / "library.csv", index=False)
    return folder


def plan(run, *words, code=0):
    output = run / "next.csv"
    words = ["plan", str(run / "m"), str(run / "library.csv"), "--output", str(output), *words]
    assert main(words) == code
    return pd.read_csv(output) if code == 0 else None


def test_the_best_molecules_are_chosen_once_and_with_their_rows(run):
    found = plan(run, "--count", "5", "--acquisition", "greedy")
    assert found["rank"].tolist() == [1, 2, 3, 4, 5]
    assert found["acquisition"].is_monotonic_decreasing
    assert found["length_predicted"].is_monotonic_decreasing
    assert (
        found["reason"]
        .str.fullmatch(r"(<1|>99|\d+)% likely to be above .*, the best of training.*")
        .all()
    )
    low = plan(run, "--count", "3", "--acquisition", "greedy", "--minimize")
    assert low["length_predicted"].max() < found["length_predicted"].min()
    every = plan(run)  # of 27 one is a repetition, one invalid and one of the training
    assert len(every) == 24
    assert not every["smiles"].isin(["C1CC", CHAINS[0]]).any()


def test_salts_of_one_parent_are_compared_as_they_are_predicted(run):
    model = MolAttn.from_pretrained(run / "m")
    model.config = replace(model.config, standardize="parent", written_tasks=("length",))
    salts = "smiles,length\nCCC(CC)CN,\nCCC(CC)CN.Cl,\nCCC(CC)CN.Br,\n"
    (run / "salts.csv").write_text(salts + "C(,1\n")  # a measured molecule that is not valid
    assert plan_table(model, run / "salts.csv", run / "next.csv") == 3
    model.config = replace(model.config, written_tasks=())
    assert plan_table(model, run / "salts.csv", run / "next.csv") == 1


def test_copies_of_the_best_molecule_leave_room_for_others(run, monkeypatch):
    monkeypatch.setattr(molattn.inference.plan, "MOST_CANDIDATES", 3)
    best = plan(run, "--count", "2", "--acquisition", "greedy")["smiles"].tolist()
    library = pd.DataFrame({"smiles": [best[0]] * 4 + [best[1]]})
    library.to_csv(run / "copies_of_one.csv", index=False)
    config = PlanConfig(count=2, acquisition="greedy")
    plan_table(run / "m", run / "copies_of_one.csv", run / "x.csv", config)
    assert pd.read_csv(run / "x.csv")["smiles"].tolist() == best


def test_measured_molecules_of_the_table_are_left_out_and_counted(run, capsys):
    (run / "measured.csv").write_text("smiles,LENGTH\nCCF,3\nFCC,\nCCCF, \nCCCCF,NA\n")
    words = ["plan", str(run / "m"), str(run / "measured.csv"), "--output", str(run / "left.csv")]
    assert main(words) == 0
    found = pd.read_csv(run / "left.csv")
    assert sorted(found["smiles"]) == ["CCCCF", "CCCF"]  # FCC is CCF
    assert "1 row with a value in 'length' left out" in capsys.readouterr().out


def test_remarks_on_a_table_are_printed_once(run, capsys):
    (run / "mixed.csv").write_text("smiles\nCCF\nC[S+]([O-])CCCF\nC(\n")
    words = ["plan", str(run / "m"), str(run / "mixed.csv"), "--output", str(run / "left.csv")]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert printed.count("redrawn in the usual way") == printed.count("errors: 1") == 1
    assert "with a value in" not in printed


def test_a_table_of_measured_molecules_alone_is_refused(run, capsys):
    (run / "copies.csv").write_text("smiles,length\nCCF,3\nFCC,\n")
    words = ["plan", str(run / "m"), str(run / "copies.csv"), "--output", str(run / "none.csv")]
    assert main(words) == 2
    assert "no new molecule has a prediction of 'length'" in capsys.readouterr().err
    assert not (run / "none.csv").exists()


def test_a_cost_divides_the_acquisition(run):
    found = plan(run, "--count", "24", "--acquisition", "uncertainty", "--cost-column", "price")
    cheap = found[found["price"] == 0.5]
    assert cheap["smiles"].tolist() == ["FC"]  # which the same molecule at twice the cost is not
    excel = pd.read_csv(run / "library.csv")
    excel["price"] = [f"{price:.2f}".replace(".", ",") for price in excel["price"]]
    with pd.ExcelWriter(run / "library.xlsx") as book:
        excel.to_excel(book, sheet_name="Data", startrow=2, index=False)
    config = PlanConfig(count=24, acquisition="uncertainty", cost_column="price")
    plan_table(run / "m", run / "library.xlsx", run / "x.csv", config)
    assert pd.read_csv(run / "x.csv")["smiles"].tolist() == found["smiles"].tolist()
    config = PlanConfig(acquisition="uncertainty", cost_column="smiles")
    with pytest.raises(InputError, match=r"line 2: got 'CF', expected a number above 0"):
        plan_table(run / "m", run / "library.csv", run / "x.csv", config)
    assert plan(run, "--cost-column", "price", code=2) is None


def test_a_goal_orders_by_the_probability_to_meet_it(run):
    best = plan(run, "--acquisition", "greedy").set_index("smiles")
    for goal, inside in (
        ("above 9.5", lambda length: length > 9.5),
        ("below 4.5", lambda length: length < 4.5),
        ("5 to 7.5", lambda length: (length > 5.0) & (length < 7.5)),
        ("-1e3 to 1e3", lambda length: length > 0.0),
    ):
        found = plan(run, "--goal", goal.replace("above ", ">"))
        assert len(found) == len(best)
        probability = found["acquisition"]
        assert probability.between(0.0, 1.0).all()
        assert probability.is_monotonic_decreasing
        np.testing.assert_array_equal(inside(found["length_predicted"]), probability > 0.5)
        aim = f"from {goal}" if "to" in goal else goal
        for value, reason in zip(probability, found["reason"], strict=True):
            percent = "<1%" if value < 0.01 else f"{value:.0%}"
            percent = ">99%" if 0.995 <= value < 1.0 else percent
            assert reason.startswith(f"{percent} likely to be {aim}")
    assert len({*plan(run, "--goal", "above 9.5")["reason"]}) > 5
    cheap = plan(run, "--goal", "below 40", "--cost-column", "price")
    assert (cheap["smiles"][0], cheap["acquisition"][0]) == ("FC", pytest.approx(2.0))


@pytest.mark.parametrize(
    "goal, remark, ascending",
    [
        ("above -1e9", "all measured labels meet it", False),
        ("below -1e9", "no measured label meets it: probabilities extrapolate", True),
        (">= 1e9", "no measured label meets it: probabilities extrapolate", False),
        ("5 to 5.0001", "all candidates have the same probability to meet it", None),
        ("above 9.5", "", None),
    ],
)
def test_a_goal_that_tells_nothing_apart_is_remarked_and_orders_by_value(
    run, capsys, goal, remark, ascending
):
    values = plan(run, "--goal", goal)["length_predicted"].tolist()
    printed = capsys.readouterr().out
    assert f"--goal {goal}: {remark}" in printed if remark else "--goal" not in printed
    assert ("(labels: 2.00 to 23.2)" in printed) == bool(remark)
    if ascending is not None:
        assert values == sorted(values, reverse=not ascending)


def test_a_goal_of_two_ends_orders_ties_by_the_distance_to_its_middle(run):
    table = plan(run, "--goal", "-999980 to 1000000")
    assert (table["acquisition"] == 1.0).all()
    values = table["length_predicted"]
    assert values.min() < 10.0 < values.max()
    assert np.abs(values - 10.0).is_monotonic_increasing


def test_probabilities_between_are_exact_in_both_tails():
    low = np.array([8.0, -np.inf, -1.0, 3.0])
    high = np.array([np.inf, -8.0, 1.0, np.inf])
    expected = [norm.sf(8.0), norm.cdf(-8.0), 1.0 - 2.0 * norm.sf(1.0), norm.sf(3.0)]
    np.testing.assert_allclose(probability_between(low, high), expected, rtol=1e-9)


@pytest.mark.parametrize(
    "goal",
    [
        "",
        "above",
        "above x",
        "6 to 5",
        "5 to 5",
        "-5",
        "above nan",
        "above inf",
        "below 1 2",
        ">>5",
        "5>",
        ">1 to 2",
    ],
)
def test_a_goal_that_is_no_range_is_refused(goal):
    with pytest.raises(InputError, match=f"goal: got '{goal}', expected best"):
        PlanConfig(goal=goal)


@pytest.mark.parametrize(
    "goal, words, ends",
    [
        (">1000", "above 1000", (1000.0, np.inf)),
        (" >= 5", "above 5", (5.0, np.inf)),
        ("≥5", "above 5", (5.0, np.inf)),
        ("<-6", "below -6", (-np.inf, -6.0)),
        ("<= -6", "below -6", (-np.inf, -6.0)),
        ("≤ 1e-3", "below 1e-3", (-np.inf, 1e-3)),
    ],
)
def test_a_goal_may_have_signs_for_above_and_below(goal, words, ends):
    config = PlanConfig(goal=goal)
    assert config.goal_range() == ends
    assert " ".join(config.goal_words) == words


def test_what_contradicts_a_goal_is_refused():
    assert PlanConfig(goal="best", minimize=True).goal_range() is None
    for options in ({"minimize": True}, {"acquisition": "uncertainty"}):
        with pytest.raises(InputError, match=f"goal: cannot be used with {next(iter(options))}"):
            PlanConfig(goal="above 1", **options)


@pytest.mark.parametrize("name", ["atoms", "bonds"])
def test_a_plan_has_no_rows_of_atoms_or_bonds(name):
    with pytest.raises(InputError) as error:
        PlanConfig(**{name: True})
    assert error.value.option == name


def test_a_model_without_a_process_or_a_regression_is_refused(run, capsys):
    assert main(["plan", "admet", str(run / "library.csv"), "--output", str(run / "x.csv")]) == 2
    assert "target" in capsys.readouterr().err
    words = ["--target", "herg", "--output", str(run / "x.csv")]
    assert main(["plan", "admet", str(run / "library.csv"), *words]) == 2
    assert "expected a regression" in capsys.readouterr().err


def test_a_packaged_model_plans_without_the_noise_of_its_labels(run):
    words = ["--target", "caco2_wang", "--output", str(run / "x.csv")]
    assert main(["plan", "admet", str(run / "library.csv"), *words]) == 0
    assert pd.read_csv(run / "x.csv")["reason"].str.contains("ranked before it would lessen").any()


def test_a_stereoisomer_of_a_training_molecule_is_new(tmp_path):
    known = "C[C@H](N)CO"
    frame = pd.DataFrame({"smiles": [*CHAINS, known], "y": range(61)})
    options = {"predictor": "gaussian_process", "validation_size": 0.3, "test_size": 0.0}
    model = molattn.train(frame, target_columns=["y"], descriptors="none", **options).model
    model.save_pretrained(tmp_path / "m")
    lines = ["smiles", known, "OC[C@@H](N)C", "C[C@@H](N)CO", CHAINS[3], ""]
    (tmp_path / "in.csv").write_text("\n".join(lines))
    assert plan_table(tmp_path / "m", tmp_path / "in.csv", tmp_path / "out.csv") == 1
    assert pd.read_csv(tmp_path / "out.csv")["smiles"].tolist() == [lines[3]]


def test_the_posterior_is_that_of_dense_conditioning(run):
    model, new = MolAttn.from_pretrained(run / "m"), ["CCCF", "OCCF", "c1ccccc1F"]
    own = np.flatnonzero(np.arange(60) % 3)  # the other rows have no label of the task
    process = replace(model.gaussian_process, noises=np.array([0.3]))
    process = replace(process, labeled=np.isin(np.arange(60), own)[:, None])
    lines = [CHAINS[place] for place in pd.Series(range(60)).sample(frac=1.0, random_state=0)]
    known = [lines[number - 1] for number in process.rows]
    _, inputs = model.networks.predict(model.networks.read([*known, *new]))
    kernel = process.kernel.at(inputs)(inputs)
    np.testing.assert_allclose(
        kernel[len(known) :, : len(known)], process.kernel(inputs[np.arange(60, 63)]), atol=1e-3
    )
    among, cross = kernel[np.ix_(own, own)] + 0.3 * np.eye(len(own)), kernel[-3:, own]
    expected = kernel[-3:, -3:] - cross @ np.linalg.inv(among) @ cross.T
    found, noise = process.posterior(inputs[np.arange(60, 63)], 0)
    np.testing.assert_allclose(found, expected, atol=2e-3)
    assert noise == 0.3


def test_in_python(run):
    assert plan_table(run / "m", run / "library.csv", run / "python.parquet") == 24
    assert len(pd.read_parquet(run / "python.parquet")) == 24


def test_pairs_of_one_molecule_with_several_partners_are_no_repetitions(tmp_path):
    partners = CHAINS[::-1]
    labels = [len(one) - len(other) for one, other in zip(CHAINS, partners, strict=True)]
    frame = pd.DataFrame({"smiles": CHAINS, "other": partners, "y": labels})
    options = {"predictor": "gaussian_process", "validation_size": 0.3, "test_size": 0.0}
    columns = {"target_columns": ["y"], "partner_column": "other"}
    model = molattn.train(frame, descriptors="none", **columns, **options).model
    pairs = pd.DataFrame({"smiles": ["CCF"] * 6, "other": [*CHAINS[:5], CHAINS[0]]})
    pairs.to_csv(tmp_path / "pairs.csv", index=False)
    assert plan_table(model, tmp_path / "pairs.csv", tmp_path / "next.csv") == 5
