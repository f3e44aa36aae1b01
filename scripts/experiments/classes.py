r"""A development bench for classes, near and far from the training molecules, and where it is lost.

Tables: the 13 classifications of TDC's ADMET group, BACE, BBBP, and ten sets of potencies, whose
class 1 is a pKi or pEC50 above the median of the set; at most 1,500 rows of each, drawn at random.
Two kinds of split with 20% test rows, three folds of each. A seed whose training or test rows have
fewer than ten molecules of a class is left out.

- ``scaffold``: balanced by Bemis-Murcko scaffold, 10% validation rows likewise.
- ``far``: no training or validation molecule has a Tanimoto similarity of 0.4 or more to a test
  molecule (Morgan fingerprints of radius 2 with 2,048 bits, no counts), as in Lo-Hi (Steshin, arXiv
  2310.06399). Molecules in random order join the test rows with all their neighbors of 0.4 or more,
  where these fit in; then all others that are near to a test molecule are left out. An eighth of
  the rest is for validation, at random.

Training starts from ``base``, or ``base-minimol`` where the teacher of ``base`` saw the labels.
``run`` trains the default once for each table, kind of split and fold, and scores its parts on the
same rows; what is in RESULTS is not done again. It also writes each table with its splits for
``benchmark_accuracy``, which adds other methods to the same file. ``distance`` scores the parts by
the similarity of test molecules to the nearest training or validation molecule, where there are ten
of each class, and ``compare`` prints tables. ``calibration`` scores the candidates of
:mod:`scripts.experiments.class_calibration` for probabilities on what was kept, and prints them
with the reliability of today's probabilities and what explains it; ``--tables confirmation`` scores
them on ten tables on which none was chosen. ``intervals`` prints how wide the intervals of
probabilities are::

    python -m scripts.experiments.classes run ../shared/data kept classes.csv --rows 500 --folds 1
    python -m scripts.experiments.classes distance kept classes_distance.csv
    python -m scripts.experiments.classes compare classes.csv classes_distance.csv
    python -m scripts.experiments.classes calibration kept classes_calibration.csv
    python -m scripts.experiments.classes intervals kept
    python -m scripts.accuracy.benchmark_accuracy --data kept/herg.csv --seeds 0 \
        --splits-file kept/herg.json --only lightgbm chemprop --results classes.csv

The parts are the network, the Gaussian process, both (the default), a logistic regression on the
embedding that the Gaussian process compares, boosted trees on RDKit's descriptors and Morgan counts
(scikit-learn), and the five nearest training molecules. The validation rows scale the probabilities
of the first three, as in the package.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegressionCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from molattn.chem import Split, group_split, same_molecule, same_scaffold
from molattn.chem.fingerprint_index import FingerprintIndex
from molattn.config import TrainConfig
from molattn.data.dataset import TrainingTable
from molattn.evaluation.scores.metrics import score_tasks
from molattn.model.gaussian_process import GaussianProcessHead
from molattn.model.gaussian_process.fit import count_kinds
from molattn.model.kernel import MoleculeKernel
from molattn.model.uncertainty import ProbabilityScaling
from molattn.task import Task
from molattn.training.resolve import load_pretrained
from molattn.training.run import TrainingJob, TrainingRun, read_rows, train_on_split
from scripts.accuracy.cases import Case, Dataset, case_of
from scripts.accuracy.results import Result, Results, RunKey
from scripts.benchmarks.benchmarking import markdown_table
from scripts.experiments import class_calibration
from scripts.experiments.recipe import table

Array = NDArray[np.float64]

SEEN = (  # by the teacher of base
    "ames bbb_martins cyp2c9_substrate_carbonmangels cyp2c9_veith cyp2d6_substrate_carbonmangels "
    "cyp2d6_veith cyp3a4_substrate_carbonmangels cyp3a4_veith dili hia_hou pgp_broccatelli"
).split()
POTENCY = (
    "CHEMBL218_EC50 CHEMBL219_Ki CHEMBL238_Ki CHEMBL239_EC50 CHEMBL244_Ki CHEMBL262_Ki "
    "CHEMBL264_Ki CHEMBL2971_Ki CHEMBL4005_Ki CHEMBL4792_Ki"
).split()
TABLES = {name: f"admet/{name}" for name in ("herg", "bioavailability_ma", *SEEN)}
TABLES |= {"bace": "bace", "bbbp": "bbbp"} | {name: f"potency/{name}" for name in POTENCY}
CONFIRMATION = (  # tables on which no candidate was chosen
    "ames bbb_martins cyp2c9_substrate_carbonmangels cyp2d6_substrate_carbonmangels cyp3a4_veith "
    "hia_hou CHEMBL239_EC50 CHEMBL262_Ki CHEMBL264_Ki CHEMBL4792_Ki"
).split()
CHOICE = [name for name in TABLES if name not in CONFIRMATION]
TABLE_SETS = {"choice": CHOICE, "confirmation": CONFIRMATION, "all": [*TABLES]}
MINIMOL = {*SEEN, "bbbp"}
SPLITS = ("scaffold", "far")
FOLDS = 3
SIZES = (0.7, 0.1, 0.2)
FEWEST = 10  # molecules of a class in training and in test rows
FAR = 0.4
METRICS = ("pr_auc", "roc_auc", "nll", "ece")
NEIGHBORS = 5
BINS = (0.0, 0.3, 0.4, 0.6, 1.01)  # of the similarity to the nearest learned molecule
BIN_NAMES = ("below 0.3", "0.3 to 0.4", "0.4 to 0.6", "above 0.6")
BASE_RATE = "base rate"
DEFAULT = ("both", "network", "process")
TASK = Task("y", "binary", ("0", "1"))


def labeled(data: Path, name: str, most: int) -> pd.DataFrame:
    """Return SMILES and classes 0 and 1 of a table."""
    frame = table(data, TABLES[name], 100_000)
    if name in POTENCY:
        frame["y"] = frame["y"] > frame["y"].median()
    frame["y"] = frame["y"].astype(int)
    return frame if len(frame) <= most else frame.sample(most, random_state=0)


def bit_similarity(smiles: list[str]) -> NDArray[np.float32]:
    """Return the Tanimoto similarity of the bits of Morgan fingerprints, ``[n, n]``."""
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    mols = map(Chem.MolFromSmiles, smiles)
    bits = np.array([generator.GetFingerprintAsNumPy(mol) for mol in mols], dtype=np.float32)
    common = bits @ bits.T
    total = bits.sum(axis=1)
    return common / np.maximum(total[:, None] + total - common, 1.0)


def far_split(smiles: list[str], similarity: NDArray[np.float32], seed: int) -> Split:
    """Split so that no other molecule is near to a test molecule."""
    near = similarity >= FAR
    is_test = np.zeros(len(smiles), dtype=bool)
    is_free = ~is_test
    for row in np.random.default_rng(seed).permutation(len(smiles)):
        joining = near[row] & is_free
        if is_free[row] and (is_test | joining).sum() <= round(SIZES[2] * len(smiles)):
            is_test |= joining
            is_free &= ~joining
    rest = np.flatnonzero(~near[is_test].any(axis=0))
    groups = same_molecule([smiles[row] for row in rest])
    sizes = (SIZES[0] / (1.0 - SIZES[2]), SIZES[1] / (1.0 - SIZES[2]), 0.0)
    inner = group_split(groups, sizes=sizes, seed=seed, balanced=False)
    return Split(rest[inner.train], rest[inner.val], np.flatnonzero(is_test))


def splits(smiles: list[str], labels: Any, similarity: Any) -> dict[str, list[Split]]:
    """Return folds of each kind of split: those of the first seeds with enough of each class."""
    scaffolds = same_scaffold(smiles)
    makers: dict[str, Callable[[int], Split]] = {
        "scaffold": lambda seed: group_split(scaffolds, sizes=SIZES, seed=seed, balanced=True),
        "far": lambda seed: far_split(smiles, similarity, seed),
    }

    def folds_of(kind: str) -> Iterator[Split]:
        for seed in range(100):
            split = makers[kind](seed)
            counts = [np.bincount(labels[rows], minlength=2) for rows in (split.train, split.test)]
            if np.min(counts) >= FEWEST:
                yield split

    return {kind: [*islice(folds_of(kind), FOLDS)] for kind in SPLITS}


def dataset(data: Path, name: str, most: int, kept: Path) -> tuple[Dataset, Any]:
    """Return a table with its splits, which are written for other methods, and similarities."""
    frame = labeled(data, name, most)
    smiles = frame["smiles"].tolist()
    similarity = bit_similarity(smiles)
    parts = splits(smiles, frame["y"].to_numpy(), similarity)
    rows = {
        kind: [{part: x.tolist() for part, x in split._asdict().items()} for split in several]
        for kind, several in parts.items()
    }
    frame.to_csv(kept / f"{name}.csv", index=False)
    (kept / f"{name}.json").write_text(json.dumps(rows) + "\n", encoding="utf-8")
    labels = frame["y"].to_numpy(dtype=np.float64)
    return Dataset(name, smiles, labels, list(range(len(smiles))), TASK, rows), similarity


def reading(name: str, data: Dataset) -> tuple[TrainConfig, TrainingTable, Any]:
    """Read a table as a training does, with the inputs of boosted trees; return also the base."""
    options: Any = {"target_columns": ("y",), "device": "cpu", "task": "classification"}
    options["init_from"] = "base-minimol" if name in MINIMOL else "base"
    config, base = load_pretrained(TrainConfig.from_options("", options))
    frame = pd.DataFrame({"smiles": data.smiles, "y": data.labels.astype(int)})
    return config, read_rows(config, frame=frame), base


def parts_of(run: TrainingRun, similarity: NDArray[np.float32]) -> dict[str, Any]:
    """Return what the parts of a trained model say of all rows, and what they are fitted on."""
    model = run.model
    head = model.gaussian_process
    assert head is not None
    rows = np.concatenate(run.split)
    records = run.table.molecules(rows).records
    network, inputs = model.networks.predict(records)
    learned = np.arange(len(run.split.train) + len(run.split.val))
    first = np.arange(len(run.split.train))
    labels = run.table.targets[rows]
    earlier = GaussianProcessHead.fit(model.config, inputs[first], labels[first])
    process = head.predict(inputs)
    process[: len(learned)] = earlier.predict(inputs[learned])
    both = model.predictor.with_gaussian_process(network, inputs)
    kernel = MoleculeKernel.fit(inputs[learned], learned, count_kinds(model.config))
    prints = run.table.fingerprints(rows)
    return {
        "sizes": np.array([len(part) for part in run.split]),
        "labels": labels[:, 0],
        "network": network.mean(axis=0)[:, 0],
        "process": process[:, 0],
        "both": model.predictor.values(both)[:, 0],
        "share": head.shares,
        "embedding": inputs.numbers["embedding"],
        "kernel": kernel(inputs, rounded=True).astype(np.float32),
        "bits": similarity[np.ix_(rows, rows[learned])],
        "counts": FingerprintIndex([prints[row] for row in learned]).similarities(prints),
    }


def scaled(logits: Array, parts: dict[str, Any]) -> Array:
    """Return probabilities of the test rows, scaled by the validation rows."""
    first, held_out, _ = parts["sizes"].cumsum()
    pairs = np.column_stack([np.zeros(len(logits)), logits])
    rows = slice(first, held_out)
    scaling = ProbabilityScaling.fit_validated(pairs[rows], parts["labels"][rows].astype(int))
    return scaling(pairs[held_out:])[:, 1]


def logistic(parts: dict[str, Any]) -> Array:
    learned = parts["sizes"][:2].sum()
    options = dict[str, Any](
        Cs=np.logspace(-4, 1, 6),
        cv=5,
        scoring="neg_log_loss",
        max_iter=500,
        use_legacy_attributes=False,
        l1_ratios=(0.0,),
    )
    model = make_pipeline(StandardScaler(), LogisticRegressionCV(**options))
    model.fit(parts["embedding"][:learned], parts["labels"][:learned])
    return model.predict_proba(parts["embedding"][learned:])[:, 1]


def boosted(parts: dict[str, Any]) -> Array:
    """Predict by trees whose number the validation rows choose."""
    first, held_out, _ = parts["sizes"].cumsum()
    numbers = parts["numbers"]
    numbers = numbers[:, np.ptp(numbers[:first], axis=0) > 0]
    options = dict[str, Any](
        learning_rate=0.05,
        max_iter=1000,
        max_features=0.5,
        max_bins=63,
        early_stopping=True,
        n_iter_no_change=50,
        random_state=0,
    )
    model = HistGradientBoostingClassifier(**options)
    labels = parts["labels"]
    validation = {"X_val": numbers[first:held_out], "y_val": labels[first:held_out]}
    model.fit(numbers[:first], labels[:first], **validation)
    return model.predict_proba(numbers[held_out:])[:, 1]


def nearest(parts: dict[str, Any]) -> Array:
    """Predict the mean of the nearest, by similarity, with the base rate at weight 1."""
    learned = parts["sizes"][:2].sum()
    similarity = parts["bits"][learned:]
    labels = parts["labels"][:learned]
    rows = np.argsort(-similarity, axis=1, kind="stable")[:, :NEIGHBORS]
    weights = np.take_along_axis(similarity, rows, axis=1)
    total = (weights * labels[rows]).sum(axis=1) + labels.mean()
    return total / (weights.sum(axis=1) + 1.0)


def results_of(case: Case, model: str, probabilities: Array, seconds: float) -> list[Result]:
    """Return the rows of a model; the test rows are in the order of the split."""
    truth = case.labels[case.rows["test"]]
    scores = score_tasks(probabilities[:, None], truth[:, None], [TASK]).tasks["y"]
    package = "molattn" if model in DEFAULT else "scikit-learn"
    facts = {
        "kind": package,
        "train_rows": len(case.rows["train"]),
        "cpu_seconds": round(seconds, 2),
        "wall_seconds": round(seconds, 2),
        "version": f"{package} {version(package)}",
        "options": "{}",
        "digest": case.digest(),
    }
    key: Any = RunKey(model=model, **case.key._asdict())
    return [
        Result(**key._asdict(), metric=metric, value=scores[metric], **facts)
        for metric in METRICS
        if scores[metric] is not None
    ]


PARTS: dict[str, Callable[[dict[str, Any]], Array]] = {
    "both": lambda parts: parts["both"][parts["sizes"][:2].sum() :],
    "network": lambda parts: scaled(parts["network"], parts),
    "process": lambda parts: scaled(parts["process"], parts),
    "logistic": logistic,
    "boosted": boosted,
    "nearest": nearest,
}


def run_case(case: Case, job: TrainingJob, similarity: Any, kept: Path) -> list[Result]:
    """Train the default, score its parts, and keep what they say."""
    start = time.process_time()
    parts = parts_of(train_on_split(job), similarity)
    numbers: Any = job.table.baseline_numbers
    parts["numbers"] = numbers[np.concatenate(job.split)]
    seconds = time.process_time() - start
    lines = []
    for model, predict in PARTS.items():
        start = time.process_time()
        parts[f"p_{model}"] = predict(parts)
        own = time.process_time() - start
        lines += results_of(case, model, parts[f"p_{model}"], own + seconds * (model in DEFAULT))
    del parts["numbers"]
    np.savez(kept / f"{case.data}_{case.split}_{case.seed}.npz", **parts)
    print(case.key, f"{seconds:.0f} s", flush=True)
    return lines


def run(options: argparse.Namespace) -> None:
    """Train and score what is not in the results yet, the first fold of all tables first."""
    torch.set_num_threads(1)
    results = Results(options.results)
    options.kept.mkdir(parents=True, exist_ok=True)
    for fold in range(options.folds):
        for name in options.tables:
            data, similarity = dataset(options.data, name, options.rows, options.kept)
            cases = [case_of(data, kind, fold) for kind in SPLITS]
            done = {row.case for row in results.read() if row.model in PARTS}
            cases = [case for case in cases if case.key not in done]
            if cases:
                config, rows, base = reading(name, data)
            for case in cases:
                split = Split(*(np.array(case.rows[part]) for part in ("train", "val", "test")))
                job = TrainingJob(config, rows, split, base)
                results.add(run_case(case, job, similarity, options.kept))


def tested_rows(kept: Path) -> pd.DataFrame:
    """Return what each part says of the test rows of all splits that were run."""
    frames = []
    for path in sorted(kept.glob("*.npz")):
        name, split, _ = path.stem.rsplit("_", 2)
        parts = np.load(path)
        learned = parts["sizes"][:2].sum()
        columns = {model: parts[f"p_{model}"] for model in PARTS}
        columns[BASE_RATE] = np.full(parts["sizes"][2], parts["labels"][:learned].mean())
        columns["label"] = parts["labels"][learned:]
        columns["similarity"] = parts["bits"][learned:].max(axis=1)
        frames.append(pd.DataFrame(columns).assign(table=name, split=split))
    rows = pd.concat(frames, ignore_index=True)
    rows["similarity"] = pd.cut(rows["similarity"], BINS, right=False, labels=BIN_NAMES).astype(str)
    return rows


def distance(options: argparse.Namespace) -> None:
    """Score the parts by kind of split and by similarity, for each table and for all as one."""
    rows = tested_rows(options.kept)
    lines = []
    for column in ("split", "similarity"):
        for (group, name), frame in [
            *rows.groupby([column, "table"]),
            *rows.assign(table="all").groupby([column, "table"]),
        ]:
            truth = frame[["label"]].to_numpy()
            fewest = np.bincount(truth[:, 0].astype(int), minlength=2).min()
            for model in (*PARTS, BASE_RATE):
                values = score_tasks(frame[[model]].to_numpy(), truth, [TASK]).tasks["y"]
                defined = {metric: values[metric] for metric in METRICS}
                if model == BASE_RATE:
                    defined |= {"pr_auc": np.nan, "roc_auc": np.nan}
                if fewest >= FEWEST:
                    keys = {"group": group, "table": name, "model": model, "rows": len(frame)}
                    lines.append(keys | defined)
    pd.DataFrame(lines).to_csv(options.output, index=False, float_format="%.4f")


def intervals(options: argparse.Namespace) -> None:
    """Print how wide intervals of probabilities are, by kind of split and by similarity."""
    frames = []
    for path in sorted(options.kept.glob("*.npz")):
        name, split, _ = path.stem.rsplit("_", 2)
        parts = dict(np.load(path))
        low, high = class_calibration.interval_ends(parts)
        learned = parts["sizes"][:2].sum()
        similarity = parts["bits"][learned:].max(axis=1)
        columns = {"low": low, "high": high, "width": high - low, "similarity": similarity}
        frames.append(pd.DataFrame(columns).assign(table=name, split=split))
    rows = pd.concat(frames, ignore_index=True)
    rows["similarity"] = pd.cut(rows["similarity"], BINS, right=False, labels=BIN_NAMES).astype(str)
    for column in ("split", "similarity"):
        means = rows.groupby([column, "table"])[["low", "high", "width"]].mean()
        print(means.groupby(column).agg(["mean", "sem"]).round(3).to_string())


def mean_and_error(values: pd.Series) -> str:
    return f"{values.mean():+.3f} ± {values.sem():.3f}"


def compare(options: argparse.Namespace) -> None:
    """Print means over tables, and differences to the default with their standard errors."""
    rows = pd.DataFrame(Results(options.results).read())
    rows = rows.rename(columns={"data": "table", "split": "group"})
    means: Any = rows.pivot_table("value", ["group", "table"], ["metric", "model"])
    for kind in SPLITS:
        print(f"\n{kind}: {len(means.loc[kind])} tables\n")
        print_differences(means.loc[kind], METRICS)
    rows = pd.read_csv(options.distance)
    is_all = rows["table"] == "all"
    for group in BIN_NAMES:
        of_group = rows[(rows["group"] == group) & ~is_all]
        of_tables = of_group.dropna().pivot_table(["roc_auc", "nll"], "table", "model")
        print(f"\nsimilarity {group}: {len(of_tables)} tables\n")
        if len(of_tables):
            print_differences(of_tables, ("roc_auc", "nll"))
    print("\nExpected calibration error of all tables as one\n")
    pooled = rows[is_all].pivot_table("ece", "model", "group")
    pooled = pooled.reindex(columns=[*SPLITS, *BIN_NAMES])
    cells = [[model, *(f"{value:.3f}" for value in line)] for model, line in pooled.iterrows()]
    print(markdown_table(["", *pooled.columns], cells))


def print_differences(values: pd.DataFrame, metrics: Sequence[str]) -> None:
    """Print scores ``[tables, (metric, model)]``: of the default, and of others less these."""
    models = dict.fromkeys([*PARTS, *(model for _, model in values.columns)])
    cells = []
    for model in models:
        changes = [values[metric, model] - values[metric, "both"] for metric in metrics]
        texts = map(mean_and_error, changes)
        if model == "both":
            texts = (f"{values[metric, model].mean():.3f}" for metric in metrics)
        tables = int(changes[0].count())
        fewer = f" ({tables} tables)" if tables < len(values) else ""
        if tables > 1:
            cells.append([f"{model}{fewer}", *texts])
    print(markdown_table(["", *metrics], cells))


def calibration(options: argparse.Namespace) -> None:
    """Score candidates for probabilities, and print what today's are like near and far."""
    tables = TABLE_SETS[options.tables]
    cases = []
    for path in sorted(options.kept.glob("*.npz")):
        name, split, _ = path.stem.rsplit("_", 2)
        parts = dict(np.load(path))
        cases.append(class_calibration.tested(name, split, parts))
    chosen_on = tables if options.tables == "all" else CHOICE
    class_calibration.add_all_shrunk(cases, chosen_on)
    cases = [case for case in cases if case.table in tables]
    scores = class_calibration.scores(cases)
    scores.to_csv(options.output, index=False, float_format="%.4f")
    explanations = {}
    for kind in SPLITS:
        of_kind = [case for case in cases if case.split == kind]
        print(f"\n{kind}: {len(of_kind)} tables\n")
        headings = ["", *METRICS, "ECE of all tables"]
        print(markdown_table(headings, class_calibration.candidate_cells(of_kind, scores)))
        print(f"\n{class_calibration.reliability(of_kind).to_string(float_format='%.2f')}")
        explanations[kind] = class_calibration.explained(of_kind)
    print(f"\n{pd.DataFrame(explanations).to_string()}")
    seconds = class_calibration.fit_seconds(parts)
    print("\nCPU seconds of a fit, today's and Laplace's:", *(f"{value:.3f}" for value in seconds))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    running = commands.add_parser("run")
    running.add_argument("data", type=Path)
    running.add_argument("kept", type=Path, help="folder for tables, splits and outputs of parts")
    running.add_argument("results", type=Path)
    running.add_argument("--tables", nargs="+", choices=TABLES, default=[*TABLES])
    running.add_argument("--rows", type=int, default=1500, help="at most (default: %(default)s)")
    running.add_argument("--folds", type=int, default=FOLDS, choices=range(1, FOLDS + 1))
    running.set_defaults(command=run)
    scoring = commands.add_parser("distance")
    scoring.add_argument("kept", type=Path)
    scoring.add_argument("output", type=Path)
    scoring.set_defaults(command=distance)
    comparing = commands.add_parser("compare")
    comparing.add_argument("results", type=Path)
    comparing.add_argument("distance", type=Path)
    comparing.set_defaults(command=compare)
    calibrating = commands.add_parser("calibration")
    calibrating.add_argument("kept", type=Path)
    calibrating.add_argument("output", type=Path)
    calibrating.add_argument("--tables", choices=TABLE_SETS, default="choice")
    calibrating.set_defaults(command=calibration)
    measuring = commands.add_parser("intervals")
    measuring.add_argument("kept", type=Path)
    measuring.set_defaults(command=intervals)
    options = parser.parse_args()
    options.command(options)


if __name__ == "__main__":
    main()
