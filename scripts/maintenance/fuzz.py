"""Coverage-guided fuzzing of the two places where foreign bytes come in, with Atheris (libFuzzer).

    python scripts/maintenance/fuzz.py smiles corpus/ -max_total_time=1800 -timeout=30
    python scripts/maintenance/fuzz.py table corpus/ -max_total_time=1800 -timeout=30

The folder of inputs comes first, then options of libFuzzer. An empty folder is filled with inputs
to begin with. A finding ends the run and is kept as a file ``crash-...`` or ``timeout-...``, which
is run again if it is named instead of the folder. Atheris is installed by ``.[fuzz]``.
"""

import itertools
import re
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import atheris

with atheris.instrument_imports(  # pyright: ignore[reportAttributeAccessIssue] (not in its stub)
    include=["molattn.chem", "molattn.data", "molattn.errors"]
):
    from molattn.chem import DescriptorCalculator, Featurizer, Fields, MoleculeReader
    from molattn.chem.descriptors import DESCRIPTORS
    from molattn.data.table import bundled_dataset, open_table, write_table
    from molattn.errors import REASONS, InputError, SmilesError
    from molattn.record import MoleculeRecord

_LONGEST_ERROR = 4096
_SUFFIXES = (".csv", ".tsv", ".smi", ".sdf", ".parquet")
_TOKEN = re.compile(r"\[[^\]]*\]|Cl|Br|%\(\d+\)|%\d\d|->|<-|.", re.DOTALL)
_ATOMS = (
    *"C c n N o O s S F P B I b p Cl Br * =C #C =O [nH] [C@H] [C@@] [O-] [N+] [2H] [H]".split(),
    *"c1ccccc1 C(=O) C1CC1 [N+](=O)[O-] /C=C/ [Cu+2] [se] [*:1] [Xe] [Co@OH12] [Pt@SP1]".split(),
)
_TOKENS = (
    *"( ) = # $ : / \\ . - + @ % -> <- 1 2 %12 %(123) [ ] [9999 H4 |$a;b$| |&1:1,3| > ~ !".split(),
    *("[As@TB20]", "[C@AL1]", " ", "\t", "\u2212", "\x00"),
)
_MOL_BLOCK = """

  0  0  0     0  0            999 V3000
M  V30 BEGIN CTAB
M  V30 COUNTS 2 1 0 0 0
M  V30 BEGIN ATOM
M  V30 1 C 0 0 0 0
M  V30 2 O 1 0 0 0
M  V30 END ATOM
M  V30 BEGIN BOND
M  V30 1 1 1 2
M  V30 END BOND
M  V30 END CTAB
M  END
> <y>
1.5

$$$$
"""


def check_smiles(content: bytes) -> None:
    """Read a text as every command does: it is a molecule, or an error with a documented code."""
    (read,) = _READER([content.decode(errors="surrogateescape")])
    if isinstance(read, SmilesError):
        _check_error(read)
        assert read.code in REASONS, read.code
    else:
        assert isinstance(read, MoleculeRecord)


def mutate_smiles(content: bytes, most: int, seed: int) -> bytes:
    """Change a text, or as often a molecule, by tokens, branches and rings, rarely by bytes."""
    random = Random(seed)
    if random.random() < 0.1:
        return atheris.Mutate(content, most)
    if random.random() < 0.5:
        content = random.choice(smiles_seeds())
    tokens = _TOKEN.findall(content.decode(errors="surrogateescape"))
    for _ in range(random.randint(1, 3)):
        start = random.randint(0, len(tokens))
        end = min(len(tokens), start + random.choice((0, 0, 1, 1, 2, 5, 20)))
        inside = tokens[start:end]
        closure = random.choice("123456789")
        tokens[start:end] = random.choice(
            (
                [],
                random.choices(_TOKENS, k=random.randint(1, 2)),
                random.choices(_ATOMS, k=random.randint(1, 3)),
                inside * random.randint(2, 5),
                ["(", *(inside or ["C"]), ")"],
                ["C", closure, *(inside or ["C"]), "C", closure],
            )
        )
    return "".join(tokens).encode(errors="surrogateescape")[:most]


def check_table(content: bytes) -> None:
    """Read a file whose first byte chooses its suffix: rows that fit the header, or one error.

    The rows that were read are written, and read again as they were.
    """
    suffix = _SUFFIXES[content[0] % len(_SUFFIXES)] if content else ".csv"
    path = _FOLDER / f"in{suffix}"
    path.write_bytes(content[1:])
    try:
        table = open_table(path)
        rows = list(table)
    except InputError as error:
        _check_error(error)
        return
    assert [row.cells for row in table] == [row.cells for row in rows]
    assert all(len(row.cells) == len(table.header) for row in rows)
    lines = [row.line for row in rows]
    assert lines == sorted(set(lines))
    copy = _FOLDER / "out.csv"
    with write_table(copy, ["line", *table.header]) as write:
        for row in rows:
            write([row.line, *row.cells])
    written = open_table(copy)
    assert written.header == ["line", *table.header]
    assert [row.cells for row in written] == [[str(row.line), *row.cells] for row in rows]


def _check_error(error: InputError) -> None:
    message = str(error)
    assert "\n" not in message, message
    assert len(message) <= _LONGEST_ERROR, len(message)


@cache
def smiles_seeds() -> list[bytes]:
    """Return the molecules of the bundled table."""
    table = open_table(bundled_dataset())
    texts = [row.cells[table.column("smiles", "")] for row in itertools.islice(table, 1000)]
    return [text.encode() for text in texts]


def table_seeds() -> list[bytes]:
    """Return small tables under each suffix and in each encoding."""
    texts = ['smiles,y\nCCO,1\n"C,C",2\n', "smiles;y\r\nCCO;1,5\r\n", "smiles\ty\nC\t1\n\nN\t2\n"]
    texts += ["CCO ethanol\nC methane\n", "smiles name\nC x\n", _MOL_BLOCK, 'y\n"1\n2"\n']
    return [
        bytes([place]) + text.encode(code)
        for place in range(len(_SUFFIXES))
        for text in texts
        for code in ("utf-8", "utf-8-sig", "utf-16")
    ]


_FOLDER = Path()
_READER = MoleculeReader(
    Featurizer.default(),
    Fields(
        DescriptorCalculator(DESCRIPTORS, morgan_counts=64),
        fingerprint=True,
        smiles=True,
        scaffold=True,
    ),
)
_TARGETS: dict[str, tuple[Callable[[bytes], None], Callable[[], list[bytes]], dict[str, Any]]] = {
    "smiles": (check_smiles, smiles_seeds, {"custom_mutator": mutate_smiles}),
    "table": (check_table, table_seeds, {}),
}


def main() -> None:
    global _FOLDER
    name, *options = sys.argv[1:]
    check, seeds, more = _TARGETS[name]
    inputs = Path(options[0]) if options else None
    if inputs is not None and inputs.is_dir() and not any(inputs.iterdir()):
        for place, seed in enumerate(seeds()):
            (inputs / f"seed-{place}").write_bytes(seed)
    atheris.Setup([sys.argv[0], *options], check, **more)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as made:
        _FOLDER = Path(made)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
