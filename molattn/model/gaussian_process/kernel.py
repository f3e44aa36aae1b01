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

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from molattn.errors import InputError

__all__ = [
    "CountMatrix",
    "GaussianKernel",
    "KernelInputs",
    "Levels",
    "MoleculeKernel",
    "TanimotoKernel",
    "required",
]

Array = NDArray[np.float64]
Value = TypeVar("Value")

CLIP = 4.0
_OFTEN = 0.05  # of the molecules: faster as a dense matrix
_MEDIAN_ROWS = 1000
_NUMBERS = "numbers."


@dataclass(frozen=True)
class CountMatrix:
    """Counts of n molecules as sparse rows.

    Args:
        starts: The entries of row i are ``starts[i]:starts[i + 1]``, ``int64 [n + 1]``.
        places: Position of each entry, ascending in a row, ``uint16 [k]``.
        counts: Count of each entry, positive, ``uint8 [k]``.
    """

    starts: NDArray[np.int64]
    places: NDArray[np.uint16]
    counts: NDArray[np.uint8]

    @classmethod
    def stack(cls, rows: Sequence[tuple[NDArray[np.uint16], NDArray[np.uint8]]]) -> "CountMatrix":
        """Join the counts of some molecules."""
        if not rows:
            nothing = np.zeros(0, dtype=np.uint16)
            return cls(np.zeros(1, dtype=np.int64), nothing, nothing.astype(np.uint8))
        sizes = [len(places) for places, _ in rows]
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        places, counts = map(np.concatenate, zip(*rows, strict=True))
        return cls(starts, places, counts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, rows: NDArray[np.int64]) -> "CountMatrix":
        """Return some rows, ``int64 [m]``."""
        sizes = self._sizes[rows]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        entries = np.repeat(self.starts[rows] - starts[:-1], sizes) + np.arange(starts[-1])
        return CountMatrix(starts, self.places[entries], self.counts[entries])

    def between(self, start: int, stop: int) -> "CountMatrix":
        """Return the counts at the positions from ``start`` to before ``stop``."""
        kept = (self.places >= start) & (self.places < stop)
        starts = np.concatenate([[0], np.cumsum(kept)])[self.starts]
        return CountMatrix(starts, self.places[kept], self.counts[kept])

    @property
    def rows(self) -> NDArray[np.int64]:
        """Row of each entry, ``[k]``."""
        return np.repeat(np.arange(len(self)), self._sizes)

    @property
    def _sizes(self) -> NDArray[np.int64]:
        return np.diff(self.starts)


@dataclass(frozen=True)
class KernelInputs:
    """What a kernel reads of n rows.

    Args:
        size: Number of rows n.
        counts: Counts of the molecules; None = none is used.
        numbers: Numbers of the molecules by name, such as the embedding, ``[n, F]`` each.
        partners: Counts of the second molecules, if there are any.
        features: Feature columns ``[n, F]``, if there are any.
    """

    size: int
    counts: CountMatrix | None
    numbers: Mapping[str, NDArray[np.floating]]
    partners: CountMatrix | None = None
    features: NDArray[np.floating] | None = None

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, rows: NDArray[np.int64]) -> "KernelInputs":
        """Return some rows, ``int64 [m]``."""
        return KernelInputs(
            len(rows),
            None if self.counts is None else self.counts[rows],
            {name: values[rows] for name, values in self.numbers.items()},
            None if self.partners is None else self.partners[rows],
            None if self.features is None else self.features[rows],
        )


class Levels(NamedTuple):
    """L levels of counts at p positions; see :class:`TanimotoKernel`.

    Args:
        places: Which of the p positions each is of, ``int64 [L]``.
        lower: The level below it at the position, or 0, ``[L]``.
        upper: The level, ``[L]``.
        reached: 1 where one of m molecules reaches it, else 0, ``[L, m]``.
    """

    places: NDArray[np.int64]
    lower: NDArray[np.float32]
    upper: NDArray[np.float32]
    reached: NDArray[np.float32]


