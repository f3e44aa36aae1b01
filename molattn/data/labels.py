"""The columns that a model is trained on: their numbers, and the tasks and labels of targets.

They are checked before the packages that read molecules and train are loaded.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import isnan, nan
from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from molattn.config.data import DataConfig, TaskChoice
from molattn.data.table import PLUS_MINUS, Row, Table, Uncalculated, listed, name_column
from molattn.errors import InputError, ReasonCode, check_one_of, matching, quoted
from molattn.task import Level, Task
from molattn.utils.console import counted

_MISSING = {"", "na", "n/a", "#n/a", "nan", "null", "none"}
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_UNCERTAINTY = re.compile(rf"(?<=[0-9.]){PLUS_MINUS}[0-9]*\.?[0-9]+\Z")
_NUMBER_WITHIN = re.compile(r"[^A-Za-z]*[0-9]")
_RELATIONS = {
    **dict.fromkeys(("", "=", "~"), 0),
    **dict.fromkeys((">", ">=", ">>", "≥"), 1),
    **dict.fromkeys(("<", "<=", "<<", "≤"), -1),
}
_RELATION_WITHIN = re.compile(r"([<>=~≥≤]*)\s*(.*)", re.DOTALL)
_NO_TARGET = re.compile(
    r"|unnamed: 0|index|row|split|fold|set|subset|inchi|cas([ _-]?(rn|no|number))?|"
    r"(.*[ _-])?(id|ids|name|names|smiles|inchikey|structure)|chembl_?id|molid|mol"
)
"""Names of columns of structures, names, identifiers and splits, in lower case."""
_OPEN_ENDS = {"low": ("-inf", "-infinity"), "high": ("inf", "+inf", "infinity", "+infinity")}
_PREDICTED = re.compile(
    r"(.+)_(predicted|probability.*|low|high|std|confidence|confidence_reason|expected_error|"
    r"training_similarity)_*",
    re.DOTALL | re.IGNORECASE,
)  # columns that molattn predict adds for a target
_LARGEST = 1e30  # its square still fits a float64, and it a float32
_POSITIVE_NAMES = frozenset("true t yes y positive pos active toxic hit".split())
_NEGATIVE_NAMES = frozenset("0 false f no n negative neg inactive".split())
_NEGATIVE_WORDS = ("no", "non", "not")  # at the start of a name of several words
_NEGATIVE_PREFIXES = ("non", "un", "in", "im", "ir", "il", "dis", "a")  # of the other class
_PLUS_SIGNS = ("+",)
_MINUS_SIGNS = ("-", "\u2212")
_BINARY_NUMBERS = ({0.0, 1.0}, {-1.0, 1.0})
_MOST_CLASSES_FOUND = 20
_MOST_CLASSES = 1000


class LabelError(InputError):
    """The error of a label that does not fit its task.

    Args:
        text: The cell.
        expected: Description of a valid label.
        row: Its position among the rows that are read; None = the first with this text.
    """

    def __init__(self, text: str, expected: str, row: int | None = None) -> None:
        super().__init__(f"got {quoted(text)}, expected {expected}")
        self.text = text
        self.expected = expected
        self.row = row


class RelationError(LabelError):
    """A cell of a relation column that does not fit."""


class Labels(NamedTuple):
    """The labels of a target."""

    task: Task
    values: NDArray[np.float64]  # numbers or class indices, NaN where missing or censored, [n]
    bounds: NDArray[np.float64]  # lower and upper, of labels with limits, else NaN, [2, n]
    invalid: dict[int, LabelError]  # errors of cells that are no labels, by row


def is_missing(text: str) -> bool:
    """Return whether a cell is empty or one of na, n/a, #n/a, nan, null, none (any case)."""
    return text.strip().lower() in _MISSING


def number(cell: str) -> float:
    """Return a cell as a number; NaN where it is missing."""
    text = _UNCERTAINTY.sub("", cell.strip())
    if is_missing(text):
        return nan
    if not _NUMBER.fullmatch(text):
        hint = " with a decimal point (or --decimal ,)" if "," in text else ""
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
            ``=``, ``~`` or nothing; an uncertainty after it (``12 ± 1``) is left out.
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
        hint = "for class labels use --task classification"
        if cell.lstrip().startswith("["):
            hint = "for lists of atoms use --atom-target-columns, of bonds --bond-target-columns"
        expected = f"{error.expected}; {hint}"
        raise LabelError(cell, expected) from None
    if cell_relation not in _RELATIONS or isnan(value):
        raise LabelError(cell, "a number or an empty cell")
    signs = {_RELATIONS[mark] for mark in (cell_relation, column_relation) if mark}
    if len(signs) > 1:
        expected = f"the relation {quoted(column_relation)} as in the relation column, or none"
        raise LabelError(cell, expected)
    return value, _RELATIONS[cell_relation or column_relation]


