"""Candidates for classes that train other networks, near and far: the splits of ``classes``.

Each candidate is trained on the same rows as the default, one fold of scaffold and of far splits:

- *base-large*: started from this model. *Mean of both*: of its logit and the default's. *Both
  embeddings*: the default with a Gaussian process whose kernel is the mean of both models' kernels.
- *five networks*: five readouts and heads on one frozen encoder.
- *best epoch*: the weights of the epoch with the least loss of the validation rows.
- *small rate*: the encoder learns too, at a tenth of the rate.
- *graded*: the number behind the class is learned, of ten sets of potencies, and the class is the
  probability that it is above the median, by a normal distribution as wide as the interval. *Mean
  with graded*: of its logit and the default's.

    python -m scripts.experiments.class_networks run ../shared/data kept --rows 500
    python -m scripts.experiments.class_networks compare kept classes_networks.csv

What KEPT has is not trained again. ``compare`` prints differences to the default with standard
errors over tables: of the tables of the first choice, of those kept for confirmation, and of all.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.special import logit, ndtr

from molattn.chem import Split
from molattn.config import TrainConfig
from molattn.evaluation.scores.metrics import score_tasks
from molattn.model.outputs import gaussian_process_shares
from molattn.training.resolve import load_pretrained
from molattn.training.run import TrainingJob, TrainingRun, read_rows, train_on_split
from scripts.accuracy.cases import Dataset, case_of
from scripts.benchmarks.benchmarking import markdown_table
from scripts.experiments.class_calibration import platt, squared, validated
from scripts.experiments.classes import (
    METRICS,
    MINIMOL,
    POTENCY,
    SPLITS,
    TABLE_SETS,
    TABLES,
    TASK,
    Array,
    dataset,
    mean_and_error,
    parts_of,
)
from scripts.experiments.recipe import table

DEFAULT = "default"
CANDIDATES: dict[str, dict[str, Any]] = {
    DEFAULT: {},
    "base-large": {"init_from": "base-large"},
    "graded": {"task": "regression"},
    "five networks": {"ensemble": 5},
    "best epoch": {"checkpoint": "best"},
    "small rate": {"freeze": "none", "backbone_lr_scale": 0.1},
}
ONE_SIGMA = 0.6827


def numbers(data: Path, name: str, most: int) -> tuple[Array, float]:
    """Return the numbers behind the classes of ``classes.labeled``, and the threshold."""
    frame = table(data, TABLES[name], 100_000)
    kept = frame if len(frame) <= most else frame.sample(most, random_state=0)
    return kept["y"].to_numpy(dtype=np.float64), float(frame["y"].median())


def train(name: str, data: Dataset, labels: Array, split: Split, options: Any) -> TrainingRun:
    """Train with options; those of the default start as those of ``classes``."""
    start = "base-minimol" if name in MINIMOL and "task" not in options else "base"
    fixed: Any = {"target_columns": ("y",), "device": "cpu", "task": "classification"}
    config, base = load_pretrained(
        TrainConfig.from_options("", fixed | {"init_from": start, "baselines": False} | options)
    )
    rows = read_rows(config, frame=pd.DataFrame({"smiles": data.smiles, "y": labels}))
    return train_on_split(TrainingJob(config, rows, split, base))


def kept_of(run: TrainingRun, threshold: float | None, similarity: Any) -> dict[str, Array]:
    """Return logits of the test rows, and of classes what else ``classes`` keeps."""
    tested = run.split.test
    if threshold is None:
        parts = parts_of(run, similarity)
        return parts | {"logits": logit(parts["both"][parts["sizes"][:2].sum() :])}
    predictor = run.model.predictor
    records = run.table.molecules(tested).records
    found = predictor.prediction(predictor.predict_outputs(records), records, ONE_SIGMA)
    width = (found.high - found.low)[:, 0] / 2.0
    above = ndtr((found.prediction[:, 0] - threshold) / width)
    return {"logits": logit(np.clip(above, 1e-6, 1.0 - 1e-6))}


def run(options: argparse.Namespace) -> None:
    """Train what is not kept yet, one candidate after the other."""
    torch.set_num_threads(1)
    options.kept.mkdir(parents=True, exist_ok=True)
    for candidate in options.candidates:
        for name in options.tables:
            is_graded = candidate == "graded"
            if is_graded and name not in POTENCY:
                continue
            data, similarity = dataset(options.data, name, options.rows, options.kept)
            labels, threshold = data.labels.astype(int), None
            if is_graded:
                labels, threshold = numbers(options.data, name, options.rows)
            for kind in SPLITS:
                path = options.kept / f"{name}_{kind}_{candidate.replace(' ', '-')}.npz"
                if path.exists():
                    continue
                case = case_of(data, kind, 0)
                split = Split(*(np.array(case.rows[part]) for part in ("train", "val", "test")))
                start = time.process_time()
                trained = train(name, data, labels, split, CANDIDATES[candidate])
                seconds = time.process_time() - start
                kept: Any = kept_of(trained, threshold, similarity)
                np.savez(path, seconds=seconds, truth=data.labels[split.test], **kept)
                print(name, kind, candidate, f"{seconds:.0f} s", flush=True)


def both_embeddings(first: dict[str, Array], second: dict[str, Array]) -> Array:
    """Return logits of the default with a process of the mean of two kernels, scaled as today's."""
    trained, held_out, _ = first["sizes"].cumsum()
    labels = first["labels"]
    kernel = (first["kernel"].astype(np.float64) + second["kernel"]) / 2.0
    outputs = []
    for count, rows in ((trained, slice(trained, held_out)), (held_out, slice(held_out, None))):
        process, features = squared(kernel[:, :count], labels[:count])
        signs = 2.0 * labels[:count] - 1.0
        unseen = process.leave_one_out(features[:count], signs, np.ones(count))
        scale, bias = platt(unseen, labels[:count])
        outputs.append(scale * process.predict(features[rows]) + bias)
    network = first["network"][trained:]
    known = slice(0, held_out - trained)
    columns = (network[known], outputs[0], labels[trained:held_out])
    arrays: Any = (column[:, None] for column in columns)
    (share,) = gaussian_process_shares([TASK], *arrays)
    combined = (1.0 - share) * network + share * np.concatenate(outputs)
    scale, bias = validated(combined[known], labels[trained:held_out])
    return scale * combined[held_out - trained :] + bias


