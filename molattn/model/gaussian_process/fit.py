"""Gaussian processes of all targets of a table, on shared inducing points.

Outputs that have labels of the same rows are a group with one basis; see
:mod:`molattn.model.gaussian_process.process` for the fit of each.
"""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from molattn.model.config import MolAttnConfig
from molattn.model.gaussian_process.process import (
    Array,
    Basis,
    GaussianProcess,
    Rows,
    Sums,
    blocks,
)
from molattn.model.kernel import KernelInputs, MoleculeKernel
from molattn.task import Task, interleaved

_MOST_SAVED = 32_000_000  # features of all rows: 256 MB
_MOST_COMPARED = 800  # rows; time grows with their cube
_MOST_GROUPS = 16  # sets of targets with the same rows, of full accuracy


class LabeledRows:
    """Rows with their labels, and the order in which they are drawn as inducing points."""

    def __init__(
        self,
        tasks: Sequence[Task],
        targets: Array,
        weights: Array | None,
        keys: Sequence[str] | None,
        seed: int,
    ) -> None:
        weights = np.ones(len(targets)) if weights is None else weights
        self.labels = np.hstack([*map(latent_labels, tasks, targets.T)])  # what is learned
        outputs = [index for index, task in enumerate(tasks) for _ in range(task.num_outputs)]
        self.is_class = np.array([tasks[index].kind != "regression" for index in outputs])
        # Of a row for all outputs, [n, 1], or of each of its labels, [n, outputs].
        self.weights = weights[:, None] if weights.ndim == 1 else weights[:, outputs]
        is_weighted = self.weights.any(axis=1)
        self.used = np.flatnonzero(is_weighted & ~np.isnan(targets).all(axis=1))
        texts = [str(row) if keys is None else keys[row] for row in self.used.tolist()]
        # An order that is random, and the same wherever the rows stand.
        hash_key = seed.to_bytes(8, "little")
        digests = [blake2b(text.encode(), key=hash_key, digest_size=16).digest() for text in texts]
        order = np.array(sorted(range(len(texts)), key=digests.__getitem__), dtype=np.int64)
        self.drawn = self.used[interleaved(order, ~np.isnan(targets[self.used]))]

    def groups(self) -> list[tuple[list[int], Rows]]:
        """Group the outputs by which of the used rows have them with which weights; return both."""
        groups: dict[bytes, list[int]] = {}
        is_labeled = ~np.isnan(self.labels[self.used])
        for column in range(is_labeled.shape[1]):
            weights = self.weights_of(column)[self.used] * is_labeled[:, column]
            groups.setdefault(weights.tobytes(), []).append(column)
        return [(columns, self.used[is_labeled[:, columns[0]]]) for columns in groups.values()]

    def weights_of(self, column: int) -> Array:
        """Return the weights of the labels of an output ``[n]``."""
        return self.weights[:, min(column, self.weights.shape[1] - 1)]

    def most_points(self, requested: int) -> int:
        """Return how many inducing points to draw, see ``GaussianProcessHead.fit``."""
        groups = [columns[0] for columns, _ in self.groups()]
        most = requested * min(2, len(groups))
        sizes = (~np.isnan(self.labels[self.drawn[:most]][:, groups])).cumsum(axis=0)
        fits = (sizes**3).sum(axis=1) <= min(len(groups), _MOST_GROUPS) * requested**3
        return most if fits.all() else max(1, int(fits.sum()))


class FittedGroup(NamedTuple):
    """Outputs that the same rows have, and their Gaussian processes."""

    columns: list[int]
    rows: Rows
    points: Rows  # indices of the inducing points that they are fitted on
    basis: Basis
    processes: list[GaussianProcess]


