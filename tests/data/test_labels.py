import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from molattn.config import DataConfig
from molattn.data.labels import (
    LabelError,
    RelationError,
    infer_task,
    is_missing,
    label_limits,
    label_number,
    label_values,
    number,
    positive_class,
    read_labels,
)
from molattn.errors import InputError
from molattn.task import Task


@given(st.floats(-1e30, 1e30))
def test_a_number_is_read_as_python_reads_it(value):
    assert number(f" {value!r}\t") == value


@pytest.mark.parametrize("text", ["", "  ", "NA", "nan", "NaN", "N/A", "null", "None", "#N/A"])
def test_a_missing_label_is_nan(text):
    assert is_missing(text)
    assert np.isnan(number(text))


@pytest.mark.parametrize(
    "read, text",
    [
        *((number, text) for text in "45% >5 1,5 inf -inf 1e31 1e999 1_000 ٣ 0x1 -".split()),
        *((label_number, text) for text in "> >NA ><5 =>5 5> >1e31 !5 <-".split()),
        (label_number, "> 1.5 mM"),
    ],
)
def test_what_is_no_number_is_refused(read, text):
    with pytest.raises(LabelError, match="number") as error:
        read(text)
    assert error.value.text == text


def test_a_list_names_the_options_of_atoms_and_bonds():
    with pytest.raises(LabelError, match="of bonds"):
        label_number("[1.5, None]")


@pytest.mark.parametrize(
    "cells, kind, classes",
    [
        (["1.5", "2", ""], "regression", ()),
        (["0", "1", "NA"], "binary", ("0", "1")),
        (["0.0", "1.0", "1"], "binary", ("0", "1")),
        (["-1", "1"], "binary", ("-1", "1")),
        (["0", "1", "2"], "regression", ()),
        (["0", "0"], "regression", ()),
        (["yes", "no", " yes"], "binary", ("no", "yes")),
        (["True", "False"], "binary", ("False", "True")),
        (["blue", "amber"], "binary", ("amber", "blue")),
        (["gas", "solid", "liquid"], "multiclass", ("gas", "liquid", "solid")),
        # Numbers that somebody has to mend, not names of classes.
        (["1.5", "45%", "2"], "regression", ()),
        (["<1", ">5", "<2"], "regression", ()),
        (["0", "1", "maybe"], "regression", ()),
        # A class of its own for each row is no class.
        ([f"compound {'x' * n}" for n in range(21)], "regression", ()),
    ],
)
def test_labels_say_what_they_are(cells, kind, classes):
    task = infer_task("y", cells)
    assert (task.kind, task.classes) == (kind, classes)


@pytest.mark.parametrize(
    "positive, negative",
    [
        ("inhibitor", "not an inhibitor"),
        ("effect", "no effect"),
        ("stable", "unstable"),
        ("substrate", "non-substrate"),
        ("+", "-"),
        ("1", "-1"),
        ("toxic", "safe"),
        ("blocker", "nonblocker"),
        ("mutagen", "nonmutagenic"),
        ("stable", "un-stable"),
        ("BBB+", "(BBB\N{MINUS SIGN})"),
        ("permeable", "impermeable"),
    ],
)
def test_the_positive_class_follows_from_the_names(positive, negative):
    assert infer_task("y", [positive, negative], "binary").classes == (negative, positive)
    assert positive_class([negative, positive]) == positive
    chosen = infer_task("y", [positive, negative], "binary", positive=negative)
    assert chosen.classes == (positive, negative)


@pytest.mark.parametrize(
    "choice, cells, kind, classes",
    [
        ("regression", ["0", "1"], "regression", ()),
        ("classification", ["0", "1"], "binary", ("0", "1")),
        ("classification", ["2", "1.0", "10", "1"], "multiclass", ("1", "2", "10")),
        ("binary", ["3", "7"], "binary", ("3", "7")),
        ("multiclass", ["1", "2", "3a"], "multiclass", ("1", "2", "3a")),
        ("classification", [f"C{n}" for n in range(30)], "multiclass", None),
    ],
)
def test_what_was_asked_for_decides(choice, cells, kind, classes):
    task = infer_task("y", cells, choice, "mM")
    assert task.kind == kind
    assert classes is None or task.classes == classes
    assert task.unit == ("mM" if kind == "regression" else "")


@pytest.mark.parametrize(
    "choice, cells, word",
    [
        ("binary", ["0", "1", "2"], "'2'"),
        (None, ["a", "a"], "'a'"),
        ("multiclass", ["0", "1"], "3 to"),
        ("classification", ["0", "1", "0.5"], r"'0\.5'"),
        ("binary", ["0", "1", "1", "maybe"], "'maybe'"),
        ("classification", ["yes", "no", "1"], "all text"),
        ("classification", [str(n) for n in range(1001)], "1000"),
        (None, ["Active", "active", "Inactive"], "'active'.*'Active'"),
    ],
)
def test_classes_that_make_no_sense_are_refused(choice, cells, word):
    with pytest.raises(InputError, match=word):
        infer_task("y", cells, choice)


