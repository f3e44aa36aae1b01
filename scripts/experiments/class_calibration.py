r"""Candidates for the probabilities of classes, near and far, on the arrays that ``classes`` keeps.

No network is trained. A candidate says logits of the test rows of a split:

- *shrunk*: :math:`b + g (z - b)` with the logit z, the base rate b of the training rows and
  :math:`g(s) = \min(1, c (1 - r^s) / (1 - r))` at a similarity s to the nearest training molecule,
  as the expected errors of numbers grow; of logits or of probabilities. r, and c where it is not 1,
  have the least log loss on the other tables to choose on, or r is that of
  :func:`molattn.model.confidence.least_error`.
- *last scaling*: without it, with a scale of at most 1, or with a prior on log(scale) that counts
  as much as 30 rows; where validation rows of other folds become more likely, as today, or always.
- *logistic*: a third or half of the logit of a logistic regression on the embedding, where the
  similarity is below 0.3.
- *Laplace*: a Gaussian process of the Bernoulli likelihood (Rasmussen and Williams 2006, algorithm
  3.1, equations 3.21 to 3.24), its scale by the marginal likelihood; the mean at the mode, or
  divided by :math:`\sqrt{1 + \pi v / 8}` with the variance v. Scaled and combined as today's.
"""

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize
from scipy.special import expit, logit, ndtri

from molattn.evaluation.scores.metrics import BINS, score_tasks
from molattn.model.confidence import least_error
from molattn.model.gaussian_process.process import Basis, GaussianProcess, Sums
from molattn.model.outputs import gaussian_process_shares
from molattn.task import Task

Array = NDArray[np.float64]

TASK = Task("y", "binary", ("0", "1"))
TODAY = "today"
UNSCALED = "no last scaling"
METRICS = ("pr_auc", "roc_auc", "nll", "ece")
BELOW = 0.3
MEAN = 25.0  # variance of the constant term of Laplace's approximation
CURVES = np.exp(-np.geomspace(0.3, 40.0, 25))  # r
FACTORS = (0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 2.0)  # c
RESAMPLES = 1000
LEVEL = 0.9  # of intervals of probabilities


class Tested(NamedTuple):
    """The test rows of a split, and what candidates say of them."""

    table: str
    split: str
    labels: Array
    similarity: Array  # of counts, to the nearest training or validation molecule
    base: float  # logit of the base rate
    logits: dict[str, Array]


def losses(logits: Array, labels: Array) -> Array:
    return np.logaddexp(0.0, (1.0 - 2.0 * labels) * logits)


def platt(
    logits: Array, labels: Array, most: float | None = None, prior_rows: float = 0.0
) -> tuple[float, float]:
    """Fit scale and bias as ``ProbabilityScaling.fit``, whose two biases are one difference here.

    The prior counts as many rows as ``prior_rows``, of the mean curvature at a scale of 1.
    """
    probabilities = expit(logits)
    curvature = np.mean(probabilities * (1.0 - probabilities) * logits**2)

    def loss(parameters: Array) -> tuple[float, Array]:
        log_scale, bias = parameters
        scaled = np.exp(log_scale) * logits
        strength = 1.0 + prior_rows * curvature
        residual = expit(scaled + bias) - labels
        value = losses(scaled + bias, labels).sum()
        value += 0.5 * strength * log_scale**2 + 0.25 * bias**2
        slope = [residual @ scaled + strength * log_scale, residual.sum() + 0.5 * bias]
        return value, np.array(slope)

    bounds = [(-5.0, 5.0 if most is None else np.log(most)), (-9.0, 9.0)]
    log_scale, bias = minimize(loss, np.zeros(2), jac=True, bounds=bounds).x
    return float(np.exp(log_scale)), float(bias)


def validated(logits: Array, labels: Array, **options: Any) -> tuple[float, float]:
    """Fit as ``ProbabilityScaling.fit_validated``."""
    fold = np.arange(len(labels)) % 5
    gain = 0.0
    for number in range(5):
        rows = fold == number
        scale, bias = platt(logits[~rows], labels[~rows], **options)
        after = losses(scale * logits[rows] + bias, labels[rows])
        gain += (losses(logits[rows], labels[rows]) - after).sum()
    return platt(logits, labels, **options) if gain > 0.0 else (1.0, 0.0)


