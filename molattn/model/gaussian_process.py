r"""A Gaussian process that predicts all tasks of a model from similarity to training molecules.

It is fitted in closed form, exactly or with inducing points. Targets learn from each other
(:mod:`molattn.model.linear_sharing`).

With kernel :math:`k`, inducing points :math:`Z` (all rows, if exact) and the eigenvectors
:math:`V` and eigenvalues :math:`d` of :math:`k(Z, Z)`, a row has the features
:math:`\phi(x) = k(x, Z) V d^{-1/2}`, whose products are the kernel (exact) or its Nyström
approximation. The labels are :math:`y = m + \phi(x)^\top w + \varepsilon` with
:math:`w \sim N(0, s^2)` and :math:`\varepsilon \sim N(0, s^2 \sigma / c)` for a row of weight
:math:`c`. The noise :math:`\sigma` maximizes the marginal likelihood, for which :math:`s^2` has a
closed form.

Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, chapters 2, 5 and 8
(deterministic training conditional, equation 8.20; leave-one-out, section 5.4.2).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from molattn.model.config import MolAttnConfig
from molattn.model.kernel import KernelInputs, MoleculeKernel
from molattn.model.linear_sharing import linear_part
from molattn.model.outputs import class_logits
from molattn.model.uncertainty import ProbabilityScaling
from molattn.task import Task, interleaved, output_slices

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

_ROWS_AT_ONCE = 1024
_NEIGHBOR_ROWS_AT_ONCE = 128  # each with all inducing points in several arrays
_MOST_SAVED = 32_000_000  # features of all rows: 256 MB
_MOST_COMPARED = 800  # rows; time grows with their cube
_MOST_GROUPS = 16  # sets of targets with the same rows, of full accuracy
_MOST_SHARED = 32  # outputs that learn from each other
MOST_SHARED_ROWS = 16_000
"""Rows of targets that learn from each other, which are passed through once or twice more."""
_OWN = ("rows", "weights", "means", "shares")
_OF_PLAN = ("noises", "labeled", "learned")  # which the packaged models do not have
_SCALING = "scaling."
_LEAST_EIGENVALUE = 1e-7  # of the largest: kernels are computed in single precision
_LEAST_VARIANCE = 1e-12  # of standardized labels
_MOST_LEVERAGE = 1.0 - 1e-9
_NOISE = (1e-5, 1e3)
_GRID = 37


@dataclass(frozen=True)
class Basis:
    """Features whose products are a kernel."""

    vectors: Array  # weights of the kernel with the m inducing points in each feature, [m, r]
    values: Array  # sum of squares of each feature over the inducing points, [r]

    @classmethod
    def of(cls, kernel: Array) -> "Basis":
        """Decompose the kernel of the inducing points, ``[m, m]``."""
        from scipy.linalg import eigh  # not needed for predictions

        values, vectors = eigh(kernel, driver="evd", check_finite=False)
        kept = values > _LEAST_EIGENVALUE * values[-1]
        return cls(vectors[:, kept] / np.sqrt(values[kept]), values[kept])

    def __call__(self, kernel: Array) -> Array:
        """Return the features of n rows ``[n, r]`` from their kernel ``[n, m]``."""
        return kernel @ self.vectors


class Sums:
    """Sums over rows that have the labels of some targets, which determine their processes.

    Rows are added in blocks, so that memory does not grow with their number.
    """

    def __init__(self, features: int, targets: int) -> None:
        self.features = features
        self.products = np.zeros((features + 1 + targets,) * 2)
        self.rows = 0
        self.log_weights = 0.0

    def add(self, features: Array, labels: Array, weights: Array) -> None:
        """Add n rows: features ``[n, r]``, labels ``[n, targets]``, positive weights ``[n]``."""
        joined = np.column_stack([features, np.ones(len(labels)), labels])
        joined *= np.sqrt(weights)[:, None]
        self.products += joined.T @ joined
        self.rows += len(labels)
        self.log_weights += float(np.log(weights).sum())

    def decomposed(self) -> tuple[Array, Array]:
        """Return eigenvalues and eigenvectors of the features' products."""
        from scipy.linalg import eigh

        values, vectors = eigh(self.products[: self.features, : self.features], driver="evd")
        return np.maximum(values, 0.0), vectors

    def centered(self, vectors: Array | None) -> tuple[Array, Array, Array]:
        """Return means of the labels; products with each other, and with features or vectors."""
        size, weight = self.features, self.products[self.features, self.features]
        means = self.products[size, size + 1 :] / weight
        products = self.products[size + 1 :, size + 1 :] - weight * means[:, None] * means
        along = self.products[:size, size + 1 :] - self.products[:size, size, None] * means
        if vectors is not None:
            along = vectors.T @ along
        return means, products, along


