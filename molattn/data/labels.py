"""Labels from cells: the task of a target, inferred or requested, and its values."""

import re
from collections.abc import Iterable, Sequence
from math import isnan, nan
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from molattn.config import TaskChoice
from molattn.data.table import listed
from molattn.errors import InputError, check_one_of, quoted
from molattn.task import Task

_MISSING = {"", "na", "n/a", "#n/a", "nan", "null", "none"}
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NUMBER_WITHIN = re.compile(r"[^A-Za-z]*[0-9]")
_RELATIONS = {
    **dict.fromkeys(("", "=", "~"), 0),
    **dict.fromkeys((">", ">=", ">>", "≥"), 1),
    **dict.fromkeys(("<", "<=", "<<", "≤"), -1),
}
_RELATION_WITHIN = re.compile(r"([<>=~≥≤]*)\s*(.*)", re.DOTALL)
_LARGEST = 1e30  # its square still fits a float64, and it a float32
_POSITIVE = re.compile(r"\(?\+.*|.*\+\)?|t(rue)?|y(es)?|active|pos(itive)?|toxic|hit")
_NEGATIVE = re.compile(
    r"\(?[-\u2212].*|.*[-\u2212]\)?|0|f(alse)?|no?|neg(ative)?|inactive|non.+|not?[\s_-].+"
)
_NEGATION = r"(a|dis|il|im|in|ir|non?|not|un)[\s_-]?"  # before the name of the other class
_BINARY_NUMBERS = ({0.0, 1.0}, {-1.0, 1.0})
_MOST_CLASSES_FOUND = 20
_MOST_CLASSES = 1000


class LabelError(InputError):
    """A label that does not fit its task.

    Args:
        text: The cell.
        expected: Description of a valid label.
        row: Its row among those that are read; None = the first with this text.
    """

    def __init__(self, text: str, expected: str, row: int | None = None) -> None:
        super().__init__(f"got {quoted(text)}, expected {expected}")
        self.text, self.expected, self.row = text, expected, row


class RelationError(LabelError):
    """A cell of a relation column that does not fit."""


class Labels(NamedTuple):
    """The labels of a target.

    Args:
        task: Its task.
        values: Labels ``[n]`` as numbers or as class indices, NaN where missing or censored.
        bounds: Lower and upper bounds of the censored labels ``[2, n]``, NaN where there is none.
        invalid: Errors of cells that are no labels, by row.
    """

    task: Task
    values: NDArray[np.float64]
    bounds: NDArray[np.float64]
    invalid: dict[int, LabelError]


def is_missing(text: str) -> bool:
    """Return whether a cell is empty or one of na, n/a, #n/a, nan, null, none (any case)."""
    return text.strip().lower() in _MISSING


def number(cell: str) -> float:
    """Return a cell as a number; NaN where it is missing."""
    text = cell.strip()
    if is_missing(text):
        return nan
    if not _NUMBER.fullmatch(text):
        hint = " with a decimal point and without separators" if "," in text else ""
        raise LabelError(cell, f"a number{hint} or an empty cell")
    value = float(text)
    if abs(value) > _LARGEST:
        raise LabelError(cell, f"a number of magnitude below {_LARGEST:g}")
    return value