def label_limits(
    cell: str, relation: str = "", low: str = "", high: str = ""
) -> tuple[float, float, float]:
    """Return the value of a label of a regression and its lower and upper limit, NaN without.

    ======================  =====  =====  =====  ==================================================
    Limits                  Value  Lower  Upper  Meaning
    ======================  =====  =====  =====  ==================================================
    both empty              v      NaN    NaN    the label as it is written
    both empty, ``>v``      NaN    v      NaN    censored
    both empty, ``<v``      NaN    NaN    v      censored
    one empty               NaN    low    NaN    ``>low``, or likewise ``<high``
    equal                   low    NaN    NaN    the exact value
    low below high          v      low    high   an interval; without v its middle
    ======================  =====  =====  =====  ==================================================

    Beside limits, ``>v`` is another lower limit and ``<v`` another upper one; the narrower count.

    Args:
        cell: The label and its ``relation``, as of :func:`label_number`.
        relation: See above.
        low: Lower limit: a number, or missing or ``-inf`` if there is none.
        high: Upper limit: a number, or missing or ``inf``.

    Raises:
        LabelError: See :func:`label_number`; the lower limit is above the upper one, or the value
            is not between them.
    """
    value, sign = label_number(cell, relation)
    least, most = (
        nan if text.strip().lower() in _OPEN_ENDS[end] else number(text)
        for end, text in (("low", low), ("high", high))
    )
    if sign:  # a bound, which the limits may narrow
        ends = (value, nan) if sign > 0 else (nan, value)
        least, most = np.fmax(least, ends[0]), np.fmin(most, ends[1])
        value = nan
    if isnan(least) and isnan(most):
        return value, nan, nan
    if least > most or value < least or value > most:  # false for NaN
        expected = "limits in ascending order, with the value between them"
        raise LabelError(f"{cell} from {low} to {high}".strip(), expected)
    if least == most:
        return least, nan, nan
    if isnan(least) or isnan(most):
        return nan, least, most
    return 0.5 * (least + most) if isnan(value) else value, least, most


def positive_class(classes: Sequence[str]) -> str | None:
    """Return which of two classes is the positive one by their names; None if they do not tell.

    If exactly one is negative, it is the other: a minus sign at an end (``BBB-``), 0, false, no,
    negative, inactive, ``non`` or the word ``no`` or ``not`` at the start, or the other class after
    a prefix (``unstable``, but not ``inhibitor``). Otherwise it has a plus sign, or is true, yes,
    positive, active, toxic or hit. Case does not matter.
    """
    first, second = (label.casefold().strip("()") for label in classes)
    is_positive = [_is_negative(second, first), _is_negative(first, second)]
    if sum(is_positive) != 1:
        is_positive = [
            name in _POSITIVE_NAMES or _has_sign(name, _PLUS_SIGNS) for name in (first, second)
        ]
    return classes[is_positive.index(True)] if sum(is_positive) == 1 else None


def _is_negative(name: str, opposite: str) -> bool:
    first_word, *further_words = re.split(r"[\s_-]", name)
    return (
        name in _NEGATIVE_NAMES
        or _has_sign(name, _MINUS_SIGNS)
        or (first_word in _NEGATIVE_WORDS and bool(further_words))
        or (name.startswith("non") and len(name) > 3)
        or any(re.sub(r"[\s_-]", "", name) == prefix + opposite for prefix in _NEGATIVE_PREFIXES)
    )


def _has_sign(name: str, signs: tuple[str, ...]) -> bool:
    return name.startswith(signs) or name.endswith(signs)


def ordered_classes(classes: Sequence[str], choice: str = "auto") -> list[str]:
    """Return two sorted classes, the positive one last; if nothing tells, the order is kept."""
    check_one_of("positive_class", choice, ("auto", *classes))
    positive = positive_class(classes) if choice == "auto" else choice
    return sorted(classes, key=lambda label: label == positive)


class TrainingColumns(NamedTuple):
    """Indices of the columns that a model is trained on; None or empty where there is none."""

    smiles: int
    targets: list[int]
    relations: Sequence[int | None]
    intervals: Sequence[tuple[int, int] | None]
    stds: list[int]
    features: list[int]
    partner: int | None
    weight: int | None
    split: int | None
    time: int | None
    sites: dict[Level, list[int]]  # columns of labels of atoms and of bonds

    @property
    def labels(self) -> list[int]:
        """The columns that a label may be in: of targets and of limits."""
        return [*self.targets, *(index for pair in self.intervals for index in pair or ())]