def mode(kernel: Array, labels: Array) -> tuple[float, Array, Array, Array, Array]:
    """Return log evidence, dual coefficients, mode, weights and Cholesky factor at the mode."""
    latent = np.zeros(len(labels))
    best = -np.inf
    while True:
        probabilities = expit(latent)
        weights = probabilities * (1.0 - probabilities) + 1e-10
        root = np.sqrt(weights)
        factor = cholesky(np.eye(len(labels)) + root[:, None] * kernel * root, lower=True)
        target = weights * latent + labels - probabilities
        dual = target - root * cho_solve((factor, True), root * (kernel @ target))
        latent = kernel @ dual
        objective = -0.5 * dual @ latent - losses(latent, labels).sum()
        if objective - best < 1e-5:
            evidence = objective - np.log(np.diag(factor)).sum()
            return evidence, dual, latent, weights, factor
        best = objective


def laplace(kernel: Array, labels: Array) -> tuple[Array, Array, Array, Array]:
    """Return mean and variance of all rows ``[n]``, and of learned rows without their own label."""
    count = len(labels)
    scales = np.geomspace(0.3, 100.0, 9)
    fits = [(scale, *mode(scale * kernel[:count] + MEAN, labels)) for scale in scales]
    scale, _, dual, latent, weights, factor = max(fits, key=lambda fit: fit[1])
    scaled = scale * kernel + MEAN
    along = solve_triangular(factor, np.sqrt(weights)[:, None] * scaled.T, lower=True)
    variance = np.maximum(scale + MEAN - (along**2).sum(axis=0), 1e-6)
    unseen_variance = 1.0 / np.maximum(1.0 / variance[:count] - weights, 1e-6)
    unseen = latent - unseen_variance * (labels - expit(latent))
    return scaled @ dual, variance, unseen, unseen_variance


def squared(kernel: Array, labels: Array) -> tuple[GaussianProcess, Array]:
    """Fit the process of squared error, as today; return also the features of all rows."""
    basis = Basis.of(kernel[: len(labels)])
    features = basis(kernel)
    sums = Sums(features.shape[1], 1)
    sums.add(features[: len(labels)], 2.0 * labels[:, None] - 1.0, np.ones(len(labels)))
    return GaussianProcess.fit(sums, 0, basis.values, None), features


def interval_ends(parts: dict[str, Any]) -> Array:
    """Return intervals of the probabilities of test rows, as the package has them, ``[2, n]``."""
    first, held_out, _ = parts["sizes"].cumsum()
    kernel = parts["kernel"].astype(np.float64)
    labels = parts["labels"]
    process, features = squared(kernel, labels[:held_out])
    learned = 2.0 * labels[:held_out] - 1.0
    unseen = process.leave_one_out(features[:held_out], learned, np.ones(held_out))
    scale, _ = platt(unseen, labels[:held_out])
    between = kernel[:held_out] + process.noise * np.eye(held_out)
    factor = cholesky(between, lower=True)
    explained = (solve_triangular(factor, kernel[held_out:].T, lower=True) ** 2).sum(axis=0)
    signal = (1.0 - process.mean**2) / (1.0 + process.noise)
    widths = ndtri((1.0 + LEVEL) / 2.0) * scale * np.sqrt(signal * np.maximum(1.0 - explained, 0.0))
    share = parts["share"][0]
    logits = (1.0 - share) * parts["network"] + share * parts["process"]
    last, bias = validated(logits[first:held_out], labels[first:held_out])
    middle = logits[held_out:]
    return expit(last * np.stack([middle - widths, middle + widths]) + bias)


def bernoulli(parts: dict[str, Any]) -> tuple[Array, Array]:
    """Return the logits of network and Laplace's approximation for validation and test rows.

    Of the first the process is the mean at the mode, of the second with its variance.
    """
    first, held_out, _ = parts["sizes"].cumsum()
    labels = parts["labels"]
    kernel = parts["kernel"].astype(np.float64)
    processes: tuple[list[Array], ...] = ([], [])
    for count, rows in ((first, slice(first, held_out)), (held_out, slice(held_out, None))):
        mean, variance, unseen, unseen_variance = laplace(kernel[:, :count], labels[:count])
        for factor, process in zip((0.0, np.pi / 8.0), processes, strict=True):
            moderated = mean[rows] / np.sqrt(1.0 + factor * variance[rows])
            logits = unseen / np.sqrt(1.0 + factor * unseen_variance)
            scale, bias = platt(logits, labels[:count])
            process.append(scale * moderated + bias)
    rows = slice(first, held_out)
    network = parts["network"]
    combined = []
    for process in processes:
        columns = [values[:, None] for values in (network[rows], process[0], labels[rows])]
        (share,) = gaussian_process_shares([TASK], *columns)
        combined.append((1.0 - share) * network[first:] + share * np.concatenate(process))
    return combined[0], combined[1]


