"""A compact ``--help``: groups without boxes, common options first."""

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions

__all__ = ["advanced_options", "print_group"]

_NAME_WIDTH = 48


def advanced_options(command: Callable[..., Any]) -> frozenset[str]:
    """Return the options of a command that are not common; none if it declares none as common."""
    levels = dict(_levels(get_type_hints(command)))
    hidden = [name for name, common in levels.items() if common not in (True, command.__name__)]
    if len(hidden) == len(levels):
        return frozenset()
    return frozenset(f"--{name.replace('_', '-')}" for name in hidden)


def _levels(hints: dict[str, Any]) -> Iterator[tuple[str, bool | str]]:
    """Yield each option of the sections among a command's parameters, and where it is common."""
    for section in filter(is_dataclass, hints.values()):
        kinds = get_type_hints(section)
        yield from _levels(kinds)
        for field in fields(section):
            if not is_dataclass(kinds[field.name]):
                yield field.name, field.metadata.get("common", False)


def print_group(
    console: "Console",
    options: "ConsoleOptions",
    panel: "HelpPanel",
    hidden: frozenset[str] = frozenset(),
) -> None:
    """Print a group of commands or options; a ``help_formatter`` of cyclopts."""
    shown = [entry for entry in panel.entries if not hidden & {*entry.names}]
    if not shown:
        return

    from rich.table import Table
    from rich.text import Text

    names = [f"  {_name(entry)}" for entry in shown]
    most = min(_NAME_WIDTH, 3 * console.width // 5)
    width = max((len(name) for name in names if len(name) <= most), default=most)
    console.print(Text(str(panel.title), style="bold"))
    for name, entry in zip(names, shown, strict=True):
        if len(name) > width:  # its description begins on the next line
            console.print(Text(name, style="cyan"))
            name = ""
        row = Table.grid(padding=(0, 2, 0, 0))
        row.add_column(width=width, no_wrap=True)
        row.add_column()
        row.add_row(Text(name, style="cyan"), Text(_description(entry)))
        console.print(row)


def _name(entry: "HelpEntry") -> str:
    """Return the name, for a flag ``--[no-]name``, with the type of its value and its default."""
    names = [*([entry.positional_label] if entry.positional_label else []), *entry.positive_names]
    for name in entry.negative_names:
        if name == f"--no-{entry.positive_names[0][2:]}":
            names[0] = f"--[no-]{name[5:]}"
        else:
            names.append(name)
    if not entry.metavar:
        return " ".join(names)
    default = f"={entry.default}" if entry.default else ""
    return " ".join([*names, f"{entry.metavar}{default}"])


def _description(entry: "HelpEntry") -> str:
    """Return the description, with choices, defaults of flags and ``required`` in brackets."""
    facts = []
    if entry.choices:
        facts.append(", ".join(entry.choices))
    if entry.default == "on" and not entry.metavar:
        facts.append("on by default")
    if entry.required:
        facts.append("required")
    # cyclopts wraps the parsed text to add styles, of which there are none here.
    text = getattr(entry.description, "primary_renderable", entry.description) or ""
    words = " ".join(str(text).split())
    return f"{words} [{'; '.join(facts)}]" if facts else words
