"""A pretraining, from tables of molecules to a model."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from molattn.config import FineTuningConfig, NetworkConfig, PretrainConfig
from molattn.errors import InputError
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.pretraining.batches import HiddenBatches, Source
from molattn.pretraining.objective import PretrainingObjective, code_entropies
from molattn.pretraining.prepare import prepare_molecules, refusals
from molattn.pretraining.scaling import count_scaling, descriptor_scaling, sample
from molattn.pretraining.scoring import pretraining_scores
from molattn.pretraining.store import MoleculeStore
from molattn.task import Task
from molattn.training.checkpoint import CHECKPOINT_FILE, read_checkpoint
from molattn.training.fine_tuning import (
    NO_MODEL,
    PretrainedWeights,
    pretrained_digest,
    with_former_network,
)
from molattn.training.history import History
from molattn.training.lightning.loop import epochs_done, fit
from molattn.training.resume import check_same_run, run_fingerprint
from molattn.utils.console import print_line
from molattn.utils.reproducibility import seeded, threads

__all__ = ["MOLECULES_FOLDER", "PretrainingRun", "pretrain"]

MOLECULES_FOLDER = "molecules"
_FEWEST = 20
_MASKED_FOR_ENTROPY = 2048


@dataclass(frozen=True)
class PretrainingRun:
    """A pretrained model with what it was trained on.

    Args:
        config: What was asked for.
        model: The model, in evaluation mode on the CPU; its tasks are the descriptors.
        history: How training went.
        scores: Of the molecules set aside; see :func:`molattn.pretraining.scoring`.
        molecules: Counts and digests of what was read.
        training: Number of molecules trained on.
        held_out: Number of those set aside.
        num_bytes: Size of all of them, prepared.
        seconds: Seconds of preparing the molecules, 0 if they were there, and of training.
        versions: Of the packages that decide the digits.
        init_from: SHA-256 of the model that it went on from, if it did.
    """

    config: PretrainConfig
    model: MolAttn
    history: History
    scores: dict[str, Any]
    molecules: Mapping[str, Any]
    training: int
    held_out: int
    num_bytes: int
    seconds: float
    versions: dict[str, str]
    init_from: str | None


def pretrain(
    config: PretrainConfig,
    folder: Path,
    console: Console | None = None,
    *,
    num_workers: int = 0,
) -> PretrainingRun:
    """Read molecules, and learn of them what needs no label.

    A pretraining that goes on from a model, of an ensemble from the first member, takes over its
    embeddings, encoder and readout; all heads begin anew. The best of all epochs is kept. On a CPU
    the same configuration gives the same weights, bit for bit, interrupted or not.

    Args:
        config: The molecules, the network and how to train it.
        folder: Where the unfinished run is kept; if it holds one, that one goes on.
        console: Where to report; silent without one.
        num_workers: Processes that prepare the molecules, to the same files; 0 = this one. Other
            processes import the script that calls this, which then is to do nothing by itself.

    Raises:
        InputError: If the tables cannot be used so, or the folder's training is of others or of
            other options.
        MolattnError: If training diverges.
    """
    start = time.perf_counter()
    config = with_former_network(config)
    loop = config.training
    # A fault of the options or of the model shows before molecules are prepared.
    _new_model(config, ["any"])
    former, init_from = _former(loop.init_from), pretrained_digest(loop.init_from)
    place = Path(config.molecules.molecules_folder or folder / MOLECULES_FOLDER)
    store = _prepared(config, place, console, num_workers)
    order = np.random.default_rng(loop.seed).permutation(len(store))
    count = max(1, min(config.molecules.validation_molecules, len(store) // 10))
    held_out, rows = np.sort(order[:count]), np.sort(order[count:])
    scaling = descriptor_scaling(store, sample(rows))
    if not scaling.names:
        raise InputError("got molecules that do not differ in any descriptor, expected various")
    source = Source(store, scaling, config.molecules)
    about = run_fingerprint(config, init_from, store.about["sha256"])
    check_same_run(folder, config, loop.init_from, about, f"{place}: the molecules have", console)
    if (folder / CHECKPOINT_FILE).exists():
        print_line(console, _told(read_checkpoint(folder / CHECKPOINT_FILE)))
    preparing = time.perf_counter() - start
    with seeded(loop.seed), threads(loop.threads):
        model = _new_model(config, scaling.names)
        if former is not None:  # but for its head, which goes with the scaling of its descriptors
            _, told = former.begin(model, 0, with_head=False)
            print_line(console, told)
        model.set_target_scaling(scaling.mean, scaling.scale)
        batches = partial(HiddenBatches, model, source, mask_seed=loop.seed)
        objective = _objective(model, source, rows, loop.seed)
        history = fit(
            objective,
            batches(rows, loop.batch_size, order_seed=loop.seed),
            batches(held_out, loop.batch_size),
            loop,
            console,
            folder=folder,
            about=about,
        )
        whole, masked = (batches(held_out, loop.batch_size, masked=part) for part in (0.0, 1.0))
        scores = pretraining_scores(objective, whole, masked)
    return PretrainingRun(
        config,
        model,
        history,
        scores,
        store.about,
        len(rows),
        len(held_out),
        store.num_bytes,
        preparing + history.seconds,
        about["versions"],
        init_from,
    )


def _prepared(
    config: PretrainConfig, place: Path, console: Console | None, num_workers: int
) -> MoleculeStore:
    """Return the molecules, and say how many there are and what was left out."""
    store = prepare_molecules(
        config.files, config.molecules, place, console, num_workers=num_workers
    )
    read = store.about
    print_line(
        console,
        f"{len(store)} molecules of {store.num_bytes / len(store):.0f} bytes; left out: "
        f"{read['duplicates']} duplicates, {read['left_out']} excluded, "
        f"refused: {refusals(read['refused'])}",
    )
    if read["excluded_refused"]:
        print_line(
            console,
            "--exclude: rows that are no molecules, and keep nothing out: "
            f"{refusals(read['excluded_refused'])}",
        )
    if len(store) < _FEWEST:
        raise InputError(f"got {len(store)} molecules, expected at least {_FEWEST}")
    return store


def _objective(
    model: MolAttn, source: Source, rows: NDArray[np.int64], seed: int
) -> PretrainingObjective:
    """Return the losses, scaled by training rows so that each is 1 where nothing is known."""
    some = rows[:: -(-len(rows) // _MASKED_FOR_ENTROPY)]
    batches = HiddenBatches(model, source, some, len(some), mask_seed=seed, masked=1.0)
    hidden = batches.batch(np.arange(len(some)), (0, 0))
    entropies = code_entropies(hidden, model.config.featurizer.atom_sizes)
    means, variances = count_scaling(source.store, sample(rows))
    scales = {"descriptors": 1.0, **variances, **entropies}
    return PretrainingObjective(model, scales, torch.from_numpy(means))


def _new_model(config: PretrainConfig, descriptors: Sequence[str]) -> MolAttn:
    try:
        network = NetworkConfig(**vars(config.network))
        featurizer = FEATURIZERS[config.molecules.featurizer]()
        return MolAttn(MolAttnConfig(tuple(map(Task, descriptors)), network, featurizer))
    except ValueError as error:  # the layers' own complaint about an option
        raise InputError(f"the network cannot be built so: {error}") from error


def _told(checkpoint: Mapping[str, Any]) -> str:
    return f"going on after epoch {epochs_done(checkpoint)}, step {checkpoint['global_step']}"


def _initial_weights(name: str, featurizer: Featurizer) -> PretrainedWeights | None:
    if name == NO_MODEL:
        return None
    return PretrainedWeights(FineTuningConfig(init_from=name), featurizer)
