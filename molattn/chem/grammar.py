"""The grammar of SMILES as regular expressions, and why a text is not a valid SMILES.

A text must match the grammar before RDKit reads it: OpenSMILES 1.0 (opensmiles.org) with RDKit's
dative bonds and long ring-closure numbers. RDKit checks that branches and rings are closed.
"""

import math
import re
from collections.abc import Sequence

from rdkit import Chem

from molattn.errors import ReasonCode

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
INCHI = re.compile(r"InChI=1S/[!-~]+")

_MISSING = frozenset(
    """
    null nil none nan na n/a n.a. nd n.d. <na> #n/a #na nat nul inf +inf -inf infinity
    +infinity -infinity true false yes missing unknown undefined unspecified blank empty tbd tba
    void invalid error not_available not_applicable #value! #ref! #name? #div/0! #num! #null!
    #error! #spill! #calc! #getting_data
    """.split()
)
_BRACKET = re.compile(_BRACKET_ATOM, re.ASCII)
_QUERY = re.compile(r"\[[^\]]*[!&,;#$][^\]]*\]|\[[rRDXvxaA^]\d*\]|!|~|@|&")
_WITHIN_BRACKETS = re.compile(r"\[[^\[\]]*\]")
# The first pattern that a text begins with gives its code and reason.
_FORMATS: Sequence[tuple[ReasonCode, str, str]] = (
    ("missing_value", r"[^A-Za-z0-9*()\[\]{}]*$", "it marks a missing value"),
    ("number", r"[+-]?(\d[\d,_ ]*(\.\d*)?|\.\d+)([eE][+-]?\d+)?%?$", "it is a number"),
    ("inchi", r"(?i:InChI=(?!.{14}-))", "RDKit cannot read it as a standard InChI"),
    ("inchi", r"(?i:InChI(=|Key))", "it is an InChIKey; look up its SMILES first"),
    ("inchi", r"[A-Z]{14}-[A-Z]{10}(-[A-Z])?$", "it is an InChIKey; look up its SMILES first"),
    (
        "registry_number",
        r"(?i:CAS[ :#-]*)?\d{2,7}-\d\d-\d$",
        "it is a CAS registry number; look up its SMILES first",
    ),
    ("reaction", r"[^<]*((?<!-)>|>>)[^<]*$", "it is a reaction, not one molecule"),
    ("cxsmiles", r"\S+\s+\|", "its CXSMILES extension is not valid"),
    ("name", r"\S+\s", "it is text with spaces, not a SMILES"),
)
# The same of texts without square brackets.
_WORDS: Sequence[tuple[ReasonCode, str, str]] = (
    (
        "formula",
        r"(?=.*\d)(([A-Z][a-z]?|\(([A-Z][a-z]?\d*)+\))\d*)+$",
        "it is a molecular formula; look up its SMILES first",
    ),
    ("sequence", r"[ACDEFGHIKLMNPQRSTUVWXY*-]{4,}$", "it looks like a sequence of residues"),
    ("name", r"[A-Za-z][A-Za-z'-]{2,}$", "it looks like a name; convert names to SMILES first"),
)
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
    if not text or text.isspace():
        return "empty", "the text is empty"
    if (error := _character_error(text)) is not None:
        return error
    if text.lower() in _MISSING:
        return "missing_value", "it marks a missing value"
    for code, pattern, reason in _FORMATS:
        if re.match(pattern, text):
            if code == "name" and SMILES.fullmatch(text.split()[0]):
                return "whitespace", "more text follows the SMILES after a space"
            return code, reason
    return _structure_error(text)


def _character_error(text: str) -> tuple[ReasonCode, str] | None:
    for index, character in enumerate(text, start=1):
        named = f"character {index} is U+{ord(character):04X}"
        if not character.isascii():
            return "non_ascii", f"{named}, but SMILES are plain ASCII"
        if not character.isprintable() and character not in "\t\r\n\v\f":
            return "control_character", f"{named}, a control character"
    return None


def _structure_error(text: str) -> tuple[ReasonCode, str]:
    for atom in _WITHIN_BRACKETS.findall(text):
        if _BRACKET.fullmatch(atom) is None:
            if _QUERY.match(atom):
                return "smarts", f"{atom!r:.40} is a SMARTS query, not an atom"
            return "bracket_atom", f"{atom!r:.40} is not a valid atom"
    outside = _WITHIN_BRACKETS.sub("", text)
    if "[" in outside or "]" in outside:
        return "bracket_atom", "a square bracket is not closed"
    for code, pattern, reason in _WORDS:
        if "[" not in text and re.match(pattern, text):
            return code, reason
    if _QUERY.search(outside):
        return "smarts", "it is a SMARTS query, not a molecule"
    if (error := _parenthesis_error(text)) is not None:
        return error
    match = SMILES.match(text)
    end = match.end() if match else 0
    where = f"character {end + 1} ({text[end]!r})" if end < len(text) else "its end"
    return "syntax", f"invalid SMILES syntax at {where}"


def _parenthesis_error(smiles: str) -> tuple[ReasonCode, str] | None:
    depth = 0
    for index, character in enumerate(re.sub(r"%\(\d+\)", lambda m: "0" * len(m[0]), smiles)):
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return "parenthesis", f"the ')' at character {index + 1} has no matching '('"
    return ("parenthesis", f"{depth} '(' without a matching ')'") if depth else None


def rdkit_error(smiles: str, *, extended: bool = False) -> tuple[ReasonCode, str]:
    """Return the code and the reason for a text that matches the grammar and that RDKit refuses."""
    if extended:
        smiles = smiles.split()[0]
        if Chem.MolFromSmiles(smiles) is not None:
            return "cxsmiles", "its CXSMILES extension is not valid"
    if (mol := Chem.MolFromSmiles(smiles, sanitize=False)) is not None:
        return chemistry_error(mol)
    if (error := _parenthesis_error(smiles)) is not None:
        return error
    labels: set[int] = set()
    for label in re.findall(r"%\(\d+\)|%\d\d|\d", _WITHIN_BRACKETS.sub("C", smiles)):
        labels ^= {int(label.strip("%()"))}
    if labels:
        return "ring_closure", f"ring closure {min(labels)} is opened but not closed"
    return "syntax", "RDKit cannot read it as a SMILES"


def chemistry_error(mol: Chem.Mol) -> tuple[ReasonCode, str]:
    """Return the code and the reason for a molecule that RDKit cannot sanitize."""
    try:
        problem = next(iter(Chem.DetectChemistryProblems(mol)))
    except (RuntimeError, StopIteration):  # it fails on some atoms with over a hundred bonds
        return "sanitize", "RDKit cannot sanitize the molecule"
    sentence = " ".join(problem.Message().split())
    return _PROBLEMS.get(problem.GetType(), "sanitize"), sentence[:1].lower() + sentence[1:]
