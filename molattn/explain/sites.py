"""Drawings of molecules with the predictions of their atoms or bonds beside them."""

from collections import Counter
from itertools import chain, islice
from pathlib import Path

import numpy as np
from markupsafe import Markup
from rdkit import Chem
from rich.console import Console

from molattn.chem.draw import NOT_DRAWN, drawing_module, laid_out
from molattn.chem.parse import Molecule
from molattn.chem.reader import Fields
from molattn.config import ExplainConfig
from molattn.data.table import Table
from molattn.errors import check_one_of
from molattn.explain.drawing import Color, score_color
from molattn.inference.streaming import RowCounts, molecule_batches
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.sites import predict_sites
from molattn.task import Level, Task, output_slices
from molattn.utils.console import print_line, print_remarks, row_progress, three_digits
from molattn.utils.files import atomic_folder, write_file
from molattn.utils.html import data_image

_FIGURE = Markup("<figure>{}<figcaption>{}: {}</figcaption></figure>")
_SIGNED = (
    "Blue is below the mean of the training labels, orange above: the deeper, the farther from it, "
    "by the scale of each molecule."
)
_PROBABILITY = "Probabilities: the higher, the deeper the violet."
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>body {{ font-family: sans-serif }} figure {{ display: inline-block; max-width: 30em }}
figcaption {{ overflow-wrap: anywhere }}</style>
<h1>{title}</h1>
<p>{legend}</p>
{figures}
</html>
"""


def draw_sites(
    model: MolAttn, molecule: Molecule, target: str, width: int = 450, height: int = 350
) -> str | None:
    """Draw a molecule with the predictions of a property of its atoms or bonds, as SVG.

    Of more than two classes, the number is the probability of the most probable one.

    Returns:
        The drawing; None of a molecule of more than 200 atoms, or whose layout takes more than 5 s.

    Raises:
        SmilesError: The molecule cannot be read.
        InputError: The model has no such property.
    """
    config = model.config
    columns = _columns(config)
    check_one_of("target", target, columns)
    level, task, at = columns[target]
    if isinstance(molecule, Chem.Mol):
        molecule = Chem.Mol(molecule)  # a later call may be for the same one, changed
    graph = laid_out(molecule, unify=config.unify_drawings, hydrogens=config.hydrogens)
    if graph is None:
        return None
    (record,) = records = model.networks.reader(None).all([molecule])
    outputs = predict_sites(model.networks, model.site_calibration, records, 0.9)[level].outputs[
        :, at
    ]
    values = outputs.max(axis=1)
    scores = np.nan_to_num(values)
    if signed := task.kind == "regression":
        mean = float(model.networks.members[0].site_head(level).mean[at.start])
        scores = np.nan_to_num(values - mean)
    limit = float(np.abs(scores).max(initial=0.0)) if signed else 1.0
    drawn = Chem.Mol(graph)
    colors = {}
    for site in np.flatnonzero(np.isfinite(values)).tolist():
        ends = (record.sites.atoms[None] if level == "atom" else record.sites.bonds)[:, site]
        find = drawn.GetAtomWithIdx if level == "atom" else drawn.GetBondBetweenAtoms
        drawn_site = find(*ends.tolist())
        drawn_site.SetProp(f"{level}Note", three_digits(values[site]))
        colors[drawn_site.GetIdx()] = score_color(float(scores[site]), limit, signed=signed)
    return _svg(drawn, level, colors, width, height)


def _columns(config: MolAttnConfig) -> dict[str, tuple[Level, Task, slice]]:
    """Return the level, task and outputs of each property of atoms or bonds, by name."""
    return {
        task.name: (level, task, at)
        for level, tasks in config.site_tasks.items()
        for task, at in zip(tasks, output_slices(tasks), strict=True)
    }


def _svg(mol: Chem.Mol, level: Level, colors: dict[int, Color], width: int, height: int) -> str:
    """Draw a molecule that has coordinates and notes, with the colors of its atoms or bonds."""
    drawer = drawing_module().MolDraw2DSVG(width, height)
    options = drawer.drawOptions()
    options.prepareMolsBeforeDrawing = False
    options.annotationFontScale = 0.6
    options.setBondNoteColour((0.0, 0.0, 0.0))
    kind = f"highlight{level.title()}"
    marks = {
        "highlightAtoms": [],
        "highlightBonds": [],
        f"{kind}s": [*colors],
        f"{kind}Colors": colors,
    }
    drawer.DrawMolecule(mol, **marks)
    drawer.FinishDrawing()
    return drawer.GetDrawingText()


def draw_table(
    model: MolAttn, table: Table, output: Path, config: ExplainConfig, console: Console
) -> RowCounts:
    """Draw the predictions of atoms or bonds of each row: ``index.html``, and SVG files."""
    target = str(config.target)
    level, task, _ = _columns(model.config)[target]
    unit = f" ({task.unit})" if task.unit else ""
    title = f"{target}{unit}, predicted for each {level}"
    if config.check or config.method != ExplainConfig().method:
        print_line(console, f"not used: --method and --check; drawn is {title}")
    errors = Counter[str]()
    figures = []
    rows = chain.from_iterable(molecule_batches(table, model, config, Fields()))
    with atomic_folder(output) as folder, row_progress(console, "draw") as advance:
        (folder / "molecules").mkdir()
        for row in islice(rows, config.limit):
            advance(1, int(row.record is None))
            if row.record is None:
                errors[row.code] += 1
                continue
            molecule = getattr(row.molecule, "smiles", row.molecule)  # of a prepared molecule
            svg = draw_sites(model, molecule, target)
            image = Markup("<p>{}</p>").format(" ".join(NOT_DRAWN))
            if svg is not None:
                write_file(folder / "molecules" / f"{row.table_row.line}.svg", svg.encode())
                image = data_image("molecule", row.smiles, "svg+xml", svg.encode())
            figures.append(_FIGURE.format(image, row.table_row.line, row.smiles))
        page = Markup(_PAGE).format(
            title=title,
            legend=_SIGNED if task.kind == "regression" else _PROBABILITY,
            figures=Markup("\n".join(figures)),
        )
        write_file(folder / "index.html", str(page).encode(errors="replace"))
    print_remarks(console, errors)
    return RowCounts(len(figures), errors.total())
