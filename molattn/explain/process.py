"""The Gaussian process of a model as a differentiable function of the parts of one molecule."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from molattn.chem.fingerprints import MOST_COUNTED, Environments
from molattn.model.gaussian_process.head import GaussianProcessHead
from molattn.model.gaussian_process.kernel import (
    CLIP,
    GaussianKernel,
    KernelInputs,
    TanimotoKernel,
)
from molattn.model.inputs import number_type

__all__ = ["CountKernel", "MoleculeProcess"]

_ToTensor = Callable[[Any], Tensor]


class MoleculeProcess:
    r"""The Gaussian process for variants of one molecule; the second molecule is the same in all.

    An environment :math:`e`, such as a Morgan environment or an atom pair, has a weight
    :math:`w_e` from 0 to 1 in a variant. The count at position :math:`j` is
    :math:`c_j = \sum_e w_e` over the environments that are hashed to it. All weights 1 are the
    molecule itself.

    Args:
        head: The Gaussian process.
        environments: Those of the molecule, E.
        inputs: What the kernel reads of the molecule, one row; its embedding is not used.
        device: Where to compute.
    """

    def __init__(
        self,
        head: GaussianProcessHead,
        environments: Environments,
        inputs: KernelInputs,
        device: torch.device,
    ) -> None:
        def tensor(values: Any) -> Tensor:
            return torch.as_tensor(values, dtype=number_type(), device=device)

        kernel = head.kernel
        self._head = head
        self._counts = [
            CountKernel(one, kind, environments, tensor)
            for one, kind in zip(kernel.of_counts, kernel.kinds, strict=True)
        ]
        self._embedding = self._descriptors = self._features = None
        if "embedding" in kernel.numbers:
            self._embedding = _Gaussian(kernel.numbers["embedding"], tensor)
        # These numbers of the molecule change by a factor, or descriptors are given.
        if "descriptors" in kernel.numbers:
            descriptors = kernel.numbers["descriptors"]
            standardized = tensor(descriptors.standardized(inputs.numbers["descriptors"]))
            self._descriptors = _Gaussian(descriptors, tensor), standardized
        if kernel.features is not None:
            standardized = tensor(kernel.features.standardized(inputs.features))  # pyright: ignore
            self._features = _Gaussian(kernel.features, tensor), standardized
        second = [one(inputs.partners) for one in kernel.of_partners]  # pyright: ignore
        self._second = tensor(np.mean(second, axis=0)) if second else None
        self._means, self._weights = tensor(head.means), tensor(head.weights)
        self._shares = tensor(head.output_shares)

    def __call__(
        self,
        weights: Tensor,
        embedding: Tensor,
        factors: Mapping[str, Tensor],
        descriptors: Tensor | None = None,
    ) -> Tensor:
        """Predict B variants, ``[B, outputs]``: regressions in scaled units, logits of classes.

        Args:
            weights: Of the environments, ``[B, E]``.
            embedding: Embedding of each variant, ``[B, width]``.
            factors: Of the standardized ``descriptors`` and ``feature columns``, ``[B]`` each.
            descriptors: Descriptors of each variant in own units, ``[B, F]``; None = those of the
                molecule, times their factor.
        """
        found = [one(weights) for one in self._counts]
        if self._embedding is not None:
            found.append(self._embedding(self._embedding.standardized(embedding)))
        if self._descriptors is not None:
            gaussian, numbers = self._descriptors
            if descriptors is None:
                numbers = numbers * factors["descriptors"].unsqueeze(-1)
            else:
                numbers = gaussian.standardized(descriptors)
            found.append(gaussian(numbers))
        kernel = torch.stack(found).mean(dim=0)
        if self._second is not None:
            kernel = kernel * self._second
        if self._features is not None:
            gaussian, numbers = self._features
            kernel = kernel * gaussian(numbers * factors["feature columns"].unsqueeze(-1))
        return self._head.outputs(self._means + kernel @ self._weights)

    def combine(self, network: Tensor, process: Tensor) -> Tensor:
        """Average outputs of networks ``[..., B, outputs]`` with those of the Gaussian process."""
        network = torch.where(self._shares == 1.0, process, network)
        return network + self._shares * (process - network)


class CountKernel:
    """The Tanimoto kernel of variants of one molecule with m molecules, differentiable.

    Args:
        kernel: The kernel with the m molecules.
        kind: Positions of the kind.
        environments: Those of the molecule, E.
        tensor: Converts arrays to tensors.
    """

    def __init__(
        self, kernel: TanimotoKernel, kind: slice, environments: Environments, tensor: _ToTensor
    ) -> None:
        every = torch.from_numpy(environments.places)
        chosen = ((every >= kind.start) & (every < kind.stop)).nonzero()[:, 0]
        places, position = every[chosen].unique(return_inverse=True)
        level_position, lower, reached = kernel.levels(places.numpy())
        self._lower, self._reached = tensor(lower), tensor(reached)
        self._totals = tensor(kernel.totals)
        device = self._totals.device
        self._size = len(places)
        self._chosen, self._position = chosen.to(device), position.to(device)
        self._level_position = torch.from_numpy(level_position).to(device)

    def __call__(self, weights: Tensor) -> Tensor:
        """Return the kernel, ``[B, m]``, of weights ``[B, E]``."""
        counts = weights.new_zeros(len(weights), self._size)
        counts = counts.index_add(1, self._position, weights[:, self._chosen])
        counts = counts.clamp(max=MOST_COUNTED)
        reached = counts[:, self._level_position] - self._lower
        common = reached.clamp(0.0, 1.0) @ self._reached
        maxima = counts.sum(dim=1, keepdim=True) + self._totals - common
        # Two molecules without any substructure of the kind are alike in it.
        empty = maxima == 0.0
        return torch.where(empty, 1.0, common) / torch.where(empty, 1.0, maxima)


class _Gaussian:
    def __init__(self, kernel: GaussianKernel, tensor: _ToTensor) -> None:
        self._mean, self._scale = tensor(kernel.mean), tensor(kernel.scale)
        self._points, self._length = tensor(kernel.points), kernel.length

    def standardized(self, numbers: Tensor) -> Tensor:
        scaled = (numbers.to(self._mean.dtype) - self._mean) / self._scale
        return scaled.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).clamp(-CLIP, CLIP)

    def __call__(self, x: Tensor) -> Tensor:
        squares = x.square().sum(dim=1, keepdim=True) + self._points.square().sum(dim=1)
        distances = (squares - 2.0 * (x @ self._points.T)).clamp(min=0.0)
        return (distances / -self._length).exp()
