"""Development sets of ``../shared/data``: which folders hold them, their folds and their scores.

``potency`` has columns ``smiles``, ``target`` and ``cliff`` (1 for an activity cliff), the training
rows of MoleculeACE (van Tilborg et al., J. Chem. Inf. Model. 2022, 62, 5938). ``admet`` has
``smiles`` and ``target``, the training and validation rows of TDC's ADMET group (Huang et al.,
NeurIPS Datasets and Benchmarks 2021), each task with the metric of its leaderboard.
"""

from pathlib import Path

from molattn.evaluation.scores.metrics import METRICS, Metric

METHODS = {"potency": "random", "admet": "scaffold"}
"""Type of split of each folder."""
FOLDS = 5
SEED = 0
CLIFF = "cliff"
"""Column of activity cliffs."""
CLIFF_RMSE = "cliff_rmse"

SCORES = {
    **METRICS,
    CLIFF_RMSE: Metric(METRICS["rmse"].function, ("regression",), "RMSE, cliffs"),
}
"""Every score of a results file by name."""

_MAIN = ("rmse", CLIFF_RMSE, "roc_auc")
_MAE = "caco2_wang ld50_zhu lipophilicity_astrazeneca ppbr_az solubility_aqsoldb"
_SPEARMAN = "clearance_hepatocyte_az clearance_microsome_az half_life_obach vdss_lombardo"
_PR_AUC = (
    "cyp2c9_substrate_carbonmangels cyp2c9_veith cyp2d6_substrate_carbonmangels cyp2d6_veith "
    "cyp3a4_veith"
)
_OTHERS = {
    name: (metric,)
    for metric, names in (("mae", _MAE), ("spearman", _SPEARMAN), ("pr_auc", _PR_AUC))
    for name in names.split()
}


def main_scores(data: str) -> tuple[str, ...]:
    """Return the scores of a dataset that tables show: RMSE or ROC-AUC unless its task says else.

    Args:
        data: Its name.
    """
    return _OTHERS.get(data, _MAIN)


def find_set(shared: Path, name: str) -> Path | None:
    """Return the file of a development set, None if there is none of this name."""
    paths = (shared / folder / f"{name}.csv.gz" for folder in METHODS)
    return next((path for path in paths if path.is_file()), None)
