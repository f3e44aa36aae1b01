"""LaTeX to MathML, which browsers draw by themselves: no script, no font, no network."""

import html
import re

from latex2mathml.converter import convert

__all__ = ["render_formulas"]

_FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<latex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)
# Delimiters that the converter knows only without a size.
_SIZED_ANGLE = re.compile(r"\\[bB]igg?[lr]?(?=\\[lr]angle)")
_WORD = re.compile(r"\\mathrm\{([A-Za-z]+)\}")


def render_formulas(page: str) -> str:
    """Replace the formulas that arithmatex marked in a page's HTML."""
    return _FORMULA.sub(_render, page)


def _render(found: re.Match[str]) -> str:
    latex = html.unescape(found["latex"]).strip()
    if found["tag"] == "span":
        return _mathml(latex)
    rows = [[_mathml(cell) for cell in row.split("&")] for row in re.split(r"\\\\(?!\[)", latex)]
    if len(rows) == 1 and len(rows[0]) == 1:
        return f'<div class="formula">{_mathml(latex, display=True)}</div>'
    cells = "".join(
        "<mtr>" + "".join(f"<mtd>{_inside(cell)}</mtd>" for cell in row) + "</mtr>" for row in rows
    )
    return (
        '<div class="formula"><math xmlns="http://www.w3.org/1998/Math/MathML" display="block">'
        f'<mtable displaystyle="true">{cells}</mtable></math></div>'
    )


def _mathml(latex: str, *, display: bool = False) -> str:
    plain = _SIZED_ANGLE.sub("", _WORD.sub(r"\\text{\1}", latex))
    math = convert(plain, display="block" if display else "inline")
    if "\\" in math or "&</" in math:
        raise ValueError(f"formula: got {latex!r}, a part of which cannot be drawn")
    return math


def _inside(math: str) -> str:
    return re.sub(r"^<math[^>]*>|</math>$", "", math)