@dataclass(frozen=True)
class GaussianProcess:
    """A Gaussian process of one target on features of a :class:`Basis`."""

    coefficients: Array  # mean of the weights of the features, [r]
    mean: float  # of the labels
    noise: float  # its variance relative to that of the signal
    values: Array  # eigenvalues of the features' sum of products, [r]
    vectors: Array | None  # its eigenvectors, [r, r]; None = the features are orthogonal
    log_likelihood: float  # marginal, of the labels

    @classmethod
    def fit(
        cls, sums: Sums, target: int, values: Array, vectors: Array | None
    ) -> "GaussianProcess":
        """Fit one of the targets; for the eigenvalues and vectors see the class."""
        from scipy.optimize import minimize_scalar

        size, place = sums.features, sums.features + 1 + target
        products, rows = sums.products, sums.rows
        weight = products[size, size]
        mean = float(products[size, place] / weight)
        squares = max(float(products[place, place] - weight * mean**2), _LEAST_VARIANCE * weight)
        along = products[:size, place] - mean * products[:size, size]
        if vectors is not None:
            along = vectors.T @ along

        def quadratic(noise: float) -> float:
            rest = squares - (along**2 / (values + noise)).sum()
            return max(float(rest) / noise, np.finfo(float).tiny)

        def loss(log_noise: float) -> float:
            noise = np.exp(log_noise)
            determinant = np.log(values + noise).sum() + (rows - len(values)) * log_noise
            scale = np.log(2.0 * np.pi * quadratic(noise) / rows)
            return 0.5 * (rows * (scale + 1.0) + determinant - sums.log_weights)

        grid = np.linspace(math.log(_NOISE[0]), math.log(_NOISE[1]), _GRID)
        best = int(np.argmin([loss(at) for at in grid]))
        ends = grid[max(best - 1, 0)], grid[min(best + 1, _GRID - 1)]
        found: Any = minimize_scalar(loss, bounds=ends, method="bounded")
        noise = math.exp(float(found.x))
        coefficients = along / (values + noise)
        if vectors is not None:
            coefficients = vectors @ coefficients
        return cls(coefficients, mean, noise, values, vectors, -float(found.fun))

    def of(self, along: Array, mean: float, noise: float) -> "GaussianProcess":
        """Return that of other labels, ``along`` the eigenvectors without their mean."""
        coefficients = along / (self.values + noise)
        if self.vectors is not None:
            coefficients = self.vectors @ coefficients
        return replace(self, coefficients=coefficients, mean=mean, noise=noise)

    def predict(self, features: Array) -> Array:
        """Return the mean of rows with features ``[n, r]``, ``[n]``."""
        return self.mean + features @ self.coefficients

    def leave_one_out(self, features: Array, labels: Array, weights: Array) -> Array:
        """Predict rows that it was fitted to, each without its own label, ``[n]``."""
        along = features if self.vectors is None else features @ self.vectors
        leverage = weights * (along**2 @ (1.0 / (self.values + self.noise)))
        residual = labels - self.predict(features)
        return labels - residual / (1.0 - np.minimum(leverage, _MOST_LEVERAGE))


class Neighbor(NamedTuple):
    """A training row behind a prediction."""

    row: int  # its number in the table of the training
    similarity: float  # its kernel with the predicted row, from 0 to 1
    contribution: float  # what it adds to the prediction
    smiles: str | None = None  # if the model keeps it


