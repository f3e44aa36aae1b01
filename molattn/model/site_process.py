"""Gaussian processes of atoms and bonds: predictions by similarity to those of the training."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import logit

from molattn.chem.fingerprints import SubstructureCounter
from molattn.config import Kernel
from molattn.model.artefact import SITE_PROCESS_FILES, ModelFiles
from molattn.model.config import MolAttnConfig
from molattn.model.environments import site_environments
from molattn.model.gaussian_process import GaussianProcessHead
from molattn.model.kernel import KernelInputs
from molattn.model.networks import Records
from molattn.model.outputs import class_probabilities
from molattn.task import Level, Task, output_slices

Array = NDArray[np.float64]

_LEAST_PROBABILITY = 1e-12
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


def _kernel_config(tasks: tuple[Task, ...]) -> MolAttnConfig:
    """Return a configuration of tasks of molecules, whose place atoms (bonds) take."""
    return MolAttnConfig(tasks, kernels=(*_COUNTED, "embedding"))


@dataclass(frozen=True)
class SiteProcess:
    """A Gaussian process of all tasks of atoms, or of bonds, beside the networks.

    It learns labels that are scaled to a mean of 0 and a standard deviation of 1, and classes as
    those of molecules, see :class:`~molattn.model.gaussian_process.GaussianProcessHead`.
    """

    head: GaussianProcessHead
    mean: Array  # of the labels of each task, 0 of classes, [T]
    std: Array  # their standard deviation, 1 of classes, [T]

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
        """Fit to labels of S sites in own units and class indices ``[S, T]``, NaN: missing.

        The options are those of ``GaussianProcessHead.fit``.
        """
        mean = np.zeros(len(tasks))
        std = np.ones(len(tasks))
        for index, task in enumerate(tasks):
            labels_of_task = labels[:, index][~np.isnan(labels[:, index])]
            if task.kind == "regression" and len(labels_of_task):
                mean[index] = labels_of_task.mean()
                std[index] = labels_of_task.std() or 1.0
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
        """Return it with another weight in the prediction of each task."""
        return replace(self, head=replace(self.head, shares=shares))

    def without(self, names: Collection[str]) -> "SiteProcess":
        """Return it without a weight in the prediction of some tasks."""
        is_left_out = [task.name in names for task in self.head.tasks]
        return self.with_shares(np.where(is_left_out, 0.0, self.head.shares))

    def scaled(self, values: Array) -> Array:
        """Convert values in own units and probabilities to scaled units and logits, ``[S, O]``."""
        scaled = values.copy()
        for index, (task, columns) in enumerate(
            zip(self.head.tasks, output_slices(self.head.tasks), strict=True)
        ):
            if task.kind == "regression":
                scaled[:, columns] = (values[:, columns] - self.mean[index]) / self.std[index]
                continue
            probabilities = values[:, columns].clip(_LEAST_PROBABILITY, 1.0 - _LEAST_PROBABILITY)
            is_binary = task.kind == "binary"
            scaled[:, columns] = logit(probabilities) if is_binary else np.log(probabilities)
        return scaled

    def combine(self, values: Array, inputs: KernelInputs) -> Array:
        """Average predictions of networks, in own units and probabilities, with the process."""
        tasks = self.head.tasks
        sizes = [task.num_outputs for task in tasks]
        combined = self.head.combine(self.scaled(values), inputs)
        combined = combined * np.repeat(self.std, sizes) + np.repeat(self.mean, sizes)
        return class_probabilities(torch.from_numpy(combined), tasks).numpy()

    def to_files(self, level: Level) -> dict[str, bytes]:
        """Return the content of its file in a saved model, by name."""
        scaling = {"label_mean": self.mean, "label_std": self.std}
        return self.head.to_files(SITE_PROCESS_FILES[level], scaling)

    @classmethod
    def from_files(
        cls, files: ModelFiles, level: Level, tasks: tuple[Task, ...]
    ) -> "SiteProcess | None":
        """Read the file of :meth:`to_files`; None without it."""
        name = SITE_PROCESS_FILES[level]
        head = GaussianProcessHead.from_files(files, _kernel_config(tasks), name)
        if head is None:
            return None
        arrays = files.arrays(name)
        with files.reading(name):
            return cls(head, arrays["label_mean"], arrays["label_std"])
