"""Molecules of a report: cards of the largest errors, and the points of plots."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from molattn.chem.draw import draw_molecule
from molattn.data.dataset import TrainingTable
from molattn.data.site_labels import SiteLabels
from molattn.data.table import name_column
from molattn.errors import MolattnError
from molattn.evaluation.report.tables import format_score, target_label
from molattn.utils.console import three_digits
from molattn.utils.html import data_image

if TYPE_CHECKING:
    from molattn.evaluation.report.plots import TaskResults

_MOST_SMILES = 300  # characters; the drawing of a larger molecule is not readable
_WORST = 8
_MOST_POINTS = 1000  # of a figure; those with the largest errors
_UNDRAWN = Markup('<p class="undrawn">{}</p>')


class Point(NamedTuple):
    """A molecule of a plot: its position in percent of width and height, name, SMILES, values."""

    left_percent: float
    top_percent: float
    name: str
    smiles: str
    values: str


def molecule_image(smiles: str, label: str, marked: Sequence[int] = ()) -> Markup:
    """Return a molecule as an image of a page, or why it is not drawn as a paragraph."""
    try:
        drawing = draw_molecule(smiles, marked=marked) if len(smiles) <= _MOST_SMILES else None
    except MolattnError as error:
        return _UNDRAWN.format(error)
    if drawing is None:
        return _UNDRAWN.format("too large to draw")
    return data_image("molecule", label, "svg+xml", drawing.encode())


def _name(table: TrainingTable, row: int) -> str:
    """Return the content of a column of names, if the table has one, or ""."""
    column = name_column(table.header)
    return "" if column is None else table.rows[row].cells[column].strip()


def _errors(result: "TaskResults") -> NDArray[np.float64]:
    """Return the errors of a regression, or 1 minus the probability of the measured class."""
    task = result.task
    prediction = result.prediction
    target = result.target
    if task.kind == "regression":
        return result.errors
    both = np.hstack([1 - prediction, prediction]) if task.kind == "binary" else prediction
    return 1.0 - both[np.arange(len(target)), target.astype(int)]


def worst_molecules(
    table: TrainingTable,
    tested: NDArray[np.int64],
    result: "TaskResults",
    sites: SiteLabels | None = None,
) -> dict[str, Any]:
    """Return the molecules with the largest errors, or the least probable measured class.

    ``tested`` are the rows of the table that the results are of, or the ``sites`` in these rows.
    """
    task = result.task
    errors = _errors(result)
    molecules = []
    is_regression = task.kind == "regression"
    for index in np.argsort(-np.abs(errors), kind="stable")[:_WORST]:
        row = int(tested[result.rows[index]])
        values = result.prediction[index].tolist()
        predicted = task.cells(values)[0]
        truth = float(result.target[index])
        smiles = table.smiles[row]
        where = table.where(row)
        atoms: list[int] = []
        if sites is not None:
            site = int(result.rows[index])
            number = site - sites.starts[sites.molecule[site]]
            where += f", {sites.level} {number}"
            nodes = table.records[row].sites
            marked = nodes.atoms[None] if sites.level == "atom" else nodes.bonds
            atoms = marked[:, number].tolist()
        error = float(errors[index] if is_regression else 1.0 - errors[index])
        text = f"{'+' * (is_regression and error >= 0.0)}{format_score(error)}"
        if result.is_log:
            text = f"{three_digits(10.0 ** abs(error))}-fold too {'high' if error > 0 else 'low'}"
        molecule = {
            "drawing": molecule_image(smiles, f"Structure of the molecule in {where}", atoms),
            "name": _name(table, row),
            "smiles": [smiles, *(table.partners[row : row + 1] if table.partners else [])],
            "where": where,
            "measured": format_score(truth) if is_regression else task.classes[int(truth)],
            "predicted": predicted if isinstance(predicted, str) else format_score(predicted),
            "error": text,
        }
        molecules.append(molecule)
    what = f"{sites.level}s" if sites else "molecules"
    about = {"label": target_label(task), "is_regression": is_regression, "what": what}
    return {**about, "worst": molecules}


def plot_points(
    table: TrainingTable,
    tested: NDArray[np.int64],
    results: Sequence["TaskResults"],
    positions: Mapping[str, Sequence[NDArray[np.float64]]],
) -> dict[str, list[Point]]:
    """Return the molecules of each plot, given the positions in its panels, one for each task."""
    regressions = [result for result in results if result.task.kind == "regression"]
    points = {}
    for file, panels in positions.items():
        plotted = (
            regressions
            if file == "parity.png"
            else [result for result in regressions if result.coverage]
        )
        most = _MOST_POINTS // max(1, len(panels))
        points[file] = [
            point
            for result, points_of_panel in zip(plotted, panels, strict=False)
            for point in _points(table, tested, result, points_of_panel, most)
        ]
    return points


def _points(
    table: TrainingTable,
    tested: NDArray[np.int64],
    result: "TaskResults",
    panel_points: NDArray[np.float64],
    most: int,
) -> Iterator[Point]:
    for index in np.argsort(-np.abs(_errors(result)), kind="stable")[:most]:
        row = int(tested[result.rows[index]])
        (from_left, from_top) = (100 * panel_points[index]).tolist()
        measured = float(result.target[index])
        predicted = float(result.prediction[index, 0])
        values = f"measured {format_score(measured)}, predicted {format_score(predicted)}"
        name = _name(table, row) or table.where(row)
        yield Point(round(from_left, 2), round(from_top, 2), name, table.smiles[row], values)
