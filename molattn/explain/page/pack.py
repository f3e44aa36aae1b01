"""A molecule's explanations as one short text, which the page unpacks when it is looked at."""

import base64
import json
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from molattn.explain.drawing import molecule_outline
from molattn.explain.explanation import Explanation, score_limit

__all__ = ["LEVELS", "pack"]

LEVELS = 255
"""Steps from 0 to the largest weight of a layer and head."""


def pack(explanations: Sequence[Explanation]) -> str:
    """Pack what several methods say of one molecule, as Base64 of zlib.

    It holds the length of the JSON in 4 bytes, the JSON, attention ``[layers, heads, n, n]`` and,
    where there are any, gates ``[layers, heads, n]``: a byte each, in 255ths of the largest of
    their layer and head, so at most half of a 255th of it off.

    Args:
        explanations: Of one molecule, one or more.
    """
    first = explanations[0]
    weights, weight_scales = _bytes(first.attention)
    gates, gate_scales = (b"", None) if first.gates is None else _bytes(first.gates)
    outline = molecule_outline(first.smiles)
    head: dict[str, Any] = {
        "symbols": first.symbols,
        "bonds": first.bonds,
        "outline": outline._asdict(),
        "shape": first.attention.shape[:2],
        "weight_scales": weight_scales,
        "gate_scales": gate_scales,
        "probability": first.probability,
        "methods": [
            {
                "method": one.method.replace("_", " "),
                "signed": one.signed,
                "baseline": one.baseline,
                "residual": one.residual,
                "tolerance": one.tolerance,
                "limit": score_limit(one),
                "atoms": _short(one.atom_scores),
                "bonds": _short(one.bond_scores),
            }
            for one in explanations
        ],
    }
    text = json.dumps(head, separators=(",", ":"), allow_nan=False).encode()
    packed = zlib.compress(len(text).to_bytes(4, "little") + text + weights + gates, 9)
    return base64.b64encode(packed).decode()


def _bytes(values: NDArray[np.float32]) -> tuple[bytes, list[float]]:
    """Return values ``[layers, heads, ...]`` as bytes, and what 255 stands for in each head."""
    flat = values.reshape(values.shape[0] * values.shape[1], -1)
    scales = flat.max(axis=1, initial=0.0)
    parts = flat / np.where(scales > 0, scales, 1.0)[:, None]
    rounded = np.rint(parts * LEVELS).clip(0, LEVELS).astype(np.uint8)
    return rounded.tobytes(), [float(f"{scale:.7g}") for scale in scales.tolist()]


def _short(scores: NDArray[np.float64]) -> list[float]:
    return [float(f"{score:.6g}") for score in scores.tolist()]