def label_number(cell: str, relation: str = "") -> tuple[float, int]:
    """Return the value of a label of a regression, and its relation.

    A label such as ``>10`` is censored: its value is a bound. ``=`` and ``~`` mean nothing.

    Args:
        cell: The label: a number, after ``>``, ``>=``, ``>>``, ``≥``, ``<``, ``<=``, ``<<``, ``≤``,
            ``=``, ``~`` or nothing.
        relation: One of these from a column of its own, also in quotes.

    Returns:
        The value, NaN where missing, and 1 if the value is a lower bound (``>``), -1 if it is an
        upper bound (``<``), otherwise 0.

    Raises:
        LabelError: The text is neither missing nor such a label, has another relation than its
            column, or the relation is unknown (:class:`RelationError`).
    """
    if is_missing(cell):
        return nan, 0
    column_relation = _mark(relation)
    if column_relation not in _RELATIONS:
        raise RelationError(relation, "one of >, >=, <, <=, =, ~ or an empty cell")
    cell_relation, text = _RELATION_WITHIN.fullmatch(cell.strip()).groups()  # pyright: ignore
    try:
        value = number(text)
    except LabelError as error:
        expected = f"{error.expected}; for class labels use --task classification"
        raise LabelError(cell, expected) from None
    if cell_relation not in _RELATIONS or isnan(value):
        raise LabelError(cell, "a number or an empty cell")
    both = {_RELATIONS[one] for one in (cell_relation, column_relation) if one}
    if len(both) > 1:
        expected = f"the relation {quoted(column_relation)} as in the relation column, or none"
        raise LabelError(cell, expected)
    return value, _RELATIONS[cell_relation or column_relation]


def positive_class(classes: Sequence[str]) -> str | None:
    """Return which of two classes is the positive one by their names; None if they do not tell.

    If exactly one is negative, it is the other: a minus sign at an end (``BBB-``), 0, false, no,
    negative, inactive, ``non`` or the word ``not`` or ``no`` at the start, or the other class after
    a prefix (``unstable``, but not ``inhibitor``). Otherwise it has a plus sign, or is true, yes,
    positive, active, toxic or hit. Case does not matter.
    """
    first, second = (label.casefold() for label in classes)
    found = [
        bool(_NEGATIVE.fullmatch(word) or re.fullmatch(_NEGATION + re.escape(base), word))
        for word, base in ((second, first), (first, second))
    ]
    if sum(found) != 1:
        found = [_POSITIVE.fullmatch(word) is not None for word in (first, second)]
    return classes[found.index(True)] if sum(found) == 1 else None


def ordered_classes(classes: Sequence[str], choice: str = "auto") -> list[str]:
    """Return two sorted classes, the positive one last, which is the second if nothing tells."""
    check_one_of("positive_class", choice, ("auto", *classes))
    positive = positive_class(classes) if choice == "auto" else choice
    return sorted(classes, key=lambda label: label == positive)


def read_labels(
    name: str,
    cells: Sequence[str],
    relations: Sequence[str] | None = None,
    choice: TaskChoice | None = None,
    *,
    unit: str = "",
    positive: str = "auto",
    is_log: bool = False,
) -> Labels:
    """Return the labels of a target; in a column of numbers, other cells are ``invalid``.

    Where half of the labels are not numbers, it may be a wrong column, or classes: the first is
    then an error. The labels of a regression ``is_log`` must have a logarithm.
    """
    known = sum(not is_missing(cell) for cell in cells)
    if not known:
        raise InputError("no usable row has a label")
    invalid: dict[int, LabelError] = {}
    if _are_numbers(cells, choice):
        values, bounds = label_values(cells, Task(name), relations, invalid)
        numbers = np.fmax(values, np.fmax(*bounds))
        for row in np.flatnonzero(numbers <= 0.0).tolist() if is_log else ():
            expected = "a number above 0 for --target-transform log"
            invalid[row] = LabelError(cells[row], expected, row)
        if 2 * len(invalid) >= known:
            raise invalid[min(invalid)]
        cells = ["" if row in invalid else cell for row, cell in enumerate(cells)]
        values[[*invalid]] = bounds[:, [*invalid]] = nan
        if _are_numbers(cells, choice):
            return Labels(Task(name, unit=unit), values, bounds, invalid)
    task = infer_task(name, cells, choice, unit, positive)
    return Labels(task, *label_values(cells, task, relations), invalid)


