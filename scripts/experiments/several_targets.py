"""What Gaussian processes of nine targets gain by learning together, in three scaffold folds.

Usage: python -m scripts.experiments.several_targets DATA OUTPUT.csv

DATA is a folder of training parts with the columns smiles and target. Of each at most 600 molecules
are drawn; a molecule is in the same fold for all targets. Kernels are the default, on the embedding
of ``base``. Each row of OUTPUT is a fold of a target: MAE alone, together, and together with at
most 2,000 inducing points (fewer); number of targets learned from; CPU seconds of all nine.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from molattn import MolAttn, MolAttnConfig
from molattn.chem import parse_smiles, same_scaffold
from molattn.chem.split import fold_split
from molattn.config.training import DEFAULT_KERNELS
from molattn.model.gaussian_process import GaussianProcessHead
from molattn.model.kernel import KernelInputs, stack_counts
from molattn.task import Task

AS_GIVEN = ("caco2_wang", "lipophilicity_astrazeneca", "solubility_aqsoldb", "ppbr_az", "ld50_zhu")
LOGARITHMS = "vdss_lombardo half_life_obach clearance_hepatocyte_az clearance_microsome_az".split()
TARGETS = (*AS_GIVEN, *LOGARITHMS)
FOLDS, MOST = 3, 600
COLUMNS = "fold target alone together fewer helpers together_s fewer_s alone_s".split()


def read(data: Path) -> pd.DataFrame:
    """Return standardized labels of all targets, by SMILES."""
    columns = {}
    for name in TARGETS:
        table = pd.read_csv(data / f"{name}.csv.gz")
        labels = table.sample(min(MOST, len(table)), random_state=0).groupby("smiles")["target"]
        columns[name] = labels.mean().map(np.log) if name in LOGARITHMS else labels.mean()
    table = pd.concat(columns, axis=1).sort_index()
    return (table - table.mean()) / table.std()


def main() -> None:
    """Fit the Gaussian processes of each fold, and write the errors as they come."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("output", type=Path)
    given = parser.parse_args()
    table, tasks, rows = read(given.data), [Task(name) for name in TARGETS], []
    smiles, labels = table.index.tolist(), table.to_numpy()
    counter: Any = MolAttnConfig(tuple(tasks), kernels=DEFAULT_KERNELS).counter
    embeddings = {"embedding": MolAttn.from_pretrained("base-minimol").embed(smiles)}
    counts = stack_counts([counter(parse_smiles(text)) for text in smiles])
    inputs = KernelInputs(len(smiles), counts, embeddings)
    groups = same_scaffold(smiles)
    for fold in range(1, FOLDS + 1):
        split = fold_split(groups, folds=FOLDS, fold=fold, validation_size=0, seed=0)
        errors, seconds, helpers = {}, {}, {}
        together = [("together", tasks, 2000), ("fewer", tasks, 1000)]
        for name, some, points in [*together, *((task.name, [task], 2000) for task in tasks)]:
            start = time.process_time()
            own = labels[:, [tasks.index(task) for task in some]]
            learned = split.train[~np.isnan(own[split.train]).all(axis=1)]
            config = MolAttnConfig(tuple(some), kernels=DEFAULT_KERNELS)
            known = inputs[learned], own[learned]
            head = GaussianProcessHead.fit(config, *known, inducing_points=points)
            errors[name] = np.nanmean(abs(head.predict(inputs[split.test]) - own[split.test]), 0)
            seconds[name] = time.process_time() - start
            helpers = {**head.helpers, **helpers}
        times = seconds.pop("together"), seconds.pop("fewer"), sum(seconds.values())
        for index, name in enumerate(TARGETS):
            mae = errors[name][0], errors["together"][index], errors["fewer"][index]
            rows.append((fold, name, *mae, len(helpers.get(name, ())), *times))
        pd.DataFrame(rows, columns=COLUMNS).round(4).to_csv(given.output, index=False)


if __name__ == "__main__":
    main()
