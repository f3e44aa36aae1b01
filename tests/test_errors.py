import re

import pytest

from molattn.chem import parse, parse_smiles
from molattn.config import MoleculeLimits
from molattn.data.table import sdf
from molattn.errors import (
    REASONS,
    InputError,
    SmilesError,
    check_one_of,
    quoted,
    reason_meaning,
    reason_table,
)


def test_every_code_has_its_meaning_and_its_line():
    assert reason_meaning("missing_value").startswith("A missing-value marker, such as NA, ")
    assert reason_meaning("partner_valence") == REASONS["valence"]
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", reason_table(), re.MULTILINE)
    assert rows == [("error", "Meaning"), *REASONS.items()]


def test_the_limits_are_those_that_are_told():
    limits = MoleculeLimits()
    assert f"{limits.max_length:,}" in REASONS["too_long"]
    assert f"{limits.max_atoms:,}" in REASONS["too_large"]
    assert f"{limits.max_seconds:g} s" in REASONS["too_slow"]
    assert f"{sdf._MOST_LINES:,} lines" in REASONS["too_large"]
    assert f"{parse._MAX_NESTING} deep" in REASONS["too_nested"]
    assert parse_smiles("C" * 2000).GetNumAtoms() == 2000
    for text, code in (("C" * 2001, "too_large"), ("C" * 40_001, "too_long")):
        with pytest.raises(SmilesError) as caught:
            parse_smiles(text)
        assert caught.value.code == code


def test_names_are_quoted_as_they_are_without_what_would_not_show():
    assert quoted("Löslichkeit µM") == "'Löslichkeit µM'"
    assert quoted("a\x1b[31m\u202e\udcf6") == r"'a\x1b[31m\u202e\udcf6'"


@pytest.mark.parametrize("value, close", [("hERG", "herg"), ("logs", "logS"), ("LOG_S", "logS")])
def test_the_closest_choice_is_found_whatever_the_case(value, close):
    with pytest.raises(InputError, match=rf"target: got '{value}'.*; did you mean '{close}'\?$"):
        check_one_of("--target", value, ["herg", "logS"])
    check_one_of("--target", close, ["herg", "logS"])
