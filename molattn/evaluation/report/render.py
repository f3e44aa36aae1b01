"""Reports from templates."""

import io
import platform
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure

from molattn.chem.draw import draw_molecule
from molattn.config import DataConfig, TrainConfig
from molattn.data.dataset import TrainingTable
from molattn.errors import MolattnError, reason_meaning
from molattn.evaluation.tables import is_exchangeable
from molattn.utils.files import write_file
from molattn.utils.html import page_environment

__all__ = ["figure_image", "interval_promise", "molecule_image", "skipped_rows", "write_page"]

_TEMPLATES = Path(__file__).parent / "templates"
_MOST_SKIPPED = 5
_MOST_SMILES = 300  # characters; the drawing of a larger molecule is not readable
_UNDRAWN = Markup('<p class="undrawn">{}</p>')
_IMAGE = Markup('<img class="{}" alt="{}" src="data:image/svg+xml;base64,{}">')


def write_page(path: Path, template: str, config: TrainConfig, **content: Any) -> None:
    """Write a report from a template and its variables. Text is escaped, ``Markup`` is not."""
    page = page_environment(_TEMPLATES).get_template(template)
    text = page.render(
        name=Path(config.file).name,
        config_sections=_config_rows(config),
        made=datetime.now(UTC),
        system=platform.platform(terse=True),
        **content,
    )
    write_file(path, text.encode(errors="replace"))


def figure_image(figure: Figure, label: str) -> Markup:
    """Return a figure as an image of a page, described for screen readers by the label."""
    file = io.BytesIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "molattn"}):
        figure.savefig(file, format="svg", metadata={"Date": None}, bbox_inches="tight")
    return _IMAGE.format("figure", label, b64encode(file.getvalue()).decode())


def molecule_image(smiles: str, label: str) -> Markup:
    """Return a molecule as an image of a page, or why it is not drawn as a paragraph."""
    try:
        drawing = draw_molecule(smiles) if len(smiles) <= _MOST_SMILES else None
    except MolattnError as error:
        return _UNDRAWN.format(error)
    if drawing is None:
        return _UNDRAWN.format("too large to draw")
    return _IMAGE.format("molecule", label, b64encode(drawing.encode()).decode())


def skipped_rows(table: TrainingTable) -> list[tuple[str, str, int, str]]:
    """Return code, meaning, count and the first line numbers of skipped rows, by reason."""
    rows = table.skipped
    return [
        (
            code,
            reason_meaning(code),
            count,
            ", ".join([str(row.line) for row in rows if row.code == code][:_MOST_SKIPPED])
            + (", …" if count > _MOST_SKIPPED else ""),
        )
        for code, count in Counter(row.code for row in rows).most_common()
    ]


def _config_rows(config: TrainConfig) -> Iterator[tuple[str, list[tuple[str, str, bool]]]]:
    """Yield each section with its options: name, value, whether it differs from the default."""
    given, usual = config.to_dict(), TrainConfig.from_dict({}).to_dict()
    for section in config.sections():
        options, defaults = given[section], usual[section]
        yield (
            section,
            [(name, _text(options[name]), options[name] != defaults[name]) for name in options],
        )


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return "-" if value is None or value == "" else str(value)


def interval_promise(data: DataConfig, *, tested: bool = True) -> str:
    """Return what the intervals of a run promise for its test rows, if any, and what not."""
    rows, condition = "the validation rows", ""
    if data.validation_size == 0.0:
        rows = "the predictions of the other folds' models for the rows that they have not seen"
        condition = ", if the model hardly depends on single rows"
    text = (
        f"Intervals are calibrated on {rows}. Their nominal coverage is promised on average for "
        f"molecules that are drawn as those (exchangeable){condition}, and nothing for others, "
        "such as a new chemical series."
    )
    if not tested:
        return f"{text} There are no test rows on which it could be measured."
    if is_exchangeable(data):
        return f"{text} The test rows are drawn at random as those are."
    how = f"the split {data.split!r}" if data.split_column is None else "a column of the table"
    return (
        f"{text} The test rows are chosen by {how}: no coverage is promised for them, and the "
        "measured coverage shows what the intervals are worth for such molecules."
    )
