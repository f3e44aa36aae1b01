"""Fit the Gaussian processes of atoms and bonds of a trained model, and their weights."""

import time
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from molattn.chem.split import Split
from molattn.config import TrainConfig
from molattn.data.dataset import Molecules, TrainingTable
from molattn.data.site_labels import SiteLabels
from molattn.model.kernel import KernelInputs
from molattn.model.model import MolAttn
from molattn.model.outputs import gaussian_process_shares
from molattn.model.site_process import SiteProcess, site_inputs
from molattn.model.sites import SiteCalibration, site_outputs
from molattn.task import Level
from molattn.training.gaussian_process import share_line
from molattn.utils.console import print_line

Array = NDArray[np.float64]

_PRIOR_MOLECULES = 20.0
_MOST_SITES = 20_000  # of the molecules that a process learns from


def add_site_processes(
    model: MolAttn,
    config: TrainConfig,
    table: TrainingTable,
    split: Split,
    console: Console | None = None,
) -> dict[Level, Array]:
    """Fit a Gaussian process of the atoms and one of the bonds, and their weights.

    As of molecules, the weights follow from the predictions for the validation rows, from which the
    processes learn then, too. The prior for half and half counts as much as 20 molecules: atoms of
    one molecule are not independent. Charges that sum to that of the molecule have the weight 0.

    The processes learn from molecules with at most 20,000 atoms and bonds, drawn at random, and not
    from labels with limits.

    Returns:
        What the model predicts of the atoms and bonds of the validation rows before the processes
        learn from them.
    """
    held_out = table.molecules(split.val).records
    if not config.kernels:
        return site_outputs(model.networks, model.site_calibration, held_out)
    start = time.perf_counter()
    rows = [_drawn(table, part, config.training.seed) for part in (split.train, split.val)]
    molecules = table.molecules(np.concatenate(rows))
    charges = model.config.charge_tasks
    before: dict[Level, SiteProcess] = {}
    after: dict[Level, SiteProcess] = {}
    for level, (network, vectors) in model.networks.predict_sites(molecules.records).items():
        labels = molecules.sites[level]
        count = int(labels.starts[len(rows[0])])
        if not np.isnan(labels.targets[:count]).all():
            inputs = site_inputs(molecules.records, level, vectors)
            fit = partial(_fit, config, labels, molecules, inputs)
            pair = _fit_both(fit, labels, network, inputs, count)
            before[level], after[level] = (process.without(charges) for process in pair)
    calibration = model.site_calibration or SiteCalibration({})
    model.site_calibration = calibration._replace(processes=before)
    outputs = site_outputs(model.networks, model.site_calibration, held_out)
    model.site_calibration = calibration._replace(processes=after)
    for process in after.values():
        for task, share in zip(process.head.tasks, process.head.shares.tolist(), strict=True):
            print_line(console, share_line(task, share))
    seconds = f"{time.perf_counter() - start:.1f} s"
    print_line(console, f"Gaussian processes of atoms and bonds fitted in {seconds}")
    return outputs


def _fit_both(
    fit: Callable[[NDArray[np.int64]], SiteProcess],
    labels: SiteLabels,
    network: Array,
    inputs: KernelInputs,
    count: int,
) -> tuple[SiteProcess, SiteProcess]:
    """Fit to the first sites, and to all, with the weights by the predictions for the others."""
    first = fit(np.arange(count))
    others = np.arange(count, len(network))
    shares = gaussian_process_shares(
        labels.tasks,
        first.scaled(network[others]),
        first.head.predict(inputs[others]),
        (labels.targets[others] - first.mean) / first.std,
        _PRIOR_MOLECULES * _labels_per_molecule(labels, others),
    )
    last = fit(np.arange(len(network))) if len(others) else first
    return first.with_shares(shares), last.with_shares(shares)


def _labels_per_molecule(labels: SiteLabels, sites: NDArray[np.int64]) -> float:
    """Return how many of some sites have labels, of molecules that have any."""
    molecule = labels.molecule[sites][~np.isnan(labels.targets[sites]).all(axis=1)]
    return len(molecule) / max(1, len(np.unique(molecule)))


def _drawn(table: TrainingTable, rows: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Return rows, drawn at random, whose molecules have at most 20,000 atoms and bonds."""
    sizes = sum(np.diff(labels.starts) for labels in table.sites.values())
    order = np.random.default_rng(seed).permutation(rows)
    return np.sort(order[np.asarray(sizes)[order].cumsum() <= _MOST_SITES])


def _fit(
    config: TrainConfig,
    labels: SiteLabels,
    molecules: Molecules,
    inputs: KernelInputs,
    sites: NDArray[np.int64],
) -> SiteProcess:
    """Fit to some of the sites of molecules."""
    molecule = labels.molecule[sites]
    smiles = [record.smiles for record in molecules.records]
    position = sites - labels.starts[molecule]
    pairs = zip(molecule.tolist(), position.tolist(), strict=True)
    return SiteProcess.fit(
        labels.tasks,
        inputs[sites],
        labels.targets[sites],
        weights=None if molecules.weights is None else molecules.weights[molecule],
        keys=[f"{smiles[row]} {index}" for row, index in pairs],
        inducing_points=config.gaussian_process.inducing_points,
        seed=config.training.seed,
    )
