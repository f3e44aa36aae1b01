"""Fit the Gaussian process of a trained model, and its weight in the predictions."""

import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from molattn.chem.split import Split
from molattn.config import TrainConfig
from molattn.data.dataset import TrainingTable
from molattn.errors import quoted
from molattn.model.gaussian_process import GaussianProcessHead, log_bayes_factor
from molattn.model.label_limits import mean_within, nearest_permitted
from molattn.model.model import MolAttn
from molattn.model.outputs import gaussian_process_shares, mean_of_members
from molattn.task import Task, interleaved, output_slices
from molattn.training.auxiliary_labels import AuxiliaryLabels
from molattn.utils.console import print_line
from molattn.utils.spooled_list import Joined

Array = NDArray[np.float64]

MAX_LEARNED = 100_000
MAX_HELD_OUT = 20_000
_LEAST_STD = 1e-3  # of errors, of labels with a standard deviation of 1
_DESCRIPTORS = "descriptors"
_VERY_STRONG = 5.0  # evidence: Kass and Raftery, J. Am. Stat. Assoc. 1995, 90, 773


def add_gaussian_process(
    model: MolAttn,
    config: TrainConfig,
    table: TrainingTable,
    split: Split,
    console: Console | None = None,
) -> tuple[Array, NDArray[np.int64], Array]:
    """Fit the Gaussian process of a trained model, and its weight in the predictions.

    With the default kernels, descriptors are compared only if they make the labels of the training
    rows, or of 800 of them, more likely by exp(5). The share follows from the predictions for the
    validation rows; then the Gaussian process learns from these too. Without validation rows, the
    share beside a network is a half until
    :func:`molattn.training.out_of_fold.calibrate_out_of_fold` determines it.

    Returns:
        Outputs of each member for the validation rows as of
        :meth:`molattn.model.predictor.Predictor.predict_outputs`, before the Gaussian process
        learns from them: their labels determine only the shares. Then the rows that it has learned
        from, ``[n]``, and their leave-one-out errors, ``[n, T]``.
    """
    start = time.perf_counter()
    validation = table.molecules(split.val)
    model.gaussian_process = None
    model.config = replace(model.config, kernels=config.kernels)
    if not config.kernels:
        outputs = model.predictor.predict_outputs(validation.records, features=validation.features)
        return outputs, split.train[:0], np.zeros((0, len(table.tasks)))
    rows = _Rows(model, config, table, split)
    if _DESCRIPTORS in config.kernels and not config.gaussian_process.kernels:
        rows.select_kernels(console)
    gp = rows.fit(rows.size)
    held_out = np.arange(rows.size, len(rows.keys))
    if config.gaussian_process.predictor == "both":
        gp = replace(gp, shares=rows.shares(gp, held_out))
    if len(held_out) == len(split.val):
        outputs = gp.combine(rows.network[:, held_out], rows.inputs[held_out])
        outputs = model.scaling.to_transformed(outputs)
    else:
        model.gaussian_process = gp
        outputs = model.predictor.predict_outputs(validation.records, features=validation.features)
    if len(held_out):
        last = rows.fit(len(rows.keys), with_errors=config.data.keep_residuals)
        gp = replace(last, shares=gp.shares)
    errors = np.zeros((0, len(table.tasks))) if gp.errors is None else gp.errors[: len(rows.keys)]
    errors[np.isnan(rows.labels[: len(errors)])] = np.nan  # of censored labels
    gp = replace(gp, mean_weights=rows.mean_weights)
    model.gaussian_process = gp.with_rows(rows.lines, rows.learned)
    for line in share_lines(model) if len(held_out) else ():
        print_line(console, line)
    seconds = f"{time.perf_counter() - start:.1f} s"
    for name, helpers in gp.helpers.items():
        line = f"{quoted(name)}: the Gaussian process learns from {', '.join(map(quoted, helpers))}"
        print_line(console, line)
    print_line(console, f"Gaussian process with {len(gp.rows)} inducing points fitted in {seconds}")
    return outputs, rows.numbers[: len(errors)], errors


