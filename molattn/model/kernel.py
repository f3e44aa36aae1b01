r"""Kernels between molecules.

The kernel of two molecules is the mean of

- a Tanimoto kernel for each kind of substructure counts, with counts :math:`a` and :math:`b`
  (Swamidass et al., Bioinformatics 2005, 21, i359; Ralaivola et al., Neural Networks 2005, 18,
  1093):

  .. math:: k(a, b) = \frac{\sum_j \min(a_j, b_j)}{\sum_j \max(a_j, b_j)}

- a Gaussian kernel for each group of numbers, such as an embedding, with standardized numbers
  :math:`x` and :math:`y`:

  .. math:: k(x, y) = \exp\left(-\frac{\lVert x - y \rVert^2}{2 \ell^2}\right)

Each is 1 for a molecule with itself. A second molecule and feature columns multiply it by kernels
of their own: rows are similar if all their parts are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from molattn.chem.fingerprint_index import ReachedLevels
from molattn.model.config import MolAttnConfig
from molattn.record import MoleculeRecord

Array = NDArray[np.float64]
Rows = NDArray[np.int64]
Counts = Any  # sparse.csr_matrix [n, 65536]

CLIP = 4.0
"""Standard deviations from the mean to which numbers are clipped."""
_POSITIONS = 2**16
_MEDIAN_ROWS = 1000
_NUMBERS = "numbers."


def stack_counts(rows: Sequence[tuple[NDArray[np.uint16], NDArray[Any]]]) -> Counts:
    """Join positions and counts of n molecules to a sparse matrix ``[n, 65536]``."""
    starts = np.cumsum([0, *(len(positions) for positions, _ in rows)])
    empty = (np.zeros(0, dtype=np.uint16), np.zeros(0, dtype=np.uint8))
    positions, counts = map(np.concatenate, zip(*(rows or [empty]), strict=True))
    return sparse.csr_matrix((counts, positions, starts), (len(rows), _POSITIONS))


@dataclass(frozen=True)
class KernelInputs:
    """What a kernel reads of n rows."""

    size: int
    counts: Counts | None  # of the molecules
    numbers: Mapping[str, NDArray[np.floating]]  # such as the embedding, [n, F] each
    partners: Counts | None = None  # counts of the second molecules
    features: NDArray[np.floating] | None = None  # feature columns [n, F]

    @classmethod
    def of_records(
        cls,
        config: MolAttnConfig,
        records: Sequence[MoleculeRecord],
        embedding: NDArray[np.floating],
        features: NDArray[np.floating] | None,
    ) -> "KernelInputs":
        """Select what the kernels of a model read, with its embeddings ``[n, width]``."""
        counts = partners = None
        if config.counter is not None:
            counts = stack_counts([record.counts for record in records])  # pyright: ignore
            if config.has_partner:
                partners = stack_counts([record.partner.counts for record in records])  # pyright: ignore
        numbers = {"embedding": embedding} if "embedding" in config.kernels else {}
        if "descriptors" in config.kernels:
            count = len(config.descriptors)
            rows: list[Any] = [record.numbers[:count] for record in records]  # pyright: ignore
            numbers["descriptors"] = np.array(rows, dtype=np.float32).reshape(len(records), count)
        return cls(len(records), counts, numbers, partners, features)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, rows: NDArray[np.int64]) -> "KernelInputs":
        """Return some rows, ``int64 [m]``."""
        counts, partners, features = (
            None if values is None else values[rows]
            for values in (self.counts, self.partners, self.features)
        )
        numbers = {name: values[rows] for name, values in self.numbers.items()}
        return KernelInputs(len(rows), counts, numbers, partners, features)


class TanimotoKernel:
    """The Tanimoto kernel of one kind of counts, between molecules and m others.

    ``totals`` are the sums of the counts of each of the m molecules.
    """

    def __init__(self, counts: Counts, kind: slice) -> None:
        self._kind = kind
        rows, levels, self.totals = self._levels(counts)
        self._reached = ReachedLevels(rows, levels, counts.shape[0])

    def _levels(self, counts: Counts) -> tuple[Rows, Rows, NDArray[np.float32]]:
        """Return molecule and number of each level that n molecules reach, and totals ``[n]``."""
        counts = counts[:, self._kind]
        sizes = counts.data.astype(np.int64)
        rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
        ends = np.cumsum(sizes)
        level = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - sizes, sizes)
        levels = np.repeat(counts.indices.astype(np.int64) << 8, sizes) + level
        totals = np.bincount(rows, sizes, counts.shape[0]).astype(np.float32)
        return np.repeat(rows, sizes), levels, totals

    def __call__(self, counts: Counts) -> NDArray[np.float32]:
        """Return the kernel of n molecules with the m, ``[n, m]``."""
        rows, levels, totals = self._levels(counts)
        common = self._reached.common(rows, levels, counts.shape[0])
        maxima = totals[:, None] + self.totals
        maxima -= common
        # Two molecules without any substructure of the kind are equal in it.
        empty = maxima == 0.0
        common[empty] = maxima[empty] = 1.0
        common /= maxima
        return common

    def levels(self, positions: Rows) -> tuple[Rows, Rows, NDArray[np.float32]]:
        """Return the L levels at some distinct positions of the kind, ascending ``[p]``.

        These are the index of the position and the level below, ``[L]`` each, and 1 where one of
        the m molecules reaches it, else 0, ``[L, m]``.
        """
        levels = self._reached.levels
        is_often = self._reached.is_often
        of_kind = positions - self._kind.start
        rows = np.flatnonzero(np.isin(levels >> 8, of_kind))
        index = (np.where(is_often, is_often.cumsum(), (~is_often).cumsum()) - 1)[rows]
        is_often = is_often[rows]
        reached = np.empty((len(rows), len(self.totals)), dtype=np.float32)
        reached[is_often] = self._reached.often[index[is_often]]
        reached[~is_often] = self._reached.rare[index[~is_often]].toarray()
        return np.searchsorted(of_kind, levels[rows] >> 8), levels[rows] & 255, reached


@dataclass(frozen=True)
class GaussianKernel:
    r"""The Gaussian kernel of numbers, between molecules and m others.

    Numbers are standardized and clipped to 4 standard deviations. If not finite, they are replaced
    by the mean. Numbers of training rows are rounded to half precision, as they are stored.
    ``length`` is twice the squared length scale: half of the median squared distance.
    """

    mean: Array  # of each number, [F]
    scale: Array  # its standard deviation, infinite for one that is constant, [F]
    length: float  # 2 l^2
    points: NDArray[np.float32]  # standardized and rounded numbers of the m molecules, [m, F]

    @classmethod
    def fit(cls, numbers: NDArray[np.floating], points: NDArray[np.int64]) -> "GaussianKernel":
        """Standardize the numbers of n molecules ``[n, F]``; ``points`` are the rows of the m."""
        finite = _finite_or_nan(numbers)
        count = np.maximum((~np.isnan(finite)).sum(axis=0), 1)
        mean = np.nansum(finite, axis=0) / count
        scale = np.sqrt(np.nansum((finite - mean) ** 2, axis=0) / count)
        scale[scale <= 1e-12 * np.maximum(np.abs(mean), 1e-300)] = np.inf
        empty = cls(mean, scale, 1.0, np.zeros((0, numbers.shape[1]), dtype=np.float32))
        standardized = empty.standardized(numbers[points])
        sample = standardized[:: -(-len(standardized) // _MEDIAN_ROWS)]
        distances = _squared_distances(sample, sample)[np.triu_indices(len(sample), 1)]
        distances = distances[distances > 1e-6]
        length = 0.5 * float(np.median(distances)) if len(distances) else 1.0
        return cls(mean, scale, length, _rounded(standardized))

    def standardized(self, numbers: NDArray[np.floating]) -> NDArray[np.float32]:
        """Standardize numbers ``[n, F]``."""
        scaled = (_finite_or_nan(numbers) - self.mean) / self.scale
        return np.nan_to_num(scaled, nan=0.0).clip(-CLIP, CLIP).astype(np.float32)

    @property
    def numbers(self) -> Array:
        """The numbers of the m molecules, ``[m, F]``; constant numbers are the mean."""
        return self.mean + np.where(np.isinf(self.scale), 0.0, self.scale) * self.points

    def at(self, numbers: NDArray[np.floating]) -> "GaussianKernel":
        """Return the kernel with other molecules in place of the m."""
        return replace(self, points=self.standardized(numbers))

    def with_rows(self, numbers: NDArray[np.floating]) -> "GaussianKernel":
        """Return the kernel with n more molecules after the m, by their numbers ``[n, F]``."""
        more = _rounded(self.standardized(numbers))
        return replace(self, points=np.concatenate([self.points, more]))

    def __call__(
        self, numbers: NDArray[np.floating], *, rounded: bool = False
    ) -> NDArray[np.float32]:
        """Return the kernel of numbers, rounded as the points or not, with the m, ``[n, m]``."""
        standardized = self.standardized(numbers)
        if rounded:
            standardized = _rounded(standardized)
        distances = _squared_distances(standardized, self.points)
        distances /= -self.length
        return np.exp(distances, out=distances)


@dataclass(frozen=True)
class MoleculeKernel:
    """The kernel of rows with m rows; see :mod:`molattn.model.kernel`."""

    kinds: tuple[slice, ...]  # positions of each kind of counts; empty = they are not used
    counts: Counts | None  # of the m molecules
    numbers: Mapping[str, GaussianKernel]  # of each group of numbers
    partners: Counts | None = None  # of the m second molecules
    features: GaussianKernel | None = None  # of the feature columns

    @classmethod
    def fit(
        cls, inputs: KernelInputs, points: NDArray[np.int64], kinds: Sequence[slice]
    ) -> "MoleculeKernel":
        """Standardize the inputs of n rows; ``points`` are the indices of the m rows."""
        features = inputs.features
        of_points = inputs[points]
        return cls(
            tuple(kinds),
            of_points.counts,
            {name: GaussianKernel.fit(x, points) for name, x in inputs.numbers.items()},
            of_points.partners,
            None if features is None else GaussianKernel.fit(features, points),
        )

    def inputs(self, size: int) -> KernelInputs:
        """Return the inputs of the m rows, given m."""
        numbers = {name: kernel.numbers for name, kernel in self.numbers.items()}
        features = None if self.features is None else self.features.numbers
        return KernelInputs(size, self.counts, numbers, self.partners, features)

    def at(self, inputs: KernelInputs) -> "MoleculeKernel":
        """Return the same kernel with other m rows."""
        numbers = {name: kernel.at(inputs.numbers[name]) for name, kernel in self.numbers.items()}
        features = None if self.features is None else self.features.at(inputs.features)  # pyright: ignore
        return MoleculeKernel(self.kinds, inputs.counts, numbers, inputs.partners, features)

    def with_rows(self, inputs: KernelInputs) -> "MoleculeKernel":
        """Return the same kernel with n more rows after the m."""
        numbers = {n: kernel.with_rows(inputs.numbers[n]) for n, kernel in self.numbers.items()}
        counts, partners = (
            None if first is None else sparse.vstack([first, more], format="csr")
            for first, more in ((self.counts, inputs.counts), (self.partners, inputs.partners))
        )
        features = None if self.features is None else self.features.with_rows(inputs.features)  # pyright: ignore
        return MoleculeKernel(self.kinds, counts, numbers, partners, features)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return all arrays by name; points in half precision, to which they are rounded."""
        arrays = {}
        for name, counts in (("counts", self.counts), ("partners", self.partners)):
            if counts is not None:
                arrays[f"{name}.starts"] = counts.indptr.astype(np.int64)
                arrays[f"{name}.places"] = counts.indices.astype(np.uint16)
                arrays[f"{name}.counts"] = counts.data
        numbers = {f"{_NUMBERS}{name}": kernel for name, kernel in self.numbers.items()}
        for name, kernel in (numbers | {"features": self.features}).items():
            if kernel is not None:
                values = {**vars(kernel), "points": kernel.points.astype(np.float16)}
                arrays |= {
                    f"{name}.{field}": np.ascontiguousarray(values[field]) for field in values
                }
        return arrays

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], kinds: Sequence[slice]
    ) -> "MoleculeKernel":
        """Read the output of :meth:`to_arrays`, among other arrays."""
        parts: dict[str, Any] = {}
        for name in arrays:
            part, _, field = name.rpartition(".")
            parts.setdefault(part, {})[field] = arrays[name]
        for name, part in parts.items():
            if "starts" in part:
                shape = len(part["starts"]) - 1, _POSITIONS
                values = part["counts"], part["places"], part["starts"]
                parts[name] = sparse.csr_matrix(values, shape)
            elif "length" in part:
                points = part["points"].astype(np.float32)
                length = part["length"].item()
                parts[name] = GaussianKernel(part["mean"], part["scale"], length, points)
        numbers = sorted(name for name in parts if name.startswith(_NUMBERS))
        return cls(
            tuple(kinds),
            parts.get("counts"),
            {name.removeprefix(_NUMBERS): parts[name] for name in numbers},
            parts.get("partners"),
            parts.get("features"),
        )

    def __call__(self, inputs: KernelInputs, *, rounded: bool = False) -> Array:
        """Return the kernel of n rows with the m, ``[n, m]``; ``rounded`` for training rows."""
        kernels = [kernel(inputs.counts) for kernel in self.of_counts]
        for name, kernel in self.numbers.items():
            kernels.append(kernel(inputs.numbers[name], rounded=rounded))
        product = _mean(kernels)
        if self.of_partners:
            product *= _mean([kernel(inputs.partners) for kernel in self.of_partners])
        if self.features is not None:
            product *= self.features(inputs.features, rounded=rounded)  # pyright: ignore
        return product

    @cached_property
    def of_counts(self) -> list[TanimotoKernel]:
        """The kernel of each kind of counts."""
        return [TanimotoKernel(self.counts, kind) for kind in self.kinds]

    @cached_property
    def of_partners(self) -> list[TanimotoKernel]:
        """The kernel of each kind of counts of second molecules."""
        kinds = () if self.partners is None else self.kinds
        return [TanimotoKernel(self.partners, kind) for kind in kinds]


def _mean(kernels: Sequence[NDArray[np.float32]]) -> Array:
    """Return the mean in double precision, in a third of the time of NumPy's."""
    return np.asarray(sum(kernel.astype(np.float64) for kernel in kernels)) / len(kernels)


def _finite_or_nan(numbers: NDArray[np.floating]) -> Array:
    return np.where(np.isfinite(numbers), numbers, np.nan).astype(np.float64)


def _rounded(numbers: NDArray[np.float32]) -> NDArray[np.float32]:
    """Round to half precision."""
    return numbers.astype(np.float16).astype(np.float32)


def _squared_distances(x: NDArray[np.float32], y: NDArray[np.float32]) -> NDArray[np.float32]:
    squares = (x * x).sum(axis=1)[:, None] + (y * y).sum(axis=1)
    return np.maximum(squares - 2.0 * (x @ y.T), 0.0)
