"""Answers: predictions as JSON or a file, explanations, and drawings."""

import copy
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal, NotRequired
from xml.sax.saxutils import escape

from pydantic import Field
from typing_extensions import TypedDict

from molattn.chem.draw import NOT_DRAWN, differing_atoms, draw_molecule
from molattn.chem.limits import read_molecule
from molattn.chem.reader import Fields
from molattn.config import MoleculeLimits, PredictConfig, ServeConfig
from molattn.data.table import FORMATS, Row, Source, escape_formula, name_column, open_table
from molattn.data.table.base import cell_text
from molattn.errors import InputError, SmilesError, check_one_of, quoted, reason_meaning
from molattn.explain import METHODS, MethodOptions, draw_sites
from molattn.explain.explainer import explain_instance, read_instances
from molattn.explain.methods import NotFiniteError
from molattn.explain.target import find_target
from molattn.inference.predict import readable_spec
from molattn.inference.streaming import OutputRows, ReadRow
from molattn.model.columns import measured_remark, standardized_columns
from molattn.model.confidence import Confidence
from molattn.model.sites import SiteColumns, predict_sites, site_atoms
from molattn.serve.batching import Predicted, Work
from molattn.serve.bodies import CSV, FILES, ExplainRequest, SitesRequest, check_inputs
from molattn.serve.catalog import Neighbor, ServedModel
from molattn.task import Level, Task
from molattn.utils.devices import threads

_DOMAIN_SIMILARITY = 0.4
_MOST_REASONS = 10  # molecules
_MOST_ATOMS = 200  # of a molecule to explain


class Difference(TypedDict):
    """The difference of a regression from another molecule, or the ratio of both."""

    kind: Literal["difference", "ratio"]
    value: float
    low: Annotated[float | None, Field(description="Of the interval, from both errors together.")]
    high: float | None


_EXPECTED_ERROR = (
    "Absolute, or the rate of wrong classes. If the task has `is_logarithm`, the error is a factor "
    "f, and this half the distance from value / f to value * f."
)
Prediction = TypedDict(
    "Prediction",
    {
        "value": NotRequired[Annotated[float, Field(description="Of a regression.")]],
        "low": NotRequired[float | None],
        "high": NotRequired[float | None],
        "class": NotRequired[Annotated[str, Field(description="The most probable class.")]],
        "probabilities": NotRequired[dict[str, float]],
        "std": NotRequired[Annotated[float, Field(description="Of an ensemble.")]],
        "training_similarity": NotRequired[float],
        "confidence": NotRequired[
            Annotated[Confidence | None, Field(description="By the expected error.")]
        ],
        "expected_error": NotRequired[Annotated[float | None, Field(description=_EXPECTED_ERROR)]],
        "confidence_reason": NotRequired[
            Annotated[str, Field(description="What it rests on, of at most 10 molecules.")]
        ],
        "measured": NotRequired[
            Annotated[float | str | None, Field(description="Label of a training molecule.")]
        ],
        "measured_remark": NotRequired[
            Annotated[str | None, Field(description="If it is not as predicted.")]
        ],
        "of_parent": NotRequired[
            Annotated[float | None, Field(description="If the molecule is predicted as written.")]
        ],
        "percentile": float | None,
        "difference": NotRequired[
            Annotated[Difference | None, Field(description="With `difference_from`.")]
        ],
    },
)
"""A number with its interval, or a class with the probabilities of all."""


SiteLists = dict[str, list[float | str | None]]
_SITES = "Predictions by column, a value for each in the order of the input."


class Molecule(TypedDict):
    """A molecule with its predictions, or the reason why it has none."""

    smiles: str | None
    row: Annotated[int, Field(description="The line of a text file, or the number of the row.")]
    error: Annotated[str | None, Field(description="Reason code; null with predictions.")]
    message: Annotated[str | None, Field(description="The reason in words.")]
    training_similarity: float | None
    in_domain: Annotated[bool | None, Field(description="A training_similarity from 0.4 on.")]
    predictions: dict[str, Prediction | None]
    neighbors: list[Neighbor]
    atoms: NotRequired[Annotated[SiteLists | None, Field(description=_SITES)]]
    bonds: NotRequired[Annotated[SiteLists | None, Field(description=_SITES)]]
    standardized_smiles: NotRequired[str | None]
    parent: NotRequired[Annotated[str | None, Field(description="If it is another molecule.")]]
    name: NotRequired[Annotated[str, Field(description="Of a table with such a column.")]]
    partner: NotRequired[Annotated[str, Field(description="The second molecule, if any.")]]
    features: NotRequired[Annotated[dict[str, float], Field(description="Extra features.")]]
    difference_error: NotRequired[
        Annotated[str | None, Field(description="Why it has no difference; null with one.")]
    ]
    cells: NotRequired[Annotated[list[str], Field(description="Its row in the CSV file.")]]
    block: NotRequired[Annotated[str, Field(description="With `cells`: its mol block in an SDF.")]]


