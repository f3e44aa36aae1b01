"""Whether molecules differ as a whole from the training molecules."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from molattn.chem.fingerprints import FINGERPRINT_SIZE, Fingerprint

MOST_COMPARED = 1000
"""Most molecules of a side."""
_FEWEST = 50
_NOTABLE = 0.6
_DAMPING = 9.0  # as much as the prior of a logistic regression with C = 0.1
_STEPS = 30


def shift_auc(
    training: Sequence[Fingerprint], others: Sequence[Fingerprint], seed: int = 0
) -> float | None:
    """Return how well a classifier tells molecules from training molecules: 0.5 is not at all.

    The area under the ROC curve of a linear classifier (ridge regression) on Morgan counts, in
    three folds with at most 1,000 molecules of each side, drawn at random; None with fewer than 50.

    Source: Lopez-Paz and Oquab, ICLR 2017, arXiv:1610.06545.
    """
    sizes = [min(len(side), MOST_COMPARED) for side in (training, others)]
    if min(sizes) < _FEWEST:
        return None
    from scipy.sparse.linalg import lsqr

    rng = np.random.default_rng(seed)
    fingerprints: list[NDArray[Any]] = []
    for side, size in zip((training, others), sizes, strict=True):
        drawn = rng.choice(len(side), size, replace=False).tolist()
        fingerprints += [np.append(side[n], FINGERPRINT_SIZE) for n in drawn]  # with an intercept
    rows = np.repeat(np.arange(len(fingerprints)), [*map(len, fingerprints)])
    shape = len(fingerprints), FINGERPRINT_SIZE + 1
    counts = sparse.csr_matrix((np.ones(len(rows)), (rows, np.concatenate(fingerprints))), shape)
    counts.data = np.sqrt(counts.data)
    labels = np.repeat([-1.0, 1.0], sizes)
    folds = np.concatenate([np.arange(n) for n in sizes]) % 3
    weights = np.sqrt(sum(sizes) / np.repeat(sizes, sizes))
    areas: list[float] = []
    for fold in range(3):
        fitted = folds != fold
        tested = folds == fold
        weighted = sparse.diags(weights[fitted]) @ counts[fitted]
        solution = lsqr(weighted, weights[fitted] * labels[fitted], damp=_DAMPING, iter_lim=_STEPS)
        scores = counts[tested] @ solution[0]
        is_other = labels[tested] > 0.0
        low = np.sort(scores[~is_other])
        high = scores[is_other]
        below = np.searchsorted(low, high) + np.searchsorted(low, high, "right")
        areas.append(float(below.mean() / (2 * len(low))))  # ties by half
    return float(np.mean(areas))


def shift_lines(auc: float | None, molecules: str) -> list[str]:
    """Return a line for the log that describes a shift; no line for an AUC below 0.6."""
    if auc is None or auc < _NOTABLE:
        return []
    remark = f"shift: a classifier tells {molecules} from training molecules (AUC {auc:.2f})"
    return [f"{remark}: errors can be larger than on similar molecules, and intervals too narrow"]
