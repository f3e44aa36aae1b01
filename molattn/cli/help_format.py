"""``--help`` in few lines: groups without boxes, switches with both their names."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions

__all__ = ["print_group"]


def print_group(console: "Console", options: "ConsoleOptions", panel: "HelpPanel") -> None:
    """Print a group of commands or options; a ``help_formatter`` of cyclopts.

    Args:
        console: Where to print.
        options: How it prints, which its width says already.
        panel: The group.
    """
    if not panel.entries:
        return

    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for entry in panel.entries:
        table.add_row(Text(f"  {_name(entry)}", style="cyan"), Text(_description(entry)))
    console.print(Group(Text(str(panel.title), style="bold"), table))


def _name(entry: "HelpEntry") -> str:
    """Return its name, a switch as ``--[no-]name``, with what it takes and its default."""
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
    """Return what it is, with its choices and what else is to be said in a pair of brackets."""
    facts = []
    if entry.choices:
        facts.append(", ".join(entry.choices))
    if entry.default == "on" and not entry.metavar:
        facts.append("on by default")
    if entry.required:
        facts.append("required")
    # The parsed text is wrapped for styles to be added to it, which there are none of here.
    text = getattr(entry.description, "primary_renderable", entry.description) or ""
    words = " ".join(str(text).split())
    return f"{words} [{'; '.join(facts)}]" if facts else words
