"""Explanations of many molecules as one page: HTML that needs nothing beside itself."""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any, NamedTuple

from markupsafe import Markup

from molattn.explain.explanation import Explanation, score_limit
from molattn.explain.faithfulness.summary import Verdicts
from molattn.explain.page.pack import LEVELS, pack
from molattn.utils.html import page_environment

__all__ = ["MOST_SHOWN", "ExplanationPage", "Refused"]

MOST_SHOWN = 2000
"""Molecules of a page; of more, the files beside it tell."""
_MOST_REFUSED = 200
_TEMPLATES = Path(__file__).parent / "templates"
_SCRIPTS = ("data.js", "structure.js", "matrix.js", "list.js", "explain.js")


class Refused(NamedTuple):
    """A row without an explanation: its number, text, reason code and what that means."""

    row: int
    smiles: str
    code: str
    meaning: str


@dataclass
class ExplanationPage:
    """A page that is filled molecule by molecule, which it does not keep in memory.

    Args:
        blobs: A file for what the page holds of each molecule; text, to write and read.
        interval: What to call the interval of a prediction.
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
        """Add a molecule.

        Args:
            row: Its row in the table, counted from 1.
            explanations: What each method says of it; the same methods for every molecule.
        """
        self._total += 1
        if self._total > MOST_SHOWN:
            return
        first = explanations[0]
        self._first = self._first or first
        self._coarsest = max(self._coarsest, float(first.attention.max(initial=0.0)))
        for one in explanations:
            name = one.method.replace("_", " ")
            self._limits[name] = max(self._limits.get(name, 0.0), score_limit(one))
        numbers = (first.prediction, first.low, first.high)
        self._molecules.append(
            [
                row,
                first.smiles,
                *(None if number is None else float(f"{number:.7g}") for number in numbers),
                first.num_atoms,
                float(f"{score_limit(first):.6g}"),
                self._targets.setdefault(first.target, len(self._targets)),
            ]
        )
        self.blobs.write(pack(explanations) + "\n")

    def write(
        self,
        path: Path,
        *,
        name: str,
        model: str,
        target: str,
        methods: Mapping[str, str],
        held: str = "",
        refused: Sequence[Refused] = (),
        check: Verdicts | None = None,
    ) -> None:
        """Write the page.

        Args:
            path: The file.
            name: Of the table.
            model: Of the model.
            target: What is explained.
            methods: What each method is, in a sentence or two.
            held: What the model reads besides atoms and pairs, if anything.
            refused: Rows without an explanation.
            check: Whether the methods can be trusted, if it was measured.
        """
        script = _script()
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        self.blobs.seek(0)
        stream = (
            page_environment(_TEMPLATES)
            .get_template("explain.html")
            .stream(
                name=name,
                model=model,
                target=target,
                methods=[(method.replace("_", " "), text) for method, text in methods.items()],
                held=held,
                total=self._total,
                shown=len(self._molecules),
                refused=refused,
                most_refused=_MOST_REFUSED,
                check=check,
                precision=f"{50 * self._coarsest / LEVELS:.2g} %",
                index=self._index(),
                blobs=self._blobs(),
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
        return Markup(text.replace("<", "\\u003c"))  # no text of the table ends the element

    def _blobs(self) -> Iterator[str]:
        for line in self.blobs:
            yield line.rstrip("\n")


@cache
def _script() -> str:
    """Return the page's script: files that share their names, and give none to the page."""
    sources = ((_TEMPLATES / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    return '"use strict";\n{\n' + "\n".join(sources) + "\n}\n"