class PredictResponse(TypedDict):
    """Predictions of molecules, in the order of the request."""

    model: str
    level: float
    columns: NotRequired[Annotated[list[str], Field(description="Names of `cells`.")]]
    own_columns: NotRequired[Annotated[int, Field(description="How many the input has.")]]
    smiles_column: NotRequired[Annotated[str, Field(description="The column of the molecules.")]]
    molecules: list[Molecule]


def molecules(work: Work, predicted: Predicted, neighbors: int) -> list[Molecule]:
    """Return rows and their predictions, with so many nearest training molecules, as JSON types."""
    served = work.served
    header = work.table.header
    model = served.model.config
    texts = {"name": name_column(header)}
    if model.partner_column and model.partner_column in header:
        texts["partner"] = header.index(model.partner_column)
    answers = list[Molecule]()
    for row, values, code in predicted:
        cells: dict[str, Any] = {} if code else dict(zip(work.spec.columns, values, strict=True))
        similarity = cells.get("training_similarity")
        answer: Molecule = {
            "smiles": None if code == "missing_value" else row.smiles,
            "row": row.table_row.line,
            "error": code or None,
            "message": (row.table_row.reason or reason_meaning(row.code or code)) if code else None,
            "training_similarity": similarity,
            "in_domain": None if similarity is None else similarity >= _DOMAIN_SIMILARITY,
            "predictions": {
                task.name: _prediction(served, task, cells) if cells else None
                for task in served.tasks
            },
            "neighbors": [],
        }
        if model.standardize:
            name = "parent" if model.standardize == "parent" else "standardized_smiles"
            answer[name] = (row.record and row.record.standardized) or None
        for key, column in texts.items():
            if column is not None:
                answer[key] = row.table_row.cells[column]
        answer |= _site_lists(served, cells) | _difference_error(cells)
        if model.features:
            answer["features"] = dict(zip(model.features, row.features, strict=False))
        answers.append(answer)
    good = [n for n, (*_, code) in enumerate(predicted) if not code]
    if served.model.uncertainty is not None and len(good) <= _MOST_REASONS:
        _add_reasons(served, [answers[n] for n in good], [predicted[n][0].record for n in good])
    if neighbors:
        fingerprints: list[Any] = [predicted[n][0].record.fingerprint for n in good]  # pyright: ignore
        for n, near in zip(good, served.model.nearest(fingerprints, neighbors), strict=True):
            answers[n]["neighbors"] = [
                {
                    "smiles": neighbor.smiles,
                    "similarity": neighbor.similarity,
                    "labels": dict(neighbor.labels),
                }
                for neighbor in near
            ]
    return answers


def _site_lists(served: ServedModel, cells: dict[str, Any]) -> Any:
    """Return the predictions of the atoms and of the bonds of a molecule; None without any."""
    config = served.model.config
    lists: dict[str, Any] = {f"{level}s": {} if cells else None for level in config.site_tasks}
    for name, level in SiteColumns(config, served.model.site_calibration).columns.items():
        if cells:
            lists[f"{level}s"][name] = json.loads(cells[name])
    return lists


def _add_reasons(served: ServedModel, answers: list[Molecule], records: list[Any]) -> None:
    """Add to the predictions of molecules what their confidence rests on."""
    reasons = served.model.predictor.confidence_reasons(records)
    for answer, texts in zip(answers, reasons, strict=True):
        for prediction, text in zip(answer["predictions"].values(), texts, strict=True):
            if prediction is not None:
                prediction["confidence_reason"] = text


