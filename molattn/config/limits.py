"""Limits on the molecules that are read."""

from dataclasses import dataclass
from math import inf

from molattn.config.validation import check

__all__ = ["MoleculeLimits"]


@dataclass(frozen=True, kw_only=True)
class MoleculeLimits:
    """Molecules beyond a limit are not used; their reason codes begin with ``too_``.

    Args:
        max_length: Maximum number of characters of a SMILES.
        max_atoms: Maximum number of atoms, not counting implicit hydrogens.
        max_seconds: Maximum CPU time to read a molecule, in seconds.
    """

    max_length: int = 40_000
    max_atoms: int = 2_000
    max_seconds: float = 10.0

    def __post_init__(self) -> None:
        for name in ("max_length", "max_atoms"):
            check(self, name, lambda count: count >= 1, "a whole number of at least 1", int)
        check(self, "max_seconds", lambda seconds: 0.0 < seconds < inf, "a positive number")