@dataclass(frozen=True, repr=False)
class GaussianProcessHead:
    """A Gaussian process for each output of a model, on one kernel.

    Regressions are in scaled units. The labels of a classification are learned as numbers, 1 for a
    class and -1 for the others; logits are then fitted to leave-one-out predictions by Platt
    scaling.
    """

    tasks: tuple[Task, ...]
    kernel: MoleculeKernel  # with the m inducing points
    rows: Rows  # their numbers in the table, as messages count them; -1 = of another table, [m]
    weights: Array  # of the inducing points in each output, [m, outputs]
    means: Array  # constant term of each output, [outputs]
    noises: Array  # variance of each output's labels over that of its signal, [outputs]
    labeled: NDArray[np.bool_]  # which inducing points each output has labels of, [m, outputs]
    scalings: tuple[ProbabilityScaling | None, ...]  # of each classification
    shares: Array  # weight in the prediction of each task; the network has the rest, [T]
    learned: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    """``MoleculeRecord.identity`` of each row of the table that it was fitted to."""
    helpers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """After a fit: other tasks that each task learns from; not saved."""

    @classmethod
    def fit(
        cls,
        config: MolAttnConfig,
        inputs: KernelInputs,
        targets: Array,
        *,
        weights: Array | None = None,
        keys: Sequence[str] | None = None,
        inducing_points: int = 2000,
        seed: int = 0,
        auxiliary: Sequence[Task] = (),
    ) -> "GaussianProcessHead":
        """Fit to n labeled rows.

        Up to ``inducing_points`` rows it is exact; of more rows that many are drawn at random as
        inducing points, in turn for each task of the rows that have its label, and the same
        whatever the order of the rows. Each set of tasks that have labels for the same rows is
        fitted by itself, on the inducing points that have them, in a time that grows with the cube
        of their number. So there are up to twice as many inducing points if that takes no longer
        than such fits on ``inducing_points`` each, and with more than 16 sets no longer than 16. A
        task without labels is predicted as 0, or with equal probabilities.

        Tasks learn from each other and from ``auxiliary`` ones, which are not predicted, as
        :mod:`molattn.model.linear_sharing` describes, where that makes their labels more likely.
        Rows that only have auxiliary labels fill up the inducing points, to at most a quarter more.

        Labels ``[n, T]`` are scaled values and class indices, NaN where missing, with those of
        auxiliary tasks in further columns; rows of weight 0 are left out; ``keys`` identify each
        row wherever it stands, by default by its index.
        """
        options = weights, keys, inducing_points, seed
        found = _Fitted.of_tasks(config, inputs, targets, tuple(auxiliary), *options)
        scalings: list[ProbabilityScaling | None] = []
        for index, (task, part) in enumerate(
            zip(config.tasks, output_slices(config.tasks), strict=True)
        ):
            scalings.append(None)
            if task.kind != "regression":
                chosen = np.flatnonzero(~np.isnan(found.unseen[:, part.start]))
                logits = class_logits(torch.from_numpy(found.unseen[chosen, part]), task).numpy()
                classes = targets[chosen, index].astype(int)
                scalings[-1] = ProbabilityScaling.fit(logits, classes)
        outputs = len(config.output_names)
        return cls(
            tuple(config.tasks),
            found.kernel,
            found.points,
            found.weights[:, :outputs],
            found.means[:outputs],
            found.noises[:outputs],
            found.labeled[:, :outputs],
            tuple(scalings),
            np.ones(len(config.tasks)),
            helpers={name: sorted(one) for name, one in found.helpers.items()},
        )

    def with_rows(self, numbers: Rows, learned: NDArray[np.uint64]) -> "GaussianProcessHead":
        """Name the rows that it was fitted to by numbers ``[n]``, and those of the table."""
        return replace(self, rows=numbers[self.rows], learned=learned)

    def predict(self, inputs: KernelInputs) -> Array:
        """Predict n rows, ``[n, outputs]``: regressions in scaled units, logits of classes."""
        latent = np.empty((len(inputs), len(self.means)))
        for some in _blocks(np.arange(len(inputs)), _ROWS_AT_ONCE):
            latent[some] = self.means + self.kernel(inputs[some]) @ self.weights
        return self.outputs(torch.from_numpy(latent)).numpy()

    def outputs(self, latent: Tensor) -> Tensor:
        """Convert means of the Gaussian processes ``[n, outputs]`` to :meth:`predict`."""
        outputs = []
        for task, part, scaling in zip(
            self.tasks, output_slices(self.tasks), self.scalings, strict=True
        ):
            found = latent[:, part]
            if scaling is not None:
                logits = scaling.logits(class_logits(found, task))
                found = logits if task.kind == "multiclass" else logits[:, 1:] - logits[:, :1]
            outputs.append(found)
        return torch.cat(outputs, dim=1)

    def combine(self, network: Array, inputs: KernelInputs) -> Array:
        """Average outputs of networks ``[..., n, outputs]`` with those of :meth:`predict`."""
        return self.mean(network, self.predict(inputs))

    def mean(self, network: Array, process: Array) -> Array:
        """Average outputs of networks and of the Gaussian process by their shares."""
        shares = self.output_shares
        # With a share of 1 the network is not trained, and its outputs may be of any size.
        network = np.where(shares == 1.0, process, network)
        return network + shares * (process - network)

    @property
    def output_shares(self) -> Array:
        """Share of the Gaussian process in each output, ``[outputs]``."""
        return np.repeat(self.shares, [task.num_outputs for task in self.tasks])

    def posterior(self, inputs: KernelInputs, output: int) -> tuple[Array, float]:
        r"""Return what is unknown of n rows: a covariance ``[n, n]``, and the noise of a label.

        .. math:: k(x, x') - k(x, Z) (k(Z, Z) + \sigma I)^{-1} k(Z, x')

        Both are in units of the variance of the signal. Of rows beyond the inducing points, and of
        labels of other tasks, nothing is known here, which makes it larger. ``noises`` is empty for
        a model that was saved without them.
        """
        own, noise = np.flatnonzero(self.labeled[:, output]), float(self.noises[output])
        points = self.kernel.inputs(len(self.weights))[own]
        kernel = self.kernel.at(points)
        cross, known = kernel(inputs), kernel(points, rounded=True)
        known[np.diag_indices_from(known)] += noise
        found = kernel.at(inputs)(inputs) - cross @ np.linalg.solve(known, cross.T)
        np.fill_diagonal(found, np.maximum(found.diagonal(), _LEAST_VARIANCE))
        return found, noise

    def neighbors(
        self, inputs: KernelInputs, count: int, smiles: Mapping[int, str], scales: Sequence[float]
    ) -> dict[str, list[list[Neighbor]]]:
        r"""Return by task for n rows the ``count`` rows of the table that contribute most.

        A training row i contributes :math:`w\,k(x, x_i)\,\alpha_i` times a scale, with the
        share :math:`w` of the Gaussian process and its weights :math:`\alpha`. Of a
        classification it is the contribution to the latent function, which is 1 for the class (the
        second of two, the first of several) and -1 for the others.
        """
        neighbors: dict[str, list[list[Neighbor]]] = {task.name: [] for task in self.tasks}
        own = np.flatnonzero(self.rows >= 0)
        for some in _blocks(np.arange(len(inputs)), _NEIGHBOR_ROWS_AT_ONCE):
            kernel = self.kernel(inputs[some])[:, own]
            factors = zip(output_slices(self.tasks), self.shares, scales, strict=True)
            for rows, (part, share, scale) in zip(neighbors.values(), factors, strict=True):
                parts = kernel * self.weights[own, part.start]
                order = np.argsort(-np.abs(parts), axis=1, kind="stable")[:, :count]
                for similarity, row, points in zip(
                    kernel, parts * share * scale, order, strict=True
                ):
                    numbers = self.rows[own[points]].tolist()
                    values = similarity[points].tolist(), row[points].tolist()
                    texts = [smiles.get(number) for number in numbers]
                    rows.append([*map(Neighbor, numbers, *values, texts)])
        return neighbors

    def to_bytes(self) -> bytes:
        """Return the content of a safetensors file."""
        names = (*_OWN, *_OF_PLAN)
        arrays = {name: np.ascontiguousarray(getattr(self, name)) for name in names}
        for index, one in enumerate(self.scalings):
            if one is not None:
                arrays[f"{_SCALING}{index}"] = np.array([one.scale, *one.bias])
        return safetensors.numpy.save({**arrays, **self.kernel.to_arrays()})

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], config: MolAttnConfig
    ) -> "GaussianProcessHead":
        """Read the arrays of :meth:`to_bytes`."""
        own: Any = {name: arrays.get(name, np.zeros(0)) for name in _OF_PLAN}
        own |= {name: arrays[name] for name in _OWN}
        scalings = (arrays.get(f"{_SCALING}{index}") for index in range(len(config.tasks)))
        return cls(
            tuple(config.tasks),
            MoleculeKernel.from_arrays(arrays, _kinds(config)),
            scalings=tuple(
                None if one is None else ProbabilityScaling(one[0], tuple(one[1:].tolist()))
                for one in scalings
            ),
            **own,
        )


