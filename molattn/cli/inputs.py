"""The input of a command as a table: a file, SMILES, or standard input."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from molattn.cli.shared import STREAM
from molattn.config import TableConfig
from molattn.data.table import SMILESList, Source, Table, format_by_suffix, open_table
from molattn.errors import InputError, SmilesError, quoted


def input_table(words: Sequence[str], config: TableConfig) -> Table:
    """Open standard input (``-`` alone), a file, or SMILES in its place.

    An existing path is a file. Anything else is a SMILES, unless it is not a valid one and has a
    path separator or the suffix of a table, as the name of a missing file does.

    Raises:
        InputError: There is a file among several words, a missing file, or no valid SMILES.
    """
    table = open_standard_input(config) if [*words] == [STREAM] else _open(words, config)
    table.column(config.smiles_column, "--smiles-column")  # checked before torch is loaded
    return table


def _open(words: Sequence[str], config: TableConfig) -> Table:
    words = ["-" if word == STREAM else word for word in words]
    files = [word for word in words if _exists(word)]
    if files and len(words) > 1:
        raise InputError(
            f"INPUT: got {len(words)} inputs, one of which is the file {quoted(files[0])}; "
            "expected one file, or SMILES"
        )
    if files:
        return open_table(words[0])
    errors = [_error(word, config) for word in words]
    for word, error in zip(words, errors, strict=True):
        if error is not None and (None not in errors or _is_like_a_file(word)):
            name = word or quoted(word)
            raise InputError(f"{name}: no such file, and not a SMILES: {error.reason}")
    return SMILESList(words, config.smiles_column)


def open_standard_input(config: TableConfig) -> Table:
    """Open standard input as a table, in any format that files have."""
    if sys.stdin is None:
        raise InputError("standard input is closed; expected a table")
    source = Source(sys.stdin.buffer, "standard input")
    return open_table(source, _format(source.start, config))


def _format(start: bytes, config: TableConfig) -> str:
    """Return the format of text that begins with some bytes: SDF, SMILES, or else CSV."""
    lines = start.split(b"\n")
    if len(lines) > 3 and lines[3].rstrip().endswith((b"V2000", b"V3000")):
        return "sdf"
    first = lines[0].decode(errors="replace")
    names = [name.strip(' "\r').lower() for name in re.split("[,;\t]", first)]
    if config.smiles_column.lower() in names:  # the first may be a SMILES, such as "SN"
        return "csv"
    word = next(iter(first.split()), "")
    return "smi" if word and _error(word, config) is None else "csv"


def _exists(word: str) -> bool:
    try:
        return bool(word) and Path(word).exists()
    except OSError:  # such as a name that is too long
        return False


def _is_like_a_file(word: str) -> bool:
    return "/" in word or "\\" in word or format_by_suffix(Path(word)) is not None


def _error(text: str, config: TableConfig) -> SmilesError | None:
    """Return why a text is not a SMILES; molecules beyond a limit have one."""
    from molattn.chem.limits import read_molecule

    try:
        read_molecule(text, config, bool)
    except SmilesError as error:
        return None if error.code.startswith("too_") else error
    return None
