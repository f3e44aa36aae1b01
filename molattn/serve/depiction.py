"""Structures as SVG."""

from functools import lru_cache
from xml.sax.saxutils import escape

from molattn.chem.difference import differing_atoms
from molattn.chem.draw import NOT_DRAWN, draw_molecule
from molattn.chem.limits import read_molecule
from molattn.config import MoleculeLimits

__all__ = ["depict"]

_CACHED_LENGTH = 300  # characters of a SMILES; hostile ones would fill the memory


def depict(smiles: str, other: str | None, width: int, height: int, limits: MoleculeLimits) -> str:
    """Draw a molecule, with a line of text in its place if it cannot be drawn.

    Args:
        smiles: The molecule.
        other: Another molecule; the atoms that differ from it are marked.
        width: Width in pixels.
        height: Height in pixels.
        limits: Limits of the molecule.

    Raises:
        SmilesError: One of them is not a molecule, or beyond a limit.
    """
    if len(smiles) + len(other or "") <= _CACHED_LENGTH:
        return _cached(smiles, other, width, height, limits)
    return _drawn(smiles, other, width, height, limits)


def _drawn(smiles: str, other: str | None, width: int, height: int, limits: MoleculeLimits) -> str:
    read_molecule(smiles, limits, bool)
    marked: list[int] = []
    if other is not None:
        read_molecule(other, limits, bool)
        marked = differing_atoms(smiles, other)
    drawn = draw_molecule(smiles, width, height, marked)
    if drawn is not None:
        return drawn
    lines = "".join(
        f'<text x="50%" y="{height // 2 + 18 * place - 6}" text-anchor="middle" '
        f'font-family="sans-serif" font-size="12">{escape(words)}</text>'
        for place, words in enumerate(NOT_DRAWN)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}px" height="{height}px" '
        f'viewBox="0 0 {width} {height}">{lines}</svg>'
    )


_cached = lru_cache(maxsize=1024)(_drawn)
