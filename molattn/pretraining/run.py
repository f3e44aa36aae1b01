"""A pretraining run, from tables of molecules to a model, and its files."""

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
import yaml
from numpy.typing import NDArray
from rich.console import Console

from molattn.chem.featurizer import FEATURIZERS
from molattn.chem.pretraining_targets import PRETRAINING_DESCRIPTORS
from molattn.config import FineTuningConfig, NetworkConfig, PretrainConfig, PretrainLoopConfig
from molattn.config.training import Target
from molattn.config.yaml_file import writing_config
from molattn.data.store import REJECTED_FILE
from molattn.data.table import listed
from molattn.errors import InputError
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.pretraining.batches import (
    MaskedLoader,
    PretrainingData,
    count_scaling,
    descriptor_scaling,
    sample,
)
from molattn.pretraining.objective import PretrainingObjective, code_entropies, pretraining_scores
from molattn.pretraining.store import MoleculeStore, prepare_molecules, reasons_text
from molattn.task import Task
from molattn.training.checkpoint import RunCheckpoint
from molattn.training.fine_tuning import PretrainedWeights
from molattn.training.loop import check_processes, fit
from molattn.training.resolve import load_pretrained, resolve_precision
from molattn.training.run import building_network
from molattn.training.run_folder import CONFIG_FILE, RESULT_FILE, History, write_history
from molattn.utils.console import print_line
from molattn.utils.devices import exclusive, seeded, threads
from molattn.utils.files import write_file, write_json
from molattn.utils.process_group import broadcast, process_rank
from molattn.version import package_versions

MIN_MOLECULES = 20
_MOLECULES_FOLDER = "molecules"
_ENTROPY_SAMPLE = 2048
_SCORES = {
    "descriptors": ("R² of descriptors", "mean_r2"),
    "morgan": ("R² of Morgan counts", "r2"),
    "atom_pairs": ("R² of atom-pair counts", "r2"),
    "torsions": ("R² of torsion counts", "r2"),
    "atoms": ("accuracy of masked elements", "accuracy"),
    "bonds": ("accuracy of masked bonds", "accuracy"),
    "columns": ("R² of columns", "mean_r2"),
}
_CARD = """---
library_name: molattn
tags:
- chemistry
---
A molattn network pretrained on molecules without labels.
Fine-tune it with `molattn train --init-from` and this folder. {use}

{note}

    {command}

```yaml
{facts}```
"""


@dataclass(frozen=True)
class PretrainingRun:
    """A pretrained model with what it was trained on."""

    config: PretrainConfig
    model: MolAttn  # in evaluation mode on the CPU; its tasks are the descriptors
    history: History
    metrics: dict[str, Any]  # scores, counts and digests of molecules, times and versions, as JSON


@exclusive()
def pretrain(
    config: PretrainConfig, folder: Path, console: Console | None = None, *, num_workers: int = 0
) -> PretrainingRun:
    """Pretrain a network on molecules without labels.

    A run that starts from a model takes over embeddings, encoder and readout. On a CPU the same
    configuration gives the same weights, bit for bit, whether it is interrupted or not. With at
    least as many columns as the molecule's vector has dimensions, embeddings are projected: they
    are as far apart as the columns that are predicted for them.

    Args:
        config: The molecules, the network and how to train it.
        folder: Folder of the unfinished run; a checkpoint in it is resumed.
        console: Where to log.
        num_workers: Processes that prepare the molecules; 0 uses this one.

    Raises:
        InputError: Tables or options that cannot be used, or a checkpoint of another run.
        MolattnError: Training diverges.
    """
    start = time.perf_counter()
    check_processes(config.training)
    config, base = load_pretrained(config)
    store_folder = folder / _MOLECULES_FOLDER
    data = _data(config, folder, store_folder, console, num_workers)
    preparing = time.perf_counter() - start
    loop = config.training
    digest = base and base.digest
    with seeded(loop.seed), threads(loop.threads):
        objective = _objective(config, data, base, console)
        initial = f"--init-from: the model {loop.init_from}", digest
        sources = {
            "data": (f"{store_folder}: the molecules", data.store.digest),
            "init_from": initial,
        }
        run = RunCheckpoint(folder, sources, objective.model)
        history, scores = _fit(objective, data, loop, console, None if process_rank() else run)
    metrics = {
        "molecules": data.facts(),
        "validation": scores,
        "epochs": len(history.curve),
        "kept_epoch": history.kept_epoch,
        "steps": history.steps,
        "training_hours": round(history.seconds / 3600.0, 4),
        "hours": round((preparing + history.seconds) / 3600.0, 4),
        "seed": loop.seed,
        "init_from_sha256": digest,
        "versions": package_versions(),
    }
    return PretrainingRun(config, objective.model, history, metrics)


