"""Gaussian processes of atoms and bonds: predictions by similarity to those of the training."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from molattn.chem.fingerprints import SubstructureCounter
from molattn.config import Kernel
from molattn.model.artefact import SITE_PROCESS_FILES, ModelFiles
from molattn.model.config import MolAttnConfig
from molattn.model.environments import site_environments
from molattn.model.gaussian_process import GaussianProcessHead
from molattn.model.kernel import KernelInputs
from molattn.model.networks import Records
from molattn.task import Level, Task, output_slices

Array = NDArray[np.float64]

_COUNTED: tuple[Kernel, ...] = ("morgan",)
_POSITIONS = len(SubstructureCounter(_COUNTED))


def site_inputs(records: Records, level: Level, vectors: NDArray[np.float32]) -> KernelInputs:
    """Return what the kernel compares of atoms (bonds): environments, and vectors ``[S, width]``.

    Environments of the radii 0 to 3 are counted once each, as substructures of a molecule are.
    """
    positions = site_environments(records, level) % np.uint64(_POSITIONS)
    count, radii = positions.shape
    single_counts = np.ones(positions.size, dtype=np.uint8)
    starts = np.arange(0, positions.size + 1, radii)
    matrix = (single_counts, positions.ravel().astype(np.int32), starts)
    counts = sparse.csr_matrix(matrix, (count, 2**16))
    counts.sum_duplicates()
    return KernelInputs(count, counts, {"embedding": vectors})


def learned_tasks(config: MolAttnConfig, level: Level) -> tuple[Task, ...]:
    """Return the tasks of a level that a process learns: numbers, but charges with a known sum."""
    return tuple(
        task
        for task in config.site_tasks[level]
        if task.kind == "regression" and task.name not in config.charge_tasks
    )


def output_columns(learned: Sequence[Task], tasks: Sequence[Task]) -> list[int]:
    """Return the outputs of learned tasks among those of all tasks of a level."""
    starts = {task.name: at.start for task, at in zip(tasks, output_slices(tasks), strict=True)}
    return [starts[task.name] for task in learned]


def _kernel_config(tasks: tuple[Task, ...]) -> MolAttnConfig:
    """Return a configuration of tasks of molecules, whose place atoms (bonds) take."""
    return MolAttnConfig(tasks, kernels=(*_COUNTED, "embedding"))


@dataclass(frozen=True)
class SiteProcess:
    """A Gaussian process of the numbers of atoms, or of bonds, beside the networks.

    It learns labels that are scaled to a mean of 0 and a standard deviation of 1.
    """

    head: GaussianProcessHead  # of learned_tasks
    mean: Array  # of the labels of each of its tasks
    std: Array  # their standard deviation

    @classmethod
    def fit(
        cls,
        tasks: tuple[Task, ...],
        inputs: KernelInputs,
        labels: Array,
        *,
        weights: Array | None,
        keys: Sequence[str],
        inducing_points: int,
        seed: int,
    ) -> "SiteProcess":
        """Fit to labels of S sites in own units ``[S, T]``, NaN: missing.

        The options are those of ``GaussianProcessHead.fit``.
        """
        mean = np.zeros(len(tasks))
        std = np.ones(len(tasks))
        for index, column in enumerate(labels.T):
            if len(values := column[~np.isnan(column)]):
                mean[index] = values.mean()
                std[index] = values.std() or 1.0
        head = GaussianProcessHead.fit(
            _kernel_config(tasks),
            inputs,
            (labels - mean) / std,
            weights=weights,
            keys=keys,
            inducing_points=inducing_points,
            seed=seed,
        )
        return cls(head, mean, std)

    def with_shares(self, shares: Array) -> "SiteProcess":
        """Return it with another weight in the prediction of each of its tasks."""
        return replace(self, head=replace(self.head, shares=shares))

    def combine(self, tasks: Sequence[Task], values: Array, inputs: KernelInputs) -> Array:
        """Average predictions of networks of all tasks of the level, ``[S, O]``, with its own."""
        columns = output_columns(self.head.tasks, tasks)
        scaled = (values[:, columns] - self.mean) / self.std
        combined = values.copy()
        combined[:, columns] = self.head.combine(scaled, inputs) * self.std + self.mean
        return combined

    def to_files(self, level: Level) -> dict[str, bytes]:
        """Return the content of its file in a saved model, by name."""
        scaling = {"label_mean": self.mean, "label_std": self.std}
        return self.head.to_files(SITE_PROCESS_FILES[level], scaling)

    @classmethod
    def from_files(
        cls, files: ModelFiles, config: MolAttnConfig, level: Level
    ) -> "SiteProcess | None":
        """Read the file of :meth:`to_files`; None without it."""
        name = SITE_PROCESS_FILES[level]
        arrays = files.arrays(name)
        if not arrays:
            return None
        with files.reading(name):
            learned = _kernel_config(learned_tasks(config, level))
            head = GaussianProcessHead.from_arrays(arrays, learned)
            return cls(head, arrays["label_mean"], arrays["label_std"])
