"""Let a trained model learn from new measurements without training again.

The Gaussian process is conditioned on the new rows
(:mod:`molattn.model.gaussian_process.conditioning`), what joins it with the network and the
intervals are recalibrated if a test says so (:mod:`molattn.model.recalibration`), and the new
molecules become training molecules. The network stays as it is.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from molattn.chem.seen_atoms import SeenAtoms
from molattn.config import DataConfig
from molattn.config.data import TableColumns
from molattn.data.dataset import TrainingTable, read_training_table
from molattn.data.table import Table, listed, open_table
from molattn.errors import InputError, matching, quoted
from molattn.model.artefact import Update
from molattn.model.confidence import difficulty, expected_factor
from molattn.model.gaussian_process import GaussianProcessHead, condition
from molattn.model.label_limits import largest_errors, nearest_permitted
from molattn.model.model import MolAttn
from molattn.model.outputs import class_logits
from molattn.model.recalibration import (
    FEWEST_ROWS,
    Combination,
    recalibrated_probabilities,
    recalibrated_scores,
)
from molattn.model.target_transform import limits_with_transform
from molattn.model.uncertainty import Calibration, ConformalScores, Uncertainty
from molattn.task import Task, output_slices
from molattn.training.gaussian_process import labels_within
from molattn.utils.console import counted, print_line

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]

LEVEL = 0.9
"""Nominal coverage of the intervals that are compared with the new labels."""
MOST_ROWS = 5_000
"""Most rows of an update, whose time grows with their cube."""
_MOST_STD = 0.9  # of errors, of labels with a standard deviation of 1
_MOST_EXCESS = 1.5  # errors relative to the expected ones, less two standard errors


class TaskErrors(NamedTuple):
    """Errors of the new rows of a task: in its own unit, on log10, or a rate of wrong classes."""

    task: Task
    count: int  # of measured labels
    expected: float  # mean expected error
    actual: float  # mean error
    inside: float  # fraction of labels, with both limits, in their intervals; NaN without
    scale: Literal["", "log10"] = ""  # log10 of a target that is learned as a logarithm


@dataclass(frozen=True, repr=False)
class UpdatedModel:
    """A model that has learned from new measurements, and their errors.

    After the update, each row is predicted without its own label.
    """

    model: MolAttn
    update: Update
    table: TrainingTable
    replicates: int  # rows of molecules that the model had learned from before
    before: tuple[TaskErrors, ...]  # of the tasks with new labels
    after: tuple[TaskErrors, ...]
    misfits: tuple[str, ...]  # of each task that the model no longer fits, why

    def lines(self) -> Iterator[str]:
        """Yield log lines."""
        for before, after in zip(self.before, self.after, strict=True):
            errors = (f"{row.actual:.3g} (expected {row.expected:.3g})" for row in (before, after))
            labels = counted(before.count, "new label")
            scale = " on log10" if before.scale else ""
            words = f"{quoted(before.task.name)}: mean error of {labels}{scale} before and after"
            yield f"{words}: {', '.join(errors)}".replace("expected nan", "expected unknown")
        yield from self.update.recalibrated
        yield from self.misfits


def update_model(
    model: MolAttn,
    config: DataConfig,
    source: "str | Path | pd.DataFrame | Table",
    console: Console | None = None,
) -> UpdatedModel:
    """Let a copy of a model learn from new measurements.

    Args:
        model: A model with a Gaussian process and a calibration.
        config: The columns that it was trained on. Targets that the table lacks are not updated.
        source: The table of new measurements.
        console: Where to log; silent without one.

    Raises:
        InputError: The model cannot be updated, or the table cannot be used or is too large.
    """
    process = _check_process(model)
    table = _read(model, config, source, console)
    identities = np.array([record.identity for record in table.records], dtype=np.uint64)
    replicates = int(np.isin(identities, process.learned).sum())
    for line in _table_lines(table, replicates):
        print_line(console, line)
    new = _NewRows(model, process, table)
    before = new.errors_before()
    updated = copy.deepcopy(model)
    unseen = new.condition(updated, process)
    recalibrated = [*new.recombine(updated, unseen), *new.calibrate(updated, unseen)]
    labels = {before_update.task.name: before_update.count for before_update in before}
    update = Update(
        datetime.now(UTC).date().isoformat(),
        table.path.name,
        table.digest,
        len(table.rows),
        labels,
        tuple(recalibrated),
    )
    updated.updates = (*model.updates, update)
    after = new.errors_after(updated, unseen)
    misfits = tuple(new.misfits)
    updated_model = UpdatedModel(updated, update, table, replicates, before, after, misfits)
    for line in updated_model.lines():
        print_line(console, line)
    return updated_model


def _check_process(model: MolAttn) -> GaussianProcessHead:
    process = model.gaussian_process
    if process is None:
        raise InputError("MODEL: it has no Gaussian process to update (--predictor both)")
    if not len(process.noises):
        reason = "it was saved without the noise of its labels"
        raise InputError(f"MODEL: {reason}, and cannot be updated; train a model of your own")
    if model.config.written_tasks:  # the new rows would be read as parents alone
        reason = "some of its targets are predicted of molecules as written"
        raise InputError(f"MODEL: {reason}, and cannot be updated; train a model of your own")
    if model.uncertainty is None or model.training_set is None:
        raise InputError("MODEL: expected a calibrated model, as molattn train saves it")
    return process


def _read(
    model: MolAttn,
    config: DataConfig,
    source: "str | Path | pd.DataFrame | Table",
    console: Console | None,
) -> TrainingTable:
    """Read a table as the training read its own, but for split and auxiliary columns.

    Its molecules are read as the model reads them.
    """
    table = open_table(source, options=config)
    settings = model.config
    names = [task.name for task in settings.tasks]
    measured = [index for index, name in enumerate(names) if matching(name, table.header)]
    if not measured:
        raise InputError(f"{table.path}: expected a column of a target, {listed(names)}")
    names_as_trained = {option.name for option in fields(TableColumns)} - {"split_column"}
    options: dict[str, Any] = {name: getattr(config, name) for name in names_as_trained}
    options["target_columns"] = tuple(names[index] for index in measured)
    kinds = (settings.target_transforms[index].kind for index in measured)
    options["target_transform"] = tuple(kinds)
    for name, each in (("relation_columns", 1), ("interval_columns", 2), ("std_columns", 1)):
        columns = (getattr(config, name)[each * index :][:each] for index in measured)
        options[name] = tuple(chain.from_iterable(columns))
    if config.split == "time" and config.time_column in table.header:
        options |= {"split": "time", "time_column": config.time_column}
    table.tasks = [settings.tasks[index] for index in measured]
    reader = settings.reader(settings.input_fields(fingerprint=True, smiles=True))
    read = read_training_table(table, DataConfig(**options), reader, console)
    if len(read.rows) > MOST_ROWS:
        rows = f"{counted(len(read.rows), 'row')}, expected at most {MOST_ROWS:,}"
        raise InputError(f"{table.path}: got {rows}; train again with them")
    return read


def _table_lines(table: TrainingTable, replicates: int) -> Iterator[str]:
    reasons = [f"{table.unit} {row.line}: {row.reason}" for row in table.skipped[:3]]
    examples = f" ({'; '.join(reasons)})" if reasons else ""
    remarks = f" ({', '.join(table.remarks)})" if table.remarks else ""
    counts = f"{counted(len(table.rows), 'row')} used, {len(table.skipped)} skipped"
    yield f"{table.path}{remarks}: {counts}{examples}"
    if replicates:
        yield f"{counted(replicates, 'row')} of training molecules count as replicates"


class _NewRows:
    """The new rows, as a model saw them before it learned from them."""

    def __init__(self, model: MolAttn, process: GaussianProcessHead, table: TrainingTable) -> None:
        molecules = table.molecules(np.arange(len(table.rows)))
        tasks = model.config.tasks
        columns = [model.config.targets.index(task.name) for task in table.tasks]
        self.model = model
        self.table = table
        self.targets, stds = np.full((2, len(table.rows), len(tasks)), np.nan)
        self.targets[:, columns] = molecules.targets
        self.bounds = np.full((2, *self.targets.shape), np.nan)
        if molecules.bounds is not None:
            self.bounds[:, :, columns] = molecules.bounds
        if molecules.stds is not None:
            stds[:, columns] = molecules.stds
        weights = molecules.weights
        means = process.mean_weights
        if weights is not None:
            if len(means) and table.weights is not None:
                weights = table.weights / means[0]  # as of the rows of the training
            self.targets[weights == 0.0] = np.nan
            self.bounds[:, weights == 0.0] = np.nan
            weights = np.where(weights > 0.0, weights, 1.0)
        known_errors = None if molecules.stds is None else stds
        of_stds = means[1:] if len(means) else None
        self.weights = model.scaling.label_weights(self.targets, known_errors, weights, of_stds)
        self.labels = self._scaled(self.targets)
        self.limits = self._scaled(self.bounds)
        self.records = molecules.records
        self.fingerprints = table.fingerprints(np.arange(len(table.rows)))
        features = molecules.features
        self.network, self.inputs = model.networks.predict(self.records, features=features)
        self.starts = [columns.start for columns in output_slices(tasks)]
        index = model.predictor.calibrated_uncertainty().fingerprints
        self.labeled = ~np.isnan(np.fmax(self.targets, np.fmax(*self.bounds)))
        self.similarity = index.similarity_to_others(self.fingerprints, self.labeled)
        _, self.nearby = index.neighbor_errors(self.fingerprints, len(tasks))
        if index.seen is not None:
            of_rows = self.records, self.labeled, model.config.featurizer
            lacks = index.seen.lacks_beside_others(*of_rows)
            self.similarity[lacks] = 0.0
            self.nearby[lacks] = 1.0
        self.misfits: list[str] = []

    def _scaled(self, labels: Array) -> Array:
        return self.model.scaling.scaled_labels(torch.from_numpy(labels)).double().numpy()

    def _least_errors(self) -> list[float]:
        """Return scaled errors of the model where it is most certain, NaN of classes."""
        tasks = enumerate(self.model.config.tasks)
        least_std = self.model.predictor.least_std
        return [
            min(least_std(index), _MOST_STD) if task.kind == "regression" else np.nan
            for index, task in tasks
        ]

    def condition(self, updated: MolAttn, process: GaussianProcessHead) -> Array:
        """Condition the process on the rows; return its outputs for them without their labels.

        Labels with limits are learned as in a training; an error of the model counts with the
        errors of the rows, which may all be censored.
        """
        conditioned = condition(process, self.inputs, self.labels, self.weights)
        predicted = conditioned.process.predict(self.inputs)[:, self.starts]
        errors = self.labels - conditioned.unseen[:, self.starts]
        errors = np.vstack([errors, self._least_errors()])
        labels = labels_within(predicted, self.labels, self.limits, errors)
        if not np.array_equal(labels, self.labels, equal_nan=True):
            conditioned = condition(process, self.inputs, labels, self.weights)
        identities = np.array([record.identity for record in self.records], dtype=np.uint64)
        learned = np.append(process.learned, identities)
        updated.gaussian_process = replace(conditioned.process, learned=learned)
        return conditioned.unseen

    def recombine(self, updated: MolAttn, unseen: Array) -> Iterator[str]:
        """Recalibrate how network and Gaussian process are joined; yield what changed."""
        process: Any = updated.gaussian_process
        tasks = updated.config.tasks
        network = updated.predictor.mean(self.network)
        network = np.where(process.output_shares == 1.0, unseen, network)  # it is not trained
        mean, scale = (x.cpu().numpy().copy() for x in (updated.target_mean, updated.target_scale))
        shares = process.shares.copy()
        for index, task in enumerate(tasks):
            rows = np.flatnonzero(~np.isnan(self.labels[:, index]))
            if task.kind != "regression" or len(rows) < FEWEST_ROWS:
                continue
            column = self.starts[index]
            former = Combination(float(shares[index]))
            latter = former.fit_validated(
                network[rows, column], unseen[rows, column], self.labels[rows, index]
            )
            if latter != former:
                mean[index] += scale[index] * latter.location
                scale[index] *= latter.scale
                shares[index] = latter.weight
                yield f"{quoted(task.name)}: predictions recalibrated: {latter.changes(former)}"
        updated.gaussian_process = replace(process, shares=shares)
        updated.scaling.set_targets(mean, scale)

    def _outputs(self, updated: MolAttn, unseen: Array) -> Array:
        """Return outputs of each member for the rows without their labels, transformed."""
        process: Any = updated.gaussian_process
        return updated.scaling.to_transformed(process.mean(self.network, unseen))

    def calibrate(self, updated: MolAttn, unseen: Array) -> Iterator[str]:
        """Recalibrate intervals and probabilities, and add the molecules; yield what changed."""
        tasks = updated.config.tasks
        uncertainty = updated.predictor.calibrated_uncertainty()
        mean = updated.predictor.mean(self._outputs(updated, unseen))
        labels = self._transformed(self.labels)
        limits = limits_with_transform(self.bounds, updated.config.target_transforms)
        limits = self._transformed(self._scaled(limits))
        ends = np.where(np.isnan(self.bounds), labels, self._transformed(self.limits))
        guesses = updated.predictor.guess_errors()
        errors = np.full(labels.shape, np.nan)
        parts = [*uncertainty.calibration.parts]
        for index, (task, columns) in enumerate(zip(tasks, output_slices(tasks), strict=True)):
            former = parts[index]
            rows = np.flatnonzero(~np.isnan(labels[:, index]))
            similarity = self.similarity[rows, index]
            if isinstance(former, ConformalScores):
                scores = former
                center = mean[rows, columns.start]
                absolute = largest_errors(center, labels[rows, index], limits[:, rows, index])
                if len(rows) >= FEWEST_ROWS:
                    scores = recalibrated_scores(former, absolute, similarity, guesses[index])
                    least = np.abs(nearest_permitted(center, ends[:, rows, index]) - center)
                    self._check_fit(task, least, similarity, former, guesses[index])
                absolute = np.abs(labels[rows, index] - center)  # as of training molecules
                errors[rows, index] = absolute / difficulty(similarity, scores.near) / scores.mean
                parts[index] = scores
                if scores != former:
                    change = f"{scores.mean / former.mean:.2f} times as wide"
                    change = str(scores) if np.isnan(former.mean) else f"intervals {change}"
                    yield f"{quoted(task.name)}: {change}"
            elif len(rows) >= FEWEST_ROWS:
                logits = class_logits(torch.from_numpy(mean[rows, columns]), task).numpy()
                classes = labels[rows, index].astype(int)
                parts[index] = recalibrated_probabilities(former, logits, classes)
                if parts[index] != former:
                    yield f"{quoted(task.name)}: {parts[index]}"
        seen = SeenAtoms.of(self.records, self.labeled, updated.config.featurizer)
        more = self.fingerprints, self.labeled, errors, seen
        fingerprints = uncertainty.fingerprints.with_molecules(*more)
        updated.uncertainty = Uncertainty(Calibration(tasks, tuple(parts)), fingerprints)
        self._add_labels(updated)

    def _transformed(self, labels: Array) -> Array:
        """Return scaled labels ``[..., T]`` on the transformed scale."""
        return labels * self.model.target_scale.numpy() + self.model.target_mean.numpy()

    def _check_fit(
        self, task: Task, errors: Array, similarity: Array, scores: ConformalScores, guess: float
    ) -> None:
        """Add why the model no longer fits a task, if errors without the labels say so."""
        excess = errors / difficulty(similarity, scores.near) / scores.mean
        least = excess.mean() - 2.0 * excess.std(ddof=1) / np.sqrt(len(excess))
        reason = ""
        if least > _MOST_EXCESS:
            reason = f"errors are {excess.mean():.1f} times the expected ones"
        elif errors.mean() >= guess:
            reason = "errors are as large as those of a guess"
        if reason:
            verdict = f"{quoted(task.name)}: the model no longer fits the new rows"
            self.misfits.append(f"{verdict}: {reason}; train again with them")

    def _add_labels(self, updated: MolAttn) -> None:
        training_set: Any = updated.training_set
        tasks = updated.config.tasks
        index = updated.predictor.calibrated_uncertainty().fingerprints
        molecules = training_set.molecules
        if molecules is not None:
            smiles = [*self.table.smiles]
            molecules = molecules.with_rows(smiles, self.targets, self.fingerprints, index)
        updated.training_set = training_set.with_labels(tasks, self.targets, self.bounds, molecules)

    def errors_before(self) -> tuple[TaskErrors, ...]:
        """Return the errors of the model before the update."""
        predictor = self.model.predictor
        outputs = predictor.with_gaussian_process(self.network, self.inputs)
        prediction = predictor.prediction(outputs, self.records, LEVEL)
        ends = prediction.low, prediction.high
        return self._errors(prediction.prediction, prediction.expected_error, *ends)

    def errors_after(self, updated: MolAttn, unseen: Array) -> tuple[TaskErrors, ...]:
        """Return the errors after the update, of each row without its own label."""
        predictor = updated.predictor
        outputs = self._outputs(updated, unseen)
        mean = predictor.mean(outputs)
        values = predictor.values(outputs)
        _, expected = predictor.grade(values, mean, self.similarity, self.nearby)
        ends = predictor.intervals(mean, self.similarity, LEVEL)
        return self._errors(values, expected, *ends)

    def _errors(
        self, values: Array, expected: Array, low: Array, high: Array
    ) -> tuple[TaskErrors, ...]:
        tasks = self.model.config.tasks
        errors = []
        for index, (task, columns) in enumerate(zip(tasks, output_slices(tasks), strict=True)):
            rows = np.flatnonzero(~np.isnan(self.targets[:, index]))
            labels = self.targets[rows, index]
            if not len(rows):
                continue
            predicted = values[rows, columns.start]
            actual = np.abs(labels - predicted)
            expected_errors = expected[rows, index]
            scale = ""
            if self.model.config.target_transforms[index].kind == "log":
                scale = "log10"
                actual = np.abs(np.log10(labels / predicted))
                expected_errors = np.log10(expected_factor(expected_errors, predicted))
            ends = np.where(np.isnan(self.bounds), self.targets, self.bounds)[:, rows, index]
            is_inside = (low[rows, index] <= ends) & (ends <= high[rows, index])
            inside = float(is_inside.all(axis=0).mean())
            if not np.isfinite(high[rows, index]).all():  # too few labels for intervals
                inside = float("nan")
            if task.kind != "regression":
                cells = [task.cells(row.tolist())[0] for row in values[rows, columns]]
                actual = np.array(cells) != np.array(task.classes)[labels.astype(int)]
                inside = float("nan")
            means = float(expected_errors.mean()), float(actual.mean())
            errors.append(TaskErrors(task, len(rows), *means, inside, scale))
        return tuple(errors)