class TanimotoKernel:
    """The Tanimoto kernel of one kind of counts with those of m molecules.

    Of the counts of these molecules each distinct value at a position is a level. ``min(a, b)`` is
    the sum over the levels that ``b`` reaches of the part of ``a`` between a level and the one
    below it. So the sums of minima are a product of matrices: sparse for the levels that few
    molecules reach, dense for those that many reach.

    Args:
        counts: The m molecules.
        kind: Positions of the kind.

    Attributes:
        totals: Sum of the counts of each of the m molecules, ``[m]``.
    """

    def __init__(self, counts: CountMatrix, kind: slice) -> None:
        self._kind = kind
        counts = counts.between(kind.start, kind.stop)
        reached = counts.places.astype(np.int64) << 8 | counts.counts.astype(np.int64)
        levels, column = np.unique(reached), counts.rows
        places = levels >> 8
        self._first = np.searchsorted(places, np.arange(2**16 + 1)).astype(np.int32)
        self._upper = (levels & 255).astype(np.float32)
        self._lower = np.concatenate([[0.0], self._upper[:-1]]).astype(np.float32)
        self._lower[self._first[np.unique(places)]] = 0.0
        # A count reaches its own level, and all lower ones of its position.
        first, stop = self._first[counts.places], np.searchsorted(levels, reached) + 1
        level = _ranges(first, stop)
        column = np.repeat(column, stop - first)
        ones = np.ones(len(level), dtype=np.float32)
        shape = len(levels), len(counts)
        reaches = sparse.csr_matrix((ones, (level, column)), shape=shape)
        often = np.diff(reaches.indptr) > _OFTEN * len(counts)
        self._rare, self._often = reaches[~often], reaches[often].toarray()
        # Places of the levels in the two matrices.
        column = np.where(often, often.cumsum(), (~often).cumsum()) - 1
        self._is_often, self._column = often, column.astype(np.int32)
        self.totals = _totals(counts)

    def __call__(self, counts: CountMatrix) -> NDArray[np.float32]:
        """Return the kernel of n molecules with the m, ``[n, m]``."""
        counts = counts.between(self._kind.start, self._kind.stop)
        often, rare = self._parts(counts)
        common = often @ self._often
        common += (rare @ self._rare).toarray()
        maxima = _totals(counts)[:, None] + self.totals
        maxima -= common
        # Two molecules without any substructure of the kind are alike in it.
        empty = maxima == 0.0
        common[empty] = maxima[empty] = 1.0
        common /= maxima
        return common

    def levels(self, places: NDArray[np.int64]) -> Levels:
        """Return the levels at some distinct positions of the kind, ``int64 [p]``."""
        first, stop = self._first[places], self._first[places + 1]
        level = _ranges(first, stop)
        reached = np.empty((len(level), len(self.totals)), dtype=np.float32)
        often = self._is_often[level]
        reached[often] = self._often[self._column[level[often]]]
        reached[~often] = self._rare[self._column[level[~often]]].toarray()
        place = np.repeat(np.arange(len(places)), stop - first)
        return Levels(place, self._lower[level], self._upper[level], reached)

    def _parts(self, counts: CountMatrix) -> tuple[NDArray[np.float32], sparse.csr_matrix]:
        """Return the part of each count between each level and the one below it.

        ``[n, levels]`` each, for the levels that many molecules reach and for the others. What a
        count has above the highest level of its position is in common with no molecule.
        """
        places = counts.places.astype(np.int32)
        first, stop = self._first[places], self._first[places + 1]
        level = _ranges(first, stop)
        given = np.repeat(counts.counts.astype(np.float32), stop - first)
        part = np.minimum(given, self._upper[level]) - self._lower[level]
        row, column = np.repeat(counts.rows, stop - first), self._column[level]
        is_common, is_often = part > 0.0, self._is_often[level]
        often = np.zeros((len(counts), len(self._often)), dtype=np.float32)
        chosen = np.flatnonzero(is_common & is_often)
        often[row[chosen], column[chosen]] = part[chosen]
        chosen = np.flatnonzero(is_common & ~is_often)
        starts = np.searchsorted(row[chosen], np.arange(len(counts) + 1)).astype(np.int32)
        rare = part[chosen], column[chosen], starts
        return often, sparse.csr_matrix(rare, (len(counts), self._rare.shape[0]))


def _ranges(first: NDArray[np.integer], stop: NDArray[np.integer]) -> NDArray[np.integer]:
    """Join the ranges from each first number to before its stop."""
    sizes = stop - first
    ends = np.cumsum(sizes)
    return np.repeat(stop - ends, sizes) + np.arange(ends[-1] if len(ends) else 0)