def find_columns(table: Table, config: DataConfig) -> TrainingColumns:
    """Return which columns of a table a model is trained on."""
    config = with_target(table, config)

    def columns(option: str) -> list[int]:
        names = getattr(config, option)
        names = (names,) if isinstance(names, str) else names or ()
        indices = [table.column(name, f"--{option.replace('_', '-')}") for name in names]
        if option != "relation_columns" and len({*indices}) < len(indices):  # that differ in case
            repeated = listed([table.header[index] for index in indices])
            raise InputError(f"{table.path}: got {repeated}, expected each once", option=option)
        if option in ("target_columns", "interval_columns", "std_columns"):
            _check_measured(table, indices, option)
        return indices

    (smiles,) = columns("smiles_column")
    targets = columns("target_columns")
    features = columns("feature_columns")
    config = replace(config, relation_columns=config.relation_columns[: len(targets)])
    relations = columns("relation_columns") or [None] * len(targets)
    ends = columns("interval_columns")
    stds = columns("std_columns")
    intervals = [*zip(ends[::2], ends[1::2], strict=True)] or [None] * len(targets)
    partner, weight, split, time = (
        next(iter(columns(f"{name}_column")), None)
        for name in ("partner", "weight", "split", "time")
    )
    levels: tuple[Level, ...] = get_args(Level)
    sites: dict[Level, list[int]] = {
        level: [
            table.column(property_list(table, name, level), f"--{level}-target-columns")
            for name in getattr(config, f"{level}_target_columns")
        ]
        for level in levels
    }
    if leaked := {*targets} & {smiles, partner, weight, *features, *relations, *ends, *stds}:
        raise InputError(
            f"{table.path}: column {quoted(table.header[min(leaked)])} is both a target "
            "(--target-columns) and an input (--smiles-column, --partner-column, "
            "--weight-column, --feature-columns, --relation-columns, --interval-columns or "
            "--std-columns)"
        )
    for level in levels:
        _check_measured(table, sites[level], f"{level}_target_columns")
        if not sites[level]:
            del sites[level]
    labels = smiles, targets, relations, intervals, stds
    return TrainingColumns(*labels, features, partner, weight, split, time, sites)


def property_list(table: Table, name: str, level: Level) -> str:
    """Return the column of labels of atoms or bonds: NAME, or ``atom.dprop.NAME`` as RDKit's."""
    names = (name, *(f"{level}.{kind}prop.{name}" for kind in ("d", "i", "", "b")))
    return next((column for column in names if column in table.header), name)


def _check_measured(table: Table, columns: Iterable[int], option: str) -> None:
    """Refuse targets, limits and standard errors that ``molattn predict`` writes."""
    for name in (table.header[index] for index in columns):
        if predicted := prediction_beside(table, name):
            expected = f"a column of measurements, not predictions of molattn ({quoted(predicted)})"
            message = f"{table.path}: got {quoted(name)}, expected {expected}"
            raise InputError(message, option=option)


def prediction_beside(table: Table, name: str) -> str:
    """Return the column of predictions that a column NAME_predicted, NAME_low, ... is or is of."""
    of_target = _PREDICTED.fullmatch(name)
    columns = matching(f"{of_target[1]}_predicted", table.header) if of_target else []
    return next(iter(columns), "")


def with_target(table: Table, config: DataConfig) -> DataConfig:
    """Return the columns of a training; without an option, the only other column is the target.

    Columns of structures, names, identifiers, splits and other options do not count.

    Raises:
        InputError: No column is left, or more than one.
    """
    if config.target_columns or config.site_columns:
        return config
    structure = table.column(config.smiles_column, "--smiles-column")
    used = {config.partner_column, config.weight_column, config.split_column, config.time_column}
    used = {name.lower() for name in used if name} | {table.header[structure].lower()}
    others = [config.relation_columns, config.feature_columns, config.auxiliary_columns]
    others += [config.interval_columns, config.std_columns]
    used |= {name.lower() for names in others for name in names}
    others = [name for name in table.header if name.lower() not in used]
    named = name_column(table.header)
    names = ["" if named is None else table.header[named]]
    names += [name for name in others if _NO_TARGET.fullmatch(name.strip().lower())]
    candidates = [name for name in others if name not in names]
    if len(candidates) != 1:
        others = candidates or others
        hint = f"the other columns are {listed(others)}" if others else "there is no other column"
        raise InputError(f"{table.path}: --target-columns is required; {hint}")
    return replace(config, target_columns=(candidates[0],))


