"""Out-of-fold predictions, and calibration of a model by them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from molattn.chem.fingerprint_index import FingerprintIndex
from molattn.config import TrainConfig
from molattn.data.dataset import TrainingTable
from molattn.model.confidence import difficulty
from molattn.model.label_limits import largest_errors
from molattn.model.model import MolAttn
from molattn.model.outputs import gaussian_process_shares, mean_of_members
from molattn.model.sites import site_outputs
from molattn.model.target_transform import limits_with_transform, own_units, transformed_labels
from molattn.model.uncertainty import Calibration, ConformalScores, Uncertainty
from molattn.task import Level, output_slices
from molattn.training.checkpoint import read_checkpoint, write_checkpoint
from molattn.training.gaussian_process import share_lines
from molattn.training.site_calibration import calibrate_sites
from molattn.utils.console import print_line

OUT_OF_FOLD_FILE = "out_of_fold.safetensors"

Array = NDArray[np.float64]


@dataclass(frozen=True)
class OutOfFold:
    """Outputs of a model for n rows of a table that it has not learned from."""

    rows: NDArray[np.int64]  # indices of the rows among the usable ones, [n]
    network: Array  # in own units, logits of classes, of each member, [members, n, outputs]
    process: Array | None  # of the Gaussian process, [n, outputs]; None = the model has none
    similarity: Array  # to the nearest training molecule with a label of each task, [n, T]
    atom: Array | None = None  # of the atoms of the rows, [S, outputs]; None = no such tasks
    bond: Array | None = None  # likewise
    atom_shares: Array | None = None  # of the Gaussian process of atoms in them, [T]; None = none
    bond_shares: Array | None = None  # likewise

    @classmethod
    def of_model(
        cls,
        model: MolAttn,
        table: TrainingTable,
        rows: NDArray[np.int64],
        fingerprints: FingerprintIndex,
    ) -> "OutOfFold":
        """Predict rows of a table with a model, by the fingerprints of its training molecules."""
        molecules = table.molecules(rows)
        tasks = model.config.tasks
        network, inputs = model.networks.predict(molecules.records, features=molecules.features)

        def in_own_units(outputs: Array) -> Array:
            values = torch.from_numpy(model.scaling.to_transformed(outputs))
            return own_units(values, tasks, model.config.target_transforms).numpy()

        head = model.gaussian_process
        process = None if head is None else in_own_units(head.predict(inputs))
        similarity = fingerprints.task_similarity(table.fingerprints(rows), len(tasks))
        sites: dict[str, Any] = {}
        if table.sites:
            calibration = model.site_calibration
            sites |= site_outputs(model.networks, calibration, molecules.records)
            processes = calibration.processes if calibration else {}
            sites |= {f"{level}_shares": p.head.shares for level, p in processes.items()}
        return cls(rows, in_own_units(network), process, similarity, **sites)

    @classmethod
    def joined(cls, folds: Sequence["OutOfFold"]) -> "OutOfFold":
        """Join the outputs of several models."""
        processes = [fold.process for fold in folds if fold.process is not None]
        return cls(
            np.concatenate([fold.rows for fold in folds]),
            np.concatenate([fold.network for fold in folds], axis=1),
            np.concatenate(processes) if processes else None,
            np.concatenate([fold.similarity for fold in folds]),
        )

    @classmethod
    def read(cls, path: Path) -> "OutOfFold":
        """Read the file that :meth:`write` wrote, as :func:`read_checkpoint` does."""
        contents = read_checkpoint(path).items()
        arrays: dict[str, Any] = {
            name: tensor if tensor is None else tensor.numpy() for name, tensor in contents
        }
        return cls(**arrays)

    def write(self, path: Path) -> None:
        """Write a file, as :func:`write_checkpoint` does."""
        arrays = {name: x if x is None else torch.from_numpy(x) for name, x in vars(self).items()}
        write_checkpoint(path, arrays)


def calibrate_out_of_fold(
    model: MolAttn,
    config: TrainConfig,
    table: TrainingTable,
    folds: Sequence[OutOfFold],
    fingerprints: FingerprintIndex,
    console: Console | None = None,
) -> None:
    """Calibrate a model by out-of-fold predictions, which other models made.

    The same predictions determine the weight of the Gaussian process, if a network predicts too.
    Intervals are split conformal ones, with the scores of the rows of all folds. This is
    cross-conformal prediction (Vovk, Ann. Math. Artif. Intell. 2015, 74, 9) with the center of the
    model itself. Intervals from scores of cross-validation are valid for models that hardly depend
    on single rows; for any model, intervals of CV+ contain the label with a probability of at least
    1 - 2 alpha for the level 1 - alpha (Barber et al., Ann. Stat. 2021, 49, 486).

    Args:
        model: The model to calibrate.
        config: Its options.
        table: The table of all rows.
        folds: Predictions of models that were trained as this one, on about as many rows.
        fingerprints: Fingerprints of the molecules that this model has learned from.
        console: Where to log; silent without one.
    """
    tasks = model.config.tasks
    joined = OutOfFold.joined(folds)
    if table.sites:
        sites: dict[Level, Array] = {
            level: np.concatenate([vars(fold)[level] for fold in folds]) for level in table.sites
        }
        calibrate_sites(model, table.molecules(joined.rows), sites, console, of_folds=True)
        _share_sites(model, folds)
    if not tasks:
        return
    labels = _labels(model, table, joined.rows)
    network = _transformed(model, table, joined.rows, joined.network)
    process = _transformed(model, table, joined.rows, joined.process)
    head = model.gaussian_process
    if head is not None and process is not None and config.gaussian_process.predictor == "both":
        first = mean_of_members(torch.from_numpy(network), tasks).numpy()
        shares = gaussian_process_shares(tasks, first, process, labels)
        model.gaussian_process = replace(head, shares=shares)
    mean = _combined(model, table, joined)
    guesses = model.predictor.guess_errors()
    bounds = _bounds(model, table, joined.rows)
    calibration = Calibration.fit(tasks, mean, labels, joined.similarity, guesses, bounds)
    numbers = np.repeat(np.arange(len(folds)), [len(fold.rows) for fold in folds])
    prints = table.fingerprints(joined.rows)
    calibration = calibration.with_correlations(mean, labels, joined.similarity, prints, numbers)
    if config.data.keep_residuals:
        errors = np.abs(labels - mean[:, [columns.start for columns in output_slices(tasks)]])
        errors[:, [task.kind != "regression" for task in tasks]] = np.nan
        fingerprints.set_errors(prints, errors)
    model.uncertainty = Uncertainty(calibration, fingerprints)
    for line in (*share_lines(model), *calibration.lines(config.report.interval)):
        print_line(console, line)


def _share_sites(model: MolAttn, folds: Sequence[OutOfFold]) -> None:
    """Give the Gaussian processes of atoms and bonds the mean weights of those of the folds."""
    calibration = model.site_calibration
    assert calibration is not None
    processes = dict(calibration.processes)
    for level, process in processes.items():
        of_folds = [vars(fold)[f"{level}_shares"] for fold in folds]
        if learned_shares := [shares for shares in of_folds if shares is not None]:
            processes[level] = process.with_shares(np.mean(learned_shares, axis=0))
    model.site_calibration = calibration._replace(processes=processes)


def out_of_fold_coverage(
    model: MolAttn, table: TrainingTable, folds: Sequence[OutOfFold], level: float, is_rolling: bool
) -> dict[str, dict[str, float | int | None]]:
    """Return the coverage of intervals in each fold, by the scores of the other folds.

    A rolling fold is the future of the folds before it, and its intervals use these alone. The
    curve by which errors grow with the distance is that of the calibrated model.

    Returns:
        For each regression by name the ``coverage`` in folds with enough other labels for the level
        (None without any) and the ``count`` of their labels.
    """
    starts = [columns.start for columns in output_slices(model.config.tasks)]
    near = model.predictor.calibrated_uncertainty().calibration.near
    scores = []
    for fold in folds:
        limits = _labels(model, table, fold.rows), _bounds(model, table, fold.rows)
        errors = largest_errors(_combined(model, table, fold)[:, starts], *limits)
        scores.append(errors / difficulty(fold.similarity, near))
    coverages: dict[str, dict[str, float | int | None]] = {}
    for index, task in enumerate(model.config.tasks):
        if task.kind != "regression":
            continue
        columns = [fold[np.isfinite(fold[:, index]), index] for fold in scores]
        later = len(columns) if is_rolling else 1
        others = [[*columns[:n], *columns[n + later :]] for n in range(len(columns))]
        bounds = [
            ConformalScores.from_scores(np.concatenate(fold_scores or [np.zeros(0)])).bound(level)
            for fold_scores in others
        ]
        pairs = zip(columns, bounds, strict=True)
        inside = [fold <= bound for fold, bound in pairs if np.isfinite(bound)]
        count = sum(map(len, inside))
        coverage = float(np.concatenate(inside).mean()) if count else None
        coverages[task.name] = {"coverage": coverage, "count": count}
    return coverages


def _labels(model: MolAttn, table: TrainingTable, rows: NDArray[np.int64]) -> Array:
    """Return transformed labels ``[n, T]``, NaN where missing and for rows of weight 0."""
    targets = torch.from_numpy(table.targets[rows])
    labels = transformed_labels(targets, model.config.target_transforms).numpy()
    if table.weights is not None:
        labels = np.where(table.weights[rows, None] > 0.0, labels, np.nan)
    return labels


def _bounds(model: MolAttn, table: TrainingTable, rows: NDArray[np.int64]) -> Array | None:
    """Return transformed limits of labels ``[2, n, T]``; None = none has limits."""
    if table.bounds is None:
        return None
    transforms = model.config.target_transforms
    bounds = limits_with_transform(table.bounds[:, rows], transforms)
    return transformed_labels(torch.from_numpy(bounds), transforms).numpy()


def _transformed(
    model: MolAttn, table: TrainingTable, rows: NDArray[np.int64], outputs: Any
) -> Any:
    """Return outputs on the transformed scale of a model, None if there are none.

    A value that has no logarithm becomes the smallest label of the rows that has.
    """
    if outputs is None:
        return None
    transformed = outputs.copy()
    tasks = model.config.tasks
    for index, (task, columns) in enumerate(zip(tasks, output_slices(tasks), strict=True)):
        if task.kind == "regression":
            transform = model.config.target_transforms[index]
            values = outputs[..., columns]
            labels = table.targets[rows, index]
            positive = labels[labels > 0.0]
            if transform.kind == "log" and len(positive):
                values = np.where(values > 0.0, values, positive.min())
            transformed[..., columns] = transform.forward(torch.from_numpy(values)).numpy()
    return transformed


def _combined(model: MolAttn, table: TrainingTable, fold: OutOfFold) -> Array:
    """Return the predictions ``[n, outputs]`` with the shares of the model."""
    network, process = (
        _transformed(model, table, fold.rows, outputs) for outputs in (fold.network, fold.process)
    )
    if process is not None and model.gaussian_process is not None:
        network = model.gaussian_process.mean(network, process)
    return mean_of_members(torch.from_numpy(network), model.config.tasks).numpy()