def tested(table: str, split: str, parts: dict[str, Any]) -> Tested:
    """Return what all candidates but shrinkage say of the test rows of a split."""
    first, held_out, _ = parts["sizes"].cumsum()
    count = held_out - first
    held_out_labels = parts["labels"][first:held_out]
    share = parts["share"][0]
    combined = ((1.0 - share) * parts["network"] + share * parts["process"])[first:]
    found: dict[str, Array] = {}

    def add(name: str, logits: Array, fit: Callable[..., Any] = validated, **options: Any) -> None:
        scale, bias = fit(logits[:count], held_out_labels, **options)
        found[name] = scale * logits[count:] + bias

    add(TODAY, combined)
    found[UNSCALED] = combined[count:]
    add("last scale at most 1", combined, most=1.0)
    add("last scale at most 1, always", combined, platt, most=1.0)
    add("prior of 30 rows on it", combined, prior_rows=30.0)
    add("prior of 30 rows on it, always", combined, platt, prior_rows=30.0)
    is_far = parts["bits"][held_out:].max(axis=1) < BELOW
    logistic = logit(np.clip(parts["p_logistic"], 1e-6, 1.0 - 1e-6))
    for name, weight in (("a third", 1.0 / 3.0), ("half", 0.5)):
        change = weight * is_far * (logistic - found[TODAY])
        found[f"{name} logistic below .3"] = found[TODAY] + change
    at_mode, with_variance = bernoulli(parts)
    add("Laplace at the mode", at_mode)
    add("Laplace with variance", with_variance)
    labels = parts["labels"][held_out:]
    similarity = parts["counts"][held_out:].max(axis=1)
    base = float(logit(parts["labels"][:held_out].mean()))
    return Tested(table, split, labels, similarity, base, found)


def shrunk(rows: Tested, start: str, of_logits: bool, curve: float, factor: float = 1.0) -> Array:
    logits = rows.logits[start]
    kept = np.minimum(1.0, factor * (1.0 - curve**rows.similarity) / (1.0 - curve))
    if of_logits:
        return rows.base + kept * (logits - rows.base)
    mean = expit(rows.base)
    return logit(np.clip(mean + kept * (expit(logits) - mean), 1e-9, 1.0 - 1e-9))


def add_shrunk(
    cases: Sequence[Tested],
    tables: Collection[str],
    name: str,
    start: str,
    of_logits: bool,
    factors: Any,
) -> None:
    """Add a candidate of shrinkage whose parameters are fitted to these other tables."""
    grid = [(curve, factor) for curve in CURVES for factor in factors]
    logits = [[shrunk(rows, start, of_logits, *point) for point in grid] for rows in cases]
    pairs = zip(cases, logits, strict=True)
    values = np.array([[losses(z, rows.labels).mean() for z in several] for rows, several in pairs])
    for rows, several in zip(cases, logits, strict=True):
        others = [case.table != rows.table and case.table in tables for case in cases]
        rows.logits[name] = several[int(values[others].mean(axis=0).argmin())]


def add_all_shrunk(cases: Sequence[Tested], tables: Collection[str]) -> None:
    for start, suffix in ((TODAY, ""), (UNSCALED, f", {UNSCALED}")):
        add_shrunk(cases, tables, f"shrunk logits{suffix}", start, True, (1.0,))
        add_shrunk(cases, tables, f"shrunk probabilities{suffix}", start, False, (1.0,))
        own = float(least_error(np.array(1.0)))
        for rows in cases:
            rows.logits[f"shrunk by the least error{suffix}"] = shrunk(rows, start, True, own)
    add_shrunk(cases, tables, "shrunk logits, two parameters", TODAY, True, FACTORS)


def scores(cases: Sequence[Tested]) -> pd.DataFrame:
    """Return all scores, with a column of each metric."""
    lines = []
    for rows in cases:
        for name, logits in rows.logits.items():
            truth = rows.labels[:, None]
            values = score_tasks(expit(logits)[:, None], truth, [TASK]).tasks["y"]
            keys = {"table": rows.table, "split": rows.split, "candidate": name}
            lines.append(keys | {metric: values[metric] for metric in METRICS})
    return pd.DataFrame(lines)


def bins(logits: Array) -> NDArray[np.int64]:
    return np.minimum((expit(logits) * BINS).astype(int), BINS - 1)


def pooled_errors(
    logits: Sequence[Array], labels: Sequence[Array], samples: NDArray[np.int64]
) -> Array:
    """Return the expected calibration error of all tables as one, for samples of tables."""
    pairs = list(zip(logits, labels, strict=True))
    excess = [np.bincount(bins(z), expit(z) - y, minlength=BINS) for z, y in pairs]
    counts = np.array([len(y) for y in labels])
    return np.abs(np.array(excess)[samples].sum(axis=1)).sum(axis=1) / counts[samples].sum(axis=1)


