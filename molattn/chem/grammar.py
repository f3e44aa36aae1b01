"""The grammar of SMILES as regular expressions, and why a text is not a valid SMILES.

A text must match the grammar before RDKit reads it. It is OpenSMILES 1.0 (opensmiles.org), with
RDKit's dative bonds and long ring-closure numbers. That branches and ring closures are closed is
left to RDKit.
"""

import math
import re

from rdkit import Chem

from molattn.errors import ReasonCode

__all__ = [
    "ATOM",
    "ATOM_MAP",
    "CLOSURE",
    "EXTENSION",
    "SMILES",
    "chemistry_error",
    "grammar_error",
    "rdkit_error",
]

_ELEMENT = (
    "A[cglmrstu]|B[aehikr]?|C[adeflmnorsu]?|D[bsy]|E[rsu]|F[elmr]?|G[ade]|H[efgos]?|I[nr]?|Kr?"
    "|L[airuv]|M[cdgnot]|N[abdehiop]?|O[gs]?|P[abdmortu]?|R[abefghnu]|S[bcegimnr]?|T[abcehilms]"
    "|U|V|W|Xe|Yb?|Z[nr]"
)
_BOND = r"(?:->|<-|[-=#$:/\\])"
_RING_CLOSURE = r"(?:\d|%\d\d|%\(\d{1,5}\))"
_CHIRALITY = r"@(?:@|TH[12]|AL[12]|SP[1-3]|TB(?:1\d|20|[1-9])|OH(?:[12]\d|30|[1-9]))?"
# RDKit stores an isotope in 16 bits and a charge in 8, and silently wraps larger numbers.
_ISOTOPE = r"(?:[1-5]\d{4}|\d{1,4})"
_CHARGE = r"(?:[+-]\d{1,2}|\+{1,15}|-{1,15})"
_BRACKET_ATOM = (
    rf"\[{_ISOTOPE}?(?:se|as|te|si|[bcnops]|\*|{_ELEMENT})"
    rf"(?:{_CHIRALITY})?(?:H\d{{0,2}})?{_CHARGE}?(?::\d{{1,9}})?\]"
)
_ATOM = rf"(?:Cl|Br|[BCNOPSFIbcnops*]|{_BRACKET_ATOM})"

ATOM_MAP = re.compile(r":\d+(?=\])")
CLOSURE = re.compile(_RING_CLOSURE)
ATOM = re.compile(r"\[[^\]]*\]|Cl|Br|[A-Za-z*]")
# Possessive, so that the time is linear in the length of the text.
SMILES = re.compile(rf"{_ATOM}(?>\(?(?:{_BOND}|\.)?{_ATOM}|{_BOND}?{_RING_CLOSURE}|\))*+", re.ASCII)
EXTENSION = re.compile(r"\|[ -{}~]*\|", re.ASCII)

_MISSING_WORDS = """
    null nil none nan na n/a n.a. nd n.d. <na> #n/a #na nat nul inf +inf -inf infinity
    +infinity -infinity true false yes missing unknown undefined unspecified blank empty tbd tba
    void invalid error not_available not_applicable #value! #ref! #name? #div/0! #num! #null!
    #error! #spill! #calc! #getting_data
"""
_MISSING = frozenset(_MISSING_WORDS.split())
_BRACKET = re.compile(_BRACKET_ATOM, re.ASCII)
_INCHI = re.compile(r"\s*InChI(?:=|Key)", re.IGNORECASE)
_INCHI_KEY = re.compile(r"[A-Z]{14}-[A-Z]{10}(?:-[A-Z])?")
_REGISTRY = re.compile(r"(?:CAS[ :#-]*)?\d{2,7}-\d\d-\d", re.IGNORECASE)
_FORMULA = re.compile(r"(?:(?:[A-Z][a-z]?|\((?:[A-Z][a-z]?\d*)+\))\d*)+")
_SEQUENCE = re.compile(r"[ACDEFGHIKLMNPQRSTUVWXY*-]{4,}")
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]{2,}")
_QUERY = re.compile(r"\[[^\]]*[!&,;#$][^\]]*\]|\[[rRDXvxaA^]\d*\]|!|~|@|&")
_NUMBER = re.compile(r"[+-]?(?:\d[\d,_ ]*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?%?")

_PROBLEMS: dict[str, ReasonCode] = {
    "AtomValenceException": "valence",
    "KekulizeException": "kekulize",
    "AtomKekulizeException": "aromaticity",
}


def grammar_error(text: object) -> tuple[ReasonCode, str]:
    """Return the code and the reason for a stripped text that is not in the grammar of SMILES."""
    if text is None or (isinstance(text, float) and math.isnan(text)):
        return "missing_value", "the value is missing"
    if not isinstance(text, str):
        return "not_text", f"expected text, got {type(text).__name__}"
    for test in (_character_error, _format_error, _bracket_error, _structure_error):
        if (found := test(text)) is not None:
            return found
    return "syntax", f"invalid SMILES syntax at {_where(text)}"


def _where(text: str) -> str:
    match = SMILES.match(text)
    end = match.end() if match else 0
    return f"character {end + 1} ({text[end]!r})" if end < len(text) else "its end"


