"""Every error a user can meet: what was got, what was expected, and where."""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

__all__ = [
    "InputError",
    "MolattnError",
    "REASONS",
    "ReasonCode",
    "SmilesError",
    "check_one_of",
    "in_python",
    "is_of_input",
    "is_out_of_memory",
    "os_error_line",
    "python_names",
    "quoted",
    "reason_meaning",
    "reason_table",
]

ReasonCode = str
"""A key of :data:`REASONS`, after ``partner_`` if the reason is the second molecule."""

REASONS: dict[ReasonCode, str] = {
    "empty": "The cell is empty or white space, or the RDKit molecule has no atoms.",
    "missing_value": "A missing-value marker, such as `NA`, `nan` or `#N/A`.",
    "not_text": "The value is not a string (Python only).",
    "non_ascii": "A non-ASCII character, such as a typographic minus sign.",
    "control_character": "A character that cannot be printed.",
    "number": "The cell is a number, not a SMILES.",
    "inchi": "An InChI or InChIKey: convert it to SMILES first.",
    "registry_number": "A CAS registry number: look up its SMILES first.",
    "formula": "A molecular formula, which does not define a structure.",
    "sequence": "A sequence of letters, as of amino acids or nucleotides.",
    "name": "A chemical name or another word: convert it to SMILES first.",
    "reaction": "A reaction, not one molecule.",
    "smarts": "A query (SMARTS, or an SDF with `A`, `Q`, `*`, an atom list, an R group or a query "
    "bond), not a molecule.",
    "whitespace": "More text follows the SMILES after a space.",
    "cxsmiles": "The CXSMILES extension after the SMILES is not valid.",
    "bracket_atom": "Invalid bracket atom, or a bracket that is not closed.",
    "parenthesis": "Unbalanced parentheses.",
    "ring_closure": "A ring closure is opened but not closed.",
    "syntax": "Any other SMILES syntax error.",
    "valence": "An atom exceeds its maximum valence.",
    "kekulize": "RDKit cannot kekulize the aromatic atoms.",
    "aromaticity": "An aromatic atom or bond outside a ring.",
    "sanitize": "RDKit's sanitization fails for another reason.",
    "standardize": "RDKit cannot standardize the molecule (`--standardize`).",
    "too_long": "More characters than `--max-length` (40,000 by default).",
    "too_large": "More atoms than `--max-atoms` (2,000 by default, 100 in pretraining), or more "
    "than 20,000 lines in an SDF record.",
    "too_slow": "RDKit needs more time than `--max-seconds` (10 s by default) or more than 2 GB of "
    "memory to read the molecule and calculate its features.",
    "too_nested": "Branches nested more than 200 deep.",
    "mol_block": "The structure in the SDF file cannot be read.",
    "ragged": "The row and the header have different numbers of cells.",
    "no_label": "The row has no label for any target (training only).",
    "invalid_label": "A label is not a number, such as `n.d.`, though most labels of its target "
    "are, or has no logarithm (`--target-transform log`); a cell of `--pretraining-columns` is not "
    "a number; or the relation of a label is unknown (not in prediction).",
    "missing_feature": "A feature that the model uses has no value.",
    "bad_feature": "A feature column of the model is not a number (only in prediction).",
    "out_of_memory": "Too little memory for the molecule (only in prediction).",
    "not_finite": "The prediction, or a score that explains it, is NaN or infinite.",
}
"""What each code means, in a sentence."""


def reason_meaning(code: ReasonCode) -> str:
    """Return what a code means as plain text, "" for a code of another package."""
    return REASONS.get(code.removeprefix("partner_"), "").replace("`", "")


def reason_table() -> str:
    """Return all codes and their meanings as a Markdown table."""
    rows = (f"| `{code}` | {meaning} |" for code, meaning in REASONS.items())
    return "\n".join(["| `error` | Meaning |", "| --- | --- |", *rows])


_QUOTE_LIMIT = 80
_MOST_CHOICES = 20


