"""Explanations of many molecules as one self-contained HTML page."""

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from molattn.chem.draw import NOT_DRAWN
from molattn.explain.drawing import molecule_outline
from molattn.explain.explanation import Explanation
from molattn.explain.faithfulness.summary import FaithfulnessSummary
from molattn.utils.html import SHARED_TEMPLATES, page_environment

__all__ = ["MOST_SHOWN", "ExplanationPage", "InvalidRow", "pack"]

MOST_SHOWN = 2000
"""Maximum number of molecules on a page; the other files contain all."""
_MOST_ERRORS = 200
_LEVELS = 255  # steps from 0 to the largest weight of a layer and head
_TEMPLATES = Path(__file__).parent / "templates"
_SCRIPTS = ("data.js", "structure.js", "matrix.js", "list.js", "explain.js")  # after shared.js


class InvalidRow(NamedTuple):
    """A row without an explanation: its number, text, reason code and the meaning of that code."""

    row: int
    smiles: str
    code: str
    meaning: str


@dataclass
class ExplanationPage:
    """A page that is written molecule by molecule, without keeping them in memory.

    Args:
        blobs: A temporary text file, open for writing and reading, for the packed molecules.
        interval: Label of the prediction interval.
    """

    blobs: IO[str]
    interval: str = "interval"
    _molecules: list[list[Any]] = field(default_factory=list)
    _limits: dict[str, float] = field(default_factory=dict)
    _targets: dict[str, int] = field(default_factory=dict)
    _total: int = 0
    _first: Explanation | None = None
    _coarsest: float = 0.0

    def add(self, row: int, explanations: Sequence[Explanation]) -> None:
        """Add the explanations of a row (counted from 1), one for each method."""
        self._total += 1
        if self._total > MOST_SHOWN:
            return
        first = explanations[0]
        self._first = self._first or first
        self._coarsest = max(self._coarsest, float(first.attention.max(initial=0.0)))
        for one in explanations:
            name = one.method.replace("_", " ")
            self._limits[name] = max(self._limits.get(name, 0.0), one.score_limit)
        numbers = (first.prediction, first.low, first.high)
        self._molecules.append(
            [
                row,
                first.smiles,
                *(None if number is None else float(f"{number:.7g}") for number in numbers),
                first.num_atoms,
                float(f"{first.score_limit:.6g}"),
                self._targets.setdefault(first.target, len(self._targets)),
            ]
        )
        self.blobs.write(pack(explanations) + "\n")

    def write(
        self,
        path: Path,
        facts: Mapping[str, Any],
        errors: Sequence[InvalidRow] = (),
        check: FaithfulnessSummary | None = None,
    ) -> None:
        """Write the page.

        Args:
            path: The file.
            facts: ``name`` of the table, ``model``, ``target``, ``methods`` with what
                a score of each means, and ``other_inputs`` of the model.
            errors: Rows without an explanation.
            check: Result of the deletion and insertion tests, if they were run.
        """
        script = _script()
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        self.blobs.seek(0)
        stream = (
            page_environment(_TEMPLATES)
            .get_template("explain.html")
            .stream(
                {one: facts[one] for one in ("name", "model", "target", "other_inputs")},
                methods=[(name.replace("_", " "), text) for name, text in facts["methods"].items()],
                total=self._total,
                shown=len(self._molecules),
                errors=errors,
                most_errors=_MOST_ERRORS,
                check=check,
                precision=f"{50 * self._coarsest / _LEVELS:.2g}%",
                index=self._index(),
                blobs=(line.rstrip("\n") for line in self.blobs),
                script=Markup(script),
                script_hash=f"sha256-{digest}",
            )
        )
        stream.enable_buffering(32)
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.writelines(stream)

    def _index(self) -> Markup:
        axes = self._first.named_attention if self._first else {"layer": (), "head": ()}
        index = {
            "targets": [*self._targets],
            "unit": self._first.unit if self._first else "",
            "interval": self.interval,
            "methods": [*self._limits],
            "limits": self._limits,
            "layers": axes["layer"],
            "heads": axes["head"],
            "molecules": self._molecules,
        }
        text = json.dumps(index, separators=(",", ":"), allow_nan=False)
        # So that no text of the table can close the element.
        return Markup(text.replace("<", "\\u003c"))


def pack(explanations: Sequence[Explanation]) -> str:
    """Pack the explanations of one molecule as Base64 of zlib, to be unpacked when it is shown.

    The content is the length of the JSON in 4 bytes, the JSON, attention ``[layers, heads, n, n]``
    and, if any, gates ``[layers, heads, n]``: a byte each, in 255ths of the largest of their layer
    and head, so with an error of at most half of a 255th of it.
    """
    first = explanations[0]
    weights, weight_scales = _quantized(first.attention)
    outline = molecule_outline(first.mol or first.smiles)
    gates, gate_scales = (b"", None) if first.gates is None else _quantized(first.gates)
    head = {
        "names": first.atom_names,
        "bonds": first.bonds,
        "outline": None if outline is None else outline._asdict(),
        "not_drawn": " ".join(NOT_DRAWN),
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
                "limit": one.score_limit,
                "atoms": _rounded(one.atom_scores),
                "bonds": _rounded(one.bond_scores),
                "others": one.other_scores,
            }
            for one in explanations
        ],
    }
    text = json.dumps(head, separators=(",", ":"), allow_nan=False).encode()
    packed = zlib.compress(len(text).to_bytes(4, "little") + text + weights + gates, 9)
    return base64.b64encode(packed).decode()


def _quantized(values: NDArray[np.float32]) -> tuple[bytes, list[float]]:
    """Return values ``[layers, heads, ...]`` as bytes, and the value of 255 in each head."""
    flat = values.reshape(values.shape[0] * values.shape[1], -1)
    scales = flat.max(axis=1, initial=0.0)
    parts = flat / np.where(scales > 0, scales, 1.0)[:, None]
    levels = np.rint(parts * _LEVELS).clip(0, _LEVELS).astype(np.uint8)
    return levels.tobytes(), [float(f"{scale:.7g}") for scale in scales.tolist()]


def _rounded(scores: NDArray[np.float64]) -> list[float]:
    return [float(f"{score:.6g}") for score in scores.tolist()]


def _script() -> str:
    """Return the page's script: its files as one module, so that it adds no global names."""
    paths = SHARED_TEMPLATES / "shared.js", *(_TEMPLATES / name for name in _SCRIPTS)
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)
