"""Predictions for people: names with units, and three significant digits."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from molattn.errors import InputError, check_one_of, matching, quoted
from molattn.model.predictor import PredictionColumns, Predictor
from molattn.task import Task
from molattn.utils.console import three_digits


class Heading(NamedTuple):
    """What a column of predictions is called in tables for people, and what it means."""

    title: str
    meaning: str
    is_detail: bool = False
    unit: str = ""


class ReadableValue(NamedTuple):
    """The prediction of a property, as texts."""

    category: str
    name: str
    value: str
    range: str  # the interval, or the probability
    confidence: str


_OTHERS = {
    "parent": Heading("Parent", "SMILES of what was predicted, where it is another molecule"),
    "partner_parent": Heading("Parent of the second molecule", "Likewise"),
    "standardized_smiles": Heading("Standardized", "SMILES of the standard form, where it differs"),
    "standardized_partner": Heading("Standardized second molecule", "Likewise"),
    "error": Heading("Error", "Why the row has no prediction"),
}
_NEIGHBOR = "Of the training row that contributes most, or next most"
_GRADES = "high: the expected error is at most a third of a guess's; medium: at most two thirds"


def headings(model: Predictor, neighbors: int = 0) -> dict[str, Heading]:
    """Return the heading of each column that ``molattn predict`` adds to a table, by name."""
    known, near = dict[str, Heading](), dict[str, Heading]()
    for task in model.config.tasks:
        title, unit, _ = _names(model, task)
        for name, one in _headings(model, task):
            known[name] = one._replace(unit=unit) if one.title.endswith(f"({unit})") else one
        for number in range(1, neighbors + 1):
            for word in ("row", "similarity", "contribution", "smiles"):
                heading = Heading(f"{title}, neighbor {number}: {word}", _NEIGHBOR)
                near[f"{task.name}_neighbor_{number}_{word}"] = heading
    known["training_similarity"] = Heading(
        "Similarity to training", "Tanimoto similarity to the nearest training molecule, 0 to 1"
    )
    return {name: known[name] for name in PredictionColumns(model).columns} | near | _OTHERS


def _headings(model: Predictor, task: Task) -> Iterator[tuple[str, Heading]]:
    title, unit, about = _names(model, task)
    in_unit = f" ({unit})" if task.kind == "regression" and unit else ""
    if task.kind == "regression":
        yield f"{task.name}_predicted", Heading(f"{title}, predicted{in_unit}", about)
        for end, word in (("low", "Lower"), ("high", "Upper")):
            meaning = f"{word} end of the prediction interval"
            yield f"{task.name}_{end}", Heading(f"{title}, {end}{in_unit}", meaning)
    else:
        is_yes_or_no = task.classes == ("0", "1") and unit
        one = f" (1 = {unit.removeprefix('probability of ')})" if is_yes_or_no else ""
        about = f"The most probable. {about}".strip()
        yield task.columns[0], Heading(f"{title}, class{one}", about)
        labels = task.classes[1:] if task.kind == "binary" else task.classes
        for name, label in zip(task.output_names, labels, strict=True):
            what = unit if task.kind == "binary" and unit else f"probability of {label}"
            yield name, Heading(f"{title}, {what}", "Calibrated probability, 0 to 1")
    more = {
        "std": (f"standard deviation{in_unit}", "Over the networks alone: no measure of the error"),
        "confidence": ("confidence", f"{_GRADES}; low: above"),
        "expected_error": (f"expected error{in_unit}", "Mean error, or rate of wrong classes"),
        "training_similarity": ("similarity to training", "To the nearest molecule with a label"),
    }
    for name, (words, meaning) in more.items():
        yield f"{task.name}_{name}", Heading(f"{title}, {words}", meaning, name != "confidence")


def _names(model: Predictor, task: Task) -> tuple[str, str, str]:
    card = model.endpoints.get(task.name)
    if card is None:
        return task.name, task.unit, ""
    return card.title, card.unit or task.unit, card.description


def readable_values(
    model: Predictor, columns: Sequence[str], cells: Sequence[str]
) -> list[ReadableValue]:
    """Return the predictions of a row of a table, its cells as texts, by category."""
    row, found = dict(zip(columns, cells, strict=True)), list[ReadableValue]()
    for task in model.config.tasks:
        title, unit, _ = _names(model, task)
        card, value = model.endpoints.get(task.name), row[task.columns[0]]
        if task.kind == "regression":
            ends = [row.get(f"{task.name}_{end}") for end in ("low", "high")]
            texts = [three_digits(float(end)) for end in ends if end]
            value = f"{three_digits(float(value))} {unit}".strip()
            span = " to ".join(texts)
        else:
            probable = max(float(row[name]) for name in task.output_names)  # one, if binary
            span = f"{probable:.0%}"
            if task.classes == ("0", "1"):
                value = "yes" if value == "1" else "no"
            elif task.kind == "binary":
                span += f" {task.classes[1]}"
        grade, error = (row.get(f"{task.name}_{one}") for one in ("confidence", "expected_error"))
        if grade and error and task.kind == "regression":
            grade = f"{grade} (±{three_digits(float(error))})"
        category = card.category if card else ""
        found.append(ReadableValue(category, title, value, span, grade or ""))
    order = list(dict.fromkeys(one.category for one in found))
    return sorted(found, key=lambda one: order.index(one.category))


def target_name(model: Predictor, name: str, *, option: str = "target") -> str:
    """Return the name of the task, or the column of the class, that a name means.

    It may be written in any case, and be the title of the task (``model.endpoints``).

    Raises:
        InputError: The model has none such, or several.
    """
    tasks = model.config.tasks
    titles = {one.title: name for name, one in model.endpoints.items()}
    known = [*(task.name for task in tasks), *(one for task in tasks for one in task.output_names)]
    found = matching(name, [*known, *titles])
    names = [*dict.fromkeys(one if one in known else titles[one] for one in found)]
    if len(names) > 1:
        message = f"got {quoted(name)}, expected one of {', '.join(names)}"
        raise InputError(message, option=option)
    if not names:
        check_one_of(option, name, known)
    return names[0]