def _data(
    config: PretrainConfig,
    folder: Path,
    store_folder: Path,
    console: Console | None,
    num_workers: int,
) -> PretrainingData:
    """Return the split molecules, which the first process prepares and counts in the log."""
    _new_model(config, ("any",))  # reports invalid options before molecules are prepared
    if process_rank():
        return broadcast(None)  # pyright: ignore[reportReturnType]
    folder.mkdir(parents=True, exist_ok=True)
    molecules = config.molecules
    with writing_config(folder / CONFIG_FILE, config):
        store = prepare_molecules(
            config.files, molecules, store_folder, console, num_workers=num_workers
        )
        read = store.about
        count = len(store)
        line = f"{count} molecules ({store.num_bytes / count:.0f} bytes each); not used: "
        line += f"{read['duplicates']} duplicates, {read['left_out']} excluded; skipped rows: "
        print_line(console, line + reasons_text(read["skipped"]))
        if read["excluded_skipped"]:
            reasons = reasons_text(read["excluded_skipped"])
            print_line(console, f"skipped rows of --exclude: {reasons}")
        if count < MIN_MOLECULES:
            raise InputError(f"got {count} molecules, expected at least {MIN_MOLECULES}")
        return broadcast(_split(config, store, console))


def _fit(
    objective: PretrainingObjective,
    data: PretrainingData,
    loop: PretrainLoopConfig,
    console: Console | None,
    run: RunCheckpoint | None,
) -> tuple[History, dict[str, Any]]:
    """Train, project the embeddings, and score the validation molecules."""
    model = objective.model
    size = loop.batch_size
    loader = partial(MaskedLoader, model, data, mask_seed=loop.seed)
    masked = None if {*loop.targets} & {"atoms", "bonds"} else 0.0
    history = fit(
        objective,
        loader(data.training, size, order_seed=loop.seed, masked=masked),
        loader(data.validation, size, masked=masked),
        replace(loop, precision=resolve_precision(loop, model.config.network.width)),
        console,
        run=run,
    )
    _project(objective, loop, console)
    batches = (loader(data.validation, size, masked=fraction) for fraction in (0.0, 1.0))
    return history, pretraining_scores(objective, data.scaling.names, *batches)


