"""Models to compare, from a YAML file, and which of them can be run here."""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from molattn.config import TrainConfig
from molattn.errors import InputError, quoted

from .kinds import KINDS

_CHECKOUT = Path(__file__).resolve().parents[2]


class Model(NamedTuple):
    """A model by name: its kind, and the options that are not left at their defaults."""

    name: str
    kind: str
    options: dict[str, Any]

    @property
    def options_text(self) -> str:
        """The options as JSON, the same text for the same options."""
        return json.dumps(self.options, sort_keys=True)


class Ready(NamedTuple):
    """A model that can be run: by which Python, and of which version."""

    model: Model
    python: str
    version: str


def read_models(path: Path, only: Sequence[str] | None = None) -> list[Model]:
    """Read the models of a file, or some of them, in the order asked for.

    Raises:
        InputError: The file or what it says of a model is wrong, or it has not one asked for.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path}: cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict) or not content:
        raise InputError(f"{path}: got {quoted(content)}, expected models by name")
    for name in only or ():
        if name not in content:
            hint = get_close_matches(name, content, n=1) or [", ".join(map(str, content))]
            raise InputError(f"--only: {path} has no {quoted(name)}, but {hint[0]}")
    return [_model(path, name, content[name]) for name in only or content]


def _model(path: Path, name: Any, content: Any) -> Model:
    if not isinstance(name, str):
        raise InputError(f"{path}: got the model {name}, expected a name; quotes make it one")
    where = f"{path}, {name}"
    if not isinstance(content, dict) or not set(content) <= {"kind", "options"}:
        raise InputError(f"{where}: got {quoted(content)}, expected kind and options")
    kind, options = content.get("kind"), content.get("options") or {}
    if kind not in KINDS:
        raise InputError(
            f"{where}: got the kind {quoted(kind)}, expected one of {', '.join(KINDS)}"
        )
    if not isinstance(options, dict):
        raise InputError(f"{where}: got the options {quoted(options)}, expected names and values")
    if taken := sorted(KINDS[kind].reserved & set(options)):
        raise InputError(f"{where}: option {quoted(taken[0])} is set by the comparison itself")
    if kind == "molattn":
        try:
            TrainConfig.from_options("", options)
        except (InputError, TypeError) as error:
            raise InputError(f"{where}: {error}") from error
    return Model(name, kind, options)


def pythons_of(words: Iterable[str]) -> dict[str, str]:
    """Return the Python of each kind from words such as ``chemprop=/path/to/bin/python``.

    Raises:
        InputError: A word is not of that form, or names no such kind.
    """
    pythons = {}
    for word in words:
        kind, _, python = word.partition("=")
        if kind not in KINDS or not python:
            raise InputError(
                f"--python: got {quoted(word)}, expected KIND=PATH of one of {', '.join(KINDS)}"
            )
        pythons[kind] = python
    return pythons


def find_ready(
    models: Sequence[Model], pythons: Mapping[str, str]
) -> tuple[list[Ready], list[tuple[Model, str]]]:
    """Return the models that can be run, and why the others cannot.

    Args:
        models: The models.
        pythons: The Python of each kind; by default the running one.
    """
    versions: dict[str, str | None] = {}
    ready, missing = [], []
    for model in models:
        python, kind = pythons.get(model.kind, sys.executable), KINDS[model.kind]
        if model.kind not in versions:
            versions[model.kind] = kind.version(python)
        version = versions[model.kind]
        if version is None:
            needed = ", ".join(kind.packages)
            missing.append((model, f"{python} lacks one of {needed}"))
        else:
            version += _commit() if model.kind == "molattn" else ""
            ready.append(Ready(model, python, version))
    return ready, missing


def _commit() -> str:
    """Return the commit of this checkout as `` COMMIT[-dirty]``, nothing where git knows none."""
    words = ["git", "-C", str(_CHECKOUT), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return "" if done.returncode else f" {done.stdout.strip()}"
