"""A Gaussian process that predicts all tasks of a model from similarity to training molecules."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from molattn.errors import InputError
from molattn.model.artefact import load_arrays
from molattn.model.config import MolAttnConfig
from molattn.model.gaussian_process.kernel import (
    CountMatrix,
    KernelInputs,
    MoleculeKernel,
    required,
)
from molattn.model.gaussian_process.regression import Basis, GaussianProcess, Sums
from molattn.model.outputs import class_logits
from molattn.model.uncertainty.calibration import ProbabilityScaling
from molattn.record import MoleculeRecord
from molattn.task import Task, interleaved, output_slices

__all__ = ["GaussianProcessHead", "Neighbor", "kernel_inputs", "log_bayes_factor"]

Array = NDArray[np.float64]

_ROWS_AT_ONCE = 1024
_NEIGHBOR_ROWS_AT_ONCE = 128  # each with all inducing points in several arrays
_MOST_KEPT = 32_000_000  # features of all rows: 256 MB
_MOST_COMPARED = 800  # rows; time grows with their cube
_MOST_GROUPS = 16  # sets of targets with the same rows, of full accuracy
_TENSORS = ("rows", "weights", "means", "shares")
_SCALING = "scaling."


class Neighbor(NamedTuple):
    """A training row behind a prediction.

    Args:
        row: Its number in the table of the training, as messages count it.
        similarity: Its kernel with the predicted row, from 0 to 1.
        contribution: What it adds to the prediction.
        smiles: Its SMILES; None if the model does not keep them.
    """

    row: int
    similarity: float
    contribution: float
    smiles: str | None = None


@dataclass(frozen=True, repr=False)
class GaussianProcessHead:
    """A Gaussian process for each output of a model, on one kernel.

    Regressions are in scaled units. The labels of a classification are learned as numbers, 1 for a
    class and -1 for the others; logits are then fitted to leave-one-out predictions by Platt
    scaling.

    Args:
        tasks: The tasks.
        kernel: The kernel with the m inducing points.
        rows: Number of each in the table, as messages count them, ``int64 [m]``.
        weights: Weights of the inducing points in each output, ``[m, outputs]``.
        means: Constant term of each output, ``[outputs]``.
        scalings: Platt scaling of each classification; None for a regression.
        shares: Weight of the Gaussian process in the prediction of each task, from 0 to 1; the
            network has the rest.
    """

    tasks: tuple[Task, ...]
    kernel: MoleculeKernel
    rows: NDArray[np.int64]
    weights: Array
    means: Array
    scalings: tuple[ProbabilityScaling | None, ...]
    shares: Array

    def __post_init__(self) -> None:
        if not np.isfinite(self.weights).all() or not np.isfinite(self.means).all():
            raise InputError("weights that are not finite")
        if not ((self.shares >= 0.0) & (self.shares <= 1.0)).all():
            raise InputError("shares that are not from 0 to 1")

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
    ) -> "GaussianProcessHead":
        """Fit to n labeled rows.

        Up to ``inducing_points`` rows it is exact; of more rows so many are drawn at random as
        inducing points, in turn for each task of the rows that have its label, and the same
        whatever the order of the rows. The time then grows with n, and memory does not. Each set of
        tasks that have labels for the same rows is fitted by itself, on the inducing points that
        have them; with more than 16 sets there are fewer inducing points, so that their time grows
        no further. A task without labels is predicted as 0, or with equal probabilities.

        Args:
            config: Of the model, with T tasks.
            inputs: What the kernel reads of the rows.
            targets: Labels ``[n, T]``: scaled values, class indices; NaN where missing.
            weights: Weights of the rows, ``[n]``; rows of weight 0 are left out. None = equal.
            keys: What identifies each row, such as its SMILES and labels, wherever it stands; None
                = its place.
            inducing_points: Most inducing points.
            seed: Seed of their choice.
        """
        tasks = config.tasks
        weights = np.ones(len(targets)) if weights is None else weights
        labels = np.hstack([*map(_latent, tasks, targets.T)])
        used, drawn = _used_rows(targets, weights, keys, seed)
        groups = _same_rows(labels[used])
        most = max(1, round(inducing_points * min(1.0, _MOST_GROUPS / len(groups)) ** (1.0 / 3.0)))
        points = drawn[:most]
        kernel = MoleculeKernel.fit(inputs[used], np.searchsorted(used, points), _kinds(config))
        kept = kernel(inputs[used], rounded=True) if len(used) * len(points) <= _MOST_KEPT else None
        between = kernel(inputs[points], rounded=True)
        coefficients = np.zeros((len(points), labels.shape[1]))
        means = np.zeros(labels.shape[1])
        is_class = np.repeat(
            [task.kind != "regression" for task in tasks], [task.num_outputs for task in tasks]
        )
        unseen = np.full(labels.shape, np.nan)  # leave-one-out predictions of classes
        for columns, known in groups:
            chosen = used[known]
            if not len(chosen):  # no row has such a label
                continue
            own = np.flatnonzero(np.isin(points, chosen))
            if not len(own):  # fewer inducing points than tasks
                own = np.arange(len(points))
            basis = Basis.of(between[np.ix_(own, own)])

            def blocks(
                chosen: NDArray[np.int64] = chosen,
                own: NDArray[np.int64] = own,
                basis: Basis = basis,
            ) -> Iterator[tuple[Array, NDArray[np.int64]]]:
                """Yield the features of some rows, and the rows, in blocks."""
                for start in range(0, len(chosen), _ROWS_AT_ONCE):
                    some = chosen[start : start + _ROWS_AT_ONCE]
                    found = (
                        kernel(inputs[some], rounded=True)
                        if kept is None
                        else kept[np.searchsorted(used, some)]
                    )
                    yield basis(found[:, own]), some

            sums = Sums(basis.vectors.shape[1], len(columns))
            for features, some in blocks():
                sums.add(features, labels[some][:, columns], weights[some])
            is_exact = np.array_equal(np.sort(points[own]), chosen) and (weights[chosen] == 1).all()
            values, vectors = (basis.values, None) if is_exact else sums.decomposed()
            fitted = {
                column: GaussianProcess.fit(sums, place, values, vectors)
                for place, column in enumerate(columns)
            }
            for column, one in fitted.items():
                coefficients[own, column] = basis.vectors @ one.coefficients
                means[column] = one.mean
            if is_class[columns].any():
                for features, some in blocks():
                    for column in filter(is_class.__getitem__, columns):
                        unseen[some, column] = fitted[column].leave_one_out(
                            features, labels[some, column], weights[some]
                        )
        scalings: list[ProbabilityScaling | None] = []
        for place, (task, part) in enumerate(zip(tasks, output_slices(tasks), strict=True)):
            if task.kind == "regression":
                scalings.append(None)
                continue
            chosen = used[~np.isnan(targets[used, place])]
            logits = class_logits(torch.from_numpy(unseen[chosen, part]), task).numpy()
            scalings.append(ProbabilityScaling.fit(logits, targets[chosen, place].astype(int)))
        return cls(
            tuple(tasks),
            kernel,
            points,
            coefficients,
            means,
            tuple(scalings),
            np.ones(len(tasks)),
        )

    def with_rows(self, numbers: NDArray[np.int64]) -> "GaussianProcessHead":
        """Name the rows that it was fitted to by their numbers ``[n]``."""
        return replace(self, rows=numbers[self.rows])

    def predict(self, inputs: KernelInputs) -> Array:
        """Predict n rows, ``[n, outputs]``: regressions in scaled units, logits of classes."""
        latent = np.empty((len(inputs), len(self.means)))
        for start in range(0, len(inputs), _ROWS_AT_ONCE):
            some = np.arange(start, min(start + _ROWS_AT_ONCE, len(inputs)))
            latent[some] = self.means + self.kernel(inputs[some]) @ self.weights
        return self.outputs(torch.from_numpy(latent)).numpy()

    def outputs(self, latent: Tensor) -> Tensor:
        """Convert means of the Gaussian processes to what :meth:`predict` returns.

        Args:
            latent: ``[n, outputs]``: for each output its constant term plus the sum over inducing
                points of kernel times weight.
        """
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

    def neighbors(self, inputs: KernelInputs, count: int) -> list[list[list[Neighbor]]]:
        r"""Return for each task and n rows the training rows that contribute most to a prediction.

        A training row i contributes :math:`w\,k(x, x_i)\,\alpha_i` in scaled units, with the share
        :math:`w` of the Gaussian process and its weights :math:`\alpha`. Of a classification it is
        the contribution to the latent function, which is 1 for the class (the second of two, the
        first of several) and -1 for the others.

        Args:
            inputs: What the kernel reads of the n rows.
            count: Number of training rows to return of each.

        Returns:
            For each task, for each of the n rows, ``count`` training rows.
        """
        found: list[list[list[Neighbor]]] = [[] for _ in self.tasks]
        for start in range(0, len(inputs), _NEIGHBOR_ROWS_AT_ONCE):
            some = np.arange(start, min(start + _NEIGHBOR_ROWS_AT_ONCE, len(inputs)))
            kernel = self.kernel(inputs[some])
            for of_task, part, share in zip(
                found, output_slices(self.tasks), self.shares, strict=True
            ):
                parts = kernel * self.weights[:, part.start]
                order = np.argsort(-np.abs(parts), axis=1, kind="stable")[:, :count]
                parts *= share
                of_task += [
                    [Neighbor(int(self.rows[at]), float(row[at]), float(own[at])) for at in places]
                    for row, own, places in zip(kernel, parts, order.tolist(), strict=True)
                ]
        return found

    def to_bytes(self) -> bytes:
        """Return the content of a safetensors file."""
        scalings = {
            f"{_SCALING}{place}": np.array([one.scale, *one.bias])
            for place, one in enumerate(self.scalings)
            if one is not None
        }
        own = {name: np.ascontiguousarray(getattr(self, name)) for name in _TENSORS}
        return safetensors.numpy.save({**own, **scalings, **self.kernel.to_tensors()})

    @classmethod
    def from_bytes(
        cls, content: bytes, path: Path, config: MolAttnConfig, embedding_width: int
    ) -> "GaussianProcessHead":
        """Read the output of :meth:`to_bytes`.

        Args:
            content: The content of a file.
            path: The file, for error messages.
            config: Of the model.
            embedding_width: Of the model.

        Raises:
            InputError: The file is damaged, or of another model.
        """
        tensors = load_arrays(content, path, _schema(config, embedding_width))
        scalings = [tensors.pop(f"{_SCALING}{place}", None) for place in range(len(config.tasks))]
        own = {name: tensors.pop(name) for name in _TENSORS}
        try:
            kernel = MoleculeKernel.from_tensors(tensors, _kinds(config))
            if any(
                counts and len(counts) != len(own["rows"])
                for counts in (kernel.counts, kernel.partners)
            ):
                raise InputError("counts of another number of rows")
            return cls(
                tuple(config.tasks),
                kernel,
                scalings=tuple(
                    None if one is None else ProbabilityScaling(one[0], tuple(one[1:].tolist()))
                    for one in scalings
                ),
                **own,
            )
        except InputError as error:
            raise InputError(f"{path}: not the Gaussian process of this model: {error}") from error


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
    rows, which are drawn as inducing points are. Those of several outputs are added, as if they
    were independent; those of the classes of a task are not, so that their evidence is overrated.

    Args:
        config: Of the model, with T tasks.
        inputs: What all kernels read of n rows.
        targets: As for :meth:`GaussianProcessHead.fit`, ``[n, T]``.
        name: The kernel, one of those of numbers.
        weights: Likewise.
        keys: Likewise.
        seed: Seed of the choice of rows.

    Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, section 5.2.
    """
    weights = np.ones(len(targets)) if weights is None else weights
    labels = np.hstack([*map(_latent, config.tasks, targets.T)])
    rows = _used_rows(targets, weights, keys, seed)[1][:_MOST_COMPARED]
    others = {one: numbers for one, numbers in inputs.numbers.items() if one != name}
    found = []
    for numbers in (inputs.numbers, others):
        some = replace(inputs, numbers=numbers)[rows]
        kernel = MoleculeKernel.fit(some, np.arange(len(rows)), _kinds(config))
        between, total = kernel(some, rounded=True), 0.0
        for columns, known in _same_rows(labels[rows]):
            if not len(known):  # none of these rows has such a label
                continue
            own = between[np.ix_(known, known)]
            basis, chosen = Basis.of(own), rows[known]
            sums = Sums(basis.vectors.shape[1], len(columns))
            sums.add(basis(own), labels[chosen][:, columns], weights[chosen])
            values, vectors = sums.decomposed()
            total += sum(
                GaussianProcess.fit(sums, place, values, vectors).log_likelihood
                for place in range(len(columns))
            )
        found.append(total)
    return found[0] - found[1]


