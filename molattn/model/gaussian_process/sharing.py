r"""How the Gaussian process of a target learns from the labels of others.

The predictions :math:`z_1, \ldots, z_H` of Gaussian processes of other targets become a linear part
of the process of a target,

.. math:: y = m + \gamma^\top z(x) + \delta(x) + \varepsilon, \qquad
    \gamma \sim N(0, s^2 \omega I),

with :math:`\delta` and :math:`\varepsilon` as in :mod:`molattn.model.gaussian_process.process` and
:math:`z` standardized. A molecule that has the label of another target has its leave-one-out
prediction, so that :math:`\gamma` is right for molecules without it. As each :math:`z` is a sum of
kernels, so is the whole: it is saved as a single Gaussian process is.

Source: Kennedy and O'Hagan, Biometrika 2000, 87, 1 (their autoregression, with predictions for the
process of the other target).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from molattn.model.config import MolAttnConfig
from molattn.model.gaussian_process.fit import FittedGroup, FittedProcesses, LabeledRows
from molattn.model.gaussian_process.process import Array, Sums, blocks
from molattn.model.kernel import KernelInputs
from molattn.task import Task

MOST_SHARED_ROWS = 16_000
"""Rows of targets that learn from each other, which are passed through once or twice more."""
_MOST_SHARED = 32  # outputs that learn from each other
_POSITIVE = 1.0  # log Bayes factor: Kass and Raftery, J. Am. Stat. Assoc. 1995, 90, 773
_NOISES = np.geomspace(1e-5, 1e3, 73)
_VARIANCES = np.concatenate([[0.0], np.geomspace(1e-3, 1e1, 13)])
_LEAST_CHANGE = 1e-6  # deviation of predictions that are no constant, of standardized labels


def fit_tasks(
    config: MolAttnConfig,
    inputs: KernelInputs,
    targets: Array,
    auxiliary: tuple[Task, ...],
    weights: Array | None,
    keys: Sequence[str] | None,
    inducing_points: int,
    seed: int,
) -> FittedProcesses:
    """Fit tasks that learn from each other, and from auxiliary ones if these help.

    The arguments are those of ``GaussianProcessHead.fit``.
    """
    rows = LabeledRows(config.tasks, targets[:, : len(config.tasks)], weights, keys, seed)
    most = rows.most_points(inducing_points)
    points = rows.drawn[:most]
    alone = FittedProcesses(config, inputs, rows, points)
    _share(alone, config.tasks, len(alone.means))
    if not auxiliary:
        return alone
    tasks = config.tasks + auxiliary
    rows = LabeledRows(tasks, targets, weights, keys, seed)
    others = rows.drawn[~np.isin(rows.drawn, points)]
    others = others[: max(most - len(points), most // 4)]
    joint = FittedProcesses(config, inputs, rows, np.concatenate([points, others]))
    _share(joint, tasks, len(alone.means))
    names = {task.name for task in auxiliary}
    return joint if any(names & helpers for helpers in joint.helpers.values()) else alone


def _share(fitted: FittedProcesses, tasks: Sequence[Task], learners: int) -> None:
    """Let the first outputs, ``learners`` of them, learn from the outputs of all other tasks."""
    names = np.array([task.name for task in tasks for _ in range(task.num_outputs)])
    rows = len(fitted.rows.used)
    if len(tasks) == 1 or len(names) > _MOST_SHARED or rows > MOST_SHARED_ROWS:
        return
    for group in fitted.groups:
        fitted.leave_one_out(group)
    alone = fitted.weights.copy(), fitted.means.copy(), fitted.unseen.copy()
    for group in fitted.groups:
        columns = [column for column in group.columns if column < learners]
        if columns:
            _share_group(fitted, group._replace(columns=columns), names, *alone)


def _share_group(
    fitted: FittedProcesses,
    group: FittedGroup,
    tasks: NDArray[Any],
    weights: Array,
    means: Array,
    unseen: Array,
) -> None:
    """Add to each output of a group a linear term in the stand-alone predictions of the others.

    ``tasks`` names the task of each output; weights, means and leave-one-out predictions are those
    of the outputs before any learned from another.
    """
    labels = fitted.rows.labels
    count = len(group.columns)
    trends = np.empty((len(group.rows), len(tasks)))
    sums = Sums(len(group.basis.values), count + len(tasks))
    for index in blocks(np.arange(len(group.rows))):
        rows = group.rows[index]
        kernel = fitted.kernel_of(rows)
        trends[index] = np.where(np.isnan(unseen[rows]), means + kernel @ weights, unseen[rows])
        columns = np.hstack([labels[rows][:, group.columns], trends[index]])
        weights_of_rows = fitted.rows.weights_of(group.columns[0])[rows]
        sums.add(group.basis(kernel[:, group.points]), columns, weights_of_rows)
    centers, products, along = sums.centered(group.processes[0].vectors)
    for index, column in enumerate(group.columns):
        others = np.flatnonzero(tasks != tasks[column])
        used = np.append(index, count + others)
        process = group.processes[index]
        pairs = products[np.ix_(used, used)]
        factors, noise = linear_part(pairs, process.values, along[:, used], sums.rows)
        if not factors.any():
            continue
        signs = np.append(1.0, -factors)
        process = process.of(along[:, used] @ signs, float(centers[used] @ signs), noise)
        helpers = tasks[others[factors != 0.0]].tolist()
        fitted.helpers.setdefault(str(tasks[column]), set()).update(helpers)
        fitted.weights[:, column] = weights[:, others] @ factors
        fitted.weights[group.points, column] += group.basis.vectors @ process.coefficients
        fitted.means[column] = process.mean + means[others] @ factors
        fitted.noises[column] = noise
        if fitted.rows.is_class[column]:
            changed = group._replace(columns=[column], processes=[process])
            fitted.leave_one_out(changed, trends[:, others] @ factors)


def linear_part(products: Array, values: Array, along: Array, rows: int) -> tuple[Array, float]:
    """Return coefficients ``[H]``, 0 for what is not used, and the noise relative to the signal.

    Other targets are used that have positive evidence by themselves.

    Args:
        products: Weighted sums of products of centered columns: labels, then H predictions.
        values: Eigenvalues of the sums of products of the features, ``[r]``.
        along: Sums of products of their eigenvectors and the columns, ``[r, 1 + H]``.
        rows: Their number.
    """
    scale = np.sqrt(np.maximum(np.diag(products), 0.0) / rows)
    is_constant = scale <= _LEAST_CHANGE * max(scale[0], 1e-300)
    scale[0] = 1.0
    scale[is_constant] = np.inf
    products = products / scale / scale[:, None]
    along = along / scale
    inverse = 1.0 / (values + _NOISES[:, None])
    quadratic = np.einsum("sr,ri,rj->sij", inverse, along, along, optimize=True)
    quadratic = (products - quadratic) / _NOISES[:, None, None]
    determinant = -np.log(inverse).sum(axis=1) + (rows - len(values)) * np.log(_NOISES)
    factors = np.zeros(len(scale) - 1)
    evidence = [_fit(quadratic, determinant, rows, [index])[0] for index in range(len(factors))]
    selected = np.flatnonzero(np.array(evidence) > _POSITIVE)
    if not len(selected):
        return factors, 0.0
    _, noise, coefficients = _fit(quadratic, determinant, rows, selected.tolist())
    factors[selected] = coefficients / scale[1 + selected]
    return factors, noise


def _fit(
    quadratic: Array, determinant: Array, rows: int, selected: list[int]
) -> tuple[float, float, Array]:
    """Return log Bayes factor, noise and coefficients of the predictions of some other targets.

    ``quadratic`` are products of the columns with the inverse covariance of each noise.
    """
    columns = 1 + np.array(selected)
    squares = np.maximum(quadratic[:, 0, 0], np.finfo(float).tiny)
    values, vectors = np.linalg.eigh(quadratic[:, columns[:, None], columns])
    values = np.maximum(values, 0.0)
    with_labels = np.einsum("sij,si->sj", vectors, quadratic[:, columns, 0])
    variances = _VARIANCES[:, None, None]
    shrunk = variances * with_labels / (1.0 + variances * values)  # [variances, noises, selected]
    residual = np.maximum(squares - (shrunk * with_labels).sum(axis=2), 1e-12 * squares)
    loss = 0.5 * (rows * np.log(residual) + determinant + np.log1p(variances * values).sum(axis=2))
    best = np.unravel_index(loss.argmin(), loss.shape)
    evidence = float(loss[0].min() - loss[best])
    return evidence, float(_NOISES[best[1]]), vectors[best[1]] @ shrunk[best]
