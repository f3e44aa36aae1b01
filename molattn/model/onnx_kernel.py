"""The Gaussian process of a model in torch, for ``molattn export --with-gaussian-process``."""

import numpy as np
import torch
from torch import Tensor, nn

from molattn.model.gaussian_process import GaussianProcessHead
from molattn.model.kernel import CLIP, Counts, GaussianKernel


class ExportedProcess(nn.Module):
    """A Gaussian process, with the numbers of :meth:`GaussianProcessHead.combine`.

    Args:
        head: The Gaussian process.
        num_columns: Number of feature columns from the table.
        num_descriptors: Number of descriptors, which follow these columns.
    """

    means: Tensor
    weights: Tensor
    shares: Tensor

    def __init__(self, head: GaussianProcessHead, num_columns: int, num_descriptors: int) -> None:
        super().__init__()
        kernel = head.kernel
        self.head = head
        self.num_columns = num_columns
        self.num_descriptors = num_descriptors
        for name in ("means", "weights"):
            self.register_buffer(name, torch.from_numpy(getattr(head, name)))
        self.register_buffer("shares", torch.from_numpy(head.output_shares))
        self.of_counts = nn.ModuleList(CommonCounts(kernel.counts, kind) for kind in kernel.kinds)
        self.of_numbers = nn.ModuleDict(
            {name: NumberKernel(gaussian) for name, gaussian in kernel.numbers.items()}
        )
        kinds = () if kernel.partners is None else kernel.kinds
        self.of_partners = nn.ModuleList(CommonCounts(kernel.partners, kind) for kind in kinds)
        self.of_columns = None if kernel.features is None else NumberKernel(kernel.features)

    def forward(
        self,
        network: Tensor,
        embedding: Tensor,
        features: Tensor | None,
        counts: Tensor | None,
        partner_counts: Tensor | None,
    ) -> Tensor:
        """Average outputs of networks ``[members, n, outputs]`` with those of the process."""
        numbers = {"embedding": embedding}
        if features is not None:
            end = self.num_columns + self.num_descriptors
            numbers["columns"] = features[:, : self.num_columns]
            numbers["descriptors"] = features[:, self.num_columns : end]
        kernels = [kernel(counts) for kernel in self.of_counts]
        kernels += [kernel(numbers[name]) for name, kernel in self.of_numbers.items()]
        product = _mean(kernels)
        if len(self.of_partners):
            product = product * _mean([kernel(partner_counts) for kernel in self.of_partners])
        if self.of_columns is not None:
            product = product * self.of_columns(numbers["columns"])
        process = self.head.outputs(self.means + product @ self.weights)
        network = torch.where(self.shares == 1.0, process, network)
        return network + self.shares * (process - network)


class CommonCounts(nn.Module):
    """The Tanimoto kernel of one kind of counts, of dense counts ``uint8 [n, positions]``.

    The counts of the m molecules are indices of distinct pairs of a position and a count, one
    molecule after another.
    """

    positions: Tensor
    most: Tensor
    index: Tensor
    starts: Tensor
    totals: Tensor

    def __init__(self, counts: Counts, kind: slice) -> None:
        super().__init__()
        self.kind = kind
        counts = counts[:, kind]
        pairs = counts.indices.astype(np.int64) << 8 | counts.data
        # The first pair, of count 0, makes the first sum 0.
        pairs, index = np.unique(np.append(0, pairs), return_inverse=True)
        arrays = {
            "positions": (pairs >> 8).astype(np.uint16),
            "most": (pairs & 255).astype(np.uint8),
            "index": index.astype(np.uint16 if len(pairs) <= 2**16 else np.int32),
            "starts": counts.indptr.astype(np.int32),
            "totals": np.asarray(counts.sum(axis=1)).ravel().astype(np.float32),
        }
        for name, values in arrays.items():
            self.register_buffer(name, torch.from_numpy(values))

    def forward(self, counts: Tensor) -> Tensor:
        """Return the kernel of n molecules with the m, ``[n, m]``."""
        counts = counts[:, self.kind].int()
        columns = counts.mT.index_select(0, self.positions.long())  # molecules last: fast
        least = torch.minimum(columns, self.most.int().unsqueeze(1))
        sums = least.index_select(0, self.index.long()).cumsum(dim=0, dtype=torch.int32)
        sums = sums.index_select(0, self.starts.long())
        common = (sums[1:] - sums[:-1]).mT.float()
        maxima = counts.sum(dim=1, keepdim=True).float() + self.totals - common
        is_empty = (maxima == 0.0).float()  # neither has a substructure of the kind: both are equal
        return (common + is_empty) / (maxima + is_empty)


class NumberKernel(nn.Module):
    """A :class:`GaussianKernel` in torch."""

    mean: Tensor
    scale: Tensor
    points: Tensor

    def __init__(self, kernel: GaussianKernel) -> None:
        super().__init__()
        self.length = kernel.length
        for name in ("mean", "scale"):
            self.register_buffer(name, torch.from_numpy(getattr(kernel, name)))
        self.register_buffer("points", torch.from_numpy(kernel.points.astype(np.float16)))

    def forward(self, numbers: Tensor) -> Tensor:
        """Return the kernel of numbers ``[n, F]`` with those of the m molecules, ``[n, m]``."""
        scaled = (numbers.double() - self.mean) / self.scale
        scaled = torch.where(numbers.isfinite(), scaled, 0.0).clamp(-CLIP, CLIP).float()
        points = self.points.float()
        squares = scaled.square().sum(dim=1, keepdim=True) + points.square().sum(dim=1)
        distances = (squares - 2.0 * (scaled @ points.mT)).clamp(min=0.0)
        return (distances / -self.length).exp()


def _mean(kernels: list[Tensor]) -> Tensor:
    """Return the mean in double precision."""
    return torch.stack(kernels).double().mean(dim=0)
