"""The explanation of one molecule: scores of its atoms and bonds, and its attention weights."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem

from molattn.explain.drawing import Drawing

__all__ = ["Explanation"]


@dataclass(frozen=True, eq=False)
class Explanation:
    r"""The prediction for one molecule, and the scores that one method gives its atoms and bonds.

    The scores of a signed method are contributions in ``unit``, and

    .. math::
        \mathrm{prediction} - \mathrm{baseline} = \sum_i \mathrm{atom\_scores}_i
        + \sum_k \mathrm{other\_scores}_k + \mathrm{residual}

    where the residual is at most ``tolerance`` in absolute value. The scores of an unsigned method
    are never negative: they measure how important an atom is, not whether it raises or lowers the
    prediction.

    Atoms are in the order of ``smiles``, or of the RDKit molecule that was given, ``n`` of them.

    Args:
        smiles: The molecule: the SMILES that was given, or that of the RDKit molecule; the
            standardized SMILES if the model standardizes molecules and that changes this one.
        target: The explained output: a task, or one class of a multiclass task, such as
            ``phase_probability_solid``.
        unit: Unit of the prediction: that of the task, ``log-odds`` for a class, empty if unknown.
        method: A name in :data:`molattn.explain.METHODS`.
        signed: Whether scores are contributions that add up, as above.
        prediction: The explained value: of a regression in its unit, of a class the log-odds of
            ``probability``.
        probability: Predicted probability of the class, calibrated if the model is; None for a
            regression.
        low: Lower bound of the prediction interval, in the same unit; None = no interval.
        high: Upper bound of the prediction interval; None = no interval.
        baseline: Prediction that the scores are relative to, of a molecule without its atoms:
            average ones (integrated gradients) or masked ones, with the features of
            ``other_scores`` at their training means; None for an unsigned method.
        symbols: Element of each atom.
        atom_numbers: Number of each atom in the molecule that was given, from 0, where explicit
            hydrogen atoms count.
        bonds: Pairs of bonded atoms.
        atom_scores: ``float64 [n]``.
        bond_scores: ``float64 [len(bonds)]``; what they measure depends on the method. They are not
            part of the sum above.
        other_scores: Scores of the features of the whole molecule that the model uses: ``feature
            columns``, ``descriptors`` and ``Morgan counts``; empty for an unsigned method.
        residual: Prediction minus baseline minus the sums of atom scores and other scores; None
            for an unsigned method.
        tolerance: Largest residual that the method aims for; None for an unsigned method.
        attention: The attention weights of this prediction, before dropout, ``float32 [layers,
            heads, n receivers, n senders]``; they sum to 1 over the senders of a receiver, except
            for MAT. For an ensemble, the heads of all members are concatenated.
        gates: The gates of the heads, ``float32 [layers, heads, n]``; None if heads have no gates.
        head_names: Names of the heads, ``1`` and so on; ``2.1`` is the first head of member 2.
        mol: The RDKit molecule as the model reads it, without explicit hydrogen atoms, and
            standardized if the model standardizes; None if a SMILES was given.
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
        scores = np.concatenate([self.atom_scores, self.bond_scores, [0.0]])
        return float(np.abs(scores).max())

    @property
    def legend_lines(self) -> tuple[str, list[str]]:
        """Caption and labels of the color scale."""
        limit, method = self.score_limit, self.method.replace("_", " ")
        if not self.signed:
            return f"{method}: importance of each atom (unsigned)", ["0", f"{limit:.2g}"]
        target = f"{self.target} ({self.unit})" if self.unit else self.target
        ends = [f"\N{MINUS SIGN}{limit:.2g}", "0", f"+{limit:.2g}"]
        others = (
            f"; {name}: {score:.3g}".replace("-", "\N{MINUS SIGN}")
            for name, score in self.other_scores.items()
        )
        return f"{method}: contribution to {target}{''.join(others)}", ends

    @property
    def named_attention(self) -> dict[str, tuple[str, ...]]:
        """Axes of ``attention`` in order, each with the labels along it."""
        layers = tuple(str(layer) for layer in range(1, len(self.attention) + 1))
        return {
            "layer": layers,
            "head": self.head_names,
            "receiver": self.atom_names,
            "sender": self.atom_names,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types, with nested lists for arrays; ``attention_axes`` labels attention."""
        values: dict[str, Any] = {}
        for name, value in vars(self).items():
            if name != "mol":
                values[name] = value.tolist() if isinstance(value, np.ndarray) else value
        values["attention_axes"] = self.named_attention
        return values

    def draw(self, width: int = 420, height: int = 340) -> str:
        """Draw the structure with atoms and bonds colored by score, as SVG text.

        Args:
            width: Width in pixels.
            height: Height in pixels, including the legend.
        """
        return self._drawing(width, height).svg()

    def save(self, path: str | Path, width: int = 420, height: int = 340) -> None:
        """Write the drawing to a file, ``.svg`` or ``.png``.

        Args:
            path: The file; an existing one is replaced.
            width: Width in pixels; a PNG has twice as many.
            height: Height in pixels, including the legend; a PNG has twice as many.

        Raises:
            InputError: Another file extension, or a path that cannot be written.
        """
        self._drawing(width, height).save(path)

    def _drawing(self, width: int, height: int) -> Drawing:
        return Drawing(
            self.mol or self.smiles,
            self.atom_scores,
            self.bonds,
            self.bond_scores,
            self.signed,
            self.score_limit,
            *self.legend_lines,
            width,
            height,
        )

    def _repr_html_(self) -> str:
        """Show the drawing in a notebook."""
        return self.draw()

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.smiles!r}, {self.target}={self.prediction:.4g}, "
            f"method={self.method!r})"
        )