def _character_error(text: str) -> tuple[ReasonCode, str] | None:
    if not text or text.isspace():
        return "empty", "the text is empty"
    for index, character in enumerate(text):
        if (code := ord(character)) > 127:
            # How Python reads a byte that is not UTF-8.
            is_byte = 0xDC80 <= code <= 0xDCFF
            found = f"the byte 0x{code - 0xDC00:02X}" if is_byte else f"U+{code:04X}"
            return (
                "non_ascii",
                f"character {index + 1} is {found}, but SMILES are plain ASCII",
            )
        if not character.isprintable() and character not in "\t\r\n\v\f":
            return (
                "control_character",
                f"character {index + 1} is a control character, U+{ord(character):04X}",
            )
    return None


def _format_error(text: str) -> tuple[ReasonCode, str] | None:
    lower = text.lower()
    if lower in _MISSING or not any(c.isalnum() or c in "*()[]{}" for c in text):
        return "missing_value", "it marks a missing value"
    if _NUMBER.fullmatch(text):
        return "number", "it is a number"
    if _INCHI.match(text) or _INCHI_KEY.fullmatch(text):
        return "inchi", "it is an InChI or InChIKey; convert it to SMILES first"
    if _REGISTRY.fullmatch(text):
        return "registry_number", "it is a CAS registry number; look up its SMILES first"
    if re.search(r"(?<!-)>|>>", text) and "<" not in text:
        return "reaction", "it is a reaction, not one molecule"
    head, *rest = text.split(None, 1)
    if rest and rest[0].startswith("|"):
        return "cxsmiles", "its CXSMILES extension is not valid"
    if rest:
        if SMILES.fullmatch(head):
            return "whitespace", "more text follows the SMILES after a space"
        return "name", "it is text with spaces, not a SMILES"
    return None


def _bracket_error(text: str) -> tuple[ReasonCode, str] | None:
    for found in re.finditer(r"\[([^\[\]]*)\]", text):
        if _BRACKET.fullmatch(found[0]):
            continue
        if _QUERY.match(found[0]):
            return "smarts", f"{found[0]!r:.40} is a SMARTS query, not an atom"
        return "bracket_atom", f"{found[0]!r:.40} is not a valid atom"
    if re.sub(r"\[[^\[\]]*\]", "", text).strip("[]") != re.sub(r"\[[^\[\]]*\]", "", text) or (
        text.count("[") != text.count("]")
    ):
        return "bracket_atom", "a square bracket is not closed"
    return None


def _structure_error(text: str) -> tuple[ReasonCode, str] | None:
    if "[" not in text:
        if re.search(r"\d", text) and _FORMULA.fullmatch(text):
            return "formula", "it is a molecular formula; look up its SMILES first"
        if _SEQUENCE.fullmatch(text):
            return "sequence", "it looks like a sequence of residues, not a SMILES"
        if _WORD.fullmatch(text):
            return "name", "it looks like a name or another word; convert names to SMILES first"
    if _QUERY.search(re.sub(r"\[[^\]]*\]", "", text)):
        return "smarts", "it is a SMARTS query, not a molecule"
    return _parenthesis_error(text)


def _parenthesis_error(smiles: str) -> tuple[ReasonCode, str] | None:
    depth = 0
    for index, character in enumerate(re.sub(r"%\(\d+\)", lambda m: "0" * len(m[0]), smiles)):
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return "parenthesis", f"the ')' at character {index + 1} has no matching '('"
    if depth:
        return "parenthesis", f"{depth} '(' without a matching ')'"
    return None


def rdkit_error(smiles: str, *, extended: bool = False) -> tuple[ReasonCode, str]:
    """Return the code and the reason for a text that matches the grammar and that RDKit refuses."""
    if extended:
        smiles = smiles.split()[0]
        if Chem.MolFromSmiles(smiles) is not None:
            return "cxsmiles", "its CXSMILES extension is not valid"
    mol = Chem.MolFromSmiles(smiles, sanitize=False)
    if mol is not None:
        return chemistry_error(mol)
    if (found := _parenthesis_error(smiles)) is not None:
        return found
    open_labels: set[int] = set()
    without_brackets = re.sub(r"\[[^\]]*\]", "C", smiles)
    for label in re.findall(r"%\(\d+\)|%\d\d|\d", without_brackets):
        open_labels ^= {int(label.strip("%()"))}
    if open_labels:
        return "ring_closure", f"ring closure {min(open_labels)} is opened but not closed"
    return "syntax", "RDKit cannot read it as a SMILES"


def chemistry_error(mol: Chem.Mol) -> tuple[ReasonCode, str]:
    """Return the code and the reason for a molecule that RDKit cannot sanitize."""
    try:
        problems = Chem.DetectChemistryProblems(mol)
    except RuntimeError:  # RDKit's own checks fail on some atoms with over a hundred bonds.
        problems = ()
    for problem in problems:
        sentence = " ".join(problem.Message().split())
        code = _PROBLEMS.get(problem.GetType(), "sanitize")
        return code, sentence[:1].lower() + sentence[1:]
    return "sanitize", "RDKit cannot sanitize the molecule"
