"""Input that people and programs may give, for property-based tests."""

import gzip
from typing import Any

from hypothesis import strategies as st

from molattn.config import RunConfig

# Each can follow and be followed by any other.
_FRAGMENTS = (
    "C N O S C(C) C(=O) C=C C#C N(C) c1ccc(cc1) c1cnc(s1) C1CCC(CC1) [C@H](O) [C@@H](F) S(=O)(=O) "
    "[13CH2] [Si](C)(C) [Se] C(Cl)(Br) C([N+](=O)[O-]) C/C=C/C C(C(=O)[O-]) O.O [O-].[Na+].C"
).split()
_SMILES_CHARACTERS = "CNOcnos[]()=#-+@/\\.%123456H*:lBr "

# Lone surrogates are what bytes that are not UTF-8 decode to.
_CHARACTERS = st.characters(exclude_categories=["Cs"]) | st.characters(
    min_codepoint=0xDC80, max_codepoint=0xDCFF
)
_NUMBERS = st.integers() | st.floats() | st.sampled_from([10**9, 2**63, 10**400])


@st.composite
def smiles(draw: st.DrawFn) -> str:
    """Molecules of up to about 60 atoms, some of several parts."""
    parts = draw(st.lists(st.sampled_from(_FRAGMENTS), min_size=1, max_size=10))
    return "C" + "".join(parts) + "C"


@st.composite
def smiles_texts(draw: st.DrawFn) -> str:
    """Molecules, molecules with a part replaced, and texts of any kind."""
    text = draw(smiles())
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, len(text)))
    other = draw(st.text(_SMILES_CHARACTERS, max_size=30) | st.text(_CHARACTERS, max_size=10))
    return draw(st.sampled_from([text, text[:start] + other + text[end:], other]))


def cells() -> st.SearchStrategy[str]:
    """Texts of cells, bytes that are not UTF-8 included."""

    def decoded(text: str) -> str:
        return text.encode(errors="surrogateescape").decode(errors="surrogateescape")

    return st.text(_CHARACTERS, max_size=8).filter(lambda text: text == decoded(text))


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Files with a bit flipped, a part cut out or replaced, or cut short."""
    start = draw(st.integers(0, max(len(content) - 1, 0)))
    end = draw(st.integers(start, min(len(content), start + 64)))
    flipped = bytes([content[start] ^ 1 << draw(st.integers(0, 7))]) if content else b""
    return draw(
        st.sampled_from(
            [
                content[:start] + flipped + content[start + 1 :],
                content[:start] + content[end:],
                content[:start] + draw(st.binary(max_size=16)) + content[end:],
                content[:start],
            ]
        )
    )


@st.composite
def altered(draw: st.DrawFn, content: Any) -> Any:
    """JSON with one value, at any depth, removed or replaced by another of any type."""
    if isinstance(content, dict | list) and content and draw(st.integers(0, 4)):
        copy = content.copy()
        keys = list(copy) if isinstance(copy, dict) else range(len(copy))
        key = draw(st.sampled_from(keys))
        if draw(st.integers(0, 9)):
            copy[key] = draw(altered(copy[key]))
        else:
            del copy[key]
        return copy
    leaf = st.none() | st.booleans() | _NUMBERS | st.text(max_size=8)
    return draw(leaf | st.lists(leaf, max_size=3) | st.dictionaries(st.text(max_size=4), leaf))


@st.composite
def table_files(draw: st.DrawFn) -> bytes:
    """Text tables with the usual variants and faults of such files, and damaged ones."""
    delimiter = draw(st.sampled_from(",;\t |"))
    end = draw(st.sampled_from(["\n", "\r\n", "\r", "\r\r\n"]))
    special = st.sampled_from(['"', '""', '"a"', f'"a{delimiter}b"', f'"a{end}b"', "\0", "=1+1"])
    cell = smiles() | cells() | special | st.sampled_from(["", "1.5", "NA", "$$$$", "M  END"])
    header = ["smiles", *draw(st.lists(cell, max_size=3))]
    rows = draw(st.lists(st.lists(cell, max_size=5), max_size=6))
    text = end.join(delimiter.join(row) for row in [header, *rows]) + draw(
        st.sampled_from(["", end, end * 3])
    )
    code = draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-be"]))
    errors = "surrogateescape" if code.startswith("utf-8") else "replace"
    content = text.encode(code, errors=errors)
    content = draw(st.sampled_from([content, gzip.compress(content, mtime=0)]))
    return draw(st.just(content) | damaged(content))


def yaml_values() -> st.SearchStrategy[Any]:
    """What a YAML file may have as a value."""
    plain = st.none() | st.booleans() | _NUMBERS | st.text(max_size=8) | st.dates()
    return plain | st.lists(plain, max_size=3) | st.dictionaries(st.text(max_size=4), plain)


@st.composite
def options_of(draw: st.DrawFn, run: type[RunConfig]) -> dict[Any, Any]:
    """Sections of a run with some of its options, each with a value of any kind."""
    names = st.sampled_from(sorted(run.options())) | st.text(max_size=6)
    content: dict[Any, Any] = {}
    for name in draw(st.lists(names, max_size=5, unique=True)):
        section = run.options()[name].section if name in run.options() else "training"
        content.setdefault(section, {})[name] = draw(yaml_values())
    others = st.sampled_from([*run.sections(), run.file_key(), "x", 1])
    return content | draw(st.dictionaries(others, yaml_values(), max_size=1))