def test_labels_become_places_of_classes():
    binary = Task("y", "binary", ("0", "1"))
    np.testing.assert_array_equal(
        label_values(["1.0", "0", "", "+1", "nan"], binary)[0], [1.0, 0.0, np.nan, 1.0, np.nan]
    )
    phase = Task("y", "multiclass", ("gas", "liquid", "solid"))
    np.testing.assert_array_equal(label_values([" solid", "gas"], phase)[0], [2.0, 0.0])
    np.testing.assert_array_equal(label_values(["1e3", "NA"], Task("y"))[0], [1000.0, np.nan])
    with pytest.raises(LabelError, match="'ice', expected one of gas, liquid, solid"):
        label_values(["gas", "ice"], phase)
    flag = Task("y", "binary", ("False", "True"))
    np.testing.assert_array_equal(label_values(["TRUE", "false", "True"], flag)[0], [1.0, 0.0, 1.0])
    three = Task("y", "multiclass", ("Active", "Inactive", "active"))
    assert label_values(["active", "INACTIVE", "Active"], three)[0].tolist() == [2.0, 1.0, 0.0]
    with pytest.raises(LabelError, match="'ACTIVE', expected one of Active"):
        label_values(["ACTIVE"], three)


@given(st.lists(st.sampled_from(["a", "b", "c", "", "NA"]), min_size=1))
def test_a_class_found_is_a_class_read(cells):
    if len({cell for cell in cells if not is_missing(cell)}) < 2:
        return
    task = infer_task("y", cells)
    values, _ = label_values(cells, task)
    again = ["" if np.isnan(value) else task.classes[int(value)] for value in values]
    assert again == ["" if is_missing(cell) else cell for cell in cells]


SIGNS = {"": 0, "=": 0, "~": 0, ">": 1, ">=": 1, ">>": 1, "≥": 1, "<": -1, "<=": -1, "<<": -1}


@given(st.floats(-1e30, 1e30), st.sampled_from([*SIGNS]), st.sampled_from(["", " ", "\t"]))
def test_a_relation_stands_before_the_number_or_beside_it(value, relation, space):
    expected = (value, SIGNS[relation])
    assert label_number(f"{space}{relation}{space}{value!r} ") == expected
    for quote in ("", "'", '"'):
        beside = f"{space}{quote}{relation}{quote}"
        assert label_number(repr(value), beside) == expected
        assert label_number(f"{relation}{value!r}", beside) == expected


def test_a_relation_beside_a_class_is_refused():
    binary = Task("y", "binary", ("0", "1"))
    labels, bounds = label_values(["0", "1", ""], binary, ["=", "", ">"])
    np.testing.assert_array_equal(labels, [0.0, 1.0, np.nan])
    assert np.isnan(bounds).all()
    for relation in (">", "'<='", "?"):
        words = f"{relation!r}|{relation}.*no relation beside a class.*--task regression"
        with pytest.raises(RelationError, match=words.replace("?", r"\?")):
            label_values(["0", "1"], binary, ["", relation])


@given(st.floats(-1e29, 1e29), st.floats(0, 1e29), st.sampled_from(["", "NA", " "]))
def test_an_open_side_is_censored_and_equal_limits_are_the_value(value, width, empty):
    text = repr(value)
    exact = label_limits(text)
    np.testing.assert_array_equal(exact, (value, np.nan, np.nan))
    for cell in (empty, text):
        np.testing.assert_array_equal(label_limits(cell, low=text, high=text), exact)
        for low, high, relation in (("-inf", text, "<"), (text, empty, ">"), (empty, text, "<")):
            censored = label_limits(text, relation)
            np.testing.assert_array_equal(label_limits(cell, low=low, high=high), censored)
            np.testing.assert_array_equal(label_limits(f"{relation}{text}"), censored)
    if value + width > value:
        ends = value, value + width
        texts = [repr(end) for end in ends]
        assert label_limits(empty, "", *texts) == (0.5 * sum(ends), *ends)
        assert label_limits(texts[1], "", *texts) == (ends[1], *ends)
        for wrong in ((empty, *texts[::-1]), (repr(ends[1] + 2.0 * abs(ends[1]) + 1.0), *texts)):
            with pytest.raises(LabelError, match="limits in ascending order"):
                label_limits(wrong[0], "", *wrong[1:])


@pytest.mark.parametrize(
    "cell, low, high, expected",
    [
        ("", "", "", (np.nan, np.nan, np.nan)),
        ("5", "NA", "", (5, np.nan, np.nan)),
        (">5", "1", "9", (7, 5, 9)),
        ("<10", "5", "", (7.5, 5, 10)),
        (">10", "", "20", (15, 10, 20)),
        (">10", "2", "20", (15, 10, 20)),
        (">10", "2", "", (np.nan, 10, np.nan)),
        (">1", "2", "9", (5.5, 2, 9)),
        ("", "-Inf", "inf", (np.nan, np.nan, np.nan)),
        ("3", "1", "+Infinity", (np.nan, 1, np.nan)),
    ],
)
def test_limits_say_more_than_a_value_and_narrow_a_bound(cell, low, high, expected):
    np.testing.assert_array_equal(label_limits(cell, "", low, high), expected)


def test_limits_that_contradict_a_bound_are_refused():
    for cell, low, high in (("<10", "20", "30"), (">10", "", "5")):
        with pytest.raises(LabelError, match="limits in ascending order"):
            label_limits(cell, "", low, high)


def test_a_lower_limit_of_0_has_no_logarithm_and_needs_none():
    config = DataConfig(target_transform=("log",))
    cells = ["", "2", "3", "4", "5", ""]
    limits = [("0", "5"), *[("", "")] * 4, ("-3", "0")]
    labels = read_labels("y", 0, cells, None, config, limits)
    assert [*labels.invalid] == [5]
    assert labels.values[0] == 2.5


def test_limits_that_are_no_numbers_are_refused():
    for low, high in (("inf", "2"), ("1", "-inf"), ("1", "2 mM")):
        with pytest.raises(LabelError, match="a number"):
            label_limits("", "", low, high)
