"""Whether molecules differ as a whole from the training molecules."""

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from molattn.chem.fingerprints import FINGERPRINT_SIZE, Fingerprint

MOST_COMPARED = 1000
"""Most molecules of a side."""
_FEWEST, _NOTABLE = 50, 0.6


def shift_auc(
    training: Sequence[Fingerprint], others: Sequence[Fingerprint], seed: int = 0
) -> float | None:
    """Return how well a classifier tells molecules from training molecules: 0.5 is not at all.

    The area under the ROC curve of a logistic regression on Morgan counts, in three folds with at
    most 1,000 molecules of each side, drawn at random; None with fewer than 50.

    Source: Lopez-Paz and Oquab, ICLR 2017, arXiv:1610.06545.
    """
    sizes = [min(len(side), MOST_COMPARED) for side in (training, others)]
    if min(sizes) < _FEWEST:
        return None
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_score

    rng, prints = np.random.default_rng(seed), list[Fingerprint]()
    for side, size in zip((training, others), sizes, strict=True):
        prints += [side[n] for n in rng.choice(len(side), size, replace=False).tolist()]
    rows = np.repeat(np.arange(len(prints)), [len(one) for one in prints])
    shape = len(prints), FINGERPRINT_SIZE
    counts = sparse.csr_matrix((np.ones(len(rows)), (rows, np.concatenate(prints))), shape)
    counts.data = np.sqrt(counts.data)
    folds = StratifiedKFold(3, shuffle=True, random_state=seed)
    model = LogisticRegression(C=0.1, solver="liblinear", class_weight="balanced")
    labels, options = np.repeat([0, 1], sizes), {"scoring": "roc_auc", "cv": folds}
    return float(cross_val_score(model, counts, labels, **options).mean())


def shift_lines(auc: float | None, molecules: str) -> list[str]:
    """Return what a shift means as a line for the log; none below 0.6."""
    if auc is None or auc < _NOTABLE:
        return []
    told = f"shift: a classifier tells {molecules} from training molecules (AUC {auc:.2f})"
    return [f"{told}: errors can be larger than on similar molecules, and intervals too narrow"]
