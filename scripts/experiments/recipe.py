"""Settings of the recipe: scores of scaffold folds of the default with each of them.

    python -m scripts.experiments.recipe DATA OUTPUT.csv [--group large] [--settings default ...]
    python -m scripts.experiments.recipe DATA OUTPUT.csv --group eighteen --init-from PRETRAINED

DATA is a folder of bace.csv, freesolv.csv and training parts, admet/ and potency/. Twelve sets are
the default, of each at most 1,000 molecules; bases are compared on `eighteen`. The groups `small`
and `large`, of classes, start from base-minimol, as the teacher of base saw their labels.
`--init-from` starts from another model: give it an OUTPUT of its own. By default there are 30
epochs, for the large ones 10 (AMES 15). Rows that OUTPUT has are not done again.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import pandas as pd

import molattn
from molattn.api import TrainingResult

GROUPS = {
    "twelve": "admet/caco2_wang admet/clearance_microsome_az admet/ppbr_az "
    "admet/lipophilicity_astrazeneca freesolv potency/CHEMBL218_EC50 potency/CHEMBL262_Ki "
    "potency/CHEMBL2971_Ki potency/CHEMBL4005_Ki admet/herg admet/bioavailability_ma bace",
    "eighteen": "admet/caco2_wang admet/lipophilicity_astrazeneca admet/ppbr_az "
    "admet/clearance_microsome_az admet/herg admet/bioavailability_ma bace freesolv "
    "potency/CHEMBL218_EC50 potency/CHEMBL219_Ki potency/CHEMBL238_Ki potency/CHEMBL239_EC50 "
    "potency/CHEMBL244_Ki potency/CHEMBL262_Ki potency/CHEMBL264_Ki potency/CHEMBL2971_Ki "
    "potency/CHEMBL4005_Ki potency/CHEMBL4792_Ki",
    "small": "admet/bbb_martins admet/dili admet/hia_hou admet/pgp_broccatelli "
    "admet/cyp2c9_substrate_carbonmangels admet/cyp2d6_substrate_carbonmangels "
    "admet/cyp3a4_substrate_carbonmangels",
    "large": "admet/cyp2c9_veith admet/cyp2d6_veith admet/ames",
}
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "rate of the encoder .25": {"backbone_lr_scale": 0.25},
    "weight decay 1": {"weight_decay": 1.0},
    "weight decay 3": {"weight_decay": 3.0},
    "weight decay 10": {"weight_decay": 10.0},
    **{f"{count} epochs": {"epochs": count} for count in (5, 8, 20, 30, 60)},
    "Huber's loss": {"loss": "huber"},
}
FIXED = {"split": "scaffold", "folds": 3, "device": "cpu", "baselines": False, "bootstrap": 0}
MOST = 1000


def table(data: Path, name: str, most: int) -> pd.DataFrame:
    """Return smiles and y of a set, some of its rows when it has more."""
    path = next(data.glob(f"{name}.csv*"))
    found = pd.read_csv(path).iloc[:, :2].set_axis(["smiles", "y"], axis=1)
    return found if len(found) <= most else found.sample(most, random_state=0)


def scores(result: TrainingResult) -> dict[str, float]:
    """Return the MAE of the test rows, or what ROC-AUC lacks to 1, and the coverage at .9."""
    found = result.scores["y"]
    if "roc_auc" in found:
        return {"error": 1.0 - found["roc_auc"]}
    intervals = result.run_scores.metrics.uncertainty["y"]
    return {"error": found["mae"], "coverage": intervals["coverage"]}


def main() -> None:
    """Train each fold of each set with each setting, and write the errors as they come."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--group", choices=GROUPS, default="twelve")
    parser.add_argument("--folds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=["default"])
    parser.add_argument("--init-from", help="default: base, or base-minimol for classes")
    given = parser.parse_args()
    minimol = given.group in ("small", "large")
    base, most = ("base-minimol", 100_000) if minimol else ("base", MOST)
    base = given.init_from or base
    rows: list[Any] = []
    if given.output.exists():
        rows = pd.read_csv(given.output).to_dict("records")
    done = {(row["set"], row["fold"], row["setting"]) for row in rows}
    for fold in given.folds:
        for name in GROUPS[given.group].split():
            for setting in given.settings:
                if (name, fold, setting) in done:
                    continue
                options = {**FIXED, "only_fold": fold, "init_from": base, **SETTINGS[setting]}
                start = time.perf_counter()
                result = molattn.train(table(given.data, name, most), "y", **options)
                row = {"group": given.group, "set": name, "fold": fold, "setting": setting}
                seconds = round(time.perf_counter() - start, 1)
                rows.append({**row, **scores(result), "seconds": seconds})
                pd.DataFrame(rows).to_csv(given.output, index=False)


if __name__ == "__main__":
    main()