class _Rows:
    """Rows with their labels, and the order in which they are drawn as inducing points."""

    def __init__(
        self,
        tasks: Sequence[Task],
        targets: Array,
        weights: Array | None,
        keys: Sequence[str] | None,
        seed: int,
    ) -> None:
        self.weights = np.ones(len(targets)) if weights is None else weights
        self.labels = np.hstack([*map(_latent, tasks, targets.T)])  # what is learned
        is_class = [task.kind != "regression" for task in tasks for _ in range(task.num_outputs)]
        self.is_class = np.array(is_class)
        self.used = np.flatnonzero((self.weights > 0.0) & ~np.isnan(targets).all(axis=1))
        texts = [str(row) if keys is None else keys[row] for row in self.used.tolist()]
        # An order that is random, and the same wherever the rows stand.
        secret = seed.to_bytes(8, "little")
        digests = [blake2b(text.encode(), key=secret, digest_size=16).digest() for text in texts]
        order = np.array(sorted(range(len(texts)), key=digests.__getitem__), dtype=np.int64)
        self.drawn = self.used[interleaved(order, ~np.isnan(targets[self.used]))]

    def groups(self) -> list[tuple[list[int], Rows]]:
        """Group the outputs by which of the used rows have them; return both."""
        groups: dict[bytes, list[int]] = {}
        known = ~np.isnan(self.labels[self.used])
        for column in range(known.shape[1]):
            groups.setdefault(known[:, column].tobytes(), []).append(column)
        return [(columns, self.used[known[:, columns[0]]]) for columns in groups.values()]

    def most_points(self, given: int) -> int:
        """Return how many inducing points to draw, see :meth:`GaussianProcessHead.fit`."""
        groups = [columns[0] for columns, _ in self.groups()]
        most = given * min(2, len(groups))
        sizes = (~np.isnan(self.labels[self.drawn[:most]][:, groups])).cumsum(axis=0)
        fits = (sizes**3).sum(axis=1) <= min(len(groups), _MOST_GROUPS) * given**3
        return most if fits.all() else max(1, int(fits.sum()))


