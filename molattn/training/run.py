"""A training run: from a table to a trained model."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from molattn.chem.featurizer import FEATURIZERS
from molattn.chem.fingerprint_index import MOST_KEPT, FingerprintIndex
from molattn.chem.split import Split
from molattn.config import DataConfig, SupervisedConfig, TrainConfig
from molattn.config.yaml_file import writing_config
from molattn.data.dataset import (
    TrainingTable,
    describe_tasks,
    read_training_table,
    table_calculator,
)
from molattn.data.leakage import Leakage, find_leakage
from molattn.data.splitting import marks_validation, missing_classes, split_rows
from molattn.errors import InputError, is_out_of_memory, quoted
from molattn.model.artefact import is_packaged
from molattn.model.config import substructure_counter
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.reference_inputs import ReferenceInputs
from molattn.model.training_set import TrainingMolecules, TrainingSet
from molattn.model.uncertainty import Uncertainty
from molattn.task import Task
from molattn.training.fine_tuning import PretrainedWeights, load_pretrained
from molattn.training.gaussian_process import add_gaussian_process, some_rows
from molattn.training.history import Epoch, History
from molattn.training.lightning.loop import check_processes
from molattn.training.optimizer import FineTuningPlan
from molattn.training.resume import (
    check_same_model,
    model_fingerprint,
    resume_checkpoint,
    resume_message,
    run_fingerprint,
)
from molattn.training.run_folder import CONFIG_FILE, member_folders
from molattn.training.scaling import scale_by
from molattn.training.supervised import fit_model
from molattn.training.target_transform import check_logarithms, target_transforms
from molattn.utils.console import print_line
from molattn.utils.progress import step_progress
from molattn.utils.reproducibility import seeded, threads
from molattn.utils.spooled_list import Selection

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "TrainingRun",
    "building_network",
    "number_of_epochs",
    "read_rows",
    "train",
    "train_model",
    "train_split",
    "training_molecules",
]

_NO_NETWORK = "gaussian_process"
# After more, classifications of some thousand rows overfit (docs/accuracy.md).
_CLASSIFICATION_STEPS = 1_500
_LEAST_EPOCHS = 10
_FEW_LABELS = 2_500  # of classes: training the encoder does not pay (docs/accuracy.md)
_MOST_CALIBRATION = 20_000  # labeled validation rows of a target


@dataclass(frozen=True, repr=False)
class TrainingRun:
    """A trained model with the data that it was trained on.

    Args:
        config: All options, with the network that was trained.
        table: The usable rows.
        parts: Which of them are training, validation and test rows.
        leakage: What the parts have in common.
        model: The model, in evaluation mode on the CPU.
        histories: The history of each member; empty if no network is trained.
        seconds: Duration of reading the table and of training.
        validation_outputs: Outputs of each member for the validation rows, as
            :meth:`molattn.MolAttn.predict_outputs` returns them.
        init_from_digest: SHA-256 of the model that training started from, if any.
    """

    config: TrainConfig
    table: TrainingTable
    parts: Split
    leakage: Leakage
    model: MolAttn
    histories: list[History]
    seconds: float
    validation_outputs: NDArray[np.float64]
    init_from_digest: str | None


def train(
    config: TrainConfig,
    console: Console | None = None,
    folder: Path | None = None,
    *,
    frame: "pd.DataFrame | None" = None,
    make_model: Callable[[MolAttnConfig], MolAttn] = MolAttn,
) -> TrainingRun:
    """Read a table and train a model on it.

    The members of an ensemble are trained one after another on the same rows, with consecutive
    seeds. On a CPU, the same configuration gives the same weights, bit for bit.

    Args:
        config: The table, the network and how to train it.
        console: Where to log; silent without one.
        folder: Folder of the run, for ``config.yaml`` and checkpoints. If it has a checkpoint,
            training resumes from it.
        frame: The table, in place of the configuration's file.
        make_model: Makes a new model of a config, for each member; see :func:`molattn.train`.

    Raises:
        InputError: If the table or an option cannot be used, or the folder is of a run with other
            options or another table.
        MolattnError: If the training diverges.
    """
    start = time.perf_counter()
    if config.data.validation_size == 0.0:
        raise InputError("--validation-size 0 needs all folds; leave out --only-fold")
    check_processes(config.training)
    config, pretrained = load_pretrained(config)
    with nullcontext() if folder is None else writing_config(folder / CONFIG_FILE, config):
        table = read_rows(config, console, frame)
        parts = split_rows(table, config.data, config.training.seed)
        reading = time.perf_counter() - start
        run = train_split(config, table, parts, pretrained, console, folder, make_model=make_model)
    return replace(run, seconds=reading + run.seconds)


def train_split(
    config: TrainConfig,
    table: TrainingTable,
    parts: Split,
    pretrained: PretrainedWeights | None,
    console: Console | None = None,
    folder: Path | None = None,
    *,
    make_model: Callable[[MolAttnConfig], MolAttn] = MolAttn,
) -> TrainingRun:
    """Train a model on a table that has been read and split; see :func:`train`."""
    molecules = None if pretrained is None else pretrained.molecules
    with step_progress(console, "comparing training and test molecules"):
        leakage = find_leakage(table, parts, config.training.seed, molecules)
    for line in (*_part_lines(parts, table, config.data), *leakage.lines()):
        print_line(console, line)
    if pretrained is not None and molecules is None and not is_packaged(pretrained.name):
        print_line(
            console,
            f"leakage from --init-from {pretrained.name} not checked: the model has no "
            "fingerprints of its training molecules",
        )
    start = time.perf_counter()
    model, histories, outputs = train_model(
        config, table, parts, pretrained, console, folder=folder, make_model=make_model
    )
    # Of a resumed run, the epochs before the interruption count too.
    seconds = max(time.perf_counter() - start, sum(history.seconds for history in histories))
    digest = pretrained and pretrained.digest
    return TrainingRun(config, table, parts, leakage, model, histories, seconds, outputs, digest)


def read_rows(
    config: TrainConfig, console: Console | None = None, frame: "pd.DataFrame | None" = None
) -> TrainingTable:
    """Read the table of a run and log a summary."""
    source = config.file if frame is None else frame
    featurizer = FEATURIZERS[config.data.featurizer]()
    table = read_training_table(
        source,
        config.data,
        featurizer,
        console,
        baseline=config.report.baselines and config.data.test_size > 0.0,
        counter=substructure_counter(config.kernels),
        radius=config.network.radius,
    )
    remarks = f" ({', '.join(table.remarks)})" if table.remarks else ""
    lines = [f"{table.path}{remarks}: {_row_counts(table)}"]
    if (changed := table.standardized) is not None:
        lines.append(f"standardized: the molecules of {changed} of {len(table.rows)} rows changed")
    for line in (*lines, *describe_tasks(table, config.data)):
        print_line(console, line)
    return table


def train_model(
    config: TrainConfig,
    table: TrainingTable,
    parts: Split,
    pretrained: PretrainedWeights | None,
    console: Console | None = None,
    *,
    folder: Path | None = None,
    on_epoch: Callable[[Epoch], None] | None = None,
    make_model: Callable[[MolAttnConfig], MolAttn] = MolAttn,
) -> tuple[MolAttn, list[History], NDArray[np.float64]]:
    """Train and calibrate a model; see :func:`train_split`.

    At most 20,000 labeled validation rows of each target, drawn at random, calibrate it; without
    validation rows it is not calibrated.

    Returns:
        The model, the history of each member, and the outputs of each member for the validation
        rows.
    """
    training, validation = table.molecules(parts.train), table.molecules(parts.val)
    init_from = config.fine_tuning.init_from
    fingerprint = run_fingerprint(config, pretrained and pretrained.digest, table.digest)
    epochs = number_of_epochs(config.training, table.tasks, len(parts.train))
    if epochs < config.training.num_epochs and config.gaussian_process.predictor != _NO_NETWORK:
        print_line(
            console,
            f"training for {epochs} epochs, as there are many rows and only classes (--epochs sets "
            "another number)",
        )
    for line in missing_classes(table, parts):
        print_line(console, line)
    members = [replace(member, epochs=epochs) for member in config.training.members()]
    folders = [None] * len(members)
    checkpoints = [None] * len(members)
    if folder is not None:
        folders = member_folders(folder, len(members))
        data = f"{table.path}: the file has"
        # All are read before any member is trained, which may take hours.
        checkpoints = [
            resume_checkpoint(place, config, init_from, fingerprint, data, console)
            for place in folders
        ]
    models, histories, transforms, said = [], [], (), None
    for number, (member, place, checkpoint) in enumerate(
        zip(members, folders, checkpoints, strict=True)
    ):
        if len(members) > 1:
            print_line(console, f"Member {number + 1} of {len(members)} (seed {member.seed})")
        if place is not None:
            place.mkdir(exist_ok=True)
        with seeded(member.seed):
            model = _new_model(config, table, make_model)
            structure = model_fingerprint(model)
            check_same_model(checkpoint, structure, folder or Path())
            plan, message = FineTuningPlan(), "Starting from random weights"
            if pretrained is not None:
                plan, message = pretrained.apply(
                    model,
                    number,
                    config.fine_tuning,
                    transforms=config.data.target_transform,
                    few_classes=_few_classes(table),
                )
            if plan.keeps_scaling:
                check_logarithms(model.config, table, parts)
            elif not transforms:
                transforms, lines = target_transforms(
                    table.tasks,
                    config.data.target_transform,
                    training.targets,
                    np.concatenate([training.values, validation.values]),
                )
                for line in lines:
                    print_line(console, line)
            if config.gaussian_process.predictor == _NO_NETWORK:
                message = "no network is trained"
                if pretrained is not None:
                    message += f"; embeddings of the pretrained model {pretrained.name}"
            if checkpoint is not None:
                print_line(console, resume_message(checkpoint))
            elif message != said:  # members mostly start alike
                print_line(console, message)
                said = message
            models.append(model)
            if config.gaussian_process.predictor == _NO_NETWORK:
                if not plan.keeps_scaling:
                    scale_by(model, training, transforms)
                model.freeze("none")
                continue
            history = fit_model(
                model,
                training,
                validation,
                member,
                console,
                transforms=transforms,
                task_weights=config.data.task_weights,
                folder=place,
                checkpoint=checkpoint,
                fingerprint={**fingerprint, "model": structure},
                plan=plan,
                on_epoch=on_epoch,
            )
        model.freeze("none")
        histories.append(history)
    model = (models[0] if len(models) == 1 else MolAttn.ensemble(models)).eval()
    step = "fitting the Gaussian process" if config.kernels else "predicting the validation rows"
    with threads(config.training.threads), step_progress(console, step):
        outputs = add_gaussian_process(model, config, table, parts, console)
    molecules = training_molecules(config, table, parts)
    model.training_set = _training_set(config, table, parts, molecules)
    model.reference_inputs = ReferenceInputs.of(model.config)
    if not len(parts.val):
        return model, histories, outputs
    targets = validation.targets
    held_out = _calibration_rows(targets, config.training.seed)
    with threads(config.training.threads), step_progress(console, "calibrating"):
        known = _fingerprints(config, table, parts.train) if config.kernels else molecules
        prints = table.fingerprints(parts.val[held_out])
        uncertainty = Uncertainty.fit(
            model.config, known, prints, outputs[:, held_out], targets[held_out]
        )
    model.uncertainty = replace(uncertainty, molecules=molecules)
    for line in model.uncertainty.calibration.lines():
        print_line(console, line)
    if unusable := int((~np.isfinite(outputs).all(axis=(0, 2))).sum()):
        print_line(console, f"{unusable} validation rows without a finite prediction")
    return model, histories, outputs


def _calibration_rows(targets: NDArray[np.float64], seed: int) -> NDArray[np.int64]:
    """Return at most 20,000 labeled rows of each target ``[n, T]``, the same ones if possible."""
    order = np.random.default_rng(seed).permutation(len(targets))
    found = [order[~np.isnan(labels[order])][:_MOST_CALIBRATION] for labels in targets.T]
    return np.unique(np.concatenate(found))


def number_of_epochs(config: SupervisedConfig, tasks: Sequence[Task], rows: int) -> int:
    """Return the number of epochs, fewer for large classifications: these overfit."""
    if config.epochs is not None or any(task.kind == "regression" for task in tasks):
        return config.num_epochs
    steps = -(-rows // config.batch_size)
    return min(config.num_epochs, max(_LEAST_EPOCHS, -(-_CLASSIFICATION_STEPS // steps)))


def _few_classes(table: TrainingTable) -> bool:
    """Return whether a table has only classes, and few labels; the same for each fold of it."""
    are_classes = all(task.kind != "regression" for task in table.tasks)
    return are_classes and int(np.count_nonzero(~np.isnan(table.targets))) <= _FEW_LABELS


def training_molecules(config: TrainConfig, table: TrainingTable, parts: Split) -> FingerprintIndex:
    """Return the fingerprints that a model keeps, of the rows that it has learned from.

    A Gaussian process learns from the validation rows too.
    """
    rows = np.concatenate([parts.train, parts.val]) if config.kernels else parts.train
    return _fingerprints(config, table, rows)


def _fingerprints(
    config: TrainConfig, table: TrainingTable, rows: NDArray[np.int64]
) -> FingerprintIndex:
    seed = config.training.seed
    rows = some_rows(table, rows, 2 * MOST_KEPT, seed)  # more than are kept, as some may be equal
    labeled = ~np.isnan(table.values[rows])
    return FingerprintIndex.from_fingerprints(table.fingerprints(rows), seed, labeled)


def _training_set(
    config: TrainConfig, table: TrainingTable, parts: Split, known: FingerprintIndex
) -> TrainingSet:
    """Return what the model keeps of the training and validation rows."""
    rows = np.concatenate([parts.train, parts.val])
    targets, kept = table.targets[rows], None
    if config.data.keep_training_molecules:
        lines = np.array([table.rows[row].line for row in rows])
        smiles = Selection(table.smiles, rows.tolist())
        kept = TrainingMolecules.of(lines, smiles, targets, table.fingerprints(rows), known)
    bounds = None if table.bounds is None else table.bounds[:, rows]
    return TrainingSet.of(table.tasks, targets, kept, bounds)


@contextmanager
def building_network() -> Iterator[None]:
    """Raise an :class:`InputError` if a network cannot be built with its options."""
    try:
        yield
    except (ValueError, RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            reason = "out of memory; a smaller --width, --edge-width or --layers needs less"
        elif isinstance(error, ValueError):  # of a layer, about one of its options
            reason = str(error)
        else:
            raise
        raise InputError(f"the network cannot be built: {reason}") from error


def _new_model(
    config: TrainConfig, table: TrainingTable, make_model: Callable[[MolAttnConfig], MolAttn]
) -> MolAttn:
    calculator = table_calculator(config.data)
    with building_network():
        wanted = MolAttnConfig(
            table.tasks,
            config.network,
            FEATURIZERS[config.data.featurizer](),
            features=config.data.feature_columns,
            descriptors=calculator.descriptors,
            morgan_counts=calculator.morgan_counts,
            partner_column=config.data.partner_column,
            relation_columns=config.data.relation_columns,
            standardize=config.data.standardize,
        )
        model = make_model(wanted)
    if difference := wanted.difference(replace(model.config, custom_parts=())):
        raise InputError(f"make_model: the model differs from the given config in {difference}")
    return model


def _part_lines(parts: Split, table: TrainingTable, config: DataConfig) -> Iterator[str]:
    sizes = f"{len(parts.train)} training, {len(parts.val)} validation, {len(parts.test)} test rows"
    unused = len(table.rows) - sum(map(len, parts))
    yield f"{sizes}, {unused} of weight 0 unused" if unused else sizes
    if not len(parts.test):
        yield "no test rows: the model gets no test score"
    method = config.split or "random"
    if config.split_column is not None:
        column = f"split from column {quoted(config.split_column)}"
        if len(parts.test):
            column = f"test set from column {quoted(config.split_column)}"
        if not marks_validation(table):
            column += f"; validation set by {method} split of the others"
        elif given := [
            f"--{name.replace('_', '-')}"
            for name in ("split", "split_duplicates", "validation_size")
            if getattr(config, name) != getattr(DataConfig, name)
        ]:
            column += f", which marks the validation rows too: no effect of {', '.join(given)}"
        yield column
    elif (name := "split") in table.header:
        yield (
            f"column {quoted(name)} is not used, the split is {method} "
            f"(--split-column {name} uses the column)"
        )


def _row_counts(table: TrainingTable) -> str:
    shown = "; ".join(f"{table.unit} {row.line}: {row.reason}" for row in table.skipped[:3])
    more = ", ..." if len(table.skipped) > 3 else ""
    return f"{len(table.rows)} rows used, {len(table.skipped)} skipped" + (
        f" ({shown}{more})" if shown else ""
    )