def _totals(counts: CountMatrix) -> NDArray[np.float32]:
    return np.bincount(counts.rows, counts.counts, len(counts)).astype(np.float32)


@dataclass(frozen=True)
class GaussianKernel:
    r"""The Gaussian kernel of numbers with those of m molecules.

    Numbers are standardized and clipped to 4 standard deviations. Those that are not finite are
    replaced by the mean. Those of training rows are rounded to half precision, as they are stored.
    ``length`` is twice the squared length scale: half of the median squared distance.

    Args:
        mean: Of each number, ``[F]``.
        scale: Its standard deviation, infinite for one that is constant, ``[F]``.
        length: :math:`2 \ell^2`.
        points: Standardized and rounded numbers of the m molecules, ``float32 [m, F]``.
    """

    mean: Array
    scale: Array
    length: float
    points: NDArray[np.float32]

    @classmethod
    def fit(cls, numbers: NDArray[np.floating], points: NDArray[np.int64]) -> "GaussianKernel":
        """Standardize the numbers of n molecules ``[n, F]``; ``points`` are the rows of the m."""
        known = _finite_or_nan(numbers)
        count = np.maximum((~np.isnan(known)).sum(axis=0), 1)
        mean = np.nansum(known, axis=0) / count
        scale = np.sqrt(np.nansum((known - mean) ** 2, axis=0) / count)
        scale[scale <= 1e-12 * np.maximum(np.abs(mean), 1e-300)] = np.inf
        one = cls(mean, scale, 1.0, np.zeros((0, numbers.shape[1]), dtype=np.float32))
        chosen = one.standardized(numbers[points])
        some = chosen[:: -(-len(chosen) // _MEDIAN_ROWS)]
        distances = _squared_distances(some, some)[np.triu_indices(len(some), 1)]
        distances = distances[distances > 1e-6]
        length = 0.5 * float(np.median(distances)) if len(distances) else 1.0
        return cls(mean, scale, length, _rounded(chosen))

    def standardized(self, numbers: NDArray[np.floating]) -> NDArray[np.float32]:
        """Standardize numbers ``[n, F]``."""
        scaled = (_finite_or_nan(numbers) - self.mean) / self.scale
        return np.nan_to_num(scaled, nan=0.0).clip(-CLIP, CLIP).astype(np.float32)

    def __call__(
        self, numbers: NDArray[np.floating], *, rounded: bool = False
    ) -> NDArray[np.float32]:
        """Return the kernel of n molecules with the m, ``[n, m]``.

        Args:
            numbers: Of the n molecules, ``[n, F]``.
            rounded: Round them as the points are, so that the kernel of points is symmetric.
        """
        standardized = self.standardized(numbers)
        if rounded:
            standardized = _rounded(standardized)
        distances = _squared_distances(standardized, self.points)
        distances /= -self.length
        return np.exp(distances, out=distances)


@dataclass(frozen=True)
class MoleculeKernel:
    """The kernel of rows with m rows; see :mod:`molattn.model.gaussian_process.kernel`.

    Args:
        kinds: Positions of each kind of counts; empty = counts are not used.
        counts: Counts of the m molecules; None = not used.
        numbers: The kernel of each group of numbers, by name.
        partners: Counts of the m second molecules; None = there are none.
        features: The kernel of the feature columns; None = there are none.
    """

    kinds: tuple[slice, ...]
    counts: CountMatrix | None
    numbers: Mapping[str, GaussianKernel]
    partners: CountMatrix | None = None
    features: GaussianKernel | None = None

    @classmethod
    def fit(
        cls, inputs: KernelInputs, points: NDArray[np.int64], kinds: Sequence[slice]
    ) -> "MoleculeKernel":
        """Standardize the inputs of n rows.

        Args:
            inputs: Of the n rows.
            points: The m rows, ``int64 [m]``.
            kinds: Positions of each kind of counts.
        """
        numbers, features = inputs.numbers, inputs.features
        chosen = inputs[points]
        return cls(
            tuple(kinds),
            chosen.counts,
            {name: GaussianKernel.fit(values, points) for name, values in numbers.items()},
            chosen.partners,
            None if features is None else GaussianKernel.fit(features, points),
        )

    @classmethod
    def from_tensors(
        cls, tensors: Mapping[str, NDArray[Any]], kinds: Sequence[slice]
    ) -> "MoleculeKernel":
        """Read the output of :meth:`to_tensors`.

        Raises:
            InputError: Entries of counts that do not belong to one row each.
        """
        parts = {name.rpartition(".")[0] for name in tensors}

        def counts(name: str) -> CountMatrix | None:
            if name not in parts:
                return None
            fields = (tensors[f"{name}.{field.name}"] for field in dataclasses.fields(CountMatrix))
            found = CountMatrix(*fields)
            ends = found.starts[[0, -1]].tolist() if len(found.starts) else []
            if ends != [0, len(found.counts)] or (np.diff(found.starts) < 0).any():
                raise InputError(f"{name}: starts that do not fit the counts")
            return found

        def gaussian(name: str) -> GaussianKernel:
            mean, scale, length, points = (
                tensors[f"{name}.{field.name}"] for field in dataclasses.fields(GaussianKernel)
            )
            return GaussianKernel(mean, scale, length.item(), points.astype(np.float32))

        numbers = sorted(name for name in parts if name.startswith(_NUMBERS))
        return cls(
            tuple(kinds),
            counts("counts"),
            {name.removeprefix(_NUMBERS): gaussian(name) for name in numbers},
            counts("partners"),
            gaussian("features") if "features" in parts else None,
        )

    def to_tensors(self) -> dict[str, NDArray[Any]]:
        """Return all arrays by name; points in half precision where that is exact."""
        numbers = {f"{_NUMBERS}{name}": kernel for name, kernel in self.numbers.items()}
        others = {"counts": self.counts, "partners": self.partners, "features": self.features}
        tensors = {
            f"{name}.{field.name}": np.ascontiguousarray(getattr(part, field.name))
            for name, part in (numbers | others).items()
            if part is not None
            for field in dataclasses.fields(part)
        }
        for name, values in tensors.items():
            if name.endswith(".points") and (_rounded(values) == values).all():
                tensors[name] = values.astype(np.float16)
        return tensors

    def __call__(self, inputs: KernelInputs, *, rounded: bool = False) -> Array:
        """Return the kernel of n rows with the m, ``[n, m]``.

        Args:
            inputs: Of the n rows.
            rounded: The n rows are training rows, whose numbers are rounded to half precision.
        """
        found = [kernel(required(inputs.counts, "counts")) for kernel in self.of_counts]
        found += [
            kernel(inputs.numbers[name], rounded=rounded) for name, kernel in self.numbers.items()
        ]
        kernel = np.asarray(np.mean(found, axis=0, dtype=np.float64))
        if self.of_partners:
            counts = required(inputs.partners, "counts of second molecules")
            kernel *= np.mean([one(counts) for one in self.of_partners], axis=0, dtype=np.float64)
        if self.features is not None:
            kernel *= self.features(required(inputs.features, "features"), rounded=rounded)
        return kernel

    @cached_property
    def of_counts(self) -> list[TanimotoKernel]:
        """The kernel of each kind of counts."""
        return self._tanimoto_kernels(self.counts)

    @cached_property
    def of_partners(self) -> list[TanimotoKernel]:
        """The kernel of each kind of counts of second molecules."""
        return self._tanimoto_kernels(self.partners)

    def _tanimoto_kernels(self, counts: CountMatrix | None) -> list[TanimotoKernel]:
        return [] if counts is None else [TanimotoKernel(counts, kind) for kind in self.kinds]


def required(value: Value | None, what: str) -> Value:
    """Return an input of a kernel.

    Raises:
        ValueError: It is None.
    """
    if value is None:
        raise ValueError(f"{what}: missing; the Gaussian process of the model compares them")
    return value


def _finite_or_nan(numbers: NDArray[np.floating]) -> Array:
    return np.where(np.isfinite(numbers), numbers, np.nan).astype(np.float64)


def _rounded(numbers: NDArray[np.float32]) -> NDArray[np.float32]:
    """Round to half precision."""
    return numbers.astype(np.float16).astype(np.float32)


def _squared_distances(x: NDArray[np.float32], y: NDArray[np.float32]) -> NDArray[np.float32]:
    squares = (x * x).sum(axis=1)[:, None] + (y * y).sum(axis=1)
    return np.maximum(squares - 2.0 * (x @ y.T), 0.0)