def labels_within(predicted: Array, labels: Array, bounds: Array, errors: Array) -> Array:
    """Return what labels with limits count as, after a first fit to the others, ``[n, T]``.

    A censored label is left out if the Gaussian process of the others predicts a value on the right
    side of its bound. Otherwise it counts as the mean, beyond the bound, of a normal distribution
    around that prediction, whose standard deviation is the root mean square of the leave-one-out
    ``errors``: one step of the EM algorithm for a Tobit model. So does an interval, between its
    limits, wherever the prediction is, and as its value or middle before. Other labels stay.

    Source: Amemiya, J. Econom. 1984, 24, 3.
    """
    squares = np.square(errors)
    counts = np.maximum(np.sum(~np.isnan(squares), axis=0), 1)
    std = np.sqrt(np.nansum(squares, axis=0) / counts).clip(_LEAST_STD)
    is_interval = ~np.isnan(bounds).any(axis=0)
    is_learned = is_interval | (nearest_permitted(predicted, bounds) != predicted)
    return np.where(is_learned, mean_within(bounds, predicted, std), labels)


class _Rows:
    """The rows that a Gaussian process learns from, as the trained model of a run sees them.

    At most 100,000 training rows come first, then at most 20,000 validation rows.
    """

    def __init__(
        self, model: MolAttn, config: TrainConfig, table: TrainingTable, split: Split
    ) -> None:
        seed = config.training.seed
        train = sample_rows(table, split.train, MAX_LEARNED, seed)
        held_out = sample_rows(table, split.val, MAX_HELD_OUT, seed)
        rows = np.concatenate([train, held_out])
        molecules = table.molecules(rows)

        def scaled(labels: Array) -> Array:
            return model.scaling.scaled_labels(torch.from_numpy(labels)).double().numpy()

        self.model = model
        self.config = config
        self.size = len(train)
        self.numbers = rows
        self.lines = np.array([table.rows[row].line for row in rows])
        self.keys = [_key(table, row) for row in rows.tolist()]
        records = molecules.records
        features = molecules.features
        self.auxiliary = None
        self.learned = np.array([record.identity for record in records], dtype=np.uint64)
        if table.auxiliary is not None:
            auxiliary = AuxiliaryLabels.of(table, table.auxiliary, split, rows, seed)
            self.auxiliary = auxiliary
            records = Joined(records, auxiliary.molecules.records)
            if features is not None:
                features = np.concatenate([features, auxiliary.molecules.features])  # pyright: ignore
            self.lines = np.concatenate([self.lines, auxiliary.lines])
        self.network, self.inputs = model.networks.predict(records, features=features)
        labels = molecules.targets, molecules.stds, molecules.weights
        self.weights = model.scaling.label_weights(*labels)
        self.mean_weights = np.full(1 + molecules.targets.shape[1], np.nan)
        self.mean_weights[0] = 1.0 if table.weights is None else table.weights[rows].mean()
        if molecules.stds is not None:
            std_weights = model.scaling.std_weights(molecules.targets, molecules.stds)
            self.mean_weights[1:] = std_weights.mean(axis=0)
        self.labels = scaled(molecules.targets)
        self.bounds = None if molecules.bounds is None else scaled(molecules.bounds)

    def fit(self, count: int, *, with_errors: bool = False) -> GaussianProcessHead:
        """Fit a Gaussian process to the first rows, with their leave-one-out errors if asked for.

        Labels with limits are learned by :func:`labels_within`.
        """
        first = {**self._first(count), "with_errors": with_errors or self.bounds is not None}
        gp = self._fit(first)
        if self.bounds is None or gp.errors is None:
            return gp
        starts = [columns.start for columns in output_slices(self.model.config.tasks)]
        predicted = gp.predict(first["inputs"])[:, starts]
        bounds = self.bounds[:, :count]
        labels = labels_within(predicted, first["targets"], bounds, gp.errors[:count])
        if np.array_equal(labels, first["targets"], equal_nan=True):
            return gp if with_errors else replace(gp, errors=None)
        first["targets"] = labels
        return self._fit({**first, "with_errors": with_errors})

    def _fit(self, first: dict[str, Any]) -> GaussianProcessHead:
        if self.auxiliary is not None:
            first = self.auxiliary.added_to(first, self.inputs)
        points = self.config.gaussian_process.inducing_points
        return GaussianProcessHead.fit(inducing_points=points, **first)

    def shares(self, gp: GaussianProcessHead, held_out: NDArray[np.int64]) -> Array:
        """Return the weight of a Gaussian process in the prediction of each target."""
        tasks = self.model.config.tasks
        if not len(held_out):
            return np.full(len(tasks), 0.5)
        mean = mean_of_members(torch.from_numpy(self.network[:, held_out]), tasks).numpy()
        predicted = gp.predict(self.inputs[held_out])
        return gaussian_process_shares(tasks, mean, predicted, self.labels[held_out])

    def select_kernels(self, console: Console | None) -> None:
        """Compare descriptors only if there is very strong evidence for that."""
        factor = log_bayes_factor(name=_DESCRIPTORS, **self._first(self.size))
        verb = "compares" if factor > _VERY_STRONG else "does not compare"
        line = f"the Gaussian process {verb} descriptors: log Bayes factor {factor:.1f}"
        print_line(console, line)
        if factor <= _VERY_STRONG:
            kernels = tuple(name for name in self.config.kernels if name != _DESCRIPTORS)
            self.model.config = replace(self.model.config, kernels=kernels)
            numbers = {key: x for key, x in self.inputs.numbers.items() if key != _DESCRIPTORS}
            self.inputs = replace(self.inputs, numbers=numbers)

    def _first(self, count: int) -> dict[str, Any]:
        """Return the arguments of a fit to the first rows."""
        return {
            "config": self.model.config,
            "inputs": self.inputs[np.arange(count)],
            "targets": self.labels[:count],
            "weights": None if self.weights is None else self.weights[:count],
            "keys": self.keys[:count],
            "seed": self.config.training.seed,
        }


