"""Explanations of many molecules as one self-contained HTML page."""

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from molattn.chem.draw import NOT_DRAWN
from molattn.chem.parse import parse_molecule
from molattn.explain.drawing import outline
from molattn.explain.explainer import Explanation
from molattn.explain.faithfulness import Faithfulness
from molattn.explain.fragments import find_fragments
from molattn.utils.html import SHARED_TEMPLATES, page_environment

_MOST_SHOWN = 2000  # molecules; the other files contain all
_MOST_ERRORS = 200
_LEVELS = 255  # steps from 0 to the largest weight of a layer and head
_TEMPLATES = Path(__file__).parent / "templates"
_FACTS = ("name", "model", "target", "other_inputs", "has_network")
_METHOD_FIELDS = (
    "signed baseline residual tolerance score_limit atom_scores bond_scores other_scores".split()
)
_SCRIPTS = (
    SHARED_TEMPLATES / "shared.js",
    *(_TEMPLATES / f"{name}.js" for name in "data structure matrix list explain".split()),
)


InvalidRow = tuple[int, str, str, str]
"""A row without an explanation: its number, text, reason code and the meaning of that code."""


class ExplanationPage:
    """The page of explanations; ``interval`` labels the prediction interval.

    The expected error of a target that is learned as a logarithm is shown as a factor.
    """

    def __init__(self, interval: str = "interval", *, is_logarithm: bool = False) -> None:
        self._index: dict[str, Any] = {"interval": interval, "unit": "", "layers": (), "heads": ()}
        self._index |= {"targets": [], "limits": {}, "molecules": [], "is_logarithm": is_logarithm}
        self._blobs: list[str] = []
        self._total = 0
        self._largest = 0.0

    def add(
        self, row: int, explanations: Sequence[Explanation], name: str = "", measured: str = ""
    ) -> None:
        """Add the explanations of a row, by its number, one for each method.

        ``name`` and the ``measured`` value are texts of the table, empty where it has none.
        """
        self._total += 1
        if self._total > _MOST_SHOWN:
            return
        first = explanations[0]
        index = self._index
        axes = first.named_attention
        index |= {"unit": first.unit, "layers": axes["layer"], "heads": axes["head"]}
        self._largest = max(self._largest, float(first.attention.max(initial=0.0)))
        for explanation in explanations:
            method = explanation.method.replace("_", " ")
            index["limits"][method] = max(index["limits"].get(method, 0.0), explanation.score_limit)
        if first.target not in index["targets"]:
            index["targets"].append(first.target)
        numbers = [first.prediction, first.low, first.high, first.num_atoms, first.score_limit]
        target = index["targets"].index(first.target)
        index["molecules"].append([row, first.smiles, *numbers, target, name, measured])
        self._blobs.append(pack(explanations))

    def write(
        self,
        path: Path,
        facts: Mapping[str, Any],
        errors: Sequence[InvalidRow] = (),
        check: Faithfulness | None = None,
    ) -> None:
        """Write the page.

        ``facts`` are the ``name`` of the table, ``model``, ``target``, ``methods`` with what scores
        mean, ``other_inputs`` of the model, ``has_network``, whether attention is shown, and
        ``attention_by_distance``, a PNG picture in Base64, if there is one; ``check`` is the result
        of the deletion and insertion tests, if they were run.
        """
        # One module, so that it adds no global names.
        script = "\n".join(source.read_text(encoding="utf-8") for source in _SCRIPTS)
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        index = self._index | {"methods": [*self._index["limits"]]}
        template = page_environment(_TEMPLATES).get_template("explain.html")
        page = template.render(
            {name: facts[name] for name in _FACTS},
            methods=[(name.replace("_", " "), text) for name, text in facts["methods"].items()],
            total=self._total,
            shown=len(self._blobs),
            errors=errors,
            most_errors=_MOST_ERRORS,
            check=check,
            attention_by_distance=facts.get("attention_by_distance"),
            precision=f"{50 * self._largest / _LEVELS:.2g}%",
            # So that no text of the table can close the element.
            index=Markup(_json(index).replace("<", "\\u003c")),
            blobs=self._blobs,
            script=Markup(script),
            script_hash=f"sha256-{digest}",
        )
        path.write_text(page, encoding="utf-8", errors="replace")


def pack(explanations: Sequence[Explanation]) -> str:
    """Pack the explanations of one molecule as Base64 of zlib, to be unpacked when it is shown.

    The content is the length of the JSON in 4 bytes, the JSON, attention ``[layers, heads, n, n]``
    and, if any, gates ``[layers, heads, n]``: a byte each, in 255ths of the largest of their layer
    and head, so with an error of at most half of a 255th of it.
    """
    first = explanations[0]
    mol = first.mol or parse_molecule(first.smiles)
    weights, weight_scales = _quantized(first.attention)
    gates, gate_scales = (b"", None) if first.gates is None else _quantized(first.gates)
    head = {
        "names": first.atom_names,
        "bonds": first.bonds,
        "fragments": find_fragments(mol),
        "outline": outline(first.mol or first.smiles),
        "not_drawn": " ".join(NOT_DRAWN),
        "shape": first.attention.shape[:2],
        "weight_scales": weight_scales,
        "gate_scales": gate_scales,
        "probability": first.probability,
        "confidence": first.confidence,
        "expected_error": first.expected_error,
        "methods": [
            {name: getattr(explanation, name) for name in _METHOD_FIELDS}
            | {"method": explanation.method.replace("_", " ")}
            for explanation in explanations
        ],
    }
    text = _json(head).encode()
    packed = zlib.compress(len(text).to_bytes(4, "little") + text + weights + gates, 9)
    return base64.b64encode(packed).decode()


def _quantized(values: NDArray[np.float32]) -> tuple[bytes, list[float]]:
    """Return values ``[layers, heads, ...]`` as bytes, and the value of 255 in each head."""
    flat = values.reshape(values.shape[0] * values.shape[1], -1)
    scales = flat.max(axis=1, initial=0.0)
    levels = np.rint(flat / np.where(scales > 0, scales, 1.0)[:, None] * _LEVELS)
    return levels.astype(np.uint8).tobytes(), scales.tolist()


def _json(values: Any) -> str:
    """Return JSON without spaces, with 7 significant digits."""
    text = json.dumps(values, allow_nan=False, default=np.ndarray.tolist)
    rounded = json.loads(text, parse_float=lambda number: float(f"{float(number):.7g}"))
    return json.dumps(rounded, separators=(",", ":"))
