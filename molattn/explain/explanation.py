"""The explanation of one molecule: scores of its atoms and bonds, and its attention weights."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem

from molattn.errors import check_one_of
from molattn.explain.drawing import draw_png, draw_svg
from molattn.utils.files import write_file

__all__ = ["Explanation"]


@dataclass(frozen=True, eq=False)
class Explanation:
    r"""The prediction for one molecule, and the scores that one method gives its atoms and bonds.

    The scores of a signed method are contributions in ``unit``, and

    .. math::
        \mathrm{prediction} - \mathrm{baseline} = \sum_i \mathrm{atom\_scores}_i
        + \sum_k \mathrm{other\_scores}_k + \mathrm{residual}

    where the residual is at most ``tolerance`` in absolute value. The scores of an unsigned method
    are never negative: they measure how important an atom is. The ``n`` atoms are in the order of
    ``smiles``, or of the RDKit molecule that was given.

    Args:
        smiles: The SMILES that was given, or that of the RDKit molecule; the standardized one if
            the model standardizes molecules and that changes this one.
        target: The explained output: a task, or one class of a multiclass task.
        unit: Unit of the prediction: that of the task, ``log-odds`` for a class, empty if unknown.
        method: A name in :data:`molattn.explain.METHODS`.
        signed: Whether scores are contributions that add up, as above.
        prediction: The explained value, in ``unit``.
        probability: Predicted probability of a class, calibrated if the model is.
        low: Lower bound of the prediction interval, in ``unit``; None = no interval.
        high: Upper bound.
        baseline: Prediction that the scores are relative to, of a molecule without its atoms:
            average ones (integrated gradients) or masked ones, with the features of
            ``other_scores`` at their training means; None for an unsigned method.
        symbols: Element of each atom.
        atom_numbers: Number of each atom in the molecule that was given, from 0, where explicit
            hydrogen atoms count.
        bonds: Pairs of bonded atoms.
        atom_scores: ``float64 [n]``.
        bond_scores: ``float64 [len(bonds)]``, not part of the sum; what they measure depends on
            the method.
        other_scores: Scores of the features of the whole molecule: ``feature columns``,
            ``descriptors`` and ``Morgan counts``; empty for an unsigned method.
        residual: See above; None for an unsigned method.
        tolerance: Largest residual that the method aims for; None for an unsigned method.
        attention: The attention weights of this prediction, before dropout, ``float32 [layers,
            heads, n receivers, n senders]``; they sum to 1 over the senders of a receiver, except
            for MAT. For an ensemble, the heads of all members are concatenated.
        gates: The gates of the heads, ``float32 [layers, heads, n]``; None if heads have no gates.
        head_names: Names of the heads, ``1`` and so on; ``2.1`` is the first head of member 2.
        mol: The molecule as the model reads it, without explicit hydrogen atoms; None if a SMILES
            was given.
    """

    smiles: str
    target: str
    unit: str
    method: str
    signed: bool
    prediction: float
    probability: Optional[float]
    low: Optional[float]
    high: Optional[float]
    baseline: Optional[float]
    symbols: tuple[str, ...]
    atom_numbers: tuple[int, ...]
    bonds: tuple[tuple[int, int], ...]
    atom_scores: NDArray[np.float64]
    bond_scores: NDArray[np.float64]
    other_scores: dict[str, float]
    residual: Optional[float]
    tolerance: Optional[float]
    attention: NDArray[np.float32]
    gates: Optional[NDArray[np.float32]]
    head_names: tuple[str, ...]
    mol: Optional[Chem.Mol] = None

    @property
    def num_atoms(self) -> int:
        """Number of atoms ``n``."""
        return len(self.symbols)

    @property
    def atom_names(self) -> tuple[str, ...]:
        """Element and number of each atom, counted from 0 as RDKit does: ``C0``, ``C1``, ``O2``."""
        return tuple(map("{}{}".format, self.symbols, self.atom_numbers))

    @property
    def adds_up(self) -> Optional[bool]:
        """Whether the residual is within the tolerance; None for an unsigned method."""
        if self.residual is None or self.tolerance is None:
            return None
        return abs(self.residual) <= self.tolerance

    @property
    def score_limit(self) -> float:
        """Largest absolute score of an atom or bond, at which colors saturate."""
        return float(np.abs([*self.atom_scores, *self.bond_scores]).max())

    @property
    def caption(self) -> str:
        """What the colors of its drawing mean."""
        method = self.method.replace("_", " ")
        if not self.signed:
            return f"{method}: importance of each atom (unsigned)"
        target = f"{self.target} ({self.unit})" if self.unit else self.target
        others = (f"; {name}: {score:.3g}" for name, score in self.other_scores.items())
        others = "".join(others).replace("-", "\N{MINUS SIGN}")
        return f"{method}: contribution to {target}{others}"

    @property
    def named_attention(self) -> dict[str, tuple[str, ...]]:
        """Axes of ``attention`` in order, each with the labels along it."""
        return {
            "layer": tuple(str(layer) for layer in range(1, len(self.attention) + 1)),
            "head": self.head_names,
            "receiver": self.atom_names,
            "sender": self.atom_names,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types, with nested lists for arrays; ``attention_axes`` labels attention."""
        values = {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in vars(self).items()
            if name != "mol"
        }
        return {**values, "attention_axes": self.named_attention}

    def draw(self, width: int = 420, height: int = 340) -> str:
        """Draw the structure with atoms and bonds colored by score, as SVG text.

        ``width`` and ``height`` are in pixels, including the legend.
        """
        return draw_svg(self, width, height)

    def save(self, path: str | Path, width: int = 420, height: int = 340) -> None:
        """Write the drawing to a file, ``.svg`` or ``.png``, which has twice as many pixels.

        Raises:
            InputError: Another file extension.
        """
        path = Path(path)
        ending = path.suffix.lower()
        check_one_of("file extension", ending, (".svg", ".png"))
        is_svg = ending == ".svg"
        write_file(
            path, self.draw(width, height).encode() if is_svg else draw_png(self, width, height)
        )

    def _repr_html_(self) -> str:
        """Show the drawing in a notebook."""
        return self.draw()

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.smiles!r}, {self.target}={self.prediction:.4g}, "
            f"method={self.method!r})"
        )
