"""A pretraining run, from tables of molecules to a model."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from molattn.chem.featurizer import FEATURIZERS, Featurizer
from molattn.chem.pretraining_targets import PRETRAINING_DESCRIPTORS
from molattn.config import FineTuningConfig, NetworkConfig, PretrainConfig, PretrainLoopConfig
from molattn.config.pretraining import Target
from molattn.config.yaml_file import writing_config
from molattn.data.table import listed
from molattn.errors import InputError
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.pretraining.batches import MaskedLoader, PretrainingData
from molattn.pretraining.objective import PretrainingObjective, code_entropies
from molattn.pretraining.prepare import prepare_molecules, refusals
from molattn.pretraining.scaling import count_scaling, descriptor_scaling, sample
from molattn.pretraining.scoring import pretraining_scores
from molattn.pretraining.store import MoleculeStore
from molattn.task import Task
from molattn.training.fine_tuning import load_pretrained
from molattn.training.history import History
from molattn.training.lightning.loop import check_processes, fit
from molattn.training.resume import (
    check_same_model,
    model_fingerprint,
    resume_checkpoint,
    resume_message,
    run_fingerprint,
)
from molattn.training.run import building_network
from molattn.training.run_folder import CONFIG_FILE
from molattn.utils.console import print_line
from molattn.utils.reproducibility import exclusive, seeded, threads

__all__ = ["MOLECULES_FOLDER", "PretrainingRun", "pretrain"]

MOLECULES_FOLDER = "molecules"
_FEWEST_MOLECULES = 20
_ENTROPY_SAMPLE = 2048


@dataclass(frozen=True)
class PretrainingRun:
    """A pretrained model with what it was trained on.

    Args:
        config: The options of the run.
        model: The model, in evaluation mode on the CPU; its tasks are the descriptors.
        history: The training history.
        scores: Scores on the validation molecules, see
            :func:`molattn.pretraining.scoring.pretraining_scores`.
        molecules: Counts and digests of the molecules that were read.
        training: Number of training molecules.
        validation: Number of validation molecules.
        num_bytes: Size of all prepared molecules.
        seconds: Time of preparing the molecules, if that was necessary, and of training.
        versions: Versions of the packages on which the exact weights depend.
        init_from: SHA-256 of the model that the run started from, if any.
    """

    config: PretrainConfig
    model: MolAttn
    history: History
    scores: dict[str, Any]
    molecules: Mapping[str, Any]
    training: int
    validation: int
    num_bytes: int
    seconds: float
    versions: dict[str, str]
    init_from: str | None


@exclusive()
def pretrain(
    config: PretrainConfig,
    folder: Path,
    console: Console | None = None,
    *,
    num_workers: int = 0,
) -> PretrainingRun:
    """Pretrain a network on molecules without labels.

    A run that starts from a model (of an ensemble, from its first member) takes over embeddings,
    encoder and readout; all heads are new. The weights of the best epoch are kept. On a CPU the
    same configuration gives the same weights, bit for bit, whether it is interrupted or not. With
    at least as many columns as the molecule's vector has dimensions, the model gets a projection:
    its embeddings are as far apart as the columns that are predicted for them.

    Args:
        config: The molecules, the network and how to train it.
        folder: Folder of the unfinished run; a checkpoint in it is resumed.
        console: Console for progress messages; None is silent.
        num_workers: Processes that prepare the molecules, with the same result; 0 uses this one.
            They import the calling script, whose own work must be under
            ``if __name__ == "__main__"``.

    Raises:
        InputError: Tables that cannot be used with these options, or a checkpoint of another run.
        MolattnError: Training diverges.
    """
    start = time.perf_counter()
    check_processes(config.training)
    config, pretrained = load_pretrained(config)
    loop = config.training
    init_from = pretrained and pretrained.digest
    place = Path(config.molecules.molecules_folder or folder / MOLECULES_FOLDER)
    folder.mkdir(parents=True, exist_ok=True)
    with writing_config(folder / CONFIG_FILE, config):
        # Report invalid options before molecules are prepared.
        featurizer = FEATURIZERS[config.molecules.featurizer]()
        wants_columns = "columns" in loop.targets and loop.targets != get_args(Target)
        if wants_columns and not (
            config.molecules.pretraining_columns
            or not all(Path(file).is_file() for file in config.files)  # a store, or no such file
        ):
            raise InputError("--targets columns needs --pretraining-columns")
        structure = model_fingerprint(_new_model(config, ["any"], featurizer))
        store = _prepared(config, place, console, num_workers)
        order = np.random.default_rng(loop.seed).permutation(len(store))
        count = max(1, min(config.molecules.validation_molecules, len(store) // 10))
        validation, rows = np.sort(order[:count]), np.sort(order[count:])
        scaling = descriptor_scaling(store, sample(rows), columns="columns" in loop.targets)
        if not scaling.num_descriptors:
            raise InputError(
                "all descriptors are constant over the molecules, expected more diverse molecules"
            )
        columns = scaling.names[scaling.num_descriptors :]
        given = store.names[len(PRETRAINING_DESCRIPTORS) :] if "columns" in loop.targets else ()
        if constant := [name for name in given if name not in columns]:
            print_line(console, f"columns not used, as constant or empty: {listed(constant)}")
        if not columns and (given or wants_columns):
            raise InputError("--targets columns: got no --pretraining-columns whose values vary")
        data = PretrainingData(store, scaling, config.molecules)
        fingerprint = run_fingerprint(config, init_from, store.digest)
        subject = f"{place}: the molecules have"
        checkpoint = resume_checkpoint(
            folder, config, loop.init_from, fingerprint, subject, console
        )
        if checkpoint is not None:
            print_line(console, resume_message(checkpoint))
        check_same_model(checkpoint, structure, folder)
    preparing = time.perf_counter() - start
    with seeded(loop.seed), threads(loop.threads):
        descriptors = slice(scaling.num_descriptors)
        model = _new_model(config, scaling.names[descriptors], featurizer)
        if pretrained is not None:  # not its head, which depends on the scaling of its descriptors
            options = FineTuningConfig(pretrained.name)
            _, message = pretrained.apply(model, 0, options, with_head=False)
            if checkpoint is None:
                print_line(console, message)
        model.set_target_scaling(scaling.mean[descriptors], scaling.scale[descriptors])
        batches = partial(MaskedLoader, model, data, mask_seed=loop.seed)
        loader = batches if {*loop.targets} & {"atoms", "bonds"} else partial(batches, masked=0.0)
        objective = _objective(model, data, rows, loop)
        history = fit(
            objective,
            loader(rows, loop.batch_size, order_seed=loop.seed),
            loader(validation, loop.batch_size),
            loop,
            console,
            folder=folder,
            checkpoint=checkpoint,
            fingerprint={**fingerprint, "model": structure},
        )
        projection = None  # also where that of --init-from is of other columns
        if objective.columns is not None:
            width = model.embedding_width()
            if len(columns) >= width:
                projection = _projection(objective.columns.weight.detach(), loop.seed)
            else:
                message = f"{len(columns)} columns, fewer than the {width} dimensions"
                print_line(console, f"no projection: {message} of the embedding")
        objective.network.register_buffer("projection", projection)
        unmasked = batches(validation, loop.batch_size, masked=0.0)
        masked = batches(validation, loop.batch_size, masked=1.0)
        scores = pretraining_scores(objective, scaling.names, unmasked, masked)
    return PretrainingRun(
        config,
        model,
        history,
        scores,
        store.about,
        len(rows),
        len(validation),
        store.num_bytes,
        preparing + history.seconds,
        fingerprint["versions"],
        init_from,
    )


def _prepared(
    config: PretrainConfig, place: Path, console: Console | None, num_workers: int
) -> MoleculeStore:
    """Return the molecules, and report how many there are and how many are not used."""
    store = prepare_molecules(
        config.files, config.molecules, place, console, num_workers=num_workers
    )
    read = store.about
    print_line(
        console,
        f"{len(store)} molecules ({store.num_bytes / len(store):.0f} bytes each); not used: "
        f"{read['duplicates']} duplicates, {read['left_out']} excluded; "
        f"invalid rows: {refusals(read['refused'])}",
    )
    if read["excluded_refused"]:
        print_line(
            console,
            f"--exclude: invalid SMILES, which were ignored: {refusals(read['excluded_refused'])}",
        )
    if len(store) < _FEWEST_MOLECULES:
        raise InputError(f"got {len(store)} molecules, expected at least {_FEWEST_MOLECULES}")
    return store


def _objective(
    model: MolAttn, data: PretrainingData, rows: NDArray[np.int64], loop: PretrainLoopConfig
) -> PretrainingObjective:
    """Return the loss, scaled to the training molecules."""
    some = rows[:: -(-len(rows) // _ENTROPY_SAMPLE)]
    batches = MaskedLoader(model, data, some, len(some), mask_seed=loop.seed, masked=1.0)
    masked = batches.batch(np.arange(len(some)), (0, 0))
    entropies = code_entropies(masked, model.config.featurizer.atom_sizes)
    means, variances = count_scaling(data.store, sample(rows))
    scales = {"descriptors": 1.0, "columns": 1.0, **variances, **entropies}
    num_columns = len(data.scaling.names) - data.scaling.num_descriptors
    return PretrainingObjective(model, scales, torch.from_numpy(means), loop.targets, num_columns)


def _projection(weight: torch.Tensor, seed: int) -> torch.Tensor:
    """Return a matrix A by which molecules are as far apart as the columns predicted for them.

    With the weights W of the columns ``[C, d]``, A Aᵀ = Wᵀ W, so that |x A - y A| = |W x - W y|. A
    random rotation spreads the variance evenly over the dimensions of x A, since a Gaussian process
    standardizes each of them.
    """
    values, axes = torch.linalg.eigh(weight.double().T @ weight.double())
    normal = np.random.default_rng(seed).normal(size=axes.shape)
    rotation = torch.from_numpy(np.linalg.qr(normal)[0])
    return ((axes * values.clamp(min=0.0).sqrt()) @ rotation).to(weight)


def _new_model(
    config: PretrainConfig, descriptors: Sequence[str], featurizer: Featurizer
) -> MolAttn:
    with building_network():
        network = NetworkConfig(**vars(config.network))
        return MolAttn(MolAttnConfig(tuple(map(Task, descriptors)), network, featurizer))
