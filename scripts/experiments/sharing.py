r"""What a Gaussian process gains by the labels of another assay, in three folds by scaffold.

Both tables have columns ``smiles`` and ``target``; ``--log`` takes the logarithm of labels::

    python -m scripts.experiments.sharing clearance_microsome_az.csv.gz \
        clearance_hepatocyte_az.csv.gz --log

It prints the change of the mean squared error (of the cross-entropy, of classes), in percent, with
a standard error over scaffolds: with the other assay's labels of training molecules, and with
those of the molecules of the test as well.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from rdkit import Chem

from molattn import MolAttn, MolAttnConfig
from molattn.chem import parse_smiles, same_scaffold
from molattn.chem.split import fold_split
from molattn.config.training import DEFAULT_KERNELS
from molattn.model.gaussian_process import GaussianProcessHead
from molattn.model.kernel import KernelInputs, stack_counts
from molattn.task import Task

FOLDS = 3
Array = NDArray[np.float64]


def read(path: str, *, log: bool) -> tuple[pd.Series, Task]:
    """Return labels by canonical SMILES, standardized or classes, and the task."""
    table = pd.read_csv(path)
    keys = [Chem.MolToSmiles(parse_smiles(text)) for text in table["smiles"]]
    labels = pd.Series(table["target"].to_numpy(float), index=keys).groupby(level=0).first()
    name = Path(path).name.partition(".")[0]
    if labels.nunique() == 2:
        return labels, Task(name, "binary", ("0", "1"))
    labels = labels.map(np.log) if log else labels
    return (labels - labels.mean()) / labels.std(), Task(name)


def losses(labels: Array, predicted: Array, task: Task) -> Array:
    """Return the squared error, or the cross-entropy, of each row."""
    if task.kind == "regression":
        return (predicted - labels) ** 2
    return np.logaddexp(0.0, np.where(labels == 1.0, -predicted, predicted))


def main() -> None:
    """Compare three Gaussian processes of the first assay."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs=2, metavar="FILE")
    parser.add_argument("--log", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    (first, task), (second, other) = (read(path, log=given.log) for path in given.tables)
    table = pd.concat([first, second], axis=1).sort_index()
    smiles, labels = table.index.tolist(), table.to_numpy()
    base = MolAttn.from_pretrained("base-minimol")
    config = MolAttnConfig((task,), kernels=DEFAULT_KERNELS)
    assert config.counter is not None
    counts = stack_counts([config.counter(parse_smiles(text)) for text in smiles])
    inputs = KernelInputs(len(smiles), counts, {"embedding": base.embed(smiles)})
    groups = same_scaffold(smiles)
    most = len(smiles) / FOLDS / 2
    dealt = [[row] for group in groups if len(group) > most for row in group]
    dealt += [group for group in groups if len(group) <= most]
    number = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    scaffolds = number[np.argsort(np.concatenate(groups))]
    found: dict[str, list[Array]] = {"alone": [], "auxiliary": [], "known": []}
    rows = []
    for fold in range(1, FOLDS + 1):
        split = fold_split(dealt, folds=FOLDS, fold=fold, validation_size=0, seed=0)
        test = split.test[~np.isnan(labels[split.test, 0])]
        rows.append(test)
        for name, one in found.items():
            some = labels.copy()
            some[split.test] = np.nan
            if name == "known":
                some[test, 1] = labels[test, 1]
            used = np.flatnonzero(~np.isnan(some).all(axis=1))
            auxiliary = (other,) if name != "alone" else ()
            targets = some[used][:, : 1 + len(auxiliary)]
            head = GaussianProcessHead.fit(config, inputs[used], targets, auxiliary=auxiliary)
            one.append(losses(labels[test, 0], head.predict(inputs[test])[:, 0], task))
    groups_of_rows = np.unique(scaffolds[np.concatenate(rows)], return_inverse=True)[1]
    alone = np.concatenate(found["alone"])
    for name in ("auxiliary", "known"):
        change = 100.0 * (np.concatenate(found[name]) - alone) / alone.mean()
        error = np.sqrt((np.bincount(groups_of_rows, change - change.mean()) ** 2).sum())
        print(f"{task.name}, {name}: {change.mean():+.2f} +- {error / len(change):.2f}%")


if __name__ == "__main__":
    main()