def logits_of(kept: dict[str, dict[str, Array]]) -> Iterator[tuple[str, Array]]:
    """Yield the logits of each candidate of a split, and of those that combine two."""
    for candidate, parts in kept.items():
        yield candidate, parts["logits"]
    first = kept[DEFAULT]
    for other, name in (("base-large", "mean of both"), ("graded", "mean with graded")):
        if other in kept:
            yield name, (first["logits"] + kept[other]["logits"]) / 2.0
    if "base-large" in kept:
        yield "both embeddings", both_embeddings(first, kept["base-large"])


def scores(kept: Path) -> pd.DataFrame:
    """Return the scores of all candidates on all splits."""
    lines = []
    for name in TABLES:
        for kind in SPLITS:
            paths = {c: kept / f"{name}_{kind}_{c.replace(' ', '-')}.npz" for c in CANDIDATES}
            parts = {c: dict(np.load(path)) for c, path in paths.items() if path.exists()}
            if DEFAULT not in parts:
                continue
            truth = parts[DEFAULT]["truth"][:, None]
            for candidate, logits in logits_of(parts):
                probabilities = 1.0 / (1.0 + np.exp(-logits[:, None]))
                found = score_tasks(probabilities, truth, [TASK]).tasks["y"]
                seconds = parts.get(candidate, {}).get("seconds", np.nan)
                keys = {"table": name, "split": kind, "candidate": candidate}
                values = {metric: found[metric] for metric in METRICS}
                lines.append(keys | values | {"cpu_s": float(seconds)})
    return pd.DataFrame(lines)


def compare(options: argparse.Namespace) -> None:
    """Print and write differences to the default."""
    table = scores(options.kept)
    table.to_csv(options.output, index=False, float_format="%.4f")
    for (kind, of_kind), (group, names) in (
        (pair, group) for pair in table.groupby("split") for group in TABLE_SETS.items()
    ):
        wide = of_kind[of_kind["table"].isin(names)].pivot_table(
            [*METRICS, "cpu_s"], "table", "candidate"
        )
        cells = []
        for candidate in of_kind["candidate"].unique():
            changes = [wide[m, candidate] - wide[m, DEFAULT] for m in METRICS]
            texts = [mean_and_error(change.dropna()) for change in changes]
            if candidate == DEFAULT:
                texts = [f"{wide[metric, candidate].mean():.3f}" for metric in METRICS]
            cells.append([candidate, str(changes[0].count()), *texts])
        print(f"\n{kind}, {group}\n\n{markdown_table(['', 'tables', *METRICS], cells)}")
    print(table.groupby("candidate")["cpu_s"].mean().round(1).to_string())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    running = commands.add_parser("run")
    running.add_argument("data", type=Path)
    running.add_argument("kept", type=Path, help="folder for what is trained")
    running.add_argument("--candidates", nargs="+", choices=CANDIDATES, default=[*CANDIDATES])
    running.add_argument("--tables", nargs="+", choices=TABLES, default=[*TABLES])
    running.add_argument("--rows", type=int, default=500, help="at most (default: %(default)s)")
    running.set_defaults(command=run)
    comparing = commands.add_parser("compare")
    comparing.add_argument("kept", type=Path)
    comparing.add_argument("output", type=Path)
    comparing.set_defaults(command=compare)
    options = parser.parse_args()
    options.command(options)


if __name__ == "__main__":
    main()
