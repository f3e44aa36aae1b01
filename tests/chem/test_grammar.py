"""What is no SMILES gets a code and a reason."""

import itertools
import string

import pytest
from rdkit import Chem

from molattn.chem import parse_smiles
from molattn.chem.grammar import SMILES
from molattn.errors import REASONS, SmilesError

REFUSED = {
    "empty": ["", " ", "\t\n", "\v", "\u00a0"],
    "missing_value": [None, float("nan"), "NULL", "nan", "N/A", "<NA>", "..", "-", "inf", "#REF!"],
    "not_text": [12, 1.5, True, b"CCO", ["C"]],
    "number": ["1", "-3.2", "1e5", "12,000"],
    "non_ascii": ["CC\u039f", "C\u2212C", "\ufeffCCO", "CCO\ufffd", "CCN\u2212"],
    "control_character": ["CCO\x00", "\x00CCO", "C\x01C", "C\x7fC"],
    "inchi": [
        "LFQSCWFLJHTTHZ-UHFFFAOYSA-N",
        "InChI=",
        "InChI=1/C2H6O/c1-2-3/h3H,2H2,1H3",  # not standard
        "InChI=1S/C2H6O/c1-2-3",  # without hydrogen atoms
        "InChI=1S/CH4/h1H5",
        "InChI=1S/CH4/h1H4 methane",
        "InChI=1S/2CH2O3.4H3N.Pd/c2*2-1(3)4;;;;;/h72*(H2,2,3,4);4*1H3;/q;;;;;;+2/p-2",  # a crash
    ],
    "registry_number": ["50-00-0", "CAS 64-17-5"],
    "formula": ["C2H6O", "Ca(OH)2"],
    "sequence": ["MKTAYIAKQR"],
    "name": ["aspirin", "RCOOH", "acetic acid", "2 propanol"],
    "whitespace": ["CCO ethanol", "CCO\tethanol"],
    "cxsmiles": ["CCO |$a;b;c", "CCO |^9:0|", "CCO |c:0| name"],
    "reaction": ["CCO>>CC=O", "C>C"],
    "smarts": ["[#6]", "[C;!R]", "C~C", "C!@C", "[R1]", "C@C"],
    "bracket_atom": ["[Zz]", "[+C]", "[C:]", "[C+1.5]", "[65537H]", "[Na+1474]", "[C", "C]", "[]"],
    "parenthesis": ["C(", "C)", "((((", "C(C |c:0|", "C(C))C"],
    "ring_closure": ["C1", "C1CC2", "C%12CC"],
    "syntax": ["-C", "C=", "C=.C", "C(())C", "()C", "1CC1", "{}", "CCO;CCN", "CC\\", "C0C0", ".C"],
    "valence": ["N(C)(C)(C)C", "C#C#C", "[BH5]", "[H][H][H]"],
    "kekulize": ["c1cccc1", "o1ccccc1"],
    "aromaticity": ["c", "ccc"],
    "too_long": ["C" * 100_000, "(" * 100_000, "C%(" + "9" * 100_000],
    "too_large": ["C" * 2001, "C." * 2000 + "C", "C(C" * 3000],
    "too_nested": ["C(" * 300 + "C" + ")" * 300],
    "sanitize": ["[U]" + "(C)" * 1500],
}


def test_every_documented_code_of_a_smiles_is_provoked_here() -> None:
    of_rows = "too_slow mol_block ragged uncalculated no_date no_label invalid_label".split()
    of_rows += ["missing_feature", "bad_feature"]
    others = "standardize no_parent metal_complex organic_mixture not_finite".split()
    assert {*REASONS} == {*REFUSED, *of_rows, *others}


@pytest.mark.parametrize(
    "code, text", [(code, t) for code, texts in REFUSED.items() for t in texts]
)
def test_invalid_smiles_are_refused_with_a_code(code: str, text: object) -> None:
    with pytest.raises(SmilesError) as caught:
        parse_smiles(text)  # pyright: ignore[reportArgumentType]
    assert caught.value.code == code
    assert caught.value.smiles is text
    assert caught.value.reason
    assert len(str(caught.value)) < 300
    assert str(caught.value).isprintable()


def test_elements_are_those_of_rdkit() -> None:
    table = Chem.GetPeriodicTable()
    symbols = {table.GetElementSymbol(number) for number in range(1, 119)}
    pairs = itertools.product(string.ascii_uppercase, ("", *string.ascii_lowercase))
    texts = {first + second for first, second in pairs}
    assert {text for text in texts if SMILES.fullmatch(f"[{text}]")} == symbols
