"""Docstrings in Sphinx markup, as PyG has them, read as Markdown."""

import re
from typing import Any

from griffe import Extension, Object

__all__ = ["SphinxMarkup", "to_markdown"]

_BLOCK = re.compile(r"^( *)\.\. math::\n((?:\1 +.*\n?|\n(?=\1 ))+)", re.MULTILINE)
_INLINE = re.compile(r":math:`([^`]+)`", re.DOTALL)
_ROLE = re.compile(r":(?:class|func|meth|mod|data):`(~?)([\w.]+)`")


def to_markdown(text: str) -> str:
    """Translate formulas, references to code and the heading of examples."""
    text = _BLOCK.sub(_display, text)
    text = _INLINE.sub(lambda found: rf"\({' '.join(found[1].split())}\)", text)
    text = _ROLE.sub(_reference, text)
    return re.sub(r"^( *)Example:$", r"\1Examples:", text, flags=re.MULTILINE)


def _display(found: re.Match[str]) -> str:
    lines = " ".join(found[2].split())
    return f"{found[1]}\\[{lines}\\]\n\n"


def _reference(found: re.Match[str]) -> str:
    name = found[2]
    if not name.startswith("molattn."):
        return f"`{name}`"
    short = f"<code>{name.rpartition('.')[2]}</code>"
    return f'<autoref identifier="{name}" optional>{short}</autoref>'


class SphinxMarkup(Extension):
    """Translates every docstring that is collected."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Translate one object's docstring."""
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)
