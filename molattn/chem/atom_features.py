"""Which values a feature can take, and the small integer code of each: data, without RDKit."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from molattn.errors import InputError

__all__ = ["ATOM_COLUMNS", "BOND_COLUMNS", "Column", "Value"]

Value = bool | int | str


@dataclass(frozen=True)
class Column:
    """One feature: its name and the values that have a code of their own.

    The code of ``values[i]`` is ``i``. In an open column every other value gets one further code,
    ``len(values)``; a closed column is one whose values are all listed.

    Args:
        name: Name of the feature.
        values: Distinct values in the order of their codes; all of one type.
        is_open: Whether a value outside ``values`` may occur.
    """

    name: str
    values: tuple[Value, ...]
    is_open: bool = True

    def __post_init__(self) -> None:
        if not self.values or len(set(self.values)) != len(self.values):
            raise InputError(
                f"feature {self.name!r}: expected distinct values, at least one, got {self.values}"
            )
        if len({type(value) for value in self.values}) != 1:
            raise InputError(
                f"feature {self.name!r}: expected values of one type, got {self.values}"
            )
        if self.size > 256:
            raise InputError(f"feature {self.name!r}: expected at most 256 codes, got {self.size}")

    @property
    def size(self) -> int:
        """Number of codes, the one for "other" included."""
        return len(self.values) + self.is_open

    @property
    def other(self) -> int | None:
        """The code of a value that is not listed (the last one), or None in a closed column."""
        return len(self.values) if self.is_open else None

    def codes(self) -> dict[Value, int]:
        """Return the code of each listed value."""
        return {value: code for code, value in enumerate(self.values)}

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types from which :meth:`from_dict` makes the same column."""
        return {"name": self.name, "values": list(self.values), "is_open": self.is_open}

    @classmethod
    def from_dict(cls, data: object) -> "Column":
        """Make a column from :meth:`to_dict`'s data.

        Raises:
            InputError: The data does not have exactly the expected keys and types.
        """
        expected = {"name": str, "values": list, "is_open": bool}
        if not isinstance(data, Mapping) or set(data) != set(expected):
            raise InputError(f"feature column: expected keys {sorted(expected)}, got {data!r:.200}")
        for key, kind in expected.items():
            if not isinstance(data[key], kind):
                raise InputError(
                    f"feature column key {key!r}: expected {kind.__name__}, got {data[key]!r:.80}"
                )
        if not all(isinstance(value, (bool, int, str)) for value in data["values"]):
            raise InputError(
                f"feature {data['name']!r}: expected booleans, integers or text as values, "
                f"got {data['values']!r:.200}"
            )
        return cls(data["name"], tuple(data["values"]), data["is_open"])


_FLAG = (False, True)

# Dummy atom (0), the first five rows of the periodic table, and the heavier elements of drugs,
# contrast agents, catalysts and poisons.
_ELEMENTS = (*range(55), 64, *range(76, 84))

ATOM_COLUMNS = (
    Column("element", _ELEMENTS),
    Column("degree", tuple(range(7))),
    Column("hydrogens", tuple(range(5))),
    Column("charge", (0, -1, 1, -2, 2, -3, 3)),
    Column("hybridization", ("SP3", "SP2", "SP", "S", "UNSPECIFIED", "SP3D", "SP3D2", "SP2D")),
    Column("aromatic", _FLAG, is_open=False),
    Column("ring_size", (0, 3, 4, 5, 6, 7, 8)),
    Column("chirality", ("none", "R", "S")),
    Column("radicals", (0, 1, 2)),
    Column("isotope", _FLAG, is_open=False),
)

BOND_COLUMNS = (
    Column("bond", ("none", "single", "double", "triple", "aromatic", "dative")),
    Column("conjugated", _FLAG, is_open=False),
    Column("ring", _FLAG, is_open=False),
    Column("stereo", ("none", "any", "Z", "E")),
)
