"""Explanations of predictions, whether their methods hold, and drawings of structures."""

import copy
import threading
from functools import lru_cache
from typing import Annotated
from xml.sax.saxutils import escape

import numpy as np
from pydantic import Field
from typing_extensions import TypedDict

from molattn.chem.draw import NOT_DRAWN, differing_atoms, draw_molecule
from molattn.chem.limits import read_molecule
from molattn.config import MoleculeLimits, ServeConfig
from molattn.data.table import bundled_dataset, open_table
from molattn.errors import InputError, SmilesError, check_one_of
from molattn.explain import METHODS, MethodOptions
from molattn.explain.explainer import Explanation, explain_instance, read_instances
from molattn.explain.faithfulness import measure_instances
from molattn.explain.methods.base import NotFiniteError
from molattn.explain.target import find_target
from molattn.model.model import MolAttn
from molattn.serve.bodies import ExplainRequest, check_inputs
from molattn.serve.catalog import ServedModel
from molattn.utils.time_limit import StoppedError

__all__ = ["ExplainResponse", "Explanations", "depict"]

_CHECKED = 40  # molecules, of which a method is tested on: a verdict needs 30
_MOST_ATOMS = 200


class ExplainResponse(TypedDict):
    """The atoms of a molecule with their contributions to a prediction."""

    model: str
    target: str
    method: str
    signed: Annotated[bool, Field(description="Whether scores may be negative.")]
    svg: str
    smiles: str
    atoms: Annotated[list[float], Field(description="Scores in the order of the SMILES.")]
    unit: str
    text: Annotated[list[str], Field(description="The explanation in words, by line.")]
    check: Annotated[str | None, Field(description="What the tests of the method found.")]


class Explanations:
    """Explains predictions in one thread, with copies of networks that share the weights.

    Methods find what happens within a network by hooks, and other threads use the model.
    """

    def __init__(self, config: ServeConfig) -> None:
        self._config = config
        self._copies: dict[str, MolAttn] = {}
        self._checks: dict[tuple[str, str, str], str] = {}

    def explain(
        self, served: ServedModel, body: ExplainRequest, stop: threading.Event
    ) -> ExplainResponse:
        """Explain a prediction, given as JSON types, until ``stop`` is set."""
        check_one_of("method", body.method, METHODS)
        features = body.features or {}
        check_inputs(served, body.partner is not None, features)
        config = served.model.config
        if body.check and (config.has_partner or config.features):
            raise InputError(
                "check: got true, expected false: this model takes more than a molecule; use "
                "molattn explain with a table that has all of it"
            )
        _check_stop(stop)
        model = self._copy(served)
        find_target(model, body.task, option="task")
        atoms = read_molecule(body.smiles, self._config, bool)[0].GetNumAtoms()
        if atoms > _MOST_ATOMS:
            reason = f"it has {atoms} atoms, explanations are limited to {_MOST_ATOMS}"
            raise SmilesError(body.smiles, "too_large", reason)
        partners = None if body.partner is None else [body.partner]
        values = np.array([[features[name] for name in config.features]]) if features else None
        (instance,) = read_instances(model, [body.smiles], body.task, partners, values)
        try:
            found = explain_instance(instance, body.method, MethodOptions())
        except NotFiniteError as error:
            raise SmilesError(body.smiles, "not_finite", str(error)) from None
        return {
            "model": served.name,
            "target": found.target,
            "method": body.method,
            "signed": found.signed,
            "svg": found.draw(body.width, body.height),
            "smiles": found.smiles,
            "atoms": found.atom_scores.tolist(),
            "unit": found.unit,
            "text": _text(found),
            "check": self._check(model, served, body, stop) if body.check else None,
        }

    def _copy(self, served: ServedModel) -> MolAttn:
        if served.name not in self._copies:
            model = served.model
            shared = [*model.parameters(), *model.buffers(), *vars(model).values()]
            memo = {id(one): one for one in shared if one is not model.nets}
            self._copies[served.name] = copy.deepcopy(model, memo)
        return self._copies[served.name]

    def _check(
        self, model: MolAttn, served: ServedModel, body: ExplainRequest, stop: threading.Event
    ) -> str:
        """Return in words what deletion and insertion tests found, once for each target."""
        key = served.name, body.method, body.task or ""
        if key not in self._checks:
            instances = [*read_instances(model, _some_molecules(), body.task)]
            result = measure_instances(
                instances, [body.method], MethodOptions(), progress=lambda: _check_stop(stop)
            )
            self._checks[key] = result.sentence
        return self._checks[key]


def _check_stop(stop: threading.Event) -> None:
    if stop.is_set():
        raise StoppedError("stopped")


def _some_molecules() -> list[str]:
    """Return molecules of the bundled data, evenly spaced, that are not single atoms."""
    table = open_table(bundled_dataset())
    column = table.column("smiles", "smiles")
    smiles = [row.cells[column] for row in table if 5 < len(row.cells[column]) < 60]
    return smiles[:: len(smiles) // _CHECKED][:_CHECKED]


def _text(found: Explanation) -> list[str]:
    """Return the prediction, what the scores mean, remarks, and the largest scores, a line each."""
    unit = f" {found.unit}" if found.unit else ""
    lines = [f"{found.target}: {found.prediction:.4g}{unit}"]
    if found.probability is not None:
        lines = [f"{found.target}: probability {found.probability:.3g}"]
    elif found.low is not None and found.high is not None:
        lines[0] += f" ({found.low:.4g} to {found.high:.4g})"
    lines.append(found.caption)
    if found.baseline is not None:
        lines.append(f"baseline: {found.baseline:.4g}{unit}")
    if found.adds_up is False:
        lines.append(f"the scores miss the prediction by {found.residual:.2g}{unit}")
    top = sorted(
        zip(found.atom_scores.tolist(), found.atom_names, strict=True), key=lambda one: -abs(one[0])
    )[:3]
    lines.append("largest: " + ", ".join(f"{name} {score:+.3g}" for score, name in top))
    return lines


@lru_cache(maxsize=256)
def depict(smiles: str, other: str | None, width: int, height: int, limits: MoleculeLimits) -> str:
    """Draw a molecule; the atoms that differ from another one are marked."""
    for text in (smiles, smiles if other is None else other):
        read_molecule(text, limits, bool)
    marked = [] if other is None else differing_atoms(smiles, other)
    if (drawing := draw_molecule(smiles, width, height, marked)) is not None:
        return drawing
    lines = "".join(
        f'<text x="50%" y="{height // 2 + 18 * line - 6}" text-anchor="middle" '
        f'font-family="sans-serif" font-size="12">{escape(words)}</text>'
        for line, words in enumerate(NOT_DRAWN)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}px" height="{height}px" '
        f'viewBox="0 0 {width} {height}">{lines}</svg>'
    )