def sample_rows(
    table: TrainingTable, rows: NDArray[np.int64], most: int, seed: int
) -> NDArray[np.int64]:
    """Return at most ``most`` rows of a table, drawn at random and ascending.

    They are drawn in turn for each target of the rows that have its label.
    """
    if len(rows) <= most:
        return rows
    order = np.random.default_rng(seed).permutation(len(rows))
    return np.sort(rows[interleaved(order, ~np.isnan(table.targets[rows]))[:most]])


def share_lines(model: MolAttn) -> list[str]:
    """Return a log line on the weight of the Gaussian process for each target, if there is one."""
    if model.gaussian_process is None:
        return []
    shares = model.gaussian_process.shares
    return [share_line(*pair) for pair in zip(model.config.tasks, shares, strict=True)]


def share_line(task: Task, share: float) -> str:
    """Return a log line on the weight of the Gaussian process for a target."""
    return f"{quoted(task.name)}: {share:.0%} Gaussian process, {1.0 - share:.0%} network"


def _key(table: TrainingTable, row: int) -> str:
    """Return the content of a row, independent of its position and of how its SMILES is written."""
    record = table.records[row]
    partner = None if record.partner is None else record.partner.smiles
    columns = (table.targets, table.weights, table.features)
    numbers = [None if column is None else column[row].tolist() for column in columns]
    if table.stds is not None:
        numbers.append(table.stds[row].tolist())
    if table.bounds is not None:
        numbers.append(table.bounds[:, row].tolist())
    return repr((record.smiles, partner, numbers))