def _prediction(served: ServedModel, task: Task, cells: dict[str, Any]) -> Prediction:
    first, *others = (cells[name] for name in task.output_names)
    has_percentile = task.kind != "multiclass"
    answer: Prediction = {"percentile": served.percentile(task, first) if has_percentile else None}
    if served.model.config.members > 1:
        answer["std"] = cells[f"{task.name}_std"]
    if (similarity := cells.get(f"{task.name}_training_similarity")) is not None:
        answer["training_similarity"] = similarity
    if served.model.uncertainty is not None:
        for name in ("confidence", "expected_error"):
            answer[name] = cells[f"{task.name}_{name}"]
    if f"{task.name}_measured" in cells:
        answer["measured"] = cells[f"{task.name}_measured"]
        answer["measured_remark"] = measured_remark(task, cells) or None
    if (of_parent := f"{task.output_names[0]}_of_parent") in cells:
        answer["of_parent"] = cells[of_parent]
    if task.kind == "regression":
        ends = {end: cells.get(f"{task.name}_{end}") for end in ("low", "high")}
        if difference := _difference(task, cells):
            answer["difference"] = difference
        return {"value": first, **ends, **answer}  # pyright: ignore[reportReturnType]
    probabilities = [1.0 - first, first] if task.kind == "binary" else [first, *others]
    by_class = dict(zip(task.classes, probabilities, strict=True))
    return {"class": cells[task.columns[0]], "probabilities": by_class, **answer}


def _difference_error(cells: dict[str, Any]) -> Any:
    error = "difference_error"
    return {error: cells[error] or None} if error in cells else {}


def _difference(task: Task, cells: dict[str, Any]) -> Difference | None:
    for kind in ("difference", "ratio"):
        if (value := cells.get(name := f"{task.name}_{kind}")) is not None:
            ends = cells[f"{name}_low"], cells[f"{name}_high"]
            return {"kind": kind, "value": value, "low": ends[0], "high": ends[1]}
    return None