def candidate_cells(cases: Sequence[Tested], table: pd.DataFrame) -> list[list[str]]:
    """Return a row of each candidate: differences to today's, with standard errors."""
    count = len(cases)
    rng = np.random.default_rng(0)
    samples = np.vstack([np.arange(count), rng.integers(count, size=(RESAMPLES, count))])
    labels = [rows.labels for rows in cases]
    errors = {
        name: pooled_errors([rows.logits[name] for rows in cases], labels, samples)
        for name in cases[0].logits
    }
    values = table[table["split"] == cases[0].split]
    values = values.pivot_table(list(METRICS), "table", "candidate")
    cells = []
    for name, pooled in errors.items():
        texts = []
        for metric in METRICS:
            change = values[metric, name] - values[metric, TODAY]
            texts.append(f"{change.mean():+.4f} ± {change.sem():.4f}")
        change = pooled - errors[TODAY]
        texts.append(f"{change[0]:+.4f} ± {change[1:].std():.4f}")
        if name == TODAY:
            texts = [f"{values[metric, name].mean():.3f}" for metric in METRICS]
            texts.append(f"{pooled[0]:.3f} ± {pooled[1:].std():.3f}")
        cells.append([name, *texts])
    return cells


def reliability(cases: Sequence[Tested]) -> pd.DataFrame:
    """Return rows, mean probability and frequency in each bin of today's probabilities."""
    logits = np.concatenate([rows.logits[TODAY] for rows in cases])
    labels = np.concatenate([rows.labels for rows in cases])
    frame = pd.DataFrame({"probability": expit(logits), "frequency": labels, "rows": 1})
    kinds = {"probability": "mean", "frequency": "mean", "rows": "sum"}
    return frame.groupby(bins(logits)).agg(kinds)


def explained(cases: Sequence[Tested]) -> dict[str, str]:
    """Return how the errors of today's probabilities come about."""
    logits = [rows.logits[TODAY] for rows in cases]
    labels = [rows.labels for rows in cases]

    def fit(tables: Sequence[int]) -> Array:
        """Fit one slope, and an intercept of each table."""

        def loss(parameters: Array) -> tuple[float, Array]:
            value = 0.0
            slopes = np.zeros(len(parameters))
            for at, table in enumerate(tables, start=1):
                scaled = parameters[0] * logits[table] + parameters[at]
                residual = expit(scaled) - labels[table]
                value += losses(scaled, labels[table]).sum()
                slopes[0] += residual @ logits[table]
                slopes[at] = residual.sum()
            return value, slopes

        return minimize(loss, np.r_[1.0, np.zeros(len(tables))], jac=True).x

    count = len(cases)
    slope = fit(range(count))[0]
    without = [
        fit([other for other in range(count) if other != table])[0] for table in range(count)
    ]
    error = np.sqrt((count - 1) * np.var(without))
    gaps = [y.mean() - expit(z).mean() for z, y in zip(logits, labels, strict=True)]
    shifts = [rows.labels.mean() - expit(rows.base) for rows in cases]
    moved = []
    for z, y in zip(logits, labels, strict=True):
        moved.append(z + minimize(lambda bias, z=z, y=y: losses(z + bias, y).sum(), [0.0]).x)
    whole = np.arange(count)[None]
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(RESAMPLES // 5):
        honest = [(rng.random(len(z)) < expit(z)).astype(float) for z in logits]
        drawn.append(pooled_errors(logits, honest, whole)[0])
    return {
        "slope of logits with an intercept of each table": f"{slope:.2f} ± {error:.2f}",
        "frequency of class 1, test less training (root mean square)": f"{_rms(shifts):.3f}",
        "frequency less mean probability (root mean square)": f"{_rms(gaps):.3f}",
        "correlation of both": f"{np.corrcoef(gaps, shifts)[0, 1]:.2f}",
        "ECE": f"{pooled_errors(logits, labels, whole)[0]:.3f}",
        "ECE with each table's test frequency": f"{pooled_errors(moved, labels, whole)[0]:.3f}",
        "ECE if labels were drawn with these probabilities": f"{np.mean(drawn):.3f}",
    }


def _rms(values: Sequence[float]) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def fit_seconds(parts: dict[str, Any]) -> tuple[float, float]:
    """Return CPU seconds of fits to training and validation rows, today's and Laplace's."""
    count = parts["sizes"][:2].sum()
    kernel = parts["kernel"].astype(np.float64)
    labels = parts["labels"][:count]
    seconds = []
    for fit in (squared, laplace):
        start = time.process_time()
        fit(kernel, labels)
        seconds.append(time.process_time() - start)
    return seconds[0], seconds[1]
