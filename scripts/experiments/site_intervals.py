"""Intervals of atoms and bonds, with difficulties of kinds alone and with those of radii too.

The models are those of ``scripts.experiments.atom_peers``: each is calibrated twice on its
validation molecules, and its intervals at the level 0.9 are compared with the labels of the test
molecules. Coverage is the mean over molecules of the fraction of labels within their intervals;
width is the mean over molecules of the mean width, in the unit of the labels::

    python -m scripts.experiments.site_intervals runs/atom_peers --output intervals.csv
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from molattn import MolAttn
from molattn.chem import Split
from molattn.config import TrainConfig
from molattn.data.dataset import read_training_table
from molattn.model.environments import site_environments
from molattn.model.sites import predict_sites
from molattn.training.site_calibration import calibrate_sites, keep_labeled
from molattn.training.site_process import add_site_processes
from scripts.experiments.atom_peers import LEVELS

RADII = ("none", "0", "1", "2", "3")


def summary(frame: pd.DataFrame, names: dict[str, Any]) -> dict[str, Any]:
    """Return means over molecules, and the rank correlation of error and expected error."""
    means = frame.groupby("molecule")[["within", "width", "error"]].mean().mean()
    scores = {"labels": len(frame), **means.to_dict()}
    ranks = frame[["error", "expected"]].corr("spearman").iloc[0, 1]
    return names | scores | {"spearman": ranks}


def compare(runs: Path, name: str, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the results of a model, of all labels and by radius."""
    level: Any = LEVELS[name]
    folder = runs / f"{name}_molattn_{seed}"
    model = MolAttn.from_pretrained(folder / "run")
    columns: Any = {f"{level}_target_columns": ("y",)}
    values = json.loads((runs / f"{name}.json").read_text())
    frame = pd.read_csv(folder / "train.csv")
    tested = pd.read_csv(folder / "test.csv")
    tested["y"] = [str(values[smiles]) for smiles in tested["smiles"]]
    config = TrainConfig.from_options(
        "", {"target_columns": (), "task": ("regression",), **columns}
    )
    learned, test = (
        read_training_table(table, config.data, model.config.featurizer)
        for table in (frame, tested)
    )
    is_val = (frame["split"] == "val").to_numpy()
    split = Split(np.flatnonzero(~is_val), np.flatnonzero(is_val), np.arange(0))
    val = learned.molecules(split.val)
    keep_labeled(model, learned.molecules(split.train))
    outputs = add_site_processes(model, config, learned, split)
    labels = test.sites[level]
    kept: Any = model.site_calibration
    radii = kept.radii("y", site_environments(test.records, level))
    for is_new in (False, True):
        model.site_calibration = kept if is_new else kept._replace(environments={})
        calibrate_sites(model, val, outputs, None)
        calibration = model.site_calibration
        prediction = predict_sites(model.networks, calibration, test.records, 0.9)[level]
        error = np.abs(prediction.outputs[:, 0] - labels.targets[:, 0])
        width = (prediction.high - prediction.low)[:, 0]
        scored = pd.DataFrame(
            {
                "molecule": labels.molecule,
                "radius": radii,
                "error": error,
                "width": width,
                "within": 2.0 * error <= width,
                "expected": prediction.expected_error[:, 0],
            }
        ).dropna()
        names = {"set": name, "seed": seed, "difficulties": "radii" if is_new else "kinds"}
        yield summary(scored, {**names, "radius": "all"})
        for radius, group in scored.groupby("radius"):
            yield summary(group, {**names, "radius": RADII[int(str(radius))]})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, help="folder of scripts.experiments.atom_peers")
    parser.add_argument("--sets", nargs="+", default=["shift", "length"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--output", type=Path, help="CSV of the results")
    options = parser.parse_args()
    rows = [
        row
        for seed in options.seeds
        for name in options.sets
        for row in compare(options.runs, name, seed)
    ]
    frame = pd.DataFrame(rows).round(5)
    print(frame.to_string(index=False))
    if options.output:
        frame.to_csv(options.output, index=False)


if __name__ == "__main__":
    main()
