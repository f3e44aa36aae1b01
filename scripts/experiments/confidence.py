"""Confidence on tables and splits: is the expected error larger where errors are?

``predict`` keeps the predictions of Gaussian processes alone on embeddings of `base`, for random,
scaffold and cluster-ordered splits (Butina clusters, those most similar to a random one first) with
70% training, 10% validation and 20% test rows, of at most 1,500 molecules a table. ``compare``
writes for each what three rules say of the test rows: `exp(1 - s)`, the curve r^s, and this times
how large errors are nearby, as in the package. The shape of the curve and how neighbors weigh was
chosen on the tables of ``FITTED`` alone::

    python -m scripts.experiments.confidence predict ../shared/data kept
    python -m scripts.experiments.confidence compare kept scripts/experiments/confidence.csv
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from molattn.chem import Split, group_split, same_cluster, same_molecule, same_scaffold, time_split
from molattn.chem.fingerprint_index import FingerprintIndex, errors_nearby
from molattn.config import TrainConfig
from molattn.data.dataset import TrainingTable
from molattn.model.confidence import CONFIDENCES, grades, guess_error
from molattn.model.gaussian_process import GaussianProcessHead
from molattn.model.gaussian_process.fit import FittedProcesses, LabeledRows
from molattn.model.target_transform import transformed_labels
from molattn.model.uncertainty import Calibration, ConformalScores
from molattn.task import Task
from molattn.training.resolve import load_pretrained, resolve
from molattn.training.run import TrainingJob, fit_networks, read_rows

COMPARED = (
    "bace bbbp esol freesolv lipo CHEMBL218_EC50 CHEMBL239_EC50 caco2_wang vdss_lombardo herg"
).split()
FITTED = (
    "CHEMBL219_Ki CHEMBL238_Ki CHEMBL262_Ki CHEMBL4792_Ki CHEMBL2971_Ki half_life_obach "
    "clearance_microsome_az ppbr_az ld50_zhu solubility_aqsoldb ames dili pgp_broccatelli "
    "cyp3a4_veith"
).split()
SPLITS = ("random", "scaffold", "order")
SIZES = (0.7, 0.1, 0.2)
MOST = 1500
FEWEST = 20  # rows of a grade
Arrays = dict[str, Any]


def splits(table: TrainingTable, seed: int = 0) -> dict[str, Split]:
    clusters, rng = same_cluster(table.records), np.random.default_rng(seed)
    first = clusters[rng.integers(len(clusters))]
    centers = table.fingerprints([rows[0] for rows in clusters])
    similarity = FingerprintIndex(table.fingerprints(first)).similarity(centers)
    similarity -= 1e-9 * rng.random(len(clusters))  # equal ones in random order
    ordered = [clusters[index] for index in np.argsort(-similarity, kind="stable")]
    molecules, scaffolds = same_molecule(table.records), same_scaffold(table.records)
    return {
        "random": group_split(molecules, sizes=SIZES, seed=seed, balanced=False),
        "scaffold": group_split(scaffolds, sizes=SIZES, seed=seed, balanced=True),
        "order": time_split(ordered, sizes=SIZES),
    }


def predictions(path: Path) -> Iterator[tuple[str, Arrays]]:
    """Yield for each split labels, predictions, leave-one-out predictions and similarities."""
    frame = pd.read_csv(path).rename(columns=str.lower)
    frame = frame.sample(min(len(frame), MOST), random_state=0)
    options: Any = {"predictor": "gaussian_process", "baselines": False, "split": "scaffold"}
    options |= {"descriptors": "none", "target_columns": (frame.columns[1],)}
    config, base = load_pretrained(TrainConfig.from_options("", options))
    table = read_rows(config, frame=frame)
    prints = table.fingerprints(np.arange(len(table.rows)))
    similarity = np.zeros((len(prints), len(prints)), dtype=np.float16)
    for row, (order, values) in enumerate(FingerprintIndex(prints).nearest(prints, len(prints))):
        similarity[row, order] = values
    inputs: Any = None
    for name, split in splits(table).items():
        job = TrainingJob(config, table, split, base)
        model, _ = fit_networks(job, resolve(config, table, split, base))
        model.config = replace(model.config, kernels=config.kernels)
        if inputs is None:
            _, inputs = model.networks.predict(table.molecules(np.arange(len(prints))).records)
        labels = model.scaling.scaled_labels(torch.from_numpy(table.targets)).double().numpy()
        learned = np.sort(np.concatenate([split.train, split.val]))
        first, last = (
            GaussianProcessHead.fit(model.config, inputs[rows], labels[rows])
            for rows in (split.train, learned)
        )
        used = LabeledRows(model.config.tasks, labels[learned], None, None, 0)
        process = FittedProcesses(model.config, inputs[learned], used, used.used)
        process.leave_one_out(process.groups[0])
        unseen = last.outputs(torch.from_numpy(process.unseen)).numpy()
        outputs = first.predict(inputs[split.val]), last.predict(inputs[split.test]), unseen
        transforms = model.config.target_transforms
        yield (
            name,
            {
                **split._asdict(),
                "learned": learned,
                "y": transformed_labels(torch.from_numpy(table.targets), transforms)[:, 0].numpy(),
                "is_class": np.array(model.config.tasks[0].kind != "regression"),
                "similarity": similarity,
                **dict(
                    zip(
                        ("val_output", "test_output", "unseen"),
                        (model.scaling.to_transformed(values[None])[0, :, 0] for values in outputs),
                        strict=True,
                    )
                ),
            },
        )


def compare(kept: Arrays) -> Iterator[dict[str, Any]]:
    """Yield the results of each rule: counts and errors by grade, correlation, coverage."""
    classes = ("0", "1") if kept["is_class"] else ()
    task = Task("y", "binary" if classes else "regression", classes)
    labels, test, learned = kept["y"], kept["test"], kept["learned"]
    guess = guess_error(task, labels[learned], 1.0)
    similarity = kept["similarity"].astype(np.float64)
    to_train = similarity[np.ix_(kept["val"], kept["train"])].max(axis=1, keepdims=True)
    to_learned = similarity[np.ix_(test, learned)]
    nearest = to_learned.max(axis=1, keepdims=True)
    outputs = kept["val_output"][:, None], labels[kept["val"]][:, None]
    calibration = Calibration.fit([task], *outputs, to_train, [guess])
    prediction = calibration.calibrated(kept["test_output"][:, None])
    errors = np.abs(labels[test] - prediction[:, 0])
    rules = {"r^s": calibration.expected_errors(prediction, nearest, np.array([guess]))}
    if classes:
        errors = (errors > 0.5).astype(float)
        rate = np.minimum(prediction, 1.0 - prediction) * np.exp((0.5 - nearest) / 2)
        rules = {"exp(1 - s)": np.minimum(rate, 0.5), **rules}
    else:
        scores = np.abs(outputs[1] - outputs[0]) / np.exp(1.0 - to_train)
        rules = {"exp(1 - s)": scores.mean() * np.exp(1.0 - nearest), **rules}
        index = FingerprintIndex([np.arange(row, dtype=np.uint16) for row in range(len(learned))])
        index.set_errors(index.fingerprints, np.abs(labels[learned] - kept["unseen"])[:, None])
        assert index.errors is not None
        nearby = errors_nearby(to_learned, index.errors)
        rules["r^s, nearby"] = rules["r^s"] * nearby
        bound = ConformalScores.from_scores(scores[:, 0]).bound(0.9)
        half_widths = {"exp(1 - s)": bound * np.exp(1.0 - nearest)}
        half_widths["r^s"] = calibration.half_widths(nearest, 0.9)
    for name, expected in rules.items():
        grade = grades(expected, np.array([guess]))[:, 0]
        facts: dict[str, Any] = {"rule": name, "rows": len(test)}
        means = []
        for confidence in CONFIDENCES:
            rows = grade == confidence
            facts[confidence] = int(rows.sum())
            facts[f"error {confidence}"] = errors[rows].mean() / guess if rows.any() else np.nan
            if rows.sum() >= FEWEST:
                means.append(facts[f"error {confidence}"])
        facts["rises"] = bool(np.all(np.diff(means) > 0)) if len(means) > 1 else None
        facts["correlation"] = np.corrcoef(expected[:, 0], errors)[0, 1]
        if not classes and name in half_widths:
            facts["coverage"] = np.mean(errors <= half_widths[name][:, 0])
            facts["width"] = 2.0 * half_widths[name].mean() / guess
        yield facts


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("step", choices=("predict", "compare"))
    parser.add_argument("source", type=Path)
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args()
    results = []
    for name in COMPARED + FITTED:
        if arguments.step == "predict":
            folders = ("", "potency", "admet")
            paths = [arguments.source / folder / f"{name}.csv" for folder in folders]
            paths += [path.with_suffix(".csv.gz") for path in paths]
            for split, arrays in predictions(next(path for path in paths if path.is_file())):
                np.savez(arguments.output / f"{name}_{split}.npz", **arrays)
            continue
        for split in SPLITS:
            kept = dict(np.load(arguments.source / f"{name}_{split}.npz"))
            use = "compared" if name in COMPARED else "fitted"
            results += [{"use": use, "table": name, "split": split, **row} for row in compare(kept)]
    if results:
        pd.DataFrame(results).to_csv(arguments.output, index=False, float_format="%.3f")


if __name__ == "__main__":
    main()
