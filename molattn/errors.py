"""Every error a user can meet: what was got, what was expected, and where."""

from collections.abc import Iterable

from molattn.reasons import ReasonCode

__all__ = ["InputError", "MolattnError", "SmilesError", "check_one_of", "quoted"]

_QUOTE_LIMIT = 80


class MolattnError(Exception):
    """Base class of the errors molattn raises on purpose."""


class InputError(MolattnError, ValueError):
    """The user's input is wrong; the message is one line that says how to mend it."""


class SmilesError(InputError):
    """A text that is not a molecule.

    Args:
        smiles: The text as it was given.
        code: Short machine-readable reason, for example ``valence``: see :mod:`molattn.reasons`.
        reason: The same as a sentence.
    """

    def __init__(self, smiles: object, code: ReasonCode, reason: str) -> None:
        super().__init__(f"{quoted(smiles)} is not a molecule: {reason} [{code}]")
        self.smiles = smiles
        self.code: ReasonCode = code
        self.reason = reason

    def __reduce__(self) -> tuple[type["SmilesError"], tuple[object, ReasonCode, str]]:
        return type(self), (self.smiles, self.code, self.reason)


def check_one_of(name: str, value: object, choices: Iterable[str]) -> None:
    """Refuse a value that is none of the choices.

    Raises:
        InputError: Says what was got under that name, and the choices.
    """
    choices = tuple(choices)
    if value not in choices:
        raise InputError(f"{name}: got {quoted(value)}, expected one of {', '.join(choices)}")


def quoted(text: object) -> str:
    """Return ``text`` escaped to printable ASCII, in quotes, and cut to 80 characters."""
    shown = ascii(text)
    return shown if len(shown) <= _QUOTE_LIMIT else f"{shown[: _QUOTE_LIMIT - 4]}...{shown[-1]}"