def dumps(value: Any) -> bytes:
    """Return JSON types as a line of JSON; bytes of a table that are not UTF-8 become U+FFFD."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode(errors="surrogateescape").decode(errors="replace").encode()


async def json_chunks(
    work: Work, answers: AsyncIterator[list[Molecule]], rows: OutputRows | None
) -> AsyncIterator[bytes]:
    """Yield the parts of a :class:`PredictResponse`, in which each molecule is a line.

    It names the columns of the rows of a file that the answers have too, if any.
    """
    table = work.table
    head: dict[str, Any] = {"model": work.served.name, "level": work.level}
    if rows is not None:
        smiles = table.header[table.column(work.smiles_column, "smiles_column")]
        head |= {"columns": rows.header, "own_columns": len(table.header), "smiles_column": smiles}
    yield dumps(head).removesuffix(b"}") + b',"molecules":['
    separator = b"\n"
    async for batch in answers:
        yield separator + b",\n".join(map(dumps, batch))
        separator = b",\n"
    yield b"\n]}\n"


def output_rows(work: Work, options: PredictConfig, name: str) -> OutputRows:
    """Return the rows of a file of predictions in a format, as ``molattn predict`` writes it."""
    served = work.served
    path = Path(f"predictions{FORMATS[name].suffixes[0]}")
    spec = readable_spec(work.spec, served.model, path, options)
    return OutputRows(work.table, served.model, spec, options, path)


def add_cells(rows: OutputRows, answers: list[Molecule], predicted: Predicted) -> None:
    """Add the rows of a file of text to answers, and the mol blocks of the input."""
    for answer, (row, values, code) in zip(answers, predicted, strict=True):
        ((cells, _),) = rows.cells(row, [values], code)
        answer["cells"] = [str(cell) for cell in cells]
        if row.table_row.block:
            answer["block"] = row.table_row.block


async def file_chunks(
    rows: OutputRows, name: str, predicted: AsyncIterator[Predicted]
) -> AsyncIterator[bytes]:
    """Yield the parts of a file of predictions in a format, given its rows."""
    file_format = FORMATS[name]
    buffer = BytesIO()
    writer = file_format.write(buffer, rows.header, rows.schema)  # pyright: ignore
    async for batch in predicted:
        for row, cells, code in batch:
            for line in rows.cells(row, [cells], code):
                writer.write(*line)
        if file_format.is_resumable:  # text, which is sent as it is written
            yield buffer.getvalue()
            buffer.seek(0)
            buffer.truncate()
    writer.close()
    yield buffer.getvalue()


def write_predictions(served: ServedModel, body: Path, options: PredictConfig, name: str) -> bytes:
    """Return predictions as a file in a format.

    Args:
        served: The model that has predicted them.
        body: CSV of the ``cells`` of answers with a column of mol blocks after them, empty where a
            molecule has none. Columns may stand before those of the predictions.
        options: How tables are read and written.
        name: The format.

    Raises:
        InputError: The columns are not those of the model's predictions.
    """
    table = open_table(Source(body, "body"), "csv")
    kinds = [*served.spec(options.interval).columns.values()]
    width = len(table.header) - len(kinds) - len(standardized_columns(served.model.config)) - 2
    source = copy.copy(table)
    source.header = [_unescape(column) for column in table.header[: max(0, width)]]
    smiles = source.column(options.smiles_column, "smiles_column")
    work = Work(served, source, options.interval)
    if output_rows(work, options, FILES[CSV]).header[width:] != table.header[width:-1]:
        raise InputError(f"body: expected columns of {served.name} and one of mol blocks, the last")
    rows = output_rows(work, options, name)
    lines = list[tuple[list[object], str]]()
    for row in table:
        texts = [*map(_unescape, row.cells)]
        *predicted, code, block = texts[width:]
        values = [
            _number(cell, table.where(row.line)) if kind == "float64" else cell or None
            for kind, cell in zip(kinds, predicted, strict=False)
        ]
        record: Any = None if code else _forms(predicted[len(kinds) :])
        values_of_input = tuple(map(_typed, texts[:width]))
        source_row = Row(row.line, texts[:width], values=values_of_input, molecule=block)
        read = ReadRow(source_row, texts[smiles], record, [], code)  # pyright: ignore
        lines += rows.cells(read, [values], code)
    buffer = BytesIO()
    writer = FORMATS[name].write(buffer, rows.header, rows.schema)  # pyright: ignore
    for line in lines:
        writer.write(*line)
    writer.close()
    return buffer.getvalue()


def _forms(standardized: list[str]) -> SimpleNamespace:
    """Return what :func:`standardized_cells` reads of a record."""
    molecules = [SimpleNamespace(standardized=smiles) for smiles in [*standardized, "", ""]]
    return SimpleNamespace(**vars(molecules[0]), partner=molecules[1])


def _unescape(cell: str) -> str:
    return cell[1:] if cell[1:] and escape_formula(cell[1:]) == cell else cell


def _typed(cell: str) -> object:
    """Return the date or truth value of a workbook that a text is of, or else the text."""
    if cell in ("TRUE", "FALSE"):
        return cell == "TRUE"
    try:
        value = datetime.fromisoformat(cell)
    except ValueError:
        return cell
    return value if cell_text(value) == cell else cell


def _number(cell: str, where: str) -> float | None:
    try:
        return float(cell) if cell else None
    except ValueError:
        raise InputError(f"body, {where}: got {quoted(cell)}, expected a number") from None


class ExplainResponse(TypedDict):
    """The atoms of a molecule with their contributions to a prediction."""

    model: str
    target: str
    method: str
    signed: Annotated[bool, Field(description="Whether scores may be negative.")]
    svg: str
    smiles: str
    atoms: Annotated[list[float], Field(description="Scores in the order of the SMILES.")]
    other_scores: Annotated[dict[str, float], Field(description="Of the whole molecule.")]
    unit: str
    prediction: float
    baseline: Annotated[float | None, Field(description="What signed scores are relative to.")]
    residual: Annotated[float | None, Field(description="What signed scores miss of the value.")]
    adds_up: Annotated[bool | None, Field(description="Whether the residual is negligible.")]


def explain_prediction(
    config: ServeConfig, served: ServedModel, body: ExplainRequest
) -> ExplainResponse:
    """Explain a prediction."""
    check_one_of("method", body.method, METHODS)
    features = body.features or {}
    check_inputs(served, body.partner is not None, features)
    model = served.model
    find_target(model, body.task, option="task")
    atoms = read_molecule(body.smiles, config, bool)[0].GetNumAtoms()
    if atoms > _MOST_ATOMS:
        reason = f"it has {atoms} atoms, explanations are limited to {_MOST_ATOMS}"
        raise SmilesError(body.smiles, "too_large", reason)
    partners = None if body.partner is None else [body.partner]
    values = [[features[name] for name in model.config.features]] if features else None
    with threads(config.threads):
        (instance,) = read_instances(model, [body.smiles], body.task, partners, values)
        try:
            explanation = explain_instance(instance, body.method, MethodOptions())
        except NotFiniteError as error:
            raise SmilesError(body.smiles, "not_finite", str(error)) from None
    fields = ExplainResponse.__annotations__.keys() - {"model", "svg", "atoms"}
    card = model.endpoints.get(explanation.target)
    drawn = replace(explanation, target=card.title) if card else explanation  # as the page calls it
    return {
        "model": served.name,
        "svg": drawn.draw(body.width, body.height),
        "atoms": explanation.atom_scores.tolist(),
        **{name: getattr(explanation, name) for name in fields},
    }  # pyright: ignore[reportReturnType]


class SitesResponse(TypedDict):
    """Predictions of the atoms or bonds of a molecule, and a drawing of them."""

    model: str
    target: str
    svg: Annotated[
        str | None, Field(description="Null of more than 200 atoms, or if their layout takes 5 s.")
    ]
    symbols: Annotated[list[str], Field(description="Of all atoms, in the order of the SMILES.")]
    sites: Annotated[
        list[list[int]],
        Field(
            description="The atoms of each value, from 0; none of a bond that is not in the graph."
        ),
    ]
    predictions: Annotated[SiteLists, Field(description=_SITES)]


def draw_predictions(config: ServeConfig, served: ServedModel, body: SitesRequest) -> SitesResponse:
    """Predict a property of the atoms or bonds of a molecule, and draw it."""
    model = served.model
    properties: dict[str, tuple[Level, Task]] = {
        task.name: (level, task)
        for level, tasks in model.config.site_tasks.items()
        for task in tasks
    }
    if not properties:
        raise InputError(f"model: got {served.name}, expected one that predicts atoms or bonds")
    check_one_of("target", body.target, properties)
    level, task = properties[body.target]
    (record,) = model.config.reader(Fields(symbols=True), config)([body.smiles])
    if isinstance(record, SmilesError):
        raise record
    with threads(config.threads):
        svg = draw_sites(model, body.smiles, body.target, body.width, body.height)
        arguments = model.networks, model.site_calibration, [record], body.level
        prediction = predict_sites(*arguments)[level]
    columns = SiteColumns(model.config, model.site_calibration)
    names = [name for name, level_of in columns.columns.items() if level_of == level]
    values = columns.values(prediction, level, slice(None))
    lists = zip(names, values, strict=True)
    symbols, sites = site_atoms(record, level)
    return {
        "model": served.name,
        "target": body.target,
        "svg": svg,
        "symbols": symbols,
        "sites": sites,
        "predictions": {name: column for name, column in lists if name in task.possible_columns},
    }


@lru_cache(maxsize=256)
def depict(
    smiles: str,
    other: str | None,
    atoms: tuple[int, ...],
    width: int,
    height: int,
    limits: MoleculeLimits,
) -> str:
    """Draw a molecule; the atoms that differ from another one, or those given, are marked."""
    mol, _ = read_molecule(smiles, limits, bool)
    marked = list(atoms)
    if other is not None:
        read_molecule(other, limits, bool)
        marked = differing_atoms(smiles, other)
    if other is None and any(atom >= mol.GetNumAtoms() for atom in atoms):
        raise InputError(f"atoms: got {max(atoms)}, expected numbers below {mol.GetNumAtoms()}")
    if (drawing := draw_molecule(smiles, width, height, marked)) is not None:
        return drawing
    lines = "".join(
        f'<text x="50%" y="{height // 2 + 18 * line - 6}" text-anchor="middle" '
        f'font-family="sans-serif" font-size="12">{escape(words)}</text>'
        for line, words in enumerate(NOT_DRAWN)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}px" height="{height}px" '
        f'viewBox="0 0 {width} {height}">{lines}</svg>'
    )
