"""Compare the model of all ADMET properties with a model of each, on the same molecules.

    python -m scripts.models.train_admet FOLDER --output runs/admet
    python -m scripts.accuracy.compare_admet runs/admet --fold 1 --tasks caco2_wang dili herg

For each property `molattn train` with its default options learns from the molecules that the
multi-task model of the fold has learned from, a tenth of them at random for validation, and both
are scored on the molecules of the fold. Standard errors are those of the paired difference, by 500
bootstrap samples of these. Finished trainings are kept in RUN/single.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from molattn.evaluation.report.tables import format_score
from scripts.accuracy.development import SCORES, main_scores

RESAMPLES = 500


def trained(run: Path, fold: int, task: str, tested: pd.Series) -> pd.DataFrame:
    """Train on the labels of a task outside the fold; return the predictions within it."""
    folder = run / "single" / f"{task}_{fold}"
    if not (folder / "metrics.json").is_file():
        folder.parent.mkdir(exist_ok=True)
        table = pd.read_csv(run / "admet.csv", dtype=str)[["smiles", task]].dropna()
        is_validation = np.random.default_rng(fold - 1).random(len(table)) < 0.1
        table["split"] = np.where(is_validation, "validation", "train")
        table.loc[table["smiles"].isin(tested), "split"] = "test"
        path = folder.with_suffix(".csv")
        table.to_csv(path, index=False)
        options = ["--target-columns", task, "--split-column", "split", "--seed", str(fold - 1)]
        command = [sys.executable, "-m", "molattn", "train", path, *options]
        command += ["--no-baselines", "--output", folder]
        subprocess.run(command, check=True, stdout=sys.stderr)
    found = pd.read_csv(folder / "predictions.csv")
    return found[found["split"] == "test"].set_index("smiles")


def line(run: Path, fold: int, task: str) -> str:
    """Return a row of the table."""
    several = pd.read_csv(run / f"fold_{fold}" / "predictions.csv").set_index("smiles")
    one = trained(run, fold, task, several.index.to_series())
    column = f"{task}_probability" if f"{task}_probability" in one else f"{task}_predicted"
    target = one[task].to_numpy(float)
    predictions = several.loc[one.index, column].to_numpy(float), one[column].to_numpy(float)
    kind = "binary" if column.endswith("_probability") else "regression"
    metric = next(SCORES[key] for key in main_scores(task) if kind in SCORES[key].kinds)
    draws = np.random.default_rng(0).multinomial(
        len(target), np.full(len(target), 1 / len(target)), RESAMPLES
    )
    weights = np.vstack([np.ones(len(target)), draws]).astype(np.float64)
    both, single = (metric.function(target, one, weights) for one in predictions)
    error = np.nanstd((both - single)[1:])
    numbers = [
        format_score(both[0]),
        format_score(single[0]),
        f"{both[0] - single[0]:+.3f} ± {error:.3f}",
    ]
    return f"| {task} | {len(target)} | {metric.heading} | {' | '.join(numbers)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path, help="folder of a run of train_admet.py")
    parser.add_argument("--fold", type=int, default=1)
    parser.add_argument("--tasks", nargs="+", required=True)
    args = parser.parse_args()
    print("| Property | Molecules | Score | All properties | One | Difference |")
    print("| --- | ---: | --- | ---: | ---: | ---: |")
    for task in args.tasks:
        print(line(args.run, args.fold, task), flush=True)


if __name__ == "__main__":
    main()
