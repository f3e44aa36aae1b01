import pytest

# Reference "a", seeds 0 to 2; "b" is of its kind, "p" and "q" are peers, and "q" lacks seed 0.
SCORES = {
    "rmse": {"a": [1.0, 2.0, 3.0], "b": [0.5, 0.5, 0.5], "p": [1.5, 2.5, 2.6], "q": [None, 3, 4]},
    "roc_auc": {"a": [0.9, 0.7, 0.8], "b": [0.5, 0.5, 0.5], "p": [0.8, 0.8, 0.8], "q": [None] * 3},
}
KIND = {"a": "molattn", "b": "molattn", "p": "chemprop", "q": "lightgbm"}


@pytest.fixture
def hand_made(accuracy, tmp_path):
    results = accuracy("results")
    file = results.Results(tmp_path / "results.csv")
    for metric, models in SCORES.items():
        for model, values in models.items():
            for seed, value in enumerate(values):
                if value is not None:
                    key = (metric, "random", seed, model, KIND[model], "test", metric, value)
                    file.add([results.Result(*key, 80, 10.0 * seed, 1.0, "1", "{}", "0")])
    return file


def test_tables_by_hand(accuracy, hand_made):
    tables = accuracy("tables")
    error, auc = tables.case_tables(hand_made.read())
    assert (error.data, error.metric, auc.metric) == ("rmse", "rmse", "roc_auc")
    p, q = (one for one in error.compare("a") if one.model in "pq")
    # 1 - 1.5, 2 - 2.5, 3 - 2.6: mean -0.2; squares about it 0.09, 0.09, 0.36: variance 0.27.
    assert p.difference == pytest.approx((-0.2, 0.27**0.5, 3))
    assert (p.better, p.ahead) == (2, pytest.approx(100 * 0.2 / 2.2))
    assert q.difference == pytest.approx((-1.0, 0.0, 2))
    assert (q.better, q.ahead) == (2, pytest.approx(100 / 3.5))
    best = error.best_peer("a")
    assert best == p
    # 0.9 - 0.8, 0.7 - 0.8, 0.8 - 0.8; no peer q here.
    best = auc.best_peer("a")
    assert best.model == "p"
    assert best.difference == pytest.approx((0.0, 0.1, 3), abs=1e-12)
    assert best.better == 1
    assert auc.best_peer("p").ahead == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    "metric,ours,peers,expected",
    [
        ("r2", 0.31, {"good": 0.20, "bad": -0.49}, ["good", "yes", "+55.0 %", "1 of 1"]),
        ("mcc", -0.3, {"good": -0.2, "bad": -0.4}, ["good", "no", "-50.0 %", "0 of 1"]),
        ("r2", -0.1, {"good": -0.2, "bad": -0.4}, ["good", "yes", "+50.0 %", "1 of 1"]),
        ("mcc", 0.1, {"zero": 0.0, "bad": -0.4}, ["zero", "yes", "-", "1 of 1"]),
        ("mcc", -0.1, {"zero": 0.0, "bad": -0.4}, ["zero", "no", "-", "0 of 1"]),
        ("rmse", 2.0, {"good": 2.5, "bad": 4.0}, ["good", "yes", "+20.0 %", "1 of 1"]),
        ("rmse", 2.0, {"zero": 0.0, "bad": 4.0}, ["zero", "no", "-", "0 of 1"]),
    ],
)
def test_best_peer_of_any_sign(accuracy, metric, ours, peers, expected):
    result = accuracy("results").Result
    rows = [
        result(
            *("data", "random", 0, model, "molattn" if model == "ours" else "peer", "test"),
            *(metric, value, 80, 1.0, 1.0, "1", "{}", "0"),
        )
        for model, value in {"ours": ours, **peers}.items()
    ]
    tables = accuracy("tables")
    *_, row = tables.verdicts_text(tables.case_tables(rows, [metric]), "ours").splitlines()
    assert [cell.strip() for cell in row.strip("|").split("|")][2:] == expected


def test_tables_as_text(benchmark_accuracy, hand_made, capsys, tmp_path):
    words = ["--results", str(hand_made.path), "--table", "--markdown", str(tmp_path / "out.md")]
    assert benchmark_accuracy.main([*words, "--reference", "a", "--data", "rmse"]) == 0
    out = capsys.readouterr().out
    assert (tmp_path / "out.md").read_text() in out
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in out.splitlines()]
    case = ["rmse, random", "RMSE"]
    assert [*case, "a", "2.000 ± 1.000", "10"] in cells
    assert [*case, "b", "**0.500 ± 0.000**", "10"] in cells
    assert [*case, "q", "3.500 ± 0.707 (n=2)", "15"] in cells
    assert [*case, "p", "-0.200 ± 0.520", "2 of 3"] in cells
    assert [*case, "p", "yes", "+9.1 %", "2 of 3"] in cells
    assert "ROC-AUC" not in out
    words += "--data roc_auc --reference a --seeds 1".split()
    assert benchmark_accuracy.main(words) == 0
    assert "| p          | no      | -12.5 % | 0 of 1" in capsys.readouterr().out