def infer_task(
    name: str,
    cells: Sequence[str],
    choice: TaskChoice | None = None,
    unit: str = "",
    positive: str = "auto",
) -> Task:
    """Infer the task of a target from its labels.

    Without a ``choice``, numbers are a regression unless they are only 0 and 1 (or -1 and 1), and
    words are classes, up to 20. Equal numbers are one class (``1.0`` and ``1``).
    """
    if _are_numbers(cells, choice):
        return Task(name, unit=unit)
    distinct = _distinct(cells)
    others = [text for text in distinct if not _NUMBER.fullmatch(text)]
    if not others:
        classes = sorted({_class_of_number(text) for text in distinct}, key=int)
    elif choice == "multiclass":
        classes = sorted(distinct)
    elif len(others) < len(distinct):
        raise LabelError(others[0], "class labels that are all numbers or all text")
    else:
        spelled: dict[str, str] = {}
        for text in (classes := sorted(distinct)):
            if (other := spelled.setdefault(text.casefold(), text)) != text:
                raise LabelError(text, f"{quoted(other)}, as other labels are written")
    limits = {"binary": (2, 2), "multiclass": (3, _MOST_CLASSES)}
    least, most = limits.get(choice or "", (2, _MOST_CLASSES))
    if not least <= len(classes) <= most:
        raise InputError(f"got {listed(classes)}, expected {least} to {most} classes (--task)")
    if len(classes) > 2:
        return Task(name, "multiclass", tuple(classes))
    return Task(name, "binary", tuple(ordered_classes(classes, positive)))


def label_values(
    cells: Sequence[str],
    task: Task,
    relations: Sequence[str] | None = None,
    invalid: dict[int, LabelError] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return values and bounds of the labels of a task, see :class:`Labels`.

    Labels match classes in any case if only one class fits: Excel has TRUE where Parquet has True.
    ``invalid`` gets the errors by row, whose labels are then missing; None = the first is raised.
    """
    values, bounds = np.full(len(cells), nan), np.full((2, len(cells)), nan)
    for row, cell in enumerate(cells):
        relation = "" if relations is None else relations[row]
        try:
            if task.kind == "regression":
                value, sign = label_number(cell, relation)
            else:
                value, sign = _class_index(cell, relation, task.classes), 0
        except LabelError as error:
            error.row = row
            if invalid is None:
                raise
            invalid[row] = error
            continue
        if sign:
            bounds[0 if sign > 0 else 1, row] = value
        else:
            values[row] = value
    return values, bounds


def _distinct(cells: Iterable[str]) -> list[str]:
    return [*dict.fromkeys(cell.strip() for cell in cells if not is_missing(cell))]


def _are_numbers(cells: Sequence[str], choice: TaskChoice | None) -> bool:
    """Return whether labels are taken for a regression, even if some are not numbers.

    Checked again once invalid cells are removed: 0 and 1 alone are classes.
    """
    if choice is not None:
        return choice == "regression"
    distinct = _distinct(cells)
    if all(_NUMBER.fullmatch(text) for text in distinct):
        return {float(text) for text in distinct} not in _BINARY_NUMBERS
    # Text that begins like a number (45%, >5) means a regression.
    is_number = any(_NUMBER_WITHIN.match(text) for text in distinct)
    return is_number or len(distinct) > _MOST_CLASSES_FOUND


def _class_index(cell: str, relation: str, classes: Sequence[str]) -> float:
    if is_missing(cell):
        return nan
    if _RELATIONS.get(_mark(relation), 1):
        expected = "no relation beside a class; for numeric targets use --task regression"
        raise RelationError(relation, expected)
    text = cell.strip()
    if text not in classes and _NUMBER.fullmatch(text):
        text = _class_of_number(text)
    if text not in classes:
        same = [label for label in classes if label.lower() == text.lower()]
        if len(same) != 1:
            raise LabelError(cell, f"one of {', '.join(classes)} or an empty cell")
        text = same[0]
    return float(classes.index(text))


def _mark(relation: str) -> str:
    """Return a relation without quotes; "" if it is missing."""
    mark = relation.strip().strip("'\"").strip()
    return "" if is_missing(mark) else mark


def _class_of_number(text: str) -> str:
    value = float(text)
    if not value.is_integer() or abs(value) > _LARGEST:
        expected = "class labels (integers or text); for numeric targets use --task regression"
        raise LabelError(text, expected)
    return str(int(value))
