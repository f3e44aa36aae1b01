"""Errors that users meet. Each says what was given, what was expected, and where."""

import os
import re
from collections.abc import Iterable
from difflib import get_close_matches

ReasonCode = str
"""A key of :data:`REASONS`, after ``partner_`` if the reason is the second molecule."""

REASONS: dict[ReasonCode, str] = {
    "empty": "The cell is empty or white space, or the RDKit molecule has no atoms.",
    "missing_value": "A missing-value marker, such as `NA`, `nan` or `#N/A`.",
    "not_text": "The value is not a string (Python only).",
    "non_ascii": "A non-ASCII character, such as a typographic minus sign.",
    "control_character": "A character that cannot be printed.",
    "number": "The cell is a number, not a SMILES.",
    "inchi": "An InChIKey, which has no structure, or an InChI that is not valid, not standard, or "
    "of a metal compound, whose bonds to the metal it lacks.",
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
    "aromaticity": "An aromatic atom or bond outside a ring (one between two aromatic rings is "
    "read as single).",
    "sanitize": "RDKit's sanitization fails for another reason.",
    "standardize": "RDKit cannot standardize the molecule (`--standardize`).",
    "no_parent": "No organic fragment (with carbon other than carbonate), and thus no parent to "
    "predict.",
    "metal_complex": "No parent: a metal, other than the usual cations of salts, or a carbanion is "
    "drawn apart from what it may be bonded to.",
    "organic_mixture": "No parent: several organic molecules that are not usual counterions or "
    "solvents; predict each alone.",
    "too_long": "More characters than `--max-length` (40,000 by default).",
    "too_large": "More atoms than `--max-atoms` (2,000 by default, 100 in pretraining), or more "
    "than 20,000 lines in an SDF record.",
    "too_slow": "RDKit needs more time than `--max-seconds` (10 s by default) or more than 2 GB of "
    "memory to read the molecule and calculate its features.",
    "too_nested": "Branches nested more than 200 deep.",
    "mol_block": "The structure in the SDF file cannot be read.",
    "ragged": "The row and the header have different numbers of cells.",
    "uncalculated": "A formula of the Excel file has no stored value: open the file in Excel or "
    "LibreOffice, and save it.",
    "no_label": "The row has no label for any target (training only).",
    "invalid_label": "No label can be read, and one is not a number, such as `n.d.`, though most "
    "labels of its target are, or has no logarithm (`--target-transform log`); a cell of "
    "`--pretraining-columns` is not a number; the limits of a label (`--interval-columns`) are not "
    "in ascending order with its value between them; or its relation is unknown (not in "
    "prediction).",
    "missing_feature": "A feature that the model uses has no value.",
    "no_date": "The row has no date in `--time-column`, or an auxiliary row has one in another "
    "format than the rows with a target (training only).",
    "bad_feature": "A feature column of the model is not a number (only in prediction).",
    "not_finite": "The prediction, or a score that explains it, is NaN or infinite.",
}
"""What each code means, in a sentence."""


def reason_meaning(code: ReasonCode) -> str:
    """Return the meaning of a code as plain text, "" for a code of another package."""
    return REASONS.get(code.removeprefix("partner_"), "").replace("`", "")


_MOST_SHOWN = 80
_MOST_CHOICES = 20
_OPTION = re.compile(r"(?<![\w-])--(\w+(?:-\w+)*)")


class MolattnError(Exception):
    """Base class of the errors molattn raises on purpose."""


class InputError(MolattnError, ValueError):
    """The user's input is wrong; the message is one line that says how to fix it.

    As a text it names options as Python, YAML and JSON do, such as ``test_size: got 2``.

    Args:
        message: What is wrong, such as ``got 2, expected a number below 1``. It writes other
            options as the command line does: ``cannot be used with --split-column``.
        option: The option that is wrong, by its name in Python.
    """

    def __init__(self, message: str = "", *, option: str | None = None) -> None:
        super().__init__(message)
        self.option = option

    def __str__(self) -> str:
        return _OPTION.sub(lambda match: match[1].replace("-", "_"), self.command_line())

    def command_line(self) -> str:
        """Return the error with options as the command line writes them: ``--test-size: got 2``.

        An error that is raised again with the file or the row takes this as its message.
        """
        where = "" if self.option is None else f"--{self.option.replace('_', '-')}: "
        return f"{where}{self.args[0]}"


class SmilesError(InputError):
    """A text that is not a valid SMILES, or a molecule that cannot be used.

    Args:
        smiles: The text as it was given, or the SMILES of an RDKit molecule.
        code: Short machine-readable reason, for example ``valence``: see :data:`REASONS`.
        reason: The same as a sentence.
    """

    def __init__(self, smiles: object, code: ReasonCode, reason: str) -> None:
        usable = ("too_", "standardize", "no_parent", "metal_complex", "organic_mixture")
        is_valid = code.removeprefix("partner_").startswith(usable)
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


def os_error_line(error: OSError) -> str:
    """Return the file and the reason of an error of the operating system, as a line."""
    reason = error.strerror or str(error)
    return reason if error.filename is None else f"{os.fsdecode(error.filename)}: {reason}"


def check_one_of(option: str, value: object, choices: Iterable[str]) -> None:
    """Raise an :class:`InputError` of an option for any value that is not among the choices."""
    choices = tuple(choices)
    if value not in choices:
        listed = ", ".join(choices[:_MOST_CHOICES])
        more = f" and {len(choices) - _MOST_CHOICES:,} more" * (len(choices) > _MOST_CHOICES)
        hint = did_you_mean(value, choices)
        message = f"got {quoted(value)}, expected one of {listed}{more}{hint}"
        raise InputError(message, option=option)


def matching(name: str, names: Iterable[str]) -> list[str]:
    """Return the equal name, or else all names that differ from it only in case."""
    names = [*dict.fromkeys(names)]
    if name in names:
        return [name]
    return [candidate for candidate in names if candidate.lower() == name.lower()]


def did_you_mean(name: object, names: Iterable[str]) -> str:
    """Return a hint at the closest of the known names, whatever the case; "" if none is close."""
    spelled = {candidate.lower(): candidate for candidate in names}
    close = get_close_matches(str(name).lower(), spelled, n=1)
    return f"; did you mean {quoted(spelled[close[0]])}?" if close else ""


def is_of_input(error: BaseException | None) -> bool:
    """Return whether an error is about wrong input, and not about a file that cannot be read."""
    return isinstance(error, InputError) and not isinstance(error.__cause__, OSError)


def quoted(value: object) -> str:
    """Return a value in quotes, with escapes for what is not printable, cut to 80 characters."""
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 4]}...{text[-1]}"
