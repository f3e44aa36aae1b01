"""Fit the Gaussian processes of atoms and bonds of a trained model, and their weights."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from molattn.chem.split import Split
from molattn.config import TrainConfig
from molattn.data.dataset import Molecules, TrainingTable
from molattn.model.kernel import KernelInputs
from molattn.model.model import MolAttn
from molattn.model.outputs import gaussian_process_shares
from molattn.model.site_process import SiteProcess, learned_tasks, output_columns, site_inputs
from molattn.model.sites import SiteCalibration, site_outputs
from molattn.task import Level, Task, interleaved
from molattn.training.gaussian_process import share_line
from molattn.utils.console import counted, print_line, step_progress

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

_PRIOR_MOLECULES = 20.0
_MOST_SITES = 20_000  # of the training, and of the validation molecules


def add_site_processes(
    model: MolAttn,
    config: TrainConfig,
    table: TrainingTable,
    split: Split,
    console: Console | None = None,
) -> dict[Level, Array]:
    """Fit a Gaussian process of the numbers of atoms and one of those of bonds, and their weights.

    As of molecules, the weights follow from the predictions for the validation rows, from which the
    processes learn then, too. The prior for half and half counts as much as 20 molecules: atoms of
    one molecule are not independent. Classes, charges that sum to that of the molecule, and labels
    with limits are left to the network.

    Returns:
        What the model predicts of the atoms and bonds of the validation rows before the processes
        learn from them.
    """
    held_out = table.molecules(split.val).records
    levels: list[Level] = [
        level for level in model.config.site_tasks if learned_tasks(model.config, level)
    ]
    if not config.kernels or not levels:
        return site_outputs(model.networks, model.site_calibration, held_out)
    start = time.perf_counter()
    with step_progress(console, "Gaussian processes of atoms and bonds"):
        before, after, count = _fit_processes(model, config, table, split, levels)
        calibration = model.site_calibration or SiteCalibration({})
        model.site_calibration = calibration._replace(processes=before)
        outputs = site_outputs(model.networks, model.site_calibration, held_out)
        model.site_calibration = calibration._replace(processes=after)
    for process in after.values():
        for task, share in zip(process.head.tasks, process.head.shares.tolist(), strict=True):
            print_line(console, share_line(task, share))
    seconds = f"{time.perf_counter() - start:.1f} s"
    print_line(console, f"fitted to {counted(count, 'molecule')} in {seconds}")
    return outputs


def _fit_processes(
    model: MolAttn, config: TrainConfig, table: TrainingTable, split: Split, levels: list[Level]
) -> tuple[dict[Level, SiteProcess], dict[Level, SiteProcess], int]:
    """Fit to training molecules, and to these and validation molecules; weights are the same.

    Returns both, and the number of all these molecules.
    """
    before: dict[Level, SiteProcess] = {}
    after: dict[Level, SiteProcess] = {}
    seed = config.training.seed
    rows = [_drawn(model, table, part, levels, seed) for part in (split.train, split.val)]
    molecules = table.molecules(np.concatenate(rows))
    outputs, vectors = model.networks.predict_sites(molecules.records, with_vectors=True)
    for level in levels:
        inputs = site_inputs(molecules.records, level, vectors[level])
        sites = _Sites.of(model, config, molecules, level, outputs[level], inputs)
        count = int(molecules.sites[level].starts[len(rows[0])])
        before[level], after[level] = sites.fit_both(count, config.trains_network)
    return before, after, len(molecules.records)


@dataclass(frozen=True)
class _Sites:
    """The atoms, or bonds, that a process learns from."""

    tasks: tuple[Task, ...]
    labels: Array  # NaN: missing, or not in the graph, [S, T]
    network: Array  # [S, T]
    molecule: Rows  # of each, [S]
    inputs: KernelInputs
    fit: Callable[[Rows], SiteProcess]

    @classmethod
    def of(
        cls,
        model: MolAttn,
        config: TrainConfig,
        molecules: Molecules,
        level: Level,
        outputs: Array,
        inputs: KernelInputs,
    ) -> "_Sites":
        labels = molecules.sites[level]
        tasks = learned_tasks(model.config, level)
        names = [task.name for task in labels.tasks]
        network = outputs[:, output_columns(tasks, labels.tasks)]
        targets = labels.targets[:, [names.index(task.name) for task in tasks]]
        targets = np.where(np.isnan(network), np.nan, targets)
        molecule = labels.molecule
        smiles = [record.smiles for record in molecules.records]
        positions = (np.arange(len(molecule)) - labels.starts[molecule]).tolist()
        keys = [f"{smiles[row]} {at}" for row, at in zip(molecule.tolist(), positions, strict=True)]

        def fit(sites: Rows) -> SiteProcess:
            weights = molecules.weights
            return SiteProcess.fit(
                tasks,
                inputs[sites],
                targets[sites],
                weights=None if weights is None else weights[molecule[sites]],
                keys=[keys[site] for site in sites.tolist()],
                inducing_points=config.gaussian_process.inducing_points,
                seed=config.training.seed,
            )

        return cls(tasks, targets, network, molecule, inputs, fit)

    def fit_both(self, count: int, trains_network: bool) -> tuple[SiteProcess, SiteProcess]:
        """Fit to the first sites, and to all, with weights by the predictions for the others."""
        first = self.fit(np.arange(count))
        others = np.arange(count, len(self.labels))
        is_labeled = ~np.isnan(self.labels)
        labels_of_task = is_labeled[others].sum(axis=0)
        labeled = [len(np.unique(self.molecule[others][column])) for column in is_labeled[others].T]
        shares = gaussian_process_shares(
            self.tasks,
            (self.network[others] - first.mean) / first.std,
            first.head.predict(self.inputs[others]),
            (self.labels[others] - first.mean) / first.std,
            _PRIOR_MOLECULES * labels_of_task / np.maximum(labeled, 1),
        )
        shares[~is_labeled[:count].any(axis=0)] = 0.0
        if not trains_network:
            shares[:] = 1.0
        last = self.fit(np.arange(len(self.labels))) if len(others) else first
        return first.with_shares(shares), last.with_shares(shares)


def _drawn(
    model: MolAttn, table: TrainingTable, rows: Rows, levels: list[Level], seed: int
) -> Rows:
    """Return rows that have labels, drawn in turn for each task, of at most 20,000 sites."""
    sizes = np.zeros(len(table.rows), dtype=np.int64)
    labeled = []
    for level in levels:
        labels = table.sites[level]
        sizes += np.diff(labels.starts)
        names = {task.name for task in learned_tasks(model.config, level)}
        for task, values in zip(labels.tasks, labels.targets.T, strict=True):
            if task.name in names:
                counts = np.bincount(labels.molecule, ~np.isnan(values), len(sizes))
                labeled.append(counts > 0)
    has_label = np.stack(labeled, axis=1)[rows]
    order = interleaved(np.random.default_rng(seed).permutation(len(rows)), has_label)
    order = order[has_label[order].any(axis=1)]
    return np.sort(rows[order[sizes[rows[order]].cumsum() <= _MOST_SITES]])
