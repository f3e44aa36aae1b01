import re

import pytest

from molattn.chem import parse, parse_smiles
from molattn.config.limits import MoleculeLimits
from molattn.data.table import sdf
from molattn.errors import REASONS, SmilesError, reason_meaning, reason_table


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
