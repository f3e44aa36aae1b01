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
    assert summary.sentence == (
        "Deletion and insertion tests on 120 molecules. Passed (beats random in both tests): "
        "occlusion. Not passed: rollout (beats random in deletion only), attention (worse than "
        "random). Do not rely on the scores of a method that did not pass."
    )
    assert [(row[0], row[3]) for row in summary.rows] == [
        ("occlusion", True),
        ("rollout", False),
        ("attention", False),
        ("uniform", None),
        ("random", None),
    ]
    assert summary.rows[0][1][1] == ("0.200", "0.100 to 0.300")
    assert summary.rows[-1][1][1] == ("-", "")
    assert "single atom, skipped: 3." in summary.note


def test_nothing_is_commended_where_nothing_was_shown():
    summary = summarize(found(integrated_gradients=(NEAR, NEAR)))
    assert "Passed (" not in summary.sentence
    assert "Not passed: integrated gradients (no better than random)." in summary.sentence
    assert not any(row[3] for row in summary.rows)


def test_few_molecules_give_no_verdict():
    summary = summarize(replace(found(occlusion=(ABOVE, ABOVE)), molecules=2))
    assert summary.sentence == (
        "Deletion and insertion tests on 2 molecules: too few for a verdict (at least 30 needed)."
    )
    assert {row[2:] for row in summary.rows} == {("-", None)}


def test_several_classes_are_named():
    several = replace(found(occlusion=(ABOVE, ABOVE)), outputs={"p_solid": 80, "p_gas": 40})
    assert "on its most probable class: p_gas (40), p_solid (80)." in summarize(several).note
    assert "class" not in summarize(found(occlusion=(ABOVE, ABOVE))).note


@pytest.mark.parametrize("masking", get_args(Masking))
@pytest.mark.parametrize("measure", get_args(Measure))
def test_every_way_to_measure_has_words(measure, masking):
    result = replace(found(occlusion=(ABOVE, BELOW)), measure=measure, masking=masking, molecules=8)
    assert "With fewer than 30 molecules" in summarize(result).note
