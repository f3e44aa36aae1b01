"""The Gaussian processes of all tasks of a model: what is saved, and what predicts."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np
import safetensors.numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from molattn.model.artefact import GAUSSIAN_PROCESS_FILE, ModelFiles
from molattn.model.config import MolAttnConfig
from molattn.model.gaussian_process.fit import count_kinds
from molattn.model.gaussian_process.process import LEAST_VARIANCE, Array, Rows, blocks
from molattn.model.gaussian_process.sharing import fit_tasks
from molattn.model.kernel import KernelInputs, MoleculeKernel
from molattn.model.outputs import class_logits
from molattn.model.uncertainty import ProbabilityScaling
from molattn.task import Task, output_slices

_NEIGHBOR_ROWS_AT_ONCE = 128  # each with all inducing points in several arrays
_PAIRS_AT_ONCE = 64
_MOST_ERROR = 0.9  # of the most certain predictions, in scaled units
_MOST_FACTORS = 16  # outputs, of 32 MB each for 2,000 inducing points
_SAVED = ("rows", "weights", "means", "shares")
_OF_PLAN = ("noises", "labeled", "learned", "mean_weights")  # which the packaged models do not have
_SCALING = "scaling."


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
    mean_weights: Array = field(default_factory=lambda: np.zeros(0))
    """Means over the rows that it was fitted to, before they were scaled to 1: of the weights of
    rows, then of each task's :meth:`molattn.model.scaling.Scaling.std_weights`, ``[1 + T]``."""
    helpers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """After a fit: other tasks that each task learns from; not saved."""
    errors: Array | None = None
    """After a fit that asked for them: of each row without its own label, ``[n, T]``; not saved."""
    _factors: dict[tuple[int, float], tuple[Rows, Array]] = field(
        default_factory=dict, init=False, compare=False
    )

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
        with_errors: bool = False,
    ) -> "GaussianProcessHead":
        """Fit to n labeled rows.

        Up to ``inducing_points`` rows it is exact; of more rows that many are drawn at random as
        inducing points, in turn for each task of the rows that have its label, and the same
        whatever the order of the rows. Each set of tasks that have labels for the same rows is
        fitted by itself, on the inducing points that have them, in a time that grows with the cube
        of their number. So there are up to twice as many inducing points if that takes no longer
        than such fits on ``inducing_points`` each, and with more than 16 sets no longer than 16. A
        task without labels is predicted as 0, or with equal probabilities.

        Tasks learn from each other and from ``auxiliary`` ones, which are not predicted, where that
        makes their labels more likely; see :mod:`molattn.model.gaussian_process.sharing`. Rows that
        only have auxiliary labels fill up the inducing points, to at most a quarter more.

        Labels ``[n, T]`` are scaled values and class indices, NaN where missing, with those of
        auxiliary tasks in further columns; weights are of rows ``[n]`` or of all these labels, and
        rows of weight 0 are left out; ``keys`` identify each
        row wherever it stands, by default by its index. ``with_errors`` adds leave-one-out errors
        of regressions, absolute and in scaled units; those of classes are NaN.
        """
        options = weights, keys, inducing_points, seed
        fitted = fit_tasks(config, inputs, targets, tuple(auxiliary), *options)
        scalings: list[ProbabilityScaling | None] = []
        slices = output_slices(config.tasks)
        for index, (task, columns) in enumerate(zip(config.tasks, slices, strict=True)):
            scalings.append(None)
            if task.kind != "regression":
                rows = np.flatnonzero(~np.isnan(fitted.unseen[:, columns.start]))
                unseen = torch.from_numpy(fitted.unseen[rows, columns])
                logits = class_logits(unseen, task).numpy()
                classes = targets[rows, index].astype(int)
                scalings[-1] = ProbabilityScaling.fit(logits, classes)
        errors = None
        if with_errors:
            errors = fitted.leave_one_out_errors()[:, [columns.start for columns in slices]]
            errors[:, [task.kind != "regression" for task in config.tasks]] = np.nan
        outputs = len(config.output_names)
        return cls(
            tuple(config.tasks),
            fitted.kernel,
            fitted.points,
            fitted.weights[:, :outputs],
            fitted.means[:outputs],
            fitted.noises[:outputs],
            fitted.labeled[:, :outputs],
            tuple(scalings),
            np.ones(len(config.tasks)),
            helpers={name: sorted(helpers) for name, helpers in fitted.helpers.items()},
            errors=errors,
        )

    def with_rows(self, numbers: Rows, learned: NDArray[np.uint64]) -> "GaussianProcessHead":
        """Name the rows that it was fitted to by numbers ``[n]``, and those of the table."""
        return replace(self, rows=numbers[self.rows], learned=learned)

    def predict(self, inputs: KernelInputs) -> Array:
        """Predict n rows, ``[n, outputs]``: regressions in scaled units, logits of classes."""
        latent = np.empty((len(inputs), len(self.means)))
        for rows in blocks(np.arange(len(inputs))):
            latent[rows] = self.means + self.kernel(inputs[rows]) @ self.weights
        return self.outputs(torch.from_numpy(latent)).numpy()

    def outputs(self, latent: Tensor) -> Tensor:
        """Convert means of the Gaussian processes ``[n, outputs]`` to :meth:`predict`."""
        outputs = []
        slices = output_slices(self.tasks)
        for task, columns, scaling in zip(self.tasks, slices, self.scalings, strict=True):
            values = latent[:, columns]
            if scaling is not None:
                logits = scaling.logits(class_logits(values, task))
                values = logits if task.kind == "multiclass" else logits[:, 1:] - logits[:, :1]
            outputs.append(values)
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

    def posterior(
        self, inputs: KernelInputs, output: int, error: float = math.nan
    ) -> tuple[Array, float]:
        r"""Return what is unknown of n rows: a covariance ``[n, n]``, and the noise of a label.

        .. math:: k(x, x') - k(x, Z) (k(Z, Z) + \sigma I)^{-1} k(Z, x')

        Both are in units of the variance of the signal. Of rows beyond the inducing points, and of
        labels of other tasks, nothing is known here, which makes it larger. A model that was saved
        without noises takes them from ``error``, the standard deviation of its most certain
        predictions, in scaled units.
        """
        noise = float(self.noises[output]) if len(self.noises) else _noise(error)
        explained = self._explained(self.kernel(inputs), output, noise)
        covariance = self.kernel.at(inputs)(inputs) - explained.T @ explained
        np.fill_diagonal(covariance, np.maximum(covariance.diagonal(), LEAST_VARIANCE))
        return covariance, noise

    def correlations(
        self, first: KernelInputs, second: KernelInputs, errors: Mapping[int, float]
    ) -> dict[int, Array]:
        """Return the correlation of what is unknown of the labels of n pairs of rows, by output.

        It is the covariance of :meth:`posterior` over the standard deviations with noise, ``[n]``.
        The noise of each output that is asked for is at least that of the ``errors`` that
        :meth:`posterior` takes, so that the labels of molecules that the kernel takes for the same
        differ as much as those of training molecules do from their predictions.
        """
        correlations = {output: np.empty(len(first)) for output in errors}
        for rows in blocks(np.arange(len(first)), _PAIRS_AT_ONCE):
            sides = first[rows], second[rows]
            prior = self.kernel.at(sides[1])(sides[0]).diagonal()
            crosses = [self.kernel(side) for side in sides]
            for output, error in errors.items():
                noise = max([_noise(error), *self.noises[output : output + 1].tolist()])
                explained = [self._explained(cross, output, noise) for cross in crosses]
                covariance = prior - (explained[0] * explained[1]).sum(axis=0)
                variances = [1.0 + noise - (side**2).sum(axis=0) for side in explained]
                correlations[output][rows] = covariance / np.sqrt(variances[0] * variances[1])
        return correlations

    def logit_stds(self, inputs: KernelInputs, task: int) -> Array:
        r"""Return the standard deviation of the logit of n rows of a binary task, ``[n]``.

        It is :math:`a s \sqrt{v}` with the scale a of Platt scaling and the variance v of
        :meth:`posterior`, in units of the signal's :math:`s^2`. Labels of 1 and -1 with the mean m
        have a variance of :math:`1 - m^2`, which signal and noise make up together.
        """
        output = output_slices(self.tasks)[task].start
        scaling: Any = self.scalings[task]
        noise = float(self.noises[output])
        explained = self._explained(self.kernel(inputs), output, noise)
        variances = np.maximum(1.0 - (explained**2).sum(axis=0), LEAST_VARIANCE)
        signal = (1.0 - self.means[output] ** 2) / (1.0 + noise)
        return scaling.scale * np.sqrt(signal * variances)

    def _explained(self, cross: Array, output: int, noise: float) -> Array:
        """Return n vectors whose products are the covariance that p labels explain, ``[p, n]``.

        ``cross`` is the kernel of the n rows with all inducing points, ``[n, m]``.
        """
        from scipy.linalg import solve_triangular  # not needed for predictions

        if (output, noise) not in self._factors:
            is_labeled = self.labeled if len(self.labeled) else self.weights != 0.0
            labeled = np.flatnonzero(is_labeled[:, output])
            points = self.kernel.inputs(len(self.weights))[labeled]
            between = self.kernel.at(points)(points, rounded=True)
            between[np.diag_indices_from(between)] += noise
            if len(self._factors) == _MOST_FACTORS:
                self._factors.clear()
            factor: Any = np.linalg.cholesky(between)
            self._factors[output, noise] = labeled, factor
        labeled, factor = self._factors[output, noise]
        return solve_triangular(factor, cross[:, labeled].T, lower=True, check_finite=False)

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
        in_table = np.flatnonzero(self.rows >= 0)
        for rows in blocks(np.arange(len(inputs)), _NEIGHBOR_ROWS_AT_ONCE):
            kernel = self.kernel(inputs[rows])[:, in_table]
            factors = zip(output_slices(self.tasks), self.shares, scales, strict=True)
            for of_task, (columns, share, scale) in zip(neighbors.values(), factors, strict=True):
                terms = kernel * self.weights[in_table, columns.start]
                order = np.argsort(-np.abs(terms), axis=1, kind="stable")[:, :count]
                for similarity, contributions, top in zip(
                    kernel, terms * share * scale, order, strict=True
                ):
                    numbers = self.rows[in_table[top]].tolist()
                    values = similarity[top].tolist(), contributions[top].tolist()
                    texts = [smiles.get(number) for number in numbers]
                    of_task.append([*map(Neighbor, numbers, *values, texts)])
        return neighbors

    @property
    def share_by_task(self) -> dict[str, float]:
        """The weight in the prediction of each task beside networks, by the name of the task."""
        return dict(zip((task.name for task in self.tasks), self.shares.tolist(), strict=True))

    def to_files(
        self, name: str = GAUSSIAN_PROCESS_FILE, more: Mapping[str, Array] = MappingProxyType({})
    ) -> dict[str, bytes]:
        """Return the content of its file in a saved model, by name, with more arrays."""
        names = (*_SAVED, *_OF_PLAN)
        arrays = {name: np.ascontiguousarray(getattr(self, name)) for name in names}
        for index, scaling in enumerate(self.scalings):
            if scaling is not None:
                arrays[f"{_SCALING}{index}"] = np.array([scaling.scale, *scaling.bias])
        return {name: safetensors.numpy.save({**arrays, **self.kernel.to_arrays(), **more})}

    @classmethod
    def from_files(cls, files: ModelFiles, config: MolAttnConfig) -> Self | None:
        """Read the file of :meth:`to_files`; None without it."""
        arrays = files.arrays(GAUSSIAN_PROCESS_FILE)
        with files.reading(GAUSSIAN_PROCESS_FILE):
            return cls.from_arrays(arrays, config) if arrays else None

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], config: MolAttnConfig) -> Self:
        """Return the Gaussian process of the arrays of its file."""
        values: Any = {name: arrays.get(name, np.zeros(0)) for name in _OF_PLAN}
        values |= {name: arrays[name] for name in _SAVED}
        saved = (arrays.get(f"{_SCALING}{index}") for index in range(len(config.tasks)))
        scalings = (
            None if array is None else ProbabilityScaling(array[0], tuple(array[1:].tolist()))
            for array in saved
        )
        kernel = MoleculeKernel.from_arrays(arrays, count_kinds(config))
        return cls(tuple(config.tasks), kernel, scalings=tuple(scalings), **values)


def _noise(error: float) -> float:
    """Return the variance of an error in scaled units over that of the signal."""
    error = min(error, _MOST_ERROR)
    return error**2 / (1.0 - error**2)