def kernel_inputs(
    config: MolAttnConfig,
    records: Sequence[MoleculeRecord],
    embedding: NDArray[np.float32],
    features: NDArray[np.floating] | None,
) -> KernelInputs:
    """Return what the kernels of a model read of n molecules.

    Args:
        config: Of the model.
        records: The molecules.
        embedding: Their embeddings ``[n, width]``.
        features: Their feature columns, if the model uses any.
    """
    partners = counts = None
    if config.counter is not None:
        counts = _stacked(records)
        if config.has_partner:
            partners = _stacked([required(record.partner, "second molecule") for record in records])
    numbers = {}
    if "embedding" in config.kernels:
        numbers["embedding"] = embedding
    if "descriptors" in config.kernels:
        found = np.zeros((len(records), len(config.descriptors)), dtype=np.float32)
        for row, record in zip(found, records, strict=True):
            row[:] = required(record.numbers, "descriptors")[: len(row)]
        numbers["descriptors"] = found
    return KernelInputs(len(records), counts, numbers, partners, features)


def _stacked(records: Sequence[MoleculeRecord]) -> CountMatrix:
    return CountMatrix.stack([required(record.counts, "counts") for record in records])


def _kinds(config: MolAttnConfig) -> list[slice]:
    return [] if config.counter is None else [*config.counter.groups.values()]


