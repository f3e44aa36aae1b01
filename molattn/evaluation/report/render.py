"""Reports from templates."""

import platform
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from molattn.config import TrainConfig
from molattn.utils.files import write_file
from molattn.utils.html import page_environment

__all__ = ["config_rows", "write_page"]

_TEMPLATES = Path(__file__).parent / "templates"


def write_page(path: Path, template: str, config: TrainConfig, **content: Any) -> None:
    """Write a report.

    Args:
        path: The file.
        template: Name of its template.
        config: The options of the run.
        content: Variables of the template. Text is escaped, ``Markup`` is not.
    """
    text = (
        page_environment(_TEMPLATES)
        .get_template(template)
        .render(
            name=Path(config.file).name,
            config_sections=config_rows(config),
            made=datetime.now(UTC),
            system=platform.platform(terse=True),
            **content,
        )
    )
    write_file(path, text.encode(errors="replace"))


def config_rows(config: TrainConfig) -> Iterator[tuple[str, list[tuple[str, str, bool]]]]:
    """Yield each section with its options: name, value, whether it differs from the default."""
    given = config.to_dict()
    for section, kind in config.sections().items():
        usual: Mapping[str, Any] = vars(kind())
        yield (
            section,
            [
                (name, _text(value), value != _plain(usual[name]))
                for name, value in given[section].items()
            ],
        )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return "-" if value is None or value == "" else str(value)
