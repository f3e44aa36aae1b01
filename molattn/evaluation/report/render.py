"""Reports from templates."""

import platform
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from molattn.config import TrainConfig
from molattn.data.dataset import TrainingTable
from molattn.errors import reason_meaning
from molattn.utils.files import write_file
from molattn.utils.html import page_environment

__all__ = ["skipped_rows", "write_page"]

_TEMPLATES = Path(__file__).parent / "templates"
_MOST_SKIPPED = 5


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
