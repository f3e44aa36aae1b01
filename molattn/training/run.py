"""A training run: from a table to a trained model."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console

from molattn.chem.featurizer import Featurizer
from molattn.chem.fingerprint_index import FingerprintIndex
from molattn.chem.split import Split
from molattn.config import TrainConfig
from molattn.data.dataset import (
    Molecules,
    TrainingTable,
    describe_tasks,
    read_training_table,
    table_calculator,
)
from molattn.data.leakage import Leakage, find_leakage
from molattn.data.splitting import split_rows
from molattn.errors import InputError
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.uncertainty.model_uncertainty import Uncertainty
from molattn.training.checkpoint import CHECKPOINT_FILE, read_checkpoint
from molattn.training.fine_tuning import (
    NO_MODEL,
    PretrainedWeights,
    pretrained_digest,
    pretrained_molecules,
    with_pretrained_network,
)
from molattn.training.history import Epoch, History
from molattn.training.lightning.loop import epochs_done
from molattn.training.optimizer import FineTuningPlan
from molattn.training.resume import check_same_run, run_fingerprint
from molattn.training.run_folder import member_folders
from molattn.training.supervised import fit_model
from molattn.utils.console import print_line
from molattn.utils.reproducibility import seeded, threads

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TrainingRun", "read_rows", "train", "train_model"]


@dataclass(frozen=True)
class TrainingRun:
    """A trained model with what it was trained on.

    Args:
        config: What was asked for.
        table: The usable rows.
        parts: Which of them trained, validated, and are for the final score.
        leakage: What they have in common.
        model: The model, in evaluation mode on the CPU.
        histories: How training went, one for each member.
        seconds: Seconds spent reading and training.
    """

    config: TrainConfig
    table: TrainingTable
    parts: Split
    leakage: Leakage
    model: MolAttn
    histories: list[History]
    seconds: float


def train(
    config: TrainConfig,
    console: Console | None = None,
    folder: Path | None = None,
    *,
    frame: "pd.DataFrame | None" = None,
    table: TrainingTable | None = None,
    parts: Split | None = None,
) -> TrainingRun:
    """Read a table and train a model on a part of it.

    The members of an ensemble are trained one after another on the same rows, each from the next
    seed. On a CPU the same configuration gives the same weights, bit for bit.

    Args:
        config: The table, the network and how to train it.
        console: Where to report; silent without one.
        folder: Where an unfinished training is kept; if it holds one, that one goes on.
        frame: The table, in place of the configuration's file.
        table: The same as :func:`read_rows` gave it, to be read once for several runs.
        parts: Its parts, as :func:`molattn.data.splitting.split_rows` gave them.

    Raises:
        InputError: If the table cannot be used so, or the folder's training is of other options or
            another table.
        MolattnError: If training diverges.
    """
    start = time.perf_counter()
    config = with_pretrained_network(config)
    seed = config.training.seed
    table = table or read_rows(config, console, frame)
    parts = parts or split_rows(table, config.data, seed)
    leakage = find_leakage(table, parts, seed, pretrained_molecules(config))
    for line in (_sizes(parts, len(table.rows)), *leakage.lines()):
        print_line(console, line)
    reading = time.perf_counter() - start
    model, histories = train_model(config, table, parts, console, folder=folder)
    seconds = reading + sum(history.seconds for history in histories)
    return TrainingRun(config, table, parts, leakage, model, histories, seconds)


def read_rows(
    config: TrainConfig, console: Console | None = None, frame: "pd.DataFrame | None" = None
) -> TrainingTable:
    """Read the rows that a run is to learn from, and say what they are.

    Args:
        config: The table and its columns.
        console: Where to say it; silent without one.
        frame: The table, in place of the configuration's file.

    Raises:
        InputError: If the table cannot be used so.
    """
    source = config.file if frame is None else frame
    table = read_training_table(
        source, config.data, Featurizer.default(), console, baseline=config.report.baselines
    )
    remarks = f" ({', '.join(table.remarks)})" if table.remarks else ""
    for line in (f"{table.path}{remarks}: {_counts(table)}", *describe_tasks(table)):
        print_line(console, line)
    return table


def train_model(
    config: TrainConfig,
    table: TrainingTable,
    parts: Split,
    console: Console | None = None,
    *,
    folder: Path | None = None,
    on_epoch: Callable[[Epoch], None] | None = None,
) -> tuple[MolAttn, list[History]]:
    """Train a model on rows that have been read and parted; see :func:`train`.

    Args:
        config: The network and how to train it.
        table: The rows, read as ``config.data`` says.
        parts: Which of them train and which validate.
        console: Where to report; silent without one.
        folder: Where an unfinished training is kept; if it holds one, that one goes on.
        on_epoch: Called with each finished epoch, of one member after another; what it raises ends
            the training.

    Raises:
        InputError: As :func:`train`.
        MolattnError: If training diverges.
    """
    train_rows, validation_rows = table.molecules(parts.train), table.molecules(parts.val)
    config = with_pretrained_network(config)
    name = config.fine_tuning.init_from
    about = run_fingerprint(config, pretrained_digest(name), table.digest)
    pretrained = None if name == NO_MODEL else PretrainedWeights(config.fine_tuning)
    members = config.training.members()
    places = [None] if folder is None else member_folders(folder, len(members))
    for place in places:
        if place is not None:
            check_same_run(place, config, name, about, f"{table.path}: the file has", console)
    models, histories = [], []
    for number, (member, place) in enumerate(zip_longest(members, places), start=1):
        if len(members) > 1:
            print_line(console, f"member {number} of {len(members)} (seed {member.seed})")
        if place is not None:
            place.mkdir(exist_ok=True)
            if (place / CHECKPOINT_FILE).exists():
                done = epochs_done(read_checkpoint(place / CHECKPOINT_FILE))
                print_line(console, f"going on after epoch {done}")
        with seeded(member.seed):
            model = _new_model(config, table, Featurizer.default())
            beginning, told = FineTuningPlan(), "beginning from scratch"
            if pretrained is not None:
                beginning, told = pretrained.begin(model, number - 1)
            print_line(console, told)
            history = fit_model(
                model,
                train_rows,
                validation_rows,
                member,
                console,
                task_weights=config.data.task_weights,
                folder=place,
                about=about,
                beginning=beginning,
                on_epoch=on_epoch,
            )
        model.freeze("none")
        models.append(model)
        histories.append(history)
    joined = MolAttn.ensemble(models)
    joined.uncertainty = _uncertainty(joined, table, parts, validation_rows, config)
    for line in joined.uncertainty.calibration.lines():
        print_line(console, line)
    return joined, histories


def _uncertainty(
    model: MolAttn, table: TrainingTable, parts: Split, validation: Molecules, config: TrainConfig
) -> Uncertainty:
    with threads(config.training.threads):
        prediction = model.predict_records(validation.records, features=validation.features)
    prints = table.fingerprints
    molecules = FingerprintIndex.from_fingerprints(prints[parts.train], config.training.seed)
    targets = validation.targets
    if validation.weights is not None:  # what weighs nothing tells nothing here either
        targets = np.where(validation.weights[:, None] > 0, targets, np.nan)
    return Uncertainty.fit(table.tasks, molecules, prints[parts.val], prediction, targets)


def _new_model(config: TrainConfig, table: TrainingTable, featurizer: Featurizer) -> MolAttn:
    calculator = table_calculator(config.data)
    try:
        return MolAttn(
            MolAttnConfig(
                table.tasks,
                config.network,
                featurizer,
                features=config.data.feature_columns,
                descriptors=calculator.descriptors,
                morgan_counts=calculator.morgan_counts,
                partner_column=config.data.partner_column,
            )
        )
    except ValueError as error:  # the layers' own complaint about an option
        raise InputError(f"the network cannot be built so: {error}") from error


def _sizes(parts: Split, rows: int) -> str:
    told = f"{len(parts.train)} rows train, {len(parts.val)} validate, {len(parts.test)} test"
    left = rows - sum(map(len, parts))
    return f"{told}, {left} of weight 0 left out" if left else told


def _counts(table: TrainingTable) -> str:
    shown = "; ".join(f"{table.unit} {row.line}: {row.reason}" for row in table.skipped[:3])
    more = ", ..." if len(table.skipped) > 3 else ""
    return f"{len(table.rows)} rows used, {len(table.skipped)} skipped" + (
        f" ({shown}{more})" if shown else ""
    )
