"""What the overview of a table for people has: the properties, their colors, and usual units."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, NamedTuple

from rdkit import Chem
from rdkit.Chem import Descriptors

from molattn.chem.limits import read_molecule
from molattn.chem.parse import NO_LIMITS
from molattn.model.training_set import Endpoint
from molattn.task import Task

Range = tuple[float | None, float | None, Literal["", "good", "poor"]]
"""Smallest value, the end after the largest, and whether values between are desired."""

_POOR_UP_TO = 0.3  # probability of the desired class, as OptADMET has it
_GOOD_FROM = 0.7
_MOST = 290.0  # whose power of 10 is finite


class Conversion(NamedTuple):
    """A unit that chemists write, of a value and a molar mass in g/mol."""

    unit: str
    convert: Callable[[float, float], float]


def _grams(value: float, mass: float) -> float:
    return 1e3 * mass * 10.0 ** min(value, _MOST)


def _dose(value: float, mass: float) -> float:
    return _grams(-value, mass)


def _speed(value: float, _: float) -> float:
    return 10.0 ** (min(value, _MOST) + 6.0)


CONVERSIONS: Mapping[str, Conversion] = {
    "log mol/L": Conversion("µg/mL", _grams),
    "log cm/s": Conversion("10^-6 cm/s", _speed),
    "log(1/(mol/kg))": Conversion("mg/kg", _dose),
}
"""The unit beside a unit in which properties are learned."""


class OverviewColumn(NamedTuple):
    """A property in an overview."""

    title: str
    column: str  # whose value is shown
    colored_by: str  # column of the value that is compared with the ranges of a color
    grade: str  # column of the confidence, "" = none
    is_probability: bool


def conversions(tasks: Sequence[Task], endpoints: Mapping[str, Endpoint]) -> dict[str, Conversion]:
    """Return the conversions of predictions, by the name of the task."""
    units = {task.name: task.unit for task in tasks if task.kind == "regression"}
    units |= {name: endpoints[name].unit for name in units if name in endpoints}
    return {name: CONVERSIONS[unit] for name, unit in units.items() if unit in CONVERSIONS}


def molar_mass(smiles: str) -> float:
    """Return the average molar mass of a molecule in g/mol."""
    return read_molecule(smiles, NO_LIMITS, _mass)[1]


def _mass(mol: Chem.Mol) -> float:
    return Descriptors.MolWt(mol)  # pyright: ignore[reportAttributeAccessIssue]


def color_ranges(task: Task, endpoint: Endpoint | None) -> list[Range]:
    """Return which values of a property are desired, as the page of ``molattn serve`` colors them.

    A number is compared with the thresholds in use, a probability of one of two classes with 0.3
    and 0.7 if a class is desired.
    """
    if endpoint is None:
        return []
    if task.kind == "regression":
        return [
            (limit.low, limit.high, limit.verdict) for limit in endpoint.thresholds if limit.verdict
        ]
    if task.kind != "binary" or not endpoint.direction.startswith(("higher", "lower")):
        return []
    is_high = endpoint.direction.startswith("higher")
    ends = (_POOR_UP_TO, _GOOD_FROM) if is_high else (1.0 - _GOOD_FROM, 1.0 - _POOR_UP_TO)
    verdicts: tuple[Literal["good", "poor"], ...] = (
        ("poor", "good") if is_high else ("good", "poor")
    )
    return [(None, math.nextafter(ends[0], 1.0), verdicts[0]), (ends[1], None, verdicts[1])]


def overview_columns(
    tasks: Sequence[Task], endpoints: Mapping[str, Endpoint], columns: Collection[str]
) -> list[OverviewColumn]:
    """Return the properties of an overview, those with a color first, then in the model's order."""
    converted = conversions(tasks, endpoints)
    has_color: list[OverviewColumn] = []
    others: list[OverviewColumn] = []
    for task in tasks:
        endpoint = endpoints.get(task.name)
        title = endpoint.title if endpoint else task.name
        unit = (endpoint and endpoint.unit) or task.unit
        column = task.columns[0] if task.kind == "multiclass" else task.output_names[0]
        grade = f"{task.name}_confidence"
        of_property = has_color if color_ranges(task, endpoint) else others
        value = column
        if task.name in converted:
            value = f"{task.name}_converted"
            unit = converted[task.name].unit
        if task.kind == "binary":
            title = f"{title}: {unit or f'probability of {task.classes[1]}'}"
        elif unit:
            title = f"{title} ({unit})"
        grade = grade if grade in columns else ""
        of_property.append(OverviewColumn(title, value, column, grade, task.kind == "binary"))
    return has_color + others
