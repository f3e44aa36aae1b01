import pickle

import pytest

from molattn.chem import parse_smiles
from molattn.config import MoleculeLimits
from molattn.errors import (
    REASONS,
    InputError,
    SmilesError,
    check_one_of,
    quoted,
    reason_meaning,
)


def test_every_code_has_its_meaning():
    assert reason_meaning("missing_value").startswith("A missing-value marker, such as NA, ")
    assert reason_meaning("partner_valence") == REASONS["valence"]


def test_the_documented_limits_are_those_of_the_options():
    limits = MoleculeLimits()
    assert f"{limits.max_length:,}" in REASONS["too_long"]
    assert f"{limits.max_atoms:,}" in REASONS["too_large"]
    assert f"{limits.max_seconds:g} s" in REASONS["too_slow"]
    assert parse_smiles("C" * 2000).GetNumAtoms() == 2000
    for text, code in (("C" * 2001, "too_large"), ("C" * 40_001, "too_long")):
        with pytest.raises(SmilesError) as caught:
            parse_smiles(text)
        assert caught.value.code == pickle.loads(pickle.dumps(caught.value)).code == code


def test_an_option_is_spelled_as_python_or_the_command_line_does():
    error = InputError("cannot be used with --split-column (C--C)", option="test_size")
    assert str(error) == "test_size: cannot be used with split_column (C--C)"
    assert error.command_line() == "--test-size: cannot be used with --split-column (C--C)"
    assert pickle.loads(pickle.dumps(error)).option == "test_size"


def test_quoted_names_escape_what_would_not_show():
    assert quoted("Löslichkeit µM") == "'Löslichkeit µM'"
    assert quoted("a\x1b[31m\u202e\udcf6") == r"'a\x1b[31m\u202e\udcf6'"


@pytest.mark.parametrize("value, close", [("hERG", "herg"), ("logs", "logS"), ("LOG_S", "logS")])
def test_the_closest_choice_is_found_whatever_the_case(value, close):
    with pytest.raises(InputError, match=f"did you mean '{close}'") as error:
        check_one_of("target", value, ["herg", "logS"])
    assert error.value.option == "target"
    check_one_of("target", close, ["herg", "logS"])
