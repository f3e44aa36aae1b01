"""Labels from cells: the task of a target, inferred or requested, and its values."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from math import isnan, nan

import numpy as np
from numpy.typing import NDArray

from molattn.config import TaskChoice
from molattn.errors import InputError, check_one_of, quoted
from molattn.task import Task

__all__ = [
    "LabelError",
    "RelationError",
    "infer_task",
    "is_missing",
    "label_number",
    "label_values",
    "number",
    "numbers_expected",
    "ordered_classes",
    "positive_class",
]

_MISSING = {"", "na", "n/a", "#n/a", "nan", "null", "none"}
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?")
_PLAIN_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.0+)?")
_WHOLE = re.compile(r"[+-]?[0-9]{1,40}")  # of no more digits than are told apart
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
_BINARY_NUMBERS = ({"0", "1"}, {"-1", "1"})
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
    """A cell of a relation column that does not fit; the arguments are those of its base."""


def is_missing(text: str) -> bool:
    """Return whether a cell is empty or one of na, n/a, #n/a, nan, null, none (any case)."""
    return text.strip().lower() in _MISSING


def number(cell: str) -> float:
    """Return a cell as a number; NaN where it is missing.

    Raises:
        LabelError: The text is neither missing nor a finite number of magnitude up to 1e30.
    """
    text = cell.strip()
    if is_missing(text):
        return nan
    if not _NUMBER.fullmatch(text):
        mended = " with a decimal point" if _NUMBER.fullmatch(text.replace(",", ".")) else ""
        if _THOUSANDS.fullmatch(text):
            mended = " with a decimal point and without separators of thousands"
        raise LabelError(cell, f"a number{mended} or an empty cell")
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
        RelationError: An unknown relation.
        LabelError: The text is neither missing nor such a label, or has another relation than its
            column.
    """
    if is_missing(cell):
        return nan, 0
    mark = _mark(relation)
    if mark not in _RELATIONS:
        raise RelationError(relation, "one of >, >=, <, <=, =, ~ or an empty cell")
    own, text = _RELATION_WITHIN.fullmatch(cell.strip()).groups()  # pyright: ignore
    try:
        value = number(text)
    except LabelError as error:
        raise LabelError(cell, error.expected) from None
    if own not in _RELATIONS or isnan(value):
        raise LabelError(cell, "a number or an empty cell")
    if own and mark and _RELATIONS[own] != _RELATIONS[mark]:
        raise LabelError(cell, f"the relation {quoted(mark)} as in the relation column, or none")
    return value, _RELATIONS[own or mark]


def positive_class(classes: Sequence[str]) -> str | None:
    """Return which of two classes is the positive one by their names; None if they do not tell.

    If exactly one is negative, it is the other: a minus sign at an end (``BBB-``), 0, false, no,
    negative, inactive, ``non`` or the word ``not`` or ``no`` at the start, or the other class after
    a prefix (``unstable``, but not ``inhibitor``). Otherwise it has a plus sign, or is true, yes,
    positive, active, toxic or hit. Case does not matter.
    """
    one, other = (label.casefold() for label in classes)
    found = [
        bool(_NEGATIVE.fullmatch(word) or re.fullmatch(_NEGATION + re.escape(base), word))
        for word, base in ((other, one), (one, other))
    ]
    if sum(found) != 1:
        found = [_POSITIVE.fullmatch(word) is not None for word in (one, other)]
    return classes[found.index(True)] if sum(found) == 1 else None


def ordered_classes(classes: Sequence[str], choice: str = "auto") -> list[str]:
    """Return two sorted classes, the positive one last, which is the second if nothing tells.

    Raises:
        InputError: The ``choice`` is neither ``auto``, which goes by their names, nor one of them.
    """
    check_one_of("--positive-class", choice, ("auto", *classes))
    positive = positive_class(classes) if choice == "auto" else choice
    return sorted(classes, key=lambda label: label == positive)


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

    Args:
        name: The target.
        cells: Its labels, some of them not missing.
        choice: The requested kind, if any.
        unit: Unit of a regression.
        positive: The positive one of two classes, see :func:`ordered_classes`.

    Raises:
        LabelError: A label that does not fit, or differs from another one in upper and lower case
            alone; names it.
        InputError: There are too few or too many classes, or ``positive`` is none of two.
    """
    texts = [cell.strip() for cell in cells if not is_missing(cell)]
    if choice == "regression":
        return Task(name, unit=unit)
    distinct = list(dict.fromkeys(texts))
    numbers = [text for text in distinct if _NUMBER.fullmatch(text)]
    if choice is None and not _are_classes(distinct, numbers):
        return Task(name, unit=unit)
    if len(numbers) == len(distinct):
        classes = sorted({_class_of_number(text) for text in distinct}, key=int)
    elif numbers and choice != "multiclass":
        kinds = Counter(bool(_NUMBER.fullmatch(text)) for text in texts)
        odd = next(text for text in texts if (text in numbers) == (kinds[True] < kinds[False]))
        raise LabelError(odd, "class labels that are all numbers or all text")
    else:
        classes = sorted(
            {_class_of_number(text) if _PLAIN_WHOLE.fullmatch(text) else text for text in distinct}
        )
        if choice != "multiclass":
            spelled: dict[str, str] = {}
            for text in classes:
                if (other := spelled.setdefault(text.casefold(), text)) != text:
                    expected = f"{quoted(other)}, as other labels are written"
                    raise LabelError(text, expected)
    return _classification(name, classes, choice, positive)