class MolattnError(Exception):
    """Base class of the errors molattn raises on purpose."""


class InputError(MolattnError, ValueError):
    """The user's input is wrong; the message is one line that says how to fix it.

    Args:
        message: The message, which writes options as the command line does; see :func:`in_python`.
        option: The option that is wrong, by its name in Python.
    """

    def __init__(self, message: str = "", *, option: str | None = None) -> None:
        super().__init__(message)
        self.option = option


class SmilesError(InputError):
    """A text that is not a valid SMILES, or a molecule that cannot be used.

    Args:
        smiles: The text as it was given, or the SMILES of an RDKit molecule.
        code: Short machine-readable reason, for example ``valence``: see :data:`REASONS`.
        reason: The same as a sentence.
    """

    def __init__(self, smiles: object, code: ReasonCode, reason: str) -> None:
        is_valid = code.removeprefix("partner_").startswith(("too_", "standardize"))
        what = "cannot use molecule" if is_valid else "invalid SMILES"
        super().__init__(f"{what} {quoted(smiles)}: {reason} [{code}]")
        self.smiles = smiles
        self.code = code
        self.reason = reason

    def at(self, position: int) -> "SmilesError":
        """Return the error of a molecule in a list, with its position."""
        return SmilesError(self.smiles, self.code, f"{self.reason} (position {position})")

    def __reduce__(self) -> tuple[type["SmilesError"], tuple[object, ReasonCode, str]]:
        return type(self), (self.smiles, self.code, self.reason)


def in_python(message: str, **renamed: str) -> str:
    """Return a message with options as Python, YAML and JSON write them: ``test_size``.

    Args:
        message: The message, with ``--test-size``.
        renamed: Other names of some options, such as ``seed="random_state"``.
    """

    def name(found: re.Match[str]) -> str:
        plain = found[1].replace("-", "_")
        return renamed.get(plain, plain)

    return re.sub(r"(?<![\w-])--(\w+(?:-\w+)*)", name, message)


@contextmanager
def python_names(**renamed: str) -> Iterator[None]:
    """Let the messages of errors write options as Python does; see :func:`in_python`."""
    try:
        yield
    except MolattnError as error:
        error.args = (in_python(str(error), **renamed),)
        raise


def os_error_line(error: OSError) -> str:
    """Return the file and the reason of an error of the operating system, as a line."""
    reason = error.strerror or str(error)
    return reason if error.filename is None else f"{os.fsdecode(error.filename)}: {reason}"


def is_out_of_memory(error: Exception) -> bool:
    """Return whether Python, or torch on any device, had too little memory."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError)
        and any(words in str(error) for words in ("allocate memory", "out of memory"))
    )


def check_one_of(name: str, value: object, choices: Iterable[str]) -> None:
    """Raise an :class:`InputError` with the choices, and the closest one, for any other value.

    The closest one is found whatever the case.
    """
    choices = tuple(choices)
    if value not in choices:
        alike = {choice.lower(): choice for choice in choices}
        close = get_close_matches(str(value).lower(), alike, n=1)
        hint = f"; did you mean {quoted(alike[close[0]])}?" if close else ""
        listed = ", ".join(choices[:_MOST_CHOICES])
        more = f" and {len(choices) - _MOST_CHOICES:,} more" * (len(choices) > _MOST_CHOICES)
        raise InputError(f"{name}: got {quoted(value)}, expected one of {listed}{more}{hint}")


def is_of_input(error: BaseException | None) -> bool:
    """Return whether the input is wrong, so that it is another one once it is corrected.

    An error of the operating system in reading it is no such error.
    """
    return isinstance(error, InputError) and not isinstance(error.__cause__, OSError)


def quoted(text: object) -> str:
    """Return ``text`` in quotes, with escapes for what is not printable, cut to 80 characters."""
    shown = repr(text)
    return shown if len(shown) <= _QUOTE_LIMIT else f"{shown[: _QUOTE_LIMIT - 4]}...{shown[-1]}"