class FittedProcesses:
    """Gaussian processes of all outputs, on inducing points that are among the used rows."""

    def __init__(
        self, config: MolAttnConfig, inputs: KernelInputs, rows: LabeledRows, points: Rows
    ) -> None:
        used = inputs[rows.used]
        index = np.searchsorted(rows.used, points)
        self.kernel = MoleculeKernel.fit(used, index, count_kinds(config))
        self.points = points
        self.rows = rows
        self._inputs = inputs
        self._between = self.kernel(inputs[points], rounded=True)
        is_small = len(rows.used) * len(points) <= _MOST_SAVED
        self._saved = self.kernel(used, rounded=True) if is_small else None
        self.weights = np.zeros((len(points), rows.labels.shape[1]))
        self.labeled = np.zeros(self.weights.shape, dtype=bool)
        self.means, self.noises = np.zeros((2, rows.labels.shape[1]))
        self.unseen = np.full(rows.labels.shape, np.nan)  # leave-one-out predictions of classes
        self.log_likelihood = 0.0
        self.helpers: dict[str, set[str]] = {}  # names of other tasks that a task learns from
        self.groups: list[FittedGroup] = []
        for columns, labeled in rows.groups():
            if len(labeled):  # a row has such a label
                self._fit(columns, labeled)

    def _fit(self, columns: list[int], labeled: Rows) -> None:
        """Fit the outputs that these rows have, on the inducing points among them."""
        labels = self.rows.labels
        weights = self.rows.weights_of(columns[0])
        points = np.flatnonzero(np.isin(self.points, labeled))
        if not len(points):  # fewer inducing points than tasks
            points = np.arange(len(self.points))
        basis = Basis.of(self._between[np.ix_(points, points)])
        sums = Sums(basis.vectors.shape[1], len(columns))
        for block in blocks(labeled):
            features = basis(self.kernel_of(block)[:, points])
            sums.add(features, labels[block][:, columns], weights[block])
        is_exact = np.array_equal(np.sort(self.points[points]), labeled)
        is_exact = is_exact and bool((weights[labeled] == 1).all())
        eigen = (basis.values, None) if is_exact else sums.decomposed()
        processes = [GaussianProcess.fit(sums, index, *eigen) for index in range(len(columns))]
        for column, process in zip(columns, processes, strict=True):
            self.weights[points, column] = basis.vectors @ process.coefficients
            self.labeled[points, column] = True
            self.means[column] = process.mean
            self.noises[column] = process.noise
            self.log_likelihood += process.log_likelihood
        self.groups.append(FittedGroup(columns, labeled, points, basis, processes))
        if self.rows.is_class[columns].any():
            self.leave_one_out(self.groups[-1])

    def leave_one_out_errors(self) -> Array:
        """Return the absolute errors of all outputs for rows without their own labels, ``[n, O]``.

        Rows that are not used and missing labels have NaN.
        """
        for group in self.groups:
            if np.isnan(self.unseen[group.rows][:, group.columns]).any():
                self.leave_one_out(group)
        return np.abs(self.rows.labels - self.unseen)

    def leave_one_out(self, group: FittedGroup, linear: Array | None = None) -> None:
        """Predict the rows of a group without their own labels, beside a linear part ``[n]``."""
        linear = np.zeros(len(group.rows)) if linear is None else linear
        for index in blocks(np.arange(len(group.rows))):
            rows = group.rows[index]
            weights = self.rows.weights_of(group.columns[0])[rows]
            features = group.basis(self.kernel_of(rows)[:, group.points])
            for column, process in zip(group.columns, group.processes, strict=True):
                labels = self.rows.labels[rows, column] - linear[index]
                predicted = process.leave_one_out(features, labels, weights)
                self.unseen[rows, column] = predicted + linear[index]

    def kernel_of(self, rows: Rows) -> Array:
        """Return the kernel of used rows ``[n]`` with the m inducing points, ``[n, m]``."""
        if self._saved is None:
            return self.kernel(self._inputs[rows], rounded=True)
        return self._saved[np.searchsorted(self.rows.used, rows)]


def log_bayes_factor(
    config: MolAttnConfig,
    inputs: KernelInputs,
    targets: Array,
    name: str,
    *,
    weights: Array | None = None,
    keys: Sequence[str] | None = None,
    seed: int = 0,
) -> float:
    """Return how much more likely labels are with a kernel than without it, as a logarithm.

    It is the difference of the log marginal likelihoods of exact Gaussian processes of at most 800
    rows, which are drawn as inducing points are. Likelihoods of the outputs are added, as if they
    were independent; the classes of a task are not, so that their evidence is overrated. Arguments
    are those of ``GaussianProcessHead.fit``; ``name`` is a kernel of numbers.

    Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, section 5.2.
    """
    rows = LabeledRows(config.tasks, targets, weights, keys, seed)
    rows.used = np.sort(rows.drawn[:_MOST_COMPARED])
    others = {kernel: numbers for kernel, numbers in inputs.numbers.items() if kernel != name}
    whole, without = (
        FittedProcesses(config, replace(inputs, numbers=numbers), rows, rows.used).log_likelihood
        for numbers in (inputs.numbers, others)
    )
    return whole - without


def count_kinds(config: MolAttnConfig) -> list[slice]:
    """Return the positions of each kind of substructure counts that the kernels compare."""
    return [] if config.counter is None else [*config.counter.groups.values()]


def latent_labels(task: Task, labels: Array) -> Array:
    """Return the numbers that are learned of a task's labels ``[n]``, ``[n, num_outputs]``."""
    if task.kind == "regression":
        return labels[:, None]
    classes = np.arange(len(task.classes))[-task.num_outputs :]
    return np.where(np.isnan(labels)[:, None], np.nan, 2.0 * (labels[:, None] == classes) - 1.0)
