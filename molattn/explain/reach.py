"""How far heads look: their attention by the number of bonds between two atoms."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rdkit import Chem

from molattn.chem.parse import parse_molecule
from molattn.explain.explainer import Explanation
from molattn.model.model import MolAttn
from molattn.nn import DistanceSlopes

BONDS = ("0", "1", "2", "3", "4 or more, or no path")
# From dark to light: distinct in print and with color blindness.
_COLORS = ("#0b2545", "#1c6ba0", "#56a3d3", "#a9d3ec", "#dfe5ea")


@dataclass(frozen=True, eq=False)
class AttentionByDistance:
    """The attention of each head by the number of bonds between receiver and sender.

    Args:
        shares: Fraction of the attention on atoms 0 (the receiver itself), 1, 2, 3 and at least 4
            bonds away, where atoms of another fragment count, too: the mean over receivers and
            then over molecules, ``float64 [layers, heads, 5]``. A head's fractions add up to 1.
        slopes: Learned slope of each head (:class:`molattn.nn.DistanceSlopes`), ``float64
            [layers, heads]``, NaN in a layer without them; None if no layer has slopes.
        head_names: See :class:`Explanation`.
        uniform: The fractions if each receiver looked equally at all atoms that it can attend to in
            a layer, ``float64 [layers, 5]``, with which to compare those of a head.
    """

    shares: NDArray[np.float64]
    slopes: Optional[NDArray[np.float64]]
    head_names: tuple[str, ...]
    uniform: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        model: MolAttn,
        total: NDArray[np.float64],
        head_names: tuple[str, ...],
        uniform: NDArray[np.float64],
    ) -> Optional["AttentionByDistance"]:
        """Average both of :func:`distance_shares`, added up over molecules; None without any."""
        if total.ndim == 0 or total.size == 0:
            return None
        return cls(_fractions(total), _slopes(model), head_names, _fractions(uniform))

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types, with nested lists for arrays."""
        layers = () if self.slopes is None else self.slopes
        slopes = [None if np.isnan(slope).any() else slope.tolist() for slope in layers] or None
        return {
            "bonds": BONDS,
            "heads": self.head_names,
            "shares": self.shares.tolist(),
            "slopes": slopes,
            "uniform": self.uniform.tolist(),
        }

    def save(self, path: str | Path) -> None:
        """Draw a bar for each head, one panel for each layer, 1,000 pixels wide.

        The last bar of a panel is that of equal weights.
        """
        layers, heads, _ = self.shares.shape
        names = [*self.head_names, "equal"]
        rows = -(-layers // 2)
        figure = Figure(figsize=(10, 1 + rows * (0.97 + 0.27 * heads)), layout="constrained")
        panels = figure.subplots(rows, 2, squeeze=False, sharex=True)
        for panel in panels.flat[layers:]:
            panel.set_axis_off()
        for layer, panel in enumerate(panels.flat[:layers]):
            widths = 100 * np.vstack([self.shares[layer], self.uniform[layer]])
            ends = np.cumsum(widths, axis=1)
            for bonds, color in enumerate(_COLORS):
                width = widths[:, bonds]
                bar = {"color": color, "edgecolor": "white", "linewidth": 0.5}
                bar |= {"left": ends[:, bonds] - width, "label": BONDS[bonds]}
                panel.barh(names, width, **bar)
            limits = {"xlim": (0, 100), "ylim": (heads + 0.6, -0.6)}  # the first head is on top
            panel.set(title=f"layer {layer + 1}", ylabel="head", **limits)
            if self.slopes is not None and np.isfinite(self.slopes[layer]).all():
                slopes = [f"{slope:.2f}" for slope in self.slopes[layer].round(2) + 0.0]
                panel.secondary_yaxis("right").set_yticks(range(heads), slopes)
        for panel in panels[-1]:
            panel.set_xlabel("% of attention")
        handles = panels.flat[0].get_legend_handles_labels()
        title = "Number of bonds between receiver and sender"
        title += '; "equal": if all atoms had the same weight'
        title += "" if self.slopes is None else "; on the right the slope of each head"
        figure.legend(*handles, loc="outside upper center", ncols=len(BONDS), title=title)
        figure.savefig(path, dpi=100)


def attention_by_distance(
    model: MolAttn, explanations: Sequence[Explanation]
) -> Optional[AttentionByDistance]:
    """Average the attention of molecules by the number of bonds between two atoms.

    Args:
        model: The model that was explained.
        explanations: An explanation of each molecule, by any method.

    Returns:
        The averages; None if there is no molecule, or no attention layer of ``molattn.nn``.

    Example:
        >>> from molattn import MolAttnConfig
        >>> from molattn.explain import explain
        >>> model = MolAttn(MolAttnConfig(tasks=("logS",)))
        >>> looks = attention_by_distance(model, explain(model, ["CCO", "CCCC"], "attention"))
        >>> looks.shares.shape
        (4, 8, 5)
    """
    shares = [*map(distance_shares, explanations)]
    total, uniform = (sum(column) for column in zip(*shares, strict=True)) if shares else (0, 0)
    names = explanations[0].head_names if explanations else ()
    return AttentionByDistance.of(model, np.asarray(total), names, np.asarray(uniform))


def distance_shares(
    explanation: Explanation,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the fractions of one molecule, ``[layers, heads, 5]``; 0 if it has no edges.

    Also those of equal weights for all atoms that a receiver attends to in any head of a layer,
    ``[layers, 5]``.
    """
    mol = explanation.mol or parse_molecule(explanation.smiles)
    bonds = np.minimum(Chem.GetDistanceMatrix(mol), len(BONDS) - 1)
    attention = explanation.attention.astype(np.float64)
    is_reached: NDArray[np.bool_] = np.any(attention > 0.0, axis=1)
    equal = _fractions(is_reached.astype(np.float64))
    shares, uniform = (
        _fractions(np.stack([x[..., bonds == k].sum(axis=-1) for k in range(len(BONDS))], axis=-1))
        for x in (attention, equal)
    )
    return shares, uniform


def _fractions(values: NDArray[np.float64]) -> NDArray[np.float64]:
    total = values.sum(axis=-1, keepdims=True)
    return values / np.where(total > 0, total, 1.0)


def _slopes(model: MolAttn) -> Optional[NDArray[np.float64]]:
    """Return the slopes of the heads of all members, ``[layers, heads]``."""
    members = []
    for net in model.networks.members:
        slopes = [
            next((term.slope for term in layer.modules() if isinstance(term, DistanceSlopes)), None)
            for layer in net.attention_layers
        ]
        present = [slope for slope in slopes if slope is not None]
        if not present:
            return None
        missing = torch.full_like(present[0], torch.nan)
        members.append(torch.stack([missing if slope is None else slope for slope in slopes]))
    return torch.cat(members, dim=1).detach().cpu().double().numpy()
