"""Coverage of intervals by how the difficulty grows with the distance to the training molecules.

The difficulty is exp(slope (1 - s)); in the package it has become r^(s - 1), see `confidence.py`.
Gaussian processes alone on embeddings of `base`, 800 molecules a table, intervals at level 0.9.
`order` is a split by time of Butina clusters, those most similar to a random one first; `+ random`
are the same test rows with validation rows drawn at random from the others, which is what a
training with a column of test rows has::

    python -m scripts.experiments.coverage ../shared/data --output scripts/experiments/coverage.csv
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from molattn.chem import Split, group_split, same_cluster, same_molecule, same_scaffold, time_split
from molattn.chem.fingerprint_index import FingerprintIndex
from molattn.config import TrainConfig
from molattn.data.dataset import TrainingTable
from molattn.model.target_transform import transformed_labels
from molattn.model.uncertainty import ConformalScores
from molattn.training.resolve import load_pretrained
from molattn.training.run import TrainingJob, TrainingRun, read_rows, train_on_split

ADMET = "caco2_wang half_life_obach vdss_lombardo clearance_microsome_az clearance_hepatocyte_az"
POTENCY = "CHEMBL218_EC50 CHEMBL238_Ki CHEMBL4792_Ki CHEMBL219_Ki"
TABLES = {name: f"{name}.csv" for name in ("freesolv", "esol", "lipo")}
TABLES |= {name: f"admet/{name}.csv.gz" for name in (*ADMET.split(), "ppbr_az")}
TABLES |= {name: f"potency/{name}.csv.gz" for name in POTENCY.split()}


def splits(table: TrainingTable, seed: int = 0) -> dict[str, Split]:
    clusters, rng = same_cluster(table.records), np.random.default_rng(seed)
    first = clusters[rng.integers(len(clusters))]
    centers = table.fingerprints([rows[0] for rows in clusters])
    similarity = FingerprintIndex(table.fingerprints(first)).similarity(centers)
    similarity -= 1e-9 * rng.random(len(clusters))  # equal ones in random order
    found = {
        "random": group_split(same_molecule(table.records), seed=seed, balanced=False),
        "scaffold": group_split(same_scaffold(table.records), seed=seed, balanced=True),
        "order": time_split([clusters[n] for n in np.argsort(-similarity, kind="stable")]),
    }
    for name in ("scaffold", "order"):
        rest = np.sort(np.concatenate(found[name][:2]))
        groups = same_molecule([table.records[row] for row in rest])
        inner = group_split(groups, sizes=(8 / 9, 1 / 9, 0.0), seed=seed, balanced=False)
        found[f"{name} + random"] = Split(rest[inner.train], rest[inner.val], found[name].test)
    return found


def rows_of(run: TrainingRun) -> list[dict[str, float]]:
    """Return coverage and mean width for the test rows, and the loss (Laplace) of all errors."""
    model, table, known = run.model, run.table, run.model.uncertainty
    assert known is not None
    train = FingerprintIndex(table.fingerprints(run.split.train))
    test_outputs = model.predictor.predict_outputs(table.molecules(run.split.test).records)
    outputs = run.validation_outputs, test_outputs
    errors, similarity = [], []
    for rows, found, index in zip(run.split[1:], outputs, (train, known.fingerprints), strict=True):
        targets = torch.tensor(table.targets[rows])
        labels = transformed_labels(targets, model.config.target_transforms)
        errors.append(np.abs(labels[:, 0].numpy() - found[0, :, 0]))
        similarity.append(index.similarity(table.fingerprints(rows)))
    results = []
    for slope in (0.0, 1.0, 1.25, 1.5, 2.0, 3.0):
        validation, test = (np.exp(slope * (1.0 - one)) for one in similarity)
        half = test * ConformalScores.from_scores(errors[0] / validation).bound(0.9)
        both = np.concatenate([validation, test])
        loss = np.log(np.mean(np.concatenate(errors) / both)) + np.log(both).mean()
        found = {"coverage": np.mean(errors[1] <= half), "width": 2.0 * half.mean(), "loss": loss}
        results.append({"slope": slope, **found})
    return results


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    arguments, results = parser.parse_args(), []
    for name in TABLES:
        frame = pd.read_csv(arguments.data / TABLES[name]).rename(columns=str.lower)
        frame = frame.sample(min(len(frame), 800), random_state=0)
        options = {"predictor": "gaussian_process", "baselines": False, "split": "scaffold"}
        config = TrainConfig.from_options("", {"target_columns": (frame.columns[1],), **options})
        config, base = load_pretrained(config)
        table = read_rows(config, frame=frame)
        for kind, split in splits(table).items():
            run = train_on_split(TrainingJob(config, table, split, base))
            results += [{"table": name, "split": kind, **row} for row in rows_of(run)]
        pd.DataFrame(results).to_csv(arguments.output, index=False, float_format="%.4f")


if __name__ == "__main__":
    main()
