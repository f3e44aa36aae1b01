"""A training run: from a table to a trained model."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from molattn.chem.featurizer import FEATURIZERS
from molattn.chem.fingerprint_index import MOST_KEPT, FingerprintIndex
from molattn.chem.seen_atoms import SeenAtoms
from molattn.chem.split import Split
from molattn.config import DataConfig, SupervisedConfig, TrainConfig
from molattn.config.yaml_file import writing_config
from molattn.data.auxiliary_rows import learned_molecules
from molattn.data.dataset import TrainingTable, describe_tasks, read_training_table
from molattn.data.splitting import (
    Leakage,
    find_leakage,
    marks_validation,
    missing_classes,
    split_rows,
)
from molattn.data.table import Table
from molattn.errors import InputError, quoted
from molattn.model.artefact import is_packaged
from molattn.model.config import substructure_counter
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.target_transform import TargetTransform
from molattn.model.training_set import TrainingMolecules, TrainingSet
from molattn.model.uncertainty import Uncertainty
from molattn.task import Level
from molattn.training.batches import LabeledLoader
from molattn.training.checkpoint import RunCheckpoint
from molattn.training.fine_tuning import FineTuningPlan, PretrainedWeights
from molattn.training.gaussian_process import add_gaussian_process, sample_rows
from molattn.training.loop import NO_HOOKS, Hooks, check_processes, fit
from molattn.training.losses import LabeledObjective, TaskLoss, make_site_loss
from molattn.training.resolve import (
    ResolvedConfig,
    differences_from_default,
    load_pretrained,
    resolve,
)
from molattn.training.run_folder import CONFIG_FILE, Epoch, History, member_folders
from molattn.training.scaling import scale_by, target_transforms
from molattn.training.site_calibration import calibrate_sites, keep_labeled
from molattn.training.site_process import add_site_processes
from molattn.utils.console import print_line, print_remarks, step_progress
from molattn.utils.devices import seeded, threads
from molattn.utils.process_group import process_rank

if TYPE_CHECKING:
    import pandas as pd

MAX_CALIBRATION = 20_000  # validation rows


@dataclass(frozen=True)
class TrainingJob:
    """A table, its split, and the options of a training."""

    config: TrainConfig  # all options
    table: TrainingTable  # the usable rows
    split: Split  # which of them are training, validation and test rows
    base: PretrainedWeights | None = None  # the model to start from, if any
    console: Console | None = None  # where to log; silent without one
    folder: Path | None = None  # folder for checkpoints; one that is there is resumed
    make_model: Callable[[MolAttnConfig], MolAttn] = MolAttn  # as of molattn.train
    hooks: Hooks = NO_HOOKS  # what the training of each network calls

    @property
    def sources(self) -> dict[str, tuple[str, str | None]]:
        """Data and initial weights: each as the subject of a message, and its SHA-256."""
        name = self.config.fine_tuning.init_from
        digest = self.base and self.base.digest
        data = f"{self.table.path}: the file", self.table.digest
        sources = {"data": data, "init_from": (f"--init-from: the model {name}", digest)}
        if (auxiliary := self.table.auxiliary) is not None:
            sources["auxiliary"] = f"{auxiliary.path}: the auxiliary columns", auxiliary.digest
        return sources


@dataclass(frozen=True, repr=False)
class TrainingRun:
    """A trained model with the data that it was trained on, as in :class:`TrainingJob`."""

    config: TrainConfig
    table: TrainingTable
    split: Split
    leakage: Leakage  # what training, validation and test rows have in common
    model: MolAttn  # the model, in evaluation mode on the CPU
    histories: list[History]  # the history of each member; empty if no network is trained
    seconds: float  # duration of reading the table and of training
    validation_outputs: NDArray[np.float64]  # of each member, as of Predictor.predict_outputs
    validation_sites: Mapping[Level, NDArray[np.float64]]  # of atoms and bonds, as of site_outputs
    init_from_digest: str | None  # SHA-256 of the model that training started from, if any


def train(
    config: TrainConfig,
    console: Console | None = None,
    folder: Path | None = None,
    *,
    frame: "pd.DataFrame | None" = None,
    make_model: Callable[[MolAttnConfig], MolAttn] = MolAttn,
    hooks: Hooks = NO_HOOKS,
) -> TrainingRun:
    """Read a table and train a model on it.

    The members of an ensemble are trained one after another on the same rows, with consecutive
    seeds. On a CPU, the same configuration gives the same weights, bit for bit. Of several
    processes that train together, only the first one has the whole model in the end.
    ``config.yaml`` and checkpoints go to the ``folder``; a checkpoint in it is resumed. A ``frame``
    takes the place of the configuration's file.

    Raises:
        InputError: If the table or an option cannot be used, or the folder is of another run.
        MolattnError: If the training diverges.
    """
    start = time.perf_counter()
    if config.data.validation_size == 0.0:
        raise InputError("--validation-size 0 needs all folds; leave out --only-fold")
    check_processes(config.training)
    config, base = load_pretrained(config)
    folder = None if process_rank() else folder
    with nullcontext() if folder is None else writing_config(folder / CONFIG_FILE, config):
        table = read_rows(config, console, frame)
        split = split_rows(table, config.data, config.training.seed)
        reading = time.perf_counter() - start
        run = train_on_split(
            TrainingJob(config, table, split, base, console, folder, make_model, hooks)
        )
    return replace(run, seconds=reading + run.seconds)


def train_on_split(job: TrainingJob) -> TrainingRun:
    """Train a model on a table that has been read and split; see :func:`train`."""
    config = job.config
    table = job.table
    split = job.split
    base = job.base
    with step_progress(job.console, "comparing training and test molecules"):
        leakage = find_leakage(table, split, config.training.seed, base and base.fingerprints)
    for line in (*_split_lines(split, table, config.data), *leakage.lines()):
        print_line(job.console, line)
    if base is not None and base.fingerprints is None and not is_packaged(base.name):
        print_line(
            job.console,
            f"leakage from --init-from {base.name} not checked: the model has no fingerprints of "
            "its training molecules",
        )
    start = time.perf_counter()
    model, histories, outputs, sites = fit_model(job)
    # Of a resumed run, the epochs before the interruption count too.
    seconds = max(time.perf_counter() - start, sum(history.seconds for history in histories))
    return TrainingRun(
        *(config, table, split, leakage, model, histories, seconds, outputs, sites),
        init_from_digest=base and base.digest,
    )


def read_rows(
    config: TrainConfig, console: Console | None = None, frame: "pd.DataFrame | Table | None" = None
) -> TrainingTable:
    """Read the table of a run, of its file or ``frame``, and log a summary."""
    table = read_training_table(
        config.file if frame is None else frame,
        config.data,
        FEATURIZERS[config.data.featurizer](),
        console,
        baseline=config.report.baselines and config.data.test_size > 0.0,
        counter=substructure_counter(config.kernels),
        radius=config.network.radius,
    )
    remarks = f" ({', '.join(table.remarks)})" if table.remarks else ""
    counts = f"{len(table.rows)} rows used, {len(table.skipped)} skipped"
    reasons = [f"{table.unit} {row.line}: {row.reason}" for row in table.skipped[:3]]
    examples = f" ({'; '.join(reasons)})" if reasons else ""
    lines = [f"{table.path}{remarks}: {counts}{examples}"]
    if (changed := table.standardized) is not None:
        lines.append(f"standardized: the molecules of {changed} of {len(table.rows)} rows changed")
    elif mixtures := sum("." in (record.smiles or "") for record in table.records):
        rows = f"the molecules of {mixtures} of {len(table.rows)} rows are salts or mixtures"
        lines.append(f"{rows}, used as they are (--standardize: their largest fragment, neutral)")
    if (auxiliary := table.auxiliary) is not None:
        skipped = [row.reason for row in auxiliary.skipped if row.code != "no_label"]
        remarks = f" ({', '.join(auxiliary.remarks)})" if auxiliary.remarks else ""
        line = f"{auxiliary.path}{remarks}: {len(auxiliary.rows)} rows with auxiliary labels"
        lines.append(f"{line}, {len(skipped)} skipped ({skipped[0]})" if skipped else line)
    for line in (*lines, *describe_tasks(table, config.data)):
        print_line(console, line)
    print_remarks(console, Counter(), redrawn=table.redrawn)
    return table


def fit_model(
    job: TrainingJob,
) -> tuple[MolAttn, list[History], NDArray[np.float64], dict[Level, NDArray[np.float64]]]:
    """Resolve the options, fit networks and Gaussian process, combine and calibrate them.

    Returns the model, of each member the history and the outputs for the validation rows, and what
    is predicted of the atoms and bonds of these.
    """
    config = job.config
    table = job.table
    split = job.split
    resolved = resolve(config, table, split, job.base)
    for line in (*resolved.remarks, *missing_classes(table, split)):
        print_line(job.console, line)
    model, histories = fit_networks(job, resolved)
    if process_rank():
        return model, histories, np.zeros((0, 0, 0)), {}
    sites: dict[Level, NDArray[np.float64]] = {}
    with threads(config.training.threads):
        if table.sites:
            keep_labeled(model, table.molecules(split.train))
            sites = add_site_processes(model, config, table, split, job.console)
            if len(split.val):
                calibrate_sites(model, table.molecules(split.val), sites, job.console)
        model.versions = {name: version(name) for name in ("molattn", "rdkit")}
        if not table.tasks:
            return model, histories, np.zeros((len(model.nets), len(split.val), 0)), sites
        has_process = config.gaussian_process.predictor != "network"
        step = "Gaussian process" if has_process else "validation predictions"
        with step_progress(job.console, step):
            outputs, rows, errors = add_gaussian_process(model, config, table, split, job.console)
        fingerprints = training_fingerprints(config, table, split)
        if len(rows):
            fingerprints.set_errors(table.fingerprints(rows), errors)
        model.training_set = _training_set(config, table, split, fingerprints)
        if len(split.val):
            with step_progress(job.console, "calibrating"):
                _calibrate(model, job, outputs, fingerprints)
    return model, histories, outputs, sites


def fit_networks(
    job: TrainingJob, resolved: ResolvedConfig, on_epoch: Callable[[Epoch], None] | None = None
) -> tuple[MolAttn, list[History]]:
    """Train the network of each member, or take it as it is if only a Gaussian process predicts.

    Calls ``on_epoch`` after each epoch; an exception that it raises stops the training.
    """
    members = resolved.training.members()
    folders = [None] * len(members)
    if job.folder is not None:
        folders = member_folders(job.folder, len(members))
    models = []
    histories = []
    for number, (config, folder) in enumerate(zip(members, folders, strict=True)):
        if len(members) > 1:
            print_line(job.console, f"Member {number + 1} of {len(members)} (seed {config.seed})")
        with seeded(config.seed):
            model, plan, lines = _new_model(job, resolved, number)
            for line in lines if number == 0 else ():  # the others start likewise
                print_line(job.console, line)
            if job.config.trains_network:
                histories.append(_fit_network(job, model, plan, config, folder, on_epoch))
        model.freeze("none")
        if job.table.auxiliary is not None:
            model = _without_auxiliary(model, job)
        models.append(model)
    return (models[0] if len(models) == 1 else MolAttn.ensemble(models)).eval(), histories


def _fit_network(
    job: TrainingJob,
    model: MolAttn,
    plan: FineTuningPlan,
    config: SupervisedConfig,
    folder: Path | None,
    on_epoch: Callable[[Epoch], None] | None,
) -> History:
    training, validation = learned_molecules(job.table, job.split)
    targets = torch.from_numpy(training.targets)
    size = config.batch_size
    data = job.config.data
    weights = data.task_weights
    if job.table.auxiliary is not None:
        weights = weights or (1.0,) * len(job.table.tasks)
        weights += (data.auxiliary_weight,) * len(job.table.auxiliary.tasks)
    tasks = model.config.tasks
    loss = TaskLoss(tasks, config, targets, weights) if tasks else None
    if folder is not None:
        folder.mkdir(exist_ok=True)
    callbacks = job.hooks.callbacks
    if job.config.training.ensemble > 1:
        callbacks = deepcopy(callbacks)  # early stopping counts from the start of each member
    site_losses = {
        level: make_site_loss(labels, config) for level, labels in training.sites.items()
    }
    return fit(
        LabeledObjective(model, loss, plan, site_losses),
        LabeledLoader(model, training, size, config.seed, len(targets) - len(job.split.train)),
        LabeledLoader(model, validation, size) if len(job.split.val) else None,
        config,
        job.console,
        run=folder and RunCheckpoint(folder, job.sources, model),
        hooks=Hooks(on_epoch, callbacks, job.hooks.logger),
    )


def _new_model(
    job: TrainingJob, resolved: ResolvedConfig, number: int
) -> tuple[MolAttn, FineTuningPlan, list[str]]:
    """Return a new model that is scaled, how to train it, and log lines on that."""
    with building_network():
        model = job.make_model(resolved.model)
    if difference := resolved.model.difference(replace(model.config, custom_parts=())):
        raise InputError(f"make_model: the model differs from the given config in {difference}")
    plan = FineTuningPlan()
    lines = []
    keeps_head = resolved.keeps_head and not model.config.custom_parts
    if job.base is not None:
        options = resolved.fine_tuning
        plan, message = job.base.apply(model, number, options, keeps_head=keeps_head)
    else:
        message = f"Starting from random weights{differences_from_default(job.config.network)}"
    if not keeps_head:
        transforms, lines = _learned_transforms(job, model.config)
        scale_by(model, learned_molecules(job.table, job.split)[0], transforms)
    if not job.config.trains_network:
        message = "no network is trained"
        if job.base is not None:
            message += f"; embeddings of the pretrained model {job.base.name}"
    return model, plan, [*lines, message]


def _learned_transforms(
    job: TrainingJob, config: MolAttnConfig
) -> tuple[tuple[TargetTransform, ...], list[str]]:
    """Return the transforms of the tasks of a model with a new head, and log lines."""
    table = job.table
    training, validation = learned_molecules(table, job.split)
    choices: Any = job.config.data.target_transform
    if table.auxiliary is not None:
        choices = choices * len(table.tasks) if len(choices) == 1 else choices
        choices += ("auto",) * len(table.auxiliary.tasks)
    others = np.concatenate([training.labels_or_bounds, validation.labels_or_bounds])
    return target_transforms(config.tasks, choices, training.targets, others)


def log_targets(job: TrainingJob) -> set[str]:
    """Return the names of the targets that a training will learn as logarithms."""
    resolved = resolve(job.config, job.table, job.split, job.base)
    transforms, _ = _learned_transforms(job, resolved.model)
    if resolved.keeps_head and job.base is not None:
        transforms = job.base.model.config.target_transforms
    named = zip(job.table.tasks, transforms, strict=False)  # those of auxiliary columns follow
    return {task.name for task, transform in named if transform.kind == "log"}


def _without_auxiliary(model: MolAttn, job: TrainingJob) -> MolAttn:
    """Return a trained model without its outputs of auxiliary columns, which come last."""
    tasks = job.table.tasks
    transforms = model.config.target_transforms[: len(tasks)]
    config = replace(model.config, tasks=tasks, target_transforms=transforms, custom_parts=())
    smaller = job.make_model(config)
    weights = model.state_dict()
    sizes = {name: value.shape for name, value in smaller.state_dict().items()}
    for name, size in sizes.items():
        weights[name] = weights[name][tuple(map(slice, size))]
    smaller.load_state_dict(weights)
    return smaller


def _calibrate(
    model: MolAttn, job: TrainingJob, outputs: NDArray[np.float64], fingerprints: FingerprintIndex
) -> None:
    """Calibrate by at most 20,000 validation rows."""
    config = job.config
    table = job.table
    split = job.split
    rows = sample_rows(table, split.val, MAX_CALIBRATION, config.training.seed)
    is_drawn = np.isin(split.val, rows)
    rows = split.val[is_drawn]
    predicted = outputs[:, is_drawn]
    trained = _fingerprints(config, table, split.train) if config.kernels else fingerprints
    prints = table.fingerprints(rows)
    labels = table.targets[rows], model.predictor.guess_errors()
    bounds = None if table.bounds is None else table.bounds[:, rows]
    fitted = Uncertainty.fit(model.config, trained, prints, predicted, *labels, bounds)
    model.uncertainty = replace(fitted, fingerprints=fingerprints)
    for line in model.uncertainty.calibration.lines(config.report.interval):
        print_line(job.console, line)
    if unusable := int((~np.isfinite(outputs).all(axis=(0, 2))).sum()):
        print_line(job.console, f"{unusable} validation rows without a finite prediction")


def training_fingerprints(
    config: TrainConfig, table: TrainingTable, split: Split
) -> FingerprintIndex:
    """Index the fingerprints of training rows; with a Gaussian process also of validation rows."""
    rows = np.concatenate([split.train, split.val]) if config.kernels else split.train
    return _fingerprints(config, table, rows)


def _fingerprints(
    config: TrainConfig, table: TrainingTable, rows: NDArray[np.int64]
) -> FingerprintIndex:
    seed = config.training.seed
    rows = sample_rows(table, rows, 2 * MOST_KEPT, seed)  # more than are kept: some may be equal
    labeled = ~np.isnan(table.labels_or_bounds[rows])
    index = FingerprintIndex.from_fingerprints(table.fingerprints(rows), seed, labeled)
    records = [table.records[row] for row in rows]
    index.seen = SeenAtoms.of(records, labeled, FEATURIZERS[config.data.featurizer]())
    return index


def _training_set(
    config: TrainConfig, table: TrainingTable, split: Split, fingerprints: FingerprintIndex
) -> TrainingSet:
    """Return the labels, and if asked for the molecules, of the training and validation rows."""
    rows = np.concatenate([split.train, split.val])
    targets = table.targets[rows]
    molecules = None
    if config.data.keep_training_molecules:
        lines = np.array([table.rows[row].line for row in rows])
        smiles = [str(table.smiles[row]) for row in rows.tolist()]
        prints = table.fingerprints(rows)
        molecules = TrainingMolecules.of(lines, smiles, targets, prints, fingerprints)
    bounds = None if table.bounds is None else table.bounds[:, rows]
    return TrainingSet.of(table.tasks, targets, molecules, bounds)


@contextmanager
def building_network() -> Iterator[None]:
    """Raise an :class:`InputError` if a network cannot be built with its options."""
    try:
        yield
    except ValueError as error:  # of a layer, about one of its options
        raise InputError(f"the network cannot be built: {error}") from error


def _split_lines(split: Split, table: TrainingTable, config: DataConfig) -> Iterator[str]:
    sizes = f"{len(split.train)} training, {len(split.val)} validation, {len(split.test)} test rows"
    unused = len(table.rows) - sum(map(len, split))
    yield f"{sizes}, {unused} in no split" if unused else sizes
    if not len(split.test):
        yield "no test rows: the model gets no test score"
    method = config.split or "random"
    if config.split_column is not None:
        what = "test set" if len(split.test) else "split"
        yield f"{what} from column {quoted(config.split_column)}" + (
            "" if marks_validation(table) else f"; validation set by {method} split of the others"
        )
    elif (name := "split") in table.header:
        yield f"split is {method}; column {name!r} is not used (--split-column {name} uses it)"
