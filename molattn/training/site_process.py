"""Fit the Gaussian processes of atoms and bonds of a trained model, and their weights."""

import time
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

PRIOR_MOLECULES = 20.0
MOST_SITES = 20_000
"""Atoms and bonds of the molecules that a process learns from."""


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
    found = model.networks.predict_sites(molecules.records)
    processes: dict[Level, tuple[SiteProcess, SiteProcess]] = {}
    for level, labels in molecules.sites.items():
        network, vectors = found[level]
        inputs = site_inputs(molecules.records, level, vectors)
        learned = np.arange(labels.starts[len(rows[0])])
        if np.isnan(labels.targets[learned]).all():
            continue
        fit = partial(_fit, model, config, labels, molecules, inputs)
        first = fit(learned)
        after = np.arange(len(learned), len(network))
        shares = gaussian_process_shares(
            labels.tasks,
            first.scaled(network[after]),
            first.head.predict(inputs[after]),
            (labels.targets[after] - first.mean) / first.std,
            PRIOR_MOLECULES * _labels_per_molecule(labels, after),
        )
        shares[[task.name in model.config.charge_tasks for task in labels.tasks]] = 0.0
        last = fit(np.arange(len(network))) if len(after) else first
        processes[level] = first.with_shares(shares), last.with_shares(shares)
        for task, share in zip(labels.tasks, shares.tolist(), strict=True):
            print_line(console, share_line(task, share))
    calibration = model.site_calibration or SiteCalibration({})
    with_first = calibration._replace(processes={x: pair[0] for x, pair in processes.items()})
    outputs = site_outputs(model.networks, with_first, held_out)
    with_last = {level: pair[1] for level, pair in processes.items()}
    model.site_calibration = calibration._replace(processes=with_last)
    seconds = f"{time.perf_counter() - start:.1f} s"
    print_line(console, f"Gaussian processes of atoms and bonds fitted in {seconds}")
    return outputs


def _labels_per_molecule(labels: SiteLabels, sites: NDArray[np.int64]) -> float:
    """Return how many of some sites have labels, of molecules that have any."""
    molecule = labels.molecule[sites][~np.isnan(labels.targets[sites]).all(axis=1)]
    return len(molecule) / max(1, len(np.unique(molecule)))


def _drawn(table: TrainingTable, rows: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Return rows, drawn at random, whose molecules have at most 20,000 atoms and bonds."""
    sizes = sum(np.diff(labels.starts) for labels in table.sites.values())
    order = np.random.default_rng(seed).permutation(rows)
    return np.sort(order[np.asarray(sizes)[order].cumsum() <= MOST_SITES])


def _fit(
    model: MolAttn,
    config: TrainConfig,
    labels: SiteLabels,
    molecules: Molecules,
    inputs: KernelInputs,
    sites: NDArray[np.int64],
) -> SiteProcess:
    """Fit to some of the sites of molecules."""
    molecule = labels.molecule[sites]
    smiles = [record.smiles for record in molecules.records]
    own = sites - labels.starts[molecule]
    pairs = zip(molecule.tolist(), own.tolist(), strict=True)
    return SiteProcess.fit(
        labels.tasks,
        inputs[sites],
        labels.targets[sites],
        weights=None if molecules.weights is None else molecules.weights[molecule],
        keys=[f"{smiles[row]} {index}" for row, index in pairs],
        inducing_points=config.gaussian_process.inducing_points,
        seed=config.training.seed,
    )
