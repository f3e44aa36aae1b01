"""The Gaussian process of a model as a differentiable function of a molecule's environments."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from molattn.chem.fingerprints import MOST_COUNTED, Environments
from molattn.model.gaussian_process import GaussianProcessHead
from molattn.model.kernel import CLIP, GaussianKernel, KernelInputs, TanimotoKernel
from molattn.model.model import MolAttn
from molattn.model.scaling import number_type

_ToTensor = Callable[[Any], Tensor]
_COLUMNS = "feature columns"


class _ModelTensors:
    """Tensors of a Gaussian process on a device, shared by all molecules."""

    def __init__(self, head: GaussianProcessHead, device: torch.device) -> None:
        self.head = head
        self.device = device
        kernel = head.kernel
        self.tensor = tensor = partial(torch.as_tensor, dtype=number_type(), device=device)
        self.numbers = {
            name: _Gaussian(numbers, tensor) for name, numbers in kernel.numbers.items()
        }
        self.columns = None if kernel.features is None else _Gaussian(kernel.features, tensor)
        self.means = tensor(head.means)
        self.weights = tensor(head.weights)
        self.process_weights = tensor(head.output_shares)


_TENSORS: WeakKeyDictionary[MolAttn, _ModelTensors] = WeakKeyDictionary()


def _tensors_of(model: MolAttn) -> _ModelTensors:
    tensors = _TENSORS.get(model)
    head = model.gaussian_process
    if tensors is None or tensors.head is not head or tensors.device != model.device:
        tensors = _TENSORS[model] = _ModelTensors(head, model.device)  # pyright: ignore
    return tensors


class MoleculeProcess:
    r"""The Gaussian process for variants of one molecule; the second molecule is the same in all.

    An environment :math:`e`, such as a Morgan environment or an atom pair, has a weight
    :math:`w_e` from 0 to 1 in a variant. The count at position :math:`j` is
    :math:`c_j = \sum_e w_e` over the environments that are hashed to it. All weights 1 are the
    molecule itself. ``inputs`` are what the kernel reads of the molecule, one row; its embedding is
    not used.
    """

    def __init__(self, model: MolAttn, environments: Environments, inputs: KernelInputs) -> None:
        self._shared = shared = _tensors_of(model)
        tensor = shared.tensor
        kernel = shared.head.kernel
        self._counts = [
            _CountKernel(counts, kind, environments, tensor)
            for counts, kind in zip(kernel.of_counts, kernel.kinds, strict=True)
        ]
        self._unchanged = {
            name: shared.numbers[name].standardized(tensor(numbers))
            for name, numbers in inputs.numbers.items()
            if name != "embedding"
        }
        if shared.columns is not None:
            self._unchanged[_COLUMNS] = shared.columns.standardized(tensor(inputs.features))
        partners: Any = inputs.partners
        second = [partner_kernel(partners) for partner_kernel in kernel.of_partners]
        self._second = tensor(np.mean(second, axis=0)) if second else None

    def __call__(
        self,
        weights: Tensor,
        embedding: Tensor,
        factors: Mapping[str, Tensor],
        descriptors: Tensor | None = None,
    ) -> Tensor:
        """Predict B variants, ``[B, outputs]``: regressions in scaled units, logits of classes.

        Weights of the environments are ``[B, E]``, embeddings ``[B, width]``, factors of the
        standardized ``descriptors`` and ``feature columns`` ``[B]`` each, descriptors in own units
        ``[B, F]``; None = those of the molecule, times their factor.
        """
        shared = self._shared
        numbers_by_name = {"embedding": embedding, "descriptors": descriptors}
        kernels = [count_kernel(weights) for count_kernel in self._counts]
        for name, gaussian in shared.numbers.items():
            numbers = numbers_by_name[name]
            if numbers is None:
                kernels.append(gaussian(self._unchanged[name] * factors[name].unsqueeze(-1)))
            else:
                kernels.append(gaussian(gaussian.standardized(numbers)))
        kernel = sum(kernels[1:], kernels[0]) / len(kernels)
        if self._second is not None:
            kernel = kernel * self._second
        if shared.columns is not None:
            kernel = kernel * shared.columns(
                self._unchanged[_COLUMNS] * factors[_COLUMNS].unsqueeze(-1)
            )
        return shared.head.outputs(shared.means + kernel @ shared.weights)

    def combine(self, network: Tensor, process: Tensor) -> Tensor:
        """Average outputs of networks and of the Gaussian process, ``[..., B, outputs]``."""
        weights = self._shared.process_weights
        network = torch.where(weights == 1.0, process, network.to(process.dtype))
        return network + weights * (process - network)


class _CountKernel:
    """The Tanimoto kernel of variants of one molecule with m molecules, differentiable."""

    def __init__(
        self, kernel: TanimotoKernel, kind: slice, environments: Environments, tensor: _ToTensor
    ) -> None:
        every = torch.from_numpy(environments.positions)
        of_kind = ((every >= kind.start) & (every < kind.stop)).nonzero()[:, 0]
        positions, position = every[of_kind].unique(return_inverse=True)
        level_position, lower, reached = kernel.levels(positions.numpy())
        self._lower = tensor(lower)
        self._reached = tensor(reached)
        self._totals = tensor(kernel.totals)
        device = self._totals.device
        self._size = len(positions)
        self._of_kind = of_kind.to(device)
        self._position = position.to(device)
        self._level_position = torch.from_numpy(level_position).to(device)

    def __call__(self, weights: Tensor) -> Tensor:
        """Return the kernel, ``[B, m]``, of weights ``[B, E]``."""
        counts = weights.new_zeros(len(weights), self._size)
        counts = counts.index_add(1, self._position, weights[:, self._of_kind])
        counts = counts.clamp(max=MOST_COUNTED)
        reached = counts[:, self._level_position] - self._lower
        common = reached.clamp(0.0, 1.0) @ self._reached
        maxima = counts.sum(dim=1, keepdim=True) + self._totals - common
        # Two molecules without any substructure of the kind are equal in it.
        empty = maxima == 0.0
        return torch.where(empty, 1.0, common) / torch.where(empty, 1.0, maxima)


class _Gaussian:
    """The Gaussian kernel of B variants of a molecule with m molecules, differentiable."""

    def __init__(self, kernel: GaussianKernel, tensor: _ToTensor) -> None:
        self._mean = tensor(kernel.mean)
        self._scale = tensor(kernel.scale)
        self._points = tensor(kernel.points)
        self._length = kernel.length
        self._squares = self._points.square().sum(dim=1)

    def standardized(self, numbers: Tensor) -> Tensor:
        scaled = (numbers.to(self._mean.dtype) - self._mean) / self._scale
        return scaled.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).clamp(-CLIP, CLIP)

    def __call__(self, x: Tensor) -> Tensor:
        squares = x.square().sum(dim=1, keepdim=True) + self._squares
        distances = (squares - 2.0 * (x @ self._points.T)).clamp(min=0.0)
        return (distances / -self._length).exp()