class _Group(NamedTuple):
    """Outputs that the same rows have, and their Gaussian processes."""

    columns: list[int]
    rows: Rows
    own: Rows  # which of the inducing points they are fitted on
    basis: Basis
    processes: list[GaussianProcess]


class _Fitted:
    """Gaussian processes of all outputs, on inducing points that are among the used rows."""

    def __init__(
        self, config: MolAttnConfig, inputs: KernelInputs, rows: _Rows, points: Rows
    ) -> None:
        used = inputs[rows.used]
        self.kernel = MoleculeKernel.fit(used, np.searchsorted(rows.used, points), _kinds(config))
        self.points, self._inputs, self._rows = points, inputs, rows
        self._between, self._saved = self.kernel(inputs[points], rounded=True), None
        if len(rows.used) * len(points) <= _MOST_SAVED:
            self._saved = self.kernel(used, rounded=True)
        self.weights = np.zeros((len(points), rows.labels.shape[1]))
        self.labeled = np.zeros(self.weights.shape, dtype=bool)
        self.means, self.noises = np.zeros((2, rows.labels.shape[1]))
        self.unseen = np.full(rows.labels.shape, np.nan)  # leave-one-out predictions of classes
        self.log_likelihood = 0.0
        self.helpers: dict[str, set[str]] = {}  # names of other tasks that a task learns from
        self._groups: list[_Group] = []
        for columns, chosen in rows.groups():
            if len(chosen):  # a row has such a label
                self._fit(columns, chosen)

    @classmethod
    def of_tasks(
        cls,
        config: MolAttnConfig,
        inputs: KernelInputs,
        targets: Array,
        auxiliary: tuple[Task, ...],
        weights: Array | None,
        keys: Sequence[str] | None,
        inducing_points: int,
        seed: int,
    ) -> "_Fitted":
        """Fit tasks that learn from each other, and from auxiliary ones if these help."""
        labels = targets[:, : len(config.tasks)]
        rows = _Rows(config.tasks, labels, weights, keys, seed)
        points = rows.drawn[: (most := rows.most_points(inducing_points))]
        found = cls(config, inputs, rows, points)
        found.share(config.tasks, len(found.means))
        if not auxiliary:
            return found
        tasks = config.tasks + auxiliary
        rows = _Rows(tasks, targets, weights, keys, seed)
        others = rows.drawn[~np.isin(rows.drawn, points)]
        others = others[: max(most - len(points), most // 4)]
        joint = cls(config, inputs, rows, np.concatenate([points, others]))
        joint.share(tasks, len(found.means))
        names = {task.name for task in auxiliary}
        return joint if any(names & one for one in joint.helpers.values()) else found

    def _fit(self, columns: list[int], chosen: Rows) -> None:
        """Fit the outputs that these rows have, on the inducing points among them."""
        labels, weights = self._rows.labels, self._rows.weights
        own = np.flatnonzero(np.isin(self.points, chosen))
        if not len(own):  # fewer inducing points than tasks
            own = np.arange(len(self.points))
        basis = Basis.of(self._between[np.ix_(own, own)])
        sums = Sums(basis.vectors.shape[1], len(columns))
        for some in _blocks(chosen, _ROWS_AT_ONCE):
            features = basis(self._kernel_of(some)[:, own])
            sums.add(features, labels[some][:, columns], weights[some])
        is_exact = np.array_equal(np.sort(self.points[own]), chosen)
        is_exact = is_exact and bool((weights[chosen] == 1).all())
        eigen = (basis.values, None) if is_exact else sums.decomposed()
        processes = [GaussianProcess.fit(sums, index, *eigen) for index in range(len(columns))]
        for column, process in zip(columns, processes, strict=True):
            self.weights[own, column] = basis.vectors @ process.coefficients
            self.labeled[own, column] = True
            self.means[column], self.noises[column] = process.mean, process.noise
            self.log_likelihood += process.log_likelihood
        self._groups.append(_Group(columns, chosen, own, basis, processes))
        if self._rows.is_class[columns].any():
            self._leave_one_out(self._groups[-1])

    def _leave_one_out(self, group: _Group, linear: Array | None = None) -> None:
        """Predict the rows of a group without their own labels, beside a linear part ``[n]``."""
        linear = np.zeros(len(group.rows)) if linear is None else linear
        for block in _blocks(np.arange(len(group.rows)), _ROWS_AT_ONCE):
            some, weights = group.rows[block], self._rows.weights[group.rows[block]]
            features = group.basis(self._kernel_of(some)[:, group.own])
            for column, process in zip(group.columns, group.processes, strict=True):
                labels = self._rows.labels[some, column] - linear[block]
                found = process.leave_one_out(features, labels, weights)
                self.unseen[some, column] = found + linear[block]

    def share(self, tasks: Sequence[Task], learners: int) -> None:
        """Let the first outputs learn from all; see :mod:`molattn.model.linear_sharing`."""
        of_outputs = np.array([task.name for task in tasks for _ in range(task.num_outputs)])
        rows = len(self._rows.used)
        if len(tasks) == 1 or len(of_outputs) > _MOST_SHARED or rows > MOST_SHARED_ROWS:
            return
        for group in self._groups:
            self._leave_one_out(group)
        alone = self.weights.copy(), self.means.copy(), self.unseen.copy()
        for group in self._groups:
            columns = [column for column in group.columns if column < learners]
            if columns:
                self._share(group._replace(columns=columns), of_outputs, *alone)

    def _share(
        self, group: _Group, tasks: NDArray[Any], weights: Array, means: Array, unseen: Array
    ) -> None:
        """Let the outputs of a group learn from all others, given as each is by itself."""
        labels, count = self._rows.labels, len(group.columns)
        trends = np.empty((len(group.rows), len(tasks)))
        sums = Sums(len(group.basis.values), count + len(tasks))
        for block in _blocks(np.arange(len(group.rows)), _ROWS_AT_ONCE):
            some, seen = group.rows[block], unseen[group.rows[block]]
            kernel = self._kernel_of(some)
            trends[block] = np.where(np.isnan(seen), means + kernel @ weights, seen)
            known = np.hstack([labels[some][:, group.columns], trends[block]])
            sums.add(group.basis(kernel[:, group.own]), known, self._rows.weights[some])
        centers, products, along = sums.centered(group.processes[0].vectors)
        for index, column in enumerate(group.columns):
            others = np.flatnonzero(tasks != tasks[column])
            used, process = np.append(index, count + others), group.processes[index]
            pairs = products[np.ix_(used, used)]
            factors, noise = linear_part(pairs, process.values, along[:, used], sums.rows)
            if not factors.any():
                continue
            rest = np.append(1.0, -factors)
            process = process.of(along[:, used] @ rest, float(centers[used] @ rest), noise)
            used = tasks[others[factors != 0.0]].tolist()
            self.helpers.setdefault(str(tasks[column]), set()).update(used)
            self.weights[:, column] = weights[:, others] @ factors
            self.weights[group.own, column] += group.basis.vectors @ process.coefficients
            self.means[column] = process.mean + means[others] @ factors
            self.noises[column] = noise
            if self._rows.is_class[column]:
                changed = group._replace(columns=[column], processes=[process])
                self._leave_one_out(changed, trends[:, others] @ factors)

    def _kernel_of(self, some: Rows) -> Array:
        if self._saved is None:
            return self.kernel(self._inputs[some], rounded=True)
        return self._saved[np.searchsorted(self._rows.used, some)]


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
    rows, which are drawn as inducing points are. Those of the outputs are added, as if they were
    independent; those of the classes of a task are not, so that their evidence is overrated.
    Arguments are those of :meth:`GaussianProcessHead.fit`; the kernel is one of numbers.

    Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, section 5.2.
    """
    rows = _Rows(config.tasks, targets, weights, keys, seed)
    rows.used = np.sort(rows.drawn[:_MOST_COMPARED])
    others = {one: numbers for one, numbers in inputs.numbers.items() if one != name}
    whole, without = (
        _Fitted(config, replace(inputs, numbers=numbers), rows, rows.used).log_likelihood
        for numbers in (inputs.numbers, others)
    )
    return whole - without


def _kinds(config: MolAttnConfig) -> list[slice]:
    return [] if config.counter is None else [*config.counter.groups.values()]


def _latent(task: Task, labels: Array) -> Array:
    """Return the numbers that are learned of a task's labels ``[n]``, ``[n, num_outputs]``."""
    if task.kind == "regression":
        return labels[:, None]
    classes = np.arange(len(task.classes))[-task.num_outputs :]
    return np.where(np.isnan(labels)[:, None], np.nan, 2.0 * (labels[:, None] == classes) - 1.0)


def _blocks(rows: Rows, size: int) -> Iterator[Rows]:
    return (rows[start : start + size] for start in range(0, len(rows), size))
