"""One molecule's explanation: numbers for its atoms, bonds and attention."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import numpy as np
from numpy.typing import NDArray

__all__ = ["Explanation", "legend_lines", "score_limit"]


@dataclass(frozen=True, eq=False)
class Explanation:
    r"""What a model says of one molecule, and what that rests on by one method.

    The scores of a signed method are in ``unit``, and

    .. math::
        \mathrm{prediction} - \mathrm{baseline} = \sum_i \mathrm{atom\_scores}_i
        + \mathrm{residual}

    with a residual of at most ``tolerance`` in size. Those of other methods say how much an atom
    counts, not in which direction, and are not below 0.

    Atoms are in the order of the SMILES, ``n`` of them.

    Args:
        smiles: The molecule.
        target: The output that is explained: the name of a task, for one of several classes with
            the class, as in ``phase_probability_solid``.
        unit: Unit of the prediction: the target's own; ``log-odds`` for a class; empty = not known.
        method: A name of :data:`molattn.explain.METHODS`.
        signed: Whether scores are signed and add up.
        prediction: What is explained: a regression in its own unit, of a class the log-odds.
        probability: The probability of the class as the model predicts it, calibrated where it is
            (the log-odds are what its network says); None for a regression.
        low: Lower end of the prediction's interval in the same unit; None = there is none.
        high: Upper end, likewise.
        baseline: What is predicted with every atom masked, for a signed method.
        symbols: Element of each atom.
        bonds: Pairs of bonded atoms.
        atom_scores: ``float64 [n]``.
        bond_scores: What the method says of each bond, ``float64 [len(bonds)]``; no part of the sum
            above, see the method.
        residual: Prediction minus baseline minus the sum of scores; None for an unsigned method.
        tolerance: What the residual was to stay within; None for an unsigned method.
        attention: The weights that were applied, ``float32 [layers, heads, n receivers, n
            senders]``: those of a receiver add up to 1. The heads of an ensemble's members follow
            one another.
        gates: The factor of each head, ``float32 [layers, heads, n]``; None = heads have no gate.
        head_names: What to call the heads, ``1`` and so on; ``2.1`` is the first of member 2.
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
    bonds: tuple[tuple[int, int], ...]
    atom_scores: NDArray[np.float64]
    bond_scores: NDArray[np.float64]
    residual: Optional[float]
    tolerance: Optional[float]
    attention: NDArray[np.float32]
    gates: Optional[NDArray[np.float32]]
    head_names: tuple[str, ...]

    @property
    def num_atoms(self) -> int:
        """Number of atoms ``n``."""
        return len(self.symbols)

    @property
    def atom_names(self) -> tuple[str, ...]:
        """Element and place of each atom, counted from 0, as RDKit counts: ``C0``, ``C1``, ``O2``.

        No two are the same.
        """
        return tuple(f"{symbol}{place}" for place, symbol in enumerate(self.symbols))

    @property
    def adds_up(self) -> Optional[bool]:
        """Whether the residual is within the tolerance; None for an unsigned method."""
        if self.residual is None or self.tolerance is None:
            return None
        return abs(self.residual) <= self.tolerance

    @property
    def named_attention(self) -> dict[str, tuple[str, ...]]:
        """Axes of ``attention`` in their order, and what stands along each."""
        layers = tuple(str(layer) for layer in range(1, len(self.attention) + 1))
        return {
            "layer": layers,
            "head": self.head_names,
            "receiver": self.atom_names,
            "sender": self.atom_names,
        }

    def to_dict(self) -> dict[str, Any]:
        """As JSON types; arrays as lists of lists, their axes under ``attention_axes``."""
        values: dict[str, Any] = {}
        for name, value in vars(self).items():
            values[name] = value.tolist() if isinstance(value, np.ndarray) else value
        values["symbols"] = list(self.symbols)
        values["bonds"] = [list(bond) for bond in self.bonds]
        values["head_names"] = list(self.head_names)
        values["attention_axes"] = {name: list(n) for name, n in self.named_attention.items()}
        return values

    def draw(self, **options: Any) -> str:
        """Draw the structure with atoms and bonds coloured by their scores, as SVG text.

        Args:
            options: See :func:`molattn.explain.drawing.draw_svg`.
        """
        from molattn.explain.drawing import draw_svg

        return draw_svg(self, **options)

    def save(self, path: str | Path, **options: Any) -> None:
        """Write the drawing to a file, ``.svg`` or ``.png``.

        Args:
            path: The file; one that is there is replaced.
            options: As for :meth:`draw`.

        Raises:
            InputError: Another ending.
        """
        from molattn.explain.drawing import save_drawing

        save_drawing(self, path, **options)

    def _repr_html_(self) -> str:
        """Show the drawing in a notebook."""
        return self.draw()

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.smiles!r}, {self.target}={self.prediction:.4g}, "
            f"method={self.method!r})"
        )


def score_limit(explanation: Explanation) -> float:
    """Return the score of the full colour: the largest of an atom or bond, whatever its sign."""
    scores = np.concatenate([explanation.atom_scores, explanation.bond_scores, [0.0]])
    return float(np.abs(scores).max())


def legend_lines(explanation: Explanation) -> tuple[str, list[str]]:
    """Return what the colours stand for, and the texts at the ends of the scale."""
    limit, unit = score_limit(explanation), explanation.unit
    method = explanation.method.replace("_", " ")
    if not explanation.signed:
        return f"{method}: share of each atom, without a sign", ["0", f"{limit:.2g}"]
    of = f"{explanation.target} ({unit})" if unit else explanation.target
    ends = [f"\N{MINUS SIGN}{limit:.2g}", "0", f"+{limit:.2g}"]
    return f"{method}: part in {of}", ends