def read_targets(
    table: Table, rows: Sequence[Row], columns: TrainingColumns, config: DataConfig
) -> tuple[list[Labels], dict[int, list[tuple[ReasonCode, str]]]]:
    """Return the labels of each target, and why labels are not read: codes and reasons by row."""
    targets: list[Labels] = []
    faults: dict[int, list[tuple[ReasonCode, str]]] = {}
    for number, index in enumerate(columns.targets):
        relation = columns.relations[number]
        cells = [row.cells[index] for row in rows]
        relations = None if relation is None else [row.cells[relation] for row in rows]
        intervals = interval_cells(rows, columns.intervals[number])
        for beside in filter(None, (relations, *zip(*intervals or (), strict=True))):
            cells = [  # a label without its relation or limit is none
                text if isinstance(text, Uncalculated) and (cell or intervals) else cell
                for cell, text in zip(cells, beside, strict=True)
            ]
        try:
            name = table.header[index]
            task = table.tasks[number] if table.tasks else None
            labels = read_labels(name, number, cells, relations, config, intervals, task)
        except LabelError as error:
            same = (row for row, cell in enumerate(cells) if cell.strip() == error.text.strip())
            row = next(same) if error.row is None else error.row
            raise _located(table, rows[row], _column(error, index, relation), error) from None
        except InputError as error:
            message = f"{table.path}, column {quoted(table.header[index])}: {error.args[0]}"
            raise InputError(message, option=error.option) from None
        if uncertain := sum(_UNCERTAINTY.search(cell) is not None for cell in cells):
            remark = f"{counted(uncertain, 'label')} of column {quoted(table.header[index])}"
            table.remarks += (f"{remark} without the uncertainty (12 ± 1 is 12)",)
        expected = "the stored value of a formula"
        formulas = (row for row, cell in enumerate(cells) if isinstance(cell, Uncalculated))
        labels.invalid.update((row, LabelError(cells[row], expected)) for row in formulas)
        for row, error in labels.invalid.items():
            code = "uncalculated" if isinstance(error.text, Uncalculated) else "invalid_label"
            name = quoted(table.header[_column(error, index, relation)])
            faults.setdefault(row, []).append((code, f"column {name}: {error.command_line()}"))
        targets.append(labels)
    return targets, faults


def interval_cells(
    rows: Sequence[Row], columns: tuple[int, int] | None
) -> list[tuple[str, str]] | None:
    """Return the lower and upper limit in each row; None = of no label."""
    if columns is None:
        return None
    low, high = columns
    return [(row.numeral(low), row.numeral(high)) for row in rows]


def read_labels(
    name: str,
    number: int,
    cells: Sequence[str],
    relations: Sequence[str] | None,
    config: DataConfig,
    intervals: Sequence[tuple[str, str]] | None = None,
    task: Task | None = None,
) -> Labels:
    """Return the labels of a target; in a column of numbers, other cells are ``invalid``.

    Where half of the labels are not numbers, it may be a wrong column, or classes: the first is
    then an error. Labels of ``--target-transform log`` must have a logarithm.
    """
    choice = config.task[number % len(config.task)] if config.task else None
    transform = config.target_transform[number % len(config.target_transform)]
    positive = config.positive_class[number % len(config.positive_class)]
    unit = config.target_units[number] if config.target_units else ""
    if intervals:
        if choice not in (None, "regression"):
            message = f"got the target {quoted(name)} of --task {choice}, expected a regression"
            raise InputError(message, option="interval_columns")
        choice = "regression"
    beside = intervals or [()] * len(cells)
    labels = [(cell, *ends) for cell, ends in zip(cells, beside, strict=True)]
    num_labels = sum(not all(map(is_missing, texts)) for texts in labels)
    if not num_labels and task is None:
        raise InputError("no usable row has a label")
    numbers = None
    invalid = dict[int, LabelError]()
    if are_numbers(cells, choice) if task is None else task.kind == "regression":
        numbers = values, bounds = label_values(cells, Task(name), relations, invalid, intervals)
        labeled = np.where(np.isnan(values), np.fmax(*bounds), values)
        for row in np.flatnonzero(labeled <= 0.0).tolist():
            if transform == "log":
                expected = "a number above 0 for --target-transform log"
                text = next(text for text in labels[row] if not is_missing(text))
                invalid[row] = LabelError(text, expected, row)
        if 2 * len(invalid) >= max(num_labels, 1):
            raise invalid[min(invalid)]
        cells = ["" if row in invalid else cell for row, cell in enumerate(cells)]
        values[[*invalid]] = bounds[:, [*invalid]] = nan
    task = task or infer_task(name, cells, choice, unit, positive)
    if config.std_columns and task.kind != "regression":
        message = f"got the classes of {quoted(name)}, expected a regression"
        raise InputError(message, option="std_columns")
    if numbers is None or task.kind != "regression":
        numbers = label_values(cells, task, relations)
    return Labels(task, *numbers, invalid)