def numbers_expected(cells: Sequence[str], choice: TaskChoice | None = None) -> bool:
    """Return whether labels are taken for a regression, even if some are not numbers.

    They may be 0 and 1 without the others.
    """
    if choice is not None:
        return choice == "regression"
    distinct = list(dict.fromkeys(cell.strip() for cell in cells if not is_missing(cell)))
    return not _are_classes(distinct, [text for text in distinct if _NUMBER.fullmatch(text)])


def label_values(
    cells: Sequence[str], task: Task, relations: Sequence[str] | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the labels of a task, and the bounds of those that are censored.

    Labels match classes in any case if only one class fits: Excel has TRUE where Parquet has True.

    Args:
        cells: n labels.
        task: The task.
        relations: The cells of their relation column, see :func:`label_number`; None = there is
            none.

    Returns:
        The labels ``[n]`` as numbers or as class indices, NaN where missing or censored; and the
        lower and upper bounds of the censored ones ``[2, n]``, NaN where there is none.

    Raises:
        LabelError: A label that is not a number, or not one of the classes, or a relation that does
            not fit (:class:`RelationError`); names the first.
    """
    values, bounds = np.full(len(cells), nan), np.full((2, len(cells)), nan)
    read = _read_number if task.kind == "regression" else _read_class
    places = {label: float(place) for place, label in enumerate(task.classes)}
    for row, cell in enumerate(cells):
        try:
            value, sign = read(cell, "" if relations is None else relations[row], places)
        except LabelError as error:
            raise type(error)(error.text, error.expected, row) from None
        if sign:
            bounds[0 if sign > 0 else 1, row] = value
        else:
            values[row] = value
    return values, bounds


def _read_number(cell: str, relation: str, _: Mapping[str, float]) -> tuple[float, int]:
    try:
        return label_number(cell, relation)
    except RelationError:
        raise
    except LabelError as error:
        expected = f"{error.expected}; for class labels use --task classification"
        raise LabelError(cell, expected) from None


def _read_class(cell: str, relation: str, places: Mapping[str, float]) -> tuple[float, int]:
    if is_missing(cell):
        return nan, 0
    if _RELATIONS.get(_mark(relation), 1):
        expected = "no relation beside a class; for numeric targets use --task regression"
        raise RelationError(relation, expected)
    text = cell.strip()
    if text not in places and _NUMBER.fullmatch(text):
        text = _class_of_number(text)
    if text not in places:
        alike = [label for label in places if label.lower() == text.lower()]
        text = alike[0] if len(alike) == 1 else text
    if text not in places:
        raise LabelError(cell, f"one of {', '.join(places)} or an empty cell")
    return places[text], 0


def _mark(relation: str) -> str:
    """Return a relation without quotes; "" if it is missing."""
    mark = relation.strip().strip("'\"").strip()
    return "" if is_missing(mark) else mark


def _are_classes(distinct: Sequence[str], numbers: Sequence[str]) -> bool:
    if len(numbers) == len(distinct):
        values = {float(text) for text in distinct}
        return any(values == set(map(float, pair)) for pair in _BINARY_NUMBERS)
    # 45% or >5 is a number that the user has to correct, not the name of a class.
    if any(_NUMBER_WITHIN.match(text) for text in distinct):
        return False
    return len(distinct) <= _MOST_CLASSES_FOUND


def _class_of_number(text: str) -> str:
    value = float(text)
    if isnan(value) or not value.is_integer() or abs(value) > _LARGEST:
        expected = "class labels (integers or text); for numeric targets use --task regression"
        raise LabelError(text, expected)
    return str(int(text) if _WHOLE.fullmatch(text.strip()) else int(value))


def _classification(
    name: str, classes: list[str], choice: TaskChoice | None, positive: str
) -> Task:
    if len(classes) == 1:
        raise InputError(f"all labels are {quoted(classes[0])}, expected two or more classes")
    expected = {"binary": (2, 2), "multiclass": (3, _MOST_CLASSES)}.get(
        choice or "", (2, _MOST_CLASSES)
    )
    if not expected[0] <= len(classes) <= expected[1]:
        some = ", ".join(quoted(label) for label in classes[:5])
        more = ", ..." if len(classes) > 5 else ""
        raise InputError(
            f"got {len(classes)} classes ({some}{more}), expected "
            + ("two" if choice == "binary" else f"{expected[0]} to {expected[1]}")
            + (f" (--task {choice})" if choice else "")
        )
    if len(classes) > 2:
        return Task(name, "multiclass", tuple(classes))
    return Task(name, "binary", tuple(ordered_classes(classes, positive)))
