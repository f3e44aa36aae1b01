"""The words of the page follow the intervals."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from molattn.explain.faithfulness.deletion_insertion import (
    Estimate,
    Faithfulness,
    Measure,
    MethodFaithfulness,
)
from molattn.explain.faithfulness.summary import summarize
from molattn.explain.instance import Masking

ABOVE, NEAR, BELOW = Estimate(0.2, 0.1, 0.3), Estimate(0.0, -0.1, 0.1), Estimate(-0.2, -0.3, -0.1)


def found(**gains):
    curve, area = np.zeros(21), Estimate(0.5, 0.4, 0.6)
    rows = [MethodFaithfulness(m, curve, curve, area, area, *two) for m, two in gains.items()]
    rows += [
        MethodFaithfulness(m, curve, curve, area, area, NEAR, NEAR) for m in ("uniform", "random")
    ]
    return Faithfulness(
        "logS", "log mol/L", "support", "remove", 120, 3, 5, tuple(rows), {"logS": 120}
    )


def test_only_what_beats_random_in_both_tests_is_commended():
    summary = summarize(
        found(occlusion=(ABOVE, ABOVE), rollout=(ABOVE, NEAR), attention=(BELOW, BELOW))
    )
    good, bad = summary.sentence.split("On 120 molecules")
    assert good.startswith("The atoms highlighted by occlusion matter")
    assert "rollout" not in good
    assert "attention" not in good
    assert "rollout (beats random by deletion alone)" in bad
    assert "attention (worse than random)" in bad
    assert [(row[0], row[3]) for row in summary.rows] == [
        ("occlusion", True),
        ("rollout", False),
        ("attention", False),
        ("uniform", None),
        ("random", None),
    ]
    assert summary.rows[0][1][1] == ("0.200", "0.100 to 0.300")
    assert summary.rows[-1][1][1] == ("-", "")
    assert "3 with a single atom" in summary.note


def test_nothing_is_commended_where_nothing_was_shown():
    summary = summarize(found(integrated_gradients=(NEAR, NEAR)))
    assert summary.sentence.startswith(
        "On 120 molecules this was not shown for integrated gradients"
    )
    assert not any(row[3] for row in summary.rows)


def test_several_classes_are_named():
    several = replace(found(occlusion=(ABOVE, ABOVE)), outputs={"p_solid": 80, "p_gas": 40})
    assert "on its most probable class: p_gas (40), p_solid (80)." in summarize(several).note
    assert "class" not in summarize(found(occlusion=(ABOVE, ABOVE))).note


@pytest.mark.parametrize("masking", get_args(Masking))
@pytest.mark.parametrize("measure", get_args(Measure))
def test_every_way_to_measure_has_words(measure, masking):
    result = replace(found(occlusion=(ABOVE, BELOW)), measure=measure, masking=masking, molecules=8)
    assert "8 molecules are few" in summarize(result).note