def read_numbers(
    table: Table, rows: Sequence[Row], index: int, parse: Callable[[str], float] = number
) -> NDArray[np.float64]:
    """Return a column as numbers."""
    numbers = np.empty(len(rows))
    for position, row in enumerate(rows):
        try:
            numbers[position] = parse(row.cells[index])
        except LabelError as error:
            raise _located(table, row, index, error) from None
    return numbers


def weight(cell: str) -> float:
    """Return a cell as the weight of its row."""
    if (value := number(cell)) >= 0.0:  # false for NaN
        return value
    raise LabelError(cell, "a weight of at least 0")


def standard_error(cell: str) -> float:
    """Return a cell as the standard error of a label; NaN where it is missing."""
    if (value := number(cell)) < 0.0:
        raise LabelError(cell, "a standard error of at least 0 or an empty cell")
    return value


def _column(error: LabelError, labels: int, relations: int | None) -> int:
    return labels if relations is None or not isinstance(error, RelationError) else relations


def _located(table: Table, row: Row, index: int, error: InputError) -> InputError:
    location = f"{table.where(row.line)}, column {quoted(table.header[index])}"
    return InputError(f"{table.path}, {location}: {error.command_line()}")


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
    classes = [] if are_numbers(cells, choice) else _classes(cells, choice)
    if len(classes) == 2:
        return Task(name, "binary", tuple(ordered_classes(classes, positive)))
    if positive != "auto":
        reason = f"got {quoted(positive)}, expected auto for a target that is not of two classes"
        raise InputError(reason, option="positive_class")
    return Task(name, "multiclass", tuple(classes)) if classes else Task(name, unit=unit)


def _classes(cells: Sequence[str], choice: TaskChoice | None) -> list[str]:
    """Return the distinct classes of labels, sorted."""
    distinct = _distinct(cells)
    others = [text for text in distinct if not _NUMBER.fullmatch(text)]
    if not others:
        classes = sorted({_class_of_number(text) for text in distinct}, key=int)
    elif choice != "multiclass" and len(others) < len(distinct):
        raise LabelError(others[0], "class labels that are all numbers or all text")
    else:
        classes = sorted(distinct)
        spelled = {text.casefold(): text for text in reversed(classes)}
        for text in classes if choice != "multiclass" else ():
            if (spelling := spelled[text.casefold()]) != text:
                raise LabelError(text, f"{quoted(spelling)}, as other labels are written")
    limits = {"binary": (2, 2), "multiclass": (3, _MOST_CLASSES)}
    least, most = limits.get(choice or "", (2, _MOST_CLASSES))
    if not least <= len(classes) <= most:
        raise InputError(f"got {listed(classes)}, expected {least} to {most} classes (--task)")
    return classes


def label_values(
    cells: Sequence[str],
    task: Task,
    relations: Sequence[str] | None = None,
    invalid: dict[int, LabelError] | None = None,
    intervals: Sequence[tuple[str, str]] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return values and bounds of the labels of a task, see :class:`Labels`.

    Labels match classes in any case if only one class fits: Excel has TRUE where Parquet has True.
    ``invalid`` gets the errors by row, whose labels are then missing; None = the first is raised.
    """
    values = np.full(len(cells), nan)
    bounds = np.full((2, len(cells)), nan)
    for row, cell in enumerate(cells):
        relation = "" if relations is None else relations[row]
        try:
            if task.kind == "regression":
                ends = intervals[row] if intervals else ()
                values[row], *bounds[:, row] = label_limits(cell, relation, *ends)
            else:
                values[row] = _class_index(cell, relation, task.classes)
        except LabelError as error:
            error.row = row
            if invalid is None:
                raise
            invalid[row] = error
    return values, bounds


def _distinct(cells: Iterable[str]) -> list[str]:
    return [*dict.fromkeys(cell.strip() for cell in cells if not is_missing(cell))]


def are_numbers(cells: Sequence[str], choice: TaskChoice | None) -> bool:
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
