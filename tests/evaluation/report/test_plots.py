import numpy as np
import pytest

from molattn.evaluation.report.plots import (
    learning_curve,
    run_plots,
    task_results,
)
from molattn.evaluation.scores.metrics import score_tasks
from molattn.model.uncertainty import Prediction
from molattn.task import Task
from molattn.training.run_folder import Epoch, History

nan = float("nan")
Y = Task("y", unit="mg")
B = Task("b", "binary", ("no", "yes"))
C = Task("c$_1", "multiclass", ("red", "green", "blue"))


def scored(plot, prediction, target, tasks):
    scores = score_tasks(prediction, target, tasks).tasks
    unknown = np.full(target.shape, nan)
    others = *[unknown] * 3, unknown[:, 0], unknown, unknown.astype(str), unknown, unknown
    predicted = Prediction(prediction, *others)
    uncertainty = {"y": {"coverage_at": {"0.5": 0.6}}}
    results = task_results(predicted, target, tasks, scores, uncertainty)
    return run_plots(results)[f"{plot}.png"]


def test_the_parity_plot_shows_labeled_rows_with_names_units_and_scores():
    prediction = np.array([[1.0, 0.5, 2.0], [2.0, 0.5, 3.0], [3.0, 0.5, 4.0]])
    target = np.array([[1.5, 0, nan], [2.0, 1, 5.0], [nan, 1, nan]])
    figure = scored("parity", prediction, target, [Y, B, Task("$z_1")])
    first, second = figure.axes
    assert first.collections[0].get_offsets().tolist() == [[1.5, 1.0], [2.0, 2.0]]
    assert second.collections[0].get_offsets().tolist() == [[5.0, 3.0]]
    assert (first.get_xlabel(), first.get_ylabel()) == ("measured y (mg)", "predicted y (mg)")
    assert second.get_xlabel() == r"measured \$z_1"
    assert first.get_title() == "RMSE 0.354   MAE 0.250   R² -1.00   n = 2"
    assert "R² -" in second.get_title()
    assert first.get_xlim() == first.get_ylim()


def test_axes_and_errors_are_logarithmic_where_logarithms_are_scored():
    prediction, target = np.array([[10.0], [-1.0]]), np.array([[100.0], [1.0]])
    scores = score_tasks(prediction, target, [Y], logarithms=["y"]).tasks
    unknown = np.full(target.shape, nan)
    others = *[unknown] * 3, unknown[:, 0], unknown, unknown.astype(str), unknown, unknown
    uncertainty = {"y": {"coverage_at": {"0.5": 0.6}}}
    results = task_results(Prediction(prediction, *others), target, [Y], scores, uncertainty)
    plots = run_plots(results)
    (parity,) = plots["parity.png"].axes
    assert (parity.get_xscale(), parity.get_yscale()) == ("log", "log")
    assert parity.collections[0].get_offsets().tolist() == [[100.0, 10.0], [1.0, 0.5]]
    assert parity.get_title().startswith("log10 RMSE 0.738   MAE 0.651   R²")
    (errors,) = plots["similarity.png"].axes
    assert errors.get_ylabel() == "absolute log10 error of y (mg)"
    heights = np.asarray(errors.collections[0].get_offsets())[:, 1]
    np.testing.assert_allclose(heights, [1.0, np.log10(2.0)])


def test_coverage_and_errors_are_those_of_regressions_with_intervals():
    given = np.array([[1.0, 0.5]]), np.array([[1.5, 1.0]]), [Y, Task("z")]
    (axes,) = scored("coverage", *given).axes
    assert axes.lines[1].get_xydata().tolist() == [[0.5, 0.6]]
    (axes,) = scored("similarity", *given).axes
    assert axes.get_ylabel() == "absolute error of y (mg)"


def test_the_learning_curve_shows_every_member_under_one_legend():
    histories = [
        History(
            [Epoch(1, 0.9 + n, 0.8, 1e-3, 1.0), Epoch(2, 0.5, 0.6, 1e-3, 1.0)], kept_epoch=n + 1
        )
        for n in range(2)
    ]
    (axes,) = learning_curve(histories).axes
    losses = [list(axes.lines[index].get_ydata()) for index in (0, 1, 3)]
    assert losses == [[0.9, 0.5], [0.8, 0.6], [1.9, 0.5]]
    legend = axes.get_legend()
    assert legend is not None
    words = [text.get_text() for text in legend.get_texts()]
    assert words == ["training", "validation", "checkpoint (epoch 1, 2)"]


def test_roc_and_pr_curves_are_drawn_for_each_class():
    prediction = np.array(
        [[9.0, 0.1, 0.8, 0.1, 0.1], [9.0, 0.4, 0.1, 0.8, 0.1], [9.0, 0.3, 0.1, 0.8, 0.1]]
    )
    target = np.array([[1.0, 0, 0], [2.0, 1, 1], [2.0, 1, nan]])
    figure = scored("roc_pr", prediction, target, [Y, B, C])
    roc, pr, several_roc, _ = figure.axes
    curve = roc.lines[1]
    assert curve.get_label() == "yes"
    assert curve.get_xydata()[[0, -1]].tolist() == [[0, 0], [1, 1]]
    assert [0.0, 1.0] in curve.get_xydata().tolist()  # perfect
    assert "b   ROC-AUC 1.00   n = 3" in roc.get_title()
    assert "b   PR-AUC 1.00" in pr.get_title()
    assert pr.lines[1].get_ydata()[0] == pytest.approx(2 / 3)  # found by chance
    assert [line.get_label() for line in several_roc.lines[1:]] == ["red", "green"]
    assert r"c\$_1" in several_roc.get_title()


def test_one_class_alone_has_no_curve_and_says_so():
    figure = scored("roc_pr", np.array([[0.2], [0.6]]), np.ones((2, 1)), [B])
    for axes in figure.axes:
        assert [text.get_text() for text in axes.texts] == ["only one class"]


def test_calibration_is_frequency_against_probability_by_bin():
    prediction = np.array([[0.11, 0.9, 0.05, 0.05], [0.19, 0.1, 0.8, 0.1], [0.91, 0.9, 0.1, 0.0]])
    target = np.array([[0.0, 0], [1, 1], [1, 1]])
    figure = scored("calibration", prediction, target, [B, C])
    first, second = figure.axes
    np.testing.assert_allclose(first.lines[1].get_xydata(), [[0.15, 0.5], [0.91, 1.0]])
    heights = [bar.get_height() for bar in first.patches]
    np.testing.assert_allclose(heights, [0, 2 / 3, 0, 0, 0, 0, 0, 0, 0, 1 / 3], atol=1e-12)
    assert first.get_xlabel() == "predicted probability of yes"
    np.testing.assert_allclose(second.lines[1].get_xydata(), [[0.8, 1.0], [0.9, 0.5]])
    assert first.get_title() == "b   ECE 0.263   n = 3"


def test_names_that_begin_with_an_underscore_are_in_the_legend():
    task = Task("_b", "binary", ("_no", "_yes"))
    figure = scored("roc_pr", np.array([[0.2], [0.6]]), np.array([[0.0], [1.0]]), [task])
    for axes in figure.axes:
        assert [text.get_text().strip() for text in axes.get_legend().get_texts()] == ["_yes"]
        assert not axes.texts