def _split(
    config: PretrainConfig, store: MoleculeStore, console: Console | None
) -> PretrainingData:
    """Split the molecules, and scale their targets by the training molecules."""
    loop = config.training
    order = np.random.default_rng(loop.seed).permutation(len(store))
    count = max(1, min(config.molecules.validation_molecules, len(store) // 10))
    validation = np.sort(order[:count])
    rows = np.sort(order[count:])
    uses_columns = "columns" in loop.targets
    scaling = descriptor_scaling(store, sample(rows), columns=uses_columns)
    if not scaling.num_descriptors:
        reason = "all descriptors are constant over the molecules, expected more diverse molecules"
        raise InputError(reason)
    columns = scaling.names[scaling.num_descriptors :]
    requested = store.names[len(PRETRAINING_DESCRIPTORS) :] if uses_columns else ()
    if constant := [name for name in requested if name not in columns]:
        print_line(console, f"columns not used, as constant or empty: {listed(constant)}")
    if not columns and (requested or (uses_columns and loop.targets != get_args(Target))):
        raise InputError("--targets columns: got no --pretraining-columns whose values vary")
    return PretrainingData(store, scaling, config.molecules, rows, validation)


def _objective(
    config: PretrainConfig,
    data: PretrainingData,
    base: PretrainedWeights | None,
    console: Console | None,
) -> PretrainingObjective:
    """Return a new model with its loss, scaled to the training molecules."""
    loop = config.training
    scaling = data.scaling
    rows = data.training
    descriptors = slice(scaling.num_descriptors)
    model = _new_model(config, scaling.names[descriptors])
    if base is not None:  # not its head, which depends on the scaling of its descriptors
        options = FineTuningConfig(base.name, freeze="none", head_steps=0)
        _, message = base.apply(model, 0, options)
        print_line(console, message)
    model.set_target_scaling(scaling.mean[descriptors], scaling.scale[descriptors])
    sampled = rows[:: -(-len(rows) // _ENTROPY_SAMPLE)]
    batches = MaskedLoader(model, data, sampled, len(sampled), mask_seed=loop.seed, masked=1.0)
    masked = batches.batch(np.arange(len(sampled)), (0, 0))
    entropies = code_entropies(masked, model.config.featurizer.atom_sizes)
    means, variances = count_scaling(data.store, sample(rows))
    scales = {"descriptors": 1.0, "columns": 1.0, **variances, **entropies}
    num_columns = len(scaling.names) - scaling.num_descriptors
    return PretrainingObjective(model, scales, torch.from_numpy(means), loop.targets, num_columns)


def _project(
    objective: PretrainingObjective, loop: PretrainLoopConfig, console: Console | None
) -> None:
    """Give the model the projection of its columns; one of other columns is removed."""
    projection = None
    width = objective.model.networks.embedding_width()
    if objective.columns is not None:
        weight = objective.columns.weight.detach()
        projection = _projection(weight, loop.seed) if len(weight) >= width else None
        if projection is None:
            few = f"{len(weight)} columns, fewer than the {width} dimensions of the embedding"
            print_line(console, f"no projection: {few}")
    objective.network.register_buffer("projection", projection)


def _projection(weight: torch.Tensor, seed: int) -> torch.Tensor:
    """Return a matrix A by which molecules are as far apart as the columns predicted for them.

    With the weights W of the columns ``[C, d]``, A Aᵀ = Wᵀ W, so that |x A - y A| = |W x - W y|. A
    random rotation spreads the variance evenly over the dimensions of x A, since a Gaussian process
    standardizes each of them.
    """
    values, axes = torch.linalg.eigh(weight.double().T @ weight.double())
    normal: NDArray[np.float64] = np.random.default_rng(seed).normal(size=axes.shape)
    rotation = torch.from_numpy(np.linalg.qr(normal)[0])
    return ((axes * values.clamp(min=0.0).sqrt()) @ rotation).to(weight)


def _new_model(config: PretrainConfig, descriptors: tuple[str, ...]) -> MolAttn:
    featurizer = FEATURIZERS[config.molecules.featurizer]()
    with building_network():
        network = NetworkConfig(**vars(config.network))
        return MolAttn(MolAttnConfig(tuple(map(Task, descriptors)), network, featurizer))


def write_pretraining(run: PretrainingRun, folder: Path) -> None:
    """Write the model (``model/``) with a card, ``metrics.json`` and ``history.csv``.

    Molecules that were prepared for this run only are removed, but for the list of the skipped
    rows (``skipped.csv``).
    """
    run.model.save_pretrained(folder / "model")
    write_file(folder / "model" / "README.md", _model_card(run).encode())
    write_history(folder, run.history.curve)
    write_json(folder / RESULT_FILE, run.metrics)
    skipped = folder / _MOLECULES_FOLDER / REJECTED_FILE
    if run.metrics["molecules"]["skipped"] and skipped.exists():
        skipped.replace(folder / "skipped.csv")
    shutil.rmtree(folder / _MOLECULES_FOLDER, ignore_errors=True)


def describe_scores(scores: Mapping[str, Any]) -> list[str]:
    """Return the main score of each target as text."""
    lines = []
    for target, (name, key) in _SCORES.items():
        if target in scores:
            target_scores = (
                scores[target].get("element", {}) if target == "atoms" else scores[target]
            )
            value = target_scores.get(key)
            lines.append(f"{name} {'undefined' if value is None else f'{value:.3f}'}")
    return lines


def _model_card(run: PretrainingRun) -> str:
    use = "It did not learn the descriptors that `molattn predict` returns."
    if "descriptors" in run.config.training.targets:
        use = "`molattn predict` returns descriptors, clipped to the 0.1% and 99.9% quantiles."
    if run.model.nets[0].projection is not None:
        use += " Embeddings are projected: as far apart as the columns predicted for them."
    facts = {**run.metrics, "validation": describe_scores(run.metrics["validation"])}
    facts_text = yaml.safe_dump(facts, sort_keys=False, allow_unicode=True)
    note = run.config.molecules.data_note or ""
    command = f"{run.config.command_line('pretrain')} --output pretrained"
    return _CARD.format(use=use, note=note, command=command, facts=facts_text)
