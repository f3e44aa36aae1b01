"""New measurements of other chemistry: error after an update, after training again, and before.

Molecules of a table are in the order of Butina clusters, those most similar to a random one first.
A model is trained on the first 300, and the next 300 are new: 96 of them at random are measured, in
batches that contain each other, and the others are predicted. ``update`` conditions the model
(`molattn update`), ``train`` trains again on all rows, ``nothing`` keeps the model. Rows of the CSV
that are there are not computed again.

Example:
    python -m scripts.experiments.update ../shared/data/esol.csv --predictor gaussian_process \
        --output scripts/experiments/update.csv
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import molattn
from molattn.chem import same_cluster
from molattn.chem.fingerprint_index import FingerprintIndex
from molattn.config import TrainConfig
from molattn.model.model import MolAttn
from molattn.training.resolve import load_pretrained
from molattn.training.run import read_rows
from molattn.training.update import update_model

TRAINED, NEW, MEASURED = 300, 300, (10, 30, 96)
COLUMNS = ["data", "predictor", "method", "measured", "mae", "rmse", "inside", "seconds"]
KEY = COLUMNS[:4]


def in_order(frame: pd.DataFrame, target: str) -> pd.DataFrame:
    """Return rows in the order of clusters."""
    config, _ = load_pretrained(TrainConfig.from_options("", {"target_columns": (target,)}))
    table = read_rows(config, frame=frame)
    rng = np.random.default_rng(0)
    clusters = same_cluster(table.records)
    first = clusters[rng.integers(len(clusters))]
    centers = table.fingerprints([rows[0] for rows in clusters])
    similarity = FingerprintIndex(table.fingerprints(first)).similarity(centers)
    order = np.argsort(-similarity - 1e-9 * rng.random(len(clusters)), kind="stable")
    rows = np.concatenate([clusters[index] for index in order])
    smiles = [str(table.smiles[row]) for row in rows]
    return frame.set_index("smiles").loc[smiles].reset_index()


def scores(model: MolAttn, tested: pd.DataFrame, target: str) -> list[float]:
    """Return the mean absolute error, the root mean squared error and the coverage."""
    smiles = tested["smiles"].tolist()
    labels = tested[target].to_numpy()
    error = model.predict(smiles)[:, 0] - labels
    low, high = (ends[:, 0] for ends in model.predict_interval(smiles, 0.9))
    inside = (low <= labels) & (labels <= high)
    return [np.abs(error).mean(), np.sqrt((error**2).mean()), inside.mean()]


def main() -> None:
    """Measure one table, and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--predictor", default="both")
    parser.add_argument("--output", type=Path, required=True, help="CSV")
    options = parser.parse_args()
    name = options.table.name.split(".")[0]
    frame = pd.read_csv(options.table)
    frame = frame.rename(columns={frame.columns[0]: "smiles"}).drop_duplicates("smiles")
    target = frame.columns[1]
    ordered = in_order(frame.sample(frac=1.0, random_state=0)[:1500], target)
    trained = ordered[:TRAINED]
    new = ordered[TRAINED : TRAINED + NEW].sample(frac=1.0, random_state=0)
    tested = new[max(MEASURED) :]
    settings: dict[str, Any] = {"predictor": options.predictor, "baselines": False}
    settings |= {"test_size": 0.0, "target_columns": [target]}
    rows = pd.read_csv(options.output) if options.output.exists() else pd.DataFrame(columns=COLUMNS)
    first: MolAttn | None = None
    for method, count in [("nothing", 0), *((m, n) for n in MEASURED for m in ("update", "train"))]:
        key = [name, options.predictor, method, count]
        if (rows[KEY] == key).all(axis=1).any():
            continue
        if method != "train" and first is None:
            start = time.process_time()
            first = molattn.train(trained, **settings).model
            seconds = time.process_time() - start
        model: Any = first
        if method == "update":
            start = time.process_time()
            config = TrainConfig.from_options("", settings).data
            model = update_model(model, config, new[:count]).model
            seconds = time.process_time() - start
        elif method == "train":
            start = time.process_time()
            model = molattn.train(pd.concat([trained, new[:count]]), **settings).model
            seconds = time.process_time() - start
        rows.loc[len(rows)] = [*key, *scores(model, tested, target), seconds]
        rows.to_csv(options.output, index=False, float_format="%.4f")
    print(rows[(rows["data"] == name) & (rows["predictor"] == options.predictor)])


if __name__ == "__main__":
    main()
