"""The grammar of SMILES as regular expressions, which a text must match before RDKit reads it.

After OpenSMILES 1.0 (opensmiles.org), with RDKit's dative bonds and long ring-closure numbers.
That branches and ring closures are closed is left to RDKit.
"""

import re

__all__ = ["ATOM", "ATOM_MAP", "BRACKET_ATOM", "CLOSURE", "EXTENSION", "SMILES"]

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
BRACKET_ATOM = (
    rf"\[{_ISOTOPE}?(?:se|as|te|si|[bcnops]|\*|{_ELEMENT})"
    rf"(?:{_CHIRALITY})?(?:H\d{{0,2}})?{_CHARGE}?(?::\d{{1,9}})?\]"
)
_ATOM = rf"(?:Cl|Br|[BCNOPSFIbcnops*]|{BRACKET_ATOM})"

ATOM_MAP = re.compile(r":\d+(?=\])")
CLOSURE = re.compile(_RING_CLOSURE)
ATOM = re.compile(r"\[[^\]]*\]|Cl|Br|[A-Za-z*]")
# Possessive, so that the time is linear in the length of the text.
SMILES = re.compile(rf"{_ATOM}(?>\(?(?:{_BOND}|\.)?{_ATOM}|{_BOND}?{_RING_CLOSURE}|\))*+", re.ASCII)
EXTENSION = re.compile(r"\|[ -{}~]*\|", re.ASCII)
