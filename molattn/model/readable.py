"""Predictions for people: names with units, and three significant digits."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from numpy.typing import ArrayLike
from rdkit import Chem

from molattn.chem.parse import Molecule
from molattn.errors import InputError, SmilesError, check_one_of, matching, quoted
from molattn.model.columns import PredictionColumns
from molattn.model.confidence import expected_factor
from molattn.model.config import MolAttnConfig
from molattn.model.difference import task_columns
from molattn.model.overview import Range, color_ranges, conversions
from molattn.model.predictor import Predictor
from molattn.model.training_set import Endpoint
from molattn.task import Task
from molattn.utils.console import three_digits

if TYPE_CHECKING:
    import pandas as pd

Endpoints = Mapping[str, Endpoint]


class Heading(NamedTuple):
    """What a column of predictions is called in tables for people, and what it means."""

    title: str
    meaning: str
    is_detail: bool = False
    unit: str = ""
    ranges: Sequence[Range] = ()  # of values that have a color


class ReadableValue(NamedTuple):
    """The prediction of a property, as texts."""

    category: str
    name: str
    value: str
    range: str  # the interval, or the probability
    confidence: str
    measured: str  # the label of a training molecule
    reason: str  # of the confidence, if it is asked for


_OTHERS = {
    "parent": Heading(
        "Parent", "SMILES of the parent (no counterions, no charges), where it differs"
    ),
    "partner_parent": Heading("Parent of the second molecule", "Likewise"),
    "standardized_smiles": Heading("Standardized", "SMILES of the standard form, where it differs"),
    "standardized_partner": Heading("Standardized second molecule", "Likewise"),
    "difference_error": Heading("Error of the difference", "Why the other molecule has none"),
    "error": Heading("Error", "Why the row has no prediction"),
}
_MEASURED = "Label of this molecule in the training data; of several the mean, or all classes"
_REMARK = (
    "Labels outside of the interval, or of another class than is predicted; and labels of "
    "stereoisomers of a molecule without its own"
)
_NEIGHBOR = "Of the training row that contributes most, or next most"
_REASON = "Similarity to training, errors nearby, and what no training molecule has"
_OF_PROBABILITY = "End of the interval (--interval) of the probability, not of the class"
_DIFFERENCE = "From the molecule of --difference-from; the interval is of both errors together"
_FACTOR = (
    "Learned as a logarithm, so that the expected error is a factor f: half the distance from "
    "prediction / f to prediction * f"
)
_GRADES = "high: the expected error is at most a third of a guess's; medium: at most two thirds"


def prediction_frame(
    predictor: Predictor,
    endpoints: Endpoints,
    smiles: Sequence[Molecule],
    level: float,
    batch_size: int,
    partners: Sequence[Molecule] | None = None,
    features: ArrayLike | None = None,
) -> "pd.DataFrame":
    """Predict molecules as a table for people; see :meth:`molattn.MolAttn.predict_frame`."""
    import pandas as pd

    molecules, rows, columns = predictor.read_valid(smiles, partners, features)
    errors = [str(error) if isinstance(error, SmilesError) else "" for error in molecules]
    records = [molecules[row] for row in rows]
    outputs = predictor.predict_outputs(records, batch_size, features=columns)
    prediction = predictor.prediction(outputs, records, level)
    table = PredictionColumns(predictor)
    labels = predictor.measured(records)
    cells = [table.cells(prediction, index, labels[index]) for index in range(len(records))]
    by_name = headings(predictor, endpoints)
    titles = [by_name[name].title for name in table.columns]
    frame = pd.DataFrame(cells, rows, titles).reindex(range(len(molecules))).assign(error=errors)
    texts = [Chem.MolToSmiles(mol) if isinstance(mol, Chem.Mol) else mol for mol in smiles]
    return frame.set_index(pd.Index(texts, name="smiles"))


def headings(predictor: Predictor, endpoints: Endpoints, neighbors: int = 0) -> dict[str, Heading]:
    """Return the heading of each column that ``molattn predict`` adds to a table, by name."""
    by_name: dict[str, Heading] = {}
    on_request: dict[str, Heading] = {}
    config = predictor.config
    for task, transform in zip(config.tasks, config.target_transforms, strict=True):
        title, unit, _ = _names(endpoints, task)
        for name, heading in _headings(endpoints, task, is_log=transform.kind == "log"):
            has_unit = heading.title.endswith(f"({unit})")
            by_name[name] = heading._replace(unit=unit) if has_unit else heading
        value = task.output_names[0]
        ranges = color_ranges(task, endpoints.get(task.name))
        by_name[value] = by_name[value]._replace(ranges=ranges)
        for number in range(1, neighbors + 1):
            for word in ("row", "similarity", "contribution", "smiles"):
                heading = Heading(f"{title}, neighbor {number}: {word}", _NEIGHBOR)
                on_request[f"{task.name}_neighbor_{number}_{word}"] = heading
        on_request[f"{value}_of_parent"] = Heading(
            f"{title}, of the parent",
            "Prediction of the parent; the other is as written",
            unit=unit,
        )
        reason = Heading(f"{title}, reason of the confidence", _REASON, is_detail=True)
        on_request[f"{task.name}_confidence_reason"] = reason
        on_request |= {
            f"{value}_{end}": Heading(f"{title}, probability, {end}", _OF_PROBABILITY, True)
            for end in ("low", "high")
        }
        for name in task_columns(task, transform):
            words = name.removeprefix(f"{task.name}_").replace("_", " ")
            on_request[name] = Heading(f"{title}, {words}", _DIFFERENCE)
    by_name["training_similarity"] = Heading(
        "Similarity to training", "Tanimoto similarity to the nearest training molecule, 0 to 1"
    )
    by_name["measured_remark"] = Heading("Measured otherwise", _REMARK)
    for name, (unit, _) in conversions(predictor.config.tasks, endpoints).items():
        title = endpoints[name].title if name in endpoints else name
        heading = Heading(f"{title} ({unit})", "The prediction in another unit", unit=unit)
        on_request[f"{name}_converted"] = heading
    columns = PredictionColumns(predictor).columns
    return {name: by_name[name] for name in columns} | on_request | _OTHERS


def _headings(endpoints: Endpoints, task: Task, *, is_log: bool) -> Iterator[tuple[str, Heading]]:
    title, unit, about = _names(endpoints, task)
    in_unit = f" ({unit})" if task.kind == "regression" and unit else ""
    if task.kind == "regression":
        yield f"{task.name}_predicted", Heading(f"{title}, predicted{in_unit}", about)
        for end, word in (("low", "Lower"), ("high", "Upper")):
            meaning = f"{word} end of the prediction interval"
            yield f"{task.name}_{end}", Heading(f"{title}, {end}{in_unit}", meaning)
    else:
        is_yes_or_no = task.classes == ("0", "1") and unit
        meaning = f" (1 = {unit.removeprefix('probability of ')})" if is_yes_or_no else ""
        about = f"The most probable. {about}".strip()
        yield task.columns[0], Heading(f"{title}, class{meaning}", about)
        labels = task.classes[1:] if task.kind == "binary" else task.classes
        for name, label in zip(task.output_names, labels, strict=True):
            what = unit if task.kind == "binary" and unit else f"probability of {label}"
            yield name, Heading(f"{title}, {what}", "Calibrated probability, 0 to 1")
    yield f"{task.name}_measured", Heading(f"{title}, measured{in_unit}", _MEASURED)
    more = {
        "std": (f"standard deviation{in_unit}", "Over the networks alone: no measure of the error"),
        "confidence": ("confidence", f"{_GRADES}; low: above"),
        "expected_error": (
            f"expected error{' as half-width of the expected range' * is_log}{in_unit}",
            _FACTOR if is_log else "Mean error, or rate of wrong classes",
        ),
        "training_similarity": ("similarity to training", "To the nearest molecule with a label"),
    }
    for name, (words, meaning) in more.items():
        yield f"{task.name}_{name}", Heading(f"{title}, {words}", meaning, name != "confidence")


def _names(endpoints: Endpoints, task: Task) -> tuple[str, str, str]:
    """Return title, unit and description of a property."""
    card = endpoints.get(task.name)
    if card is None:
        return task.name, task.unit, ""
    about = " ".join(filter(None, (card.description, card.limitations)))
    return card.title, card.unit or task.unit, about


def readable_values(
    config: MolAttnConfig, endpoints: Endpoints, columns: Sequence[str], cells: Sequence[str]
) -> list[ReadableValue]:
    """Return the predictions of a row of a table, its cells as texts, by category."""
    row = dict(zip(columns, cells, strict=True))
    values: list[ReadableValue] = []
    for task, transform in zip(config.tasks, config.target_transforms, strict=True):
        title, unit, _ = _names(endpoints, task)
        value = row[task.columns[0]]
        if task.kind == "regression":
            ends = [row.get(f"{task.name}_{end}") for end in ("low", "high")]
            texts = [three_digits(float(end)) for end in ends if end]
            value = f"{three_digits(float(value))} {unit}".strip()
            if of_parent := row.get(f"{task.columns[0]}_of_parent"):
                value += f" (parent: {three_digits(float(of_parent))})"
            span = " to ".join(texts)
        else:
            probable = max(float(row[name]) for name in task.output_names)  # one, if binary
            span = f"{probable:.0%}"
            if task.classes == ("0", "1"):
                value = "yes" if value == "1" else "no"
            elif task.kind == "binary":
                span += f" {task.classes[1]}"
        grade = row.get(f"{task.name}_confidence")
        error = row.get(f"{task.name}_expected_error")
        if grade and error and task.kind == "regression":
            numbers = float(error), float(row[task.columns[0]])
            size = f"±{three_digits(numbers[0])}"
            if transform.kind == "log":
                size = f"factor {three_digits(expected_factor(*numbers))}"
            grade = f"{grade} ({size})"
        category = endpoints[task.name].category if task.name in endpoints else ""
        measured = row.get(f"{task.name}_measured", "")
        remarks = f"; {row.get('measured_remark', '')}"
        remark = remarks.partition(f"; {task.name}: measured ")[2].partition(";")[0]
        if measured:
            measured = f"{measured if task.classes else three_digits(float(measured))}"
            measured += " (otherwise)" * bool(remark)
        elif remark:
            measured = f"{remark.removeprefix('of a stereoisomer: ')} (stereoisomer)"
        more = grade or "", measured, row.get(f"{task.name}_confidence_reason", "")
        values.append(ReadableValue(category, title, value, span, *more))
    order = list(dict.fromkeys(value.category for value in values))
    return sorted(values, key=lambda value: order.index(value.category))


def target_name(
    tasks: Sequence[Task], endpoints: Endpoints, name: str, *, option: str = "target"
) -> str:
    """Return the name of the task, or the column of the class, that a name means.

    It may be written in any case, and be the title of the task's endpoint.

    Raises:
        InputError: No such task or class, or several.
    """
    names = [task.name for task in tasks]
    names += [output for task in tasks for output in task.output_names]
    of_titles = {endpoint.title: task for task, endpoint in endpoints.items()}
    texts = matching(name, [*names, *of_titles])
    matches = [*dict.fromkeys(text if text in names else of_titles[text] for text in texts)]
    if len(matches) > 1:
        message = f"got {quoted(name)}, expected one of {', '.join(matches)}"
        raise InputError(message, option=option)
    if not matches:
        check_one_of(option, name, names)
    return matches[0]