def _latent(task: Task, labels: Array) -> Array:
    """Return the numbers that are learned of a task's labels ``[n]``, ``[n, num_outputs]``."""
    if task.kind == "regression":
        return labels[:, None]
    classes = np.arange(len(task.classes))[-task.num_outputs :]
    return np.where(np.isnan(labels)[:, None], np.nan, 2.0 * (labels[:, None] == classes) - 1.0)


def _used_rows(
    targets: Array, weights: Array, keys: Sequence[str] | None, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows with a label and a weight, and these in the order in which they are drawn."""
    used = np.flatnonzero((weights > 0.0) & ~np.isnan(targets).all(axis=1))
    texts = [str(row) if keys is None else keys[row] for row in used.tolist()]
    return used, used[interleaved(_random_order(texts, seed), ~np.isnan(targets[used]))]


def _random_order(keys: Sequence[str], seed: int) -> NDArray[np.int64]:
    """Return an order of keys that is random, and the same wherever they stand."""
    secret = seed.to_bytes(8, "little")
    digests = [blake2b(key.encode(), key=secret, digest_size=16).digest() for key in keys]
    return np.array(sorted(range(len(keys)), key=digests.__getitem__), dtype=np.int64)


def _same_rows(labels: Array) -> list[tuple[list[int], NDArray[np.int64]]]:
    """Group the columns of labels ``[n, L]`` by the rows that have them; return both."""
    groups: dict[bytes, list[int]] = {}
    known = ~np.isnan(labels)
    for column in range(labels.shape[1]):
        groups.setdefault(known[:, column].tobytes(), []).append(column)
    return [(columns, np.flatnonzero(known[:, columns[0]])) for columns in groups.values()]


def _schema(
    config: MolAttnConfig, embedding_width: int
) -> dict[str, tuple[Any, tuple[int | str, ...]]]:
    """Return type and shape of each array of the file of a Gaussian process."""
    outputs = len(config.output_names)
    schema: dict[str, tuple[Any, tuple[int | str, ...]]] = {
        "rows": (np.int64, ("rows",)),
        "weights": (np.float64, ("rows", outputs)),
        "means": (np.float64, (outputs,)),
        "shares": (np.float64, (len(config.tasks),)),
    }
    for place, task in enumerate(config.tasks):
        if task.kind != "regression":
            schema[f"{_SCALING}{place}"] = (np.float64, (1 + len(task.classes),))
    counts = [] if config.counter is None else ["counts", "partners"][: 1 + config.has_partner]
    for name in counts:
        schema[f"{name}.starts"] = (np.int64, ("starts",))
        schema[f"{name}.places"] = (np.uint16, (f"{name} entries",))
        schema[f"{name}.counts"] = (np.uint8, (f"{name} entries",))
    widths = {"embedding": embedding_width, "descriptors": len(config.descriptors)}
    numbers = {f"numbers.{name}": widths[name] for name in widths if name in config.kernels}
    if config.features:
        numbers["features"] = len(config.features)
    for name, width in numbers.items():
        schema[f"{name}.mean"] = (np.float64, (width,))
        schema[f"{name}.scale"] = (np.float64, (width,))
        schema[f"{name}.length"] = (np.float64, (1,))
        schema[f"{name}.points"] = (np.float16, ("rows", width))
    return schema
