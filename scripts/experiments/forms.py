r"""Which form of a molecule an end point of `admet` learns and predicts: as written, or its parent?

    python -m scripts.experiments.forms ../shared/data/admet scripts/experiments/forms.csv

Of each task in which more than 1% of the molecules differ from their parent it takes at most 1,500
molecules, those that differ first, and fits a Gaussian process on embeddings of ``base-minimol`` in
three folds by the scaffold of parents, so that a salt and its parent are on one side. ``written``
learns and predicts molecules as they are written, ``parent`` their parents (of repeated labels the
mean), and ``mixed`` learns them as written and predicts parents. Errors are absolute, on the scale
of the target transform in standard deviations, or cross-entropies of classes, of molecules with a
parent; standard errors are over scaffolds. ``change`` is the error of ``parent`` less that of
``written``. Molecules without a parent are learned as written.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from rdkit import rdBase

from molattn import MolAttn, MolAttnConfig
from molattn.chem import parse_smiles
from molattn.chem.groups import scaffold_smiles
from molattn.chem.split import fold_split
from molattn.config.training import DEFAULT_KERNELS
from molattn.model.gaussian_process import GaussianProcessHead
from molattn.model.kernel import KernelInputs, stack_counts
from molattn.task import Task
from molattn.training.scaling import select_transform
from scripts.models.train_admet import form_smiles, merged_labels, read_task

FOLDS = 3
MOST = 1500
FEWEST = 0.01  # of molecules that differ from their parent
Array = NDArray[np.float64]


def read(path: Path) -> tuple[pd.DataFrame, float]:
    """Return label and parent (None = there is none) of molecules, and the share that differs.

    Labels are on the scale of the target transform, in standard deviations, or classes.
    """
    table = read_task(path).rename_axis("written").reset_index(name="label")
    table["parent"] = [form_smiles(text, "parent") for text in table["written"]]
    table["differs"] = table["parent"].notna() & (table["parent"] != table["written"])
    if table["label"].nunique() > 2:
        labels = table["label"].to_numpy()
        values = select_transform(labels)[0].forward(torch.tensor(labels)).numpy()
        table["label"] = (values - values.mean()) / values.std()
    share = table["differs"].mean()
    table = table.sample(frac=1.0, random_state=0).sort_values(
        "differs", ascending=False, kind="stable"
    )
    return table.head(MOST).reset_index(drop=True), share


def grouped(parents: Any) -> tuple[NDArray[np.int64], list[list[int]]]:
    """Return the group of each row, and the groups: scaffolds, or parents of a large scaffold."""
    scaffolds = parents.map(lambda text: scaffold_smiles(parse_smiles(text)))
    is_large = scaffolds.map(scaffolds.value_counts()) > len(parents) / FOLDS / 2
    numbers = pd.factorize(parents.where(is_large, scaffolds))[0]
    groups = [np.flatnonzero(numbers == number).tolist() for number in range(numbers.max() + 1)]
    return numbers, groups


def losses(labels: Array, predicted: Array, task: Task) -> Array:
    """Return the absolute error, or the cross-entropy, of each row."""
    if task.kind == "regression":
        return np.abs(predicted - labels)
    return np.logaddexp(0.0, np.where(labels == 1.0, -predicted, predicted))


def errors(
    table: pd.DataFrame, task: Task, base: MolAttn
) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Return the error of each row in each of three ways, and the group of each row."""
    config = MolAttnConfig((task,), kernels=DEFAULT_KERNELS)
    assert config.counter is not None
    parents = table["parent"].fillna(table["written"])
    forms = pd.Index(pd.concat([table["written"], parents]).unique())
    counts = stack_counts([config.counter(parse_smiles(text)) for text in forms])
    inputs = KernelInputs(len(forms), counts, {"embedding": base.embed([*forms])})
    numbers, groups = grouped(parents)
    labels = table["label"].to_numpy()
    by_way = pd.DataFrame(index=table.index, columns=["written", "parent", "mixed"], dtype=float)
    for fold in range(1, FOLDS + 1):
        split = fold_split(groups, folds=FOLDS, fold=fold, validation_size=0.0, seed=0)
        learned = table.iloc[split.train]
        heads: dict[str, GaussianProcessHead] = {}
        for way, names in (("written", learned["written"]), ("parent", parents[split.train])):
            merged = merged_labels(pd.Series(learned["label"].to_numpy(), index=names))
            rows = forms.get_indexer(pd.Index(merged.index))
            heads[way] = GaussianProcessHead.fit(config, inputs[rows], merged.to_numpy()[:, None])
        for way, head, names in (
            ("written", "written", table["written"]),
            ("parent", "parent", parents),
            ("mixed", "written", parents),
        ):
            rows = forms.get_indexer(pd.Index(names.iloc[split.test]))
            predicted = heads[head].predict(inputs[rows])[:, 0]
            by_way.loc[split.test, way] = losses(labels[split.test], predicted, task)
    return by_way, numbers


def standard_error(values: Array, groups: NDArray[np.int64]) -> float:
    """Return the standard error of a mean, of groups of rows that may be alike."""
    sums = pd.Series(values - values.mean()).groupby(groups).sum()
    return float(np.sqrt((sums**2).sum()) / len(values))


def compare(path: Path, base: MolAttn) -> Iterator[dict[Any, Any]]:
    """Yield the results of the rows that differ, and of all rows, of a task."""
    table, share = read(path)
    name = path.name.partition(".")[0]
    facts = {"task": name, "differing_percent": 100.0 * share}
    if share < FEWEST:
        yield {**facts, "rows": "all", "count": len(table)}
        return
    is_class = table["label"].nunique() == 2
    task = Task(name, "binary", ("0", "1")) if is_class else Task(name)
    by_way, groups = errors(table, task, base)
    for rows, is_used in (("differing", table["differs"]), ("all", table["parent"].notna())):
        used = by_way[is_used]
        change = (used["parent"] - used["written"]).to_numpy()
        yield {
            **facts,
            "rows": rows,
            "count": len(used),
            **used.mean().to_dict(),
            "change": change.mean(),
            "standard_error": standard_error(change, groups[is_used.to_numpy()]),
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="with TASK.csv or TASK.csv.gz for each task")
    parser.add_argument("output", type=Path)
    parser.add_argument("--tasks", nargs="+", default=["*"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    base = MolAttn.from_pretrained("base-minimol")
    rows: list[dict[Any, Any]] = []
    with rdBase.BlockLogs():
        for pattern in arguments.tasks:
            for path in sorted(arguments.folder.glob(f"{pattern}.csv*")):
                rows += compare(path, base)
                pd.DataFrame(rows).to_csv(arguments.output, index=False, float_format="%.4f")
                print(pd.DataFrame(rows[-2:]).to_string(), flush=True)


if __name__ == "__main__":
    main()
