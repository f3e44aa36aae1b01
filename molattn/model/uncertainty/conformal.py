"""Conformal intervals of regressions."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from molattn.errors import InputError

__all__ = ["ConformalScores", "difficulty"]

Array = NDArray[np.float64]

_MOST_SCORES = 1000


def difficulty(similarity: Array) -> Array:
    """Return the expected error relative to that of a training molecule, exp(1 - s).

    Errors grow as molecules get less similar to the training molecules, by about this factor on
    measured data. It has no fitted parameter, so intervals stay valid.

    Args:
        similarity: Tanimoto similarity s to the nearest training molecule, any shape.
    """
    return np.exp(1.0 - similarity)


@dataclass(frozen=True)
class ConformalScores:
    """Absolute errors of labelled molecules, which determine the half-width at any level.

    Split conformal prediction with normalised scores |y - prediction| / difficulty: of n + 1
    exchangeable scores, a new one is at most the one of rank ceil((n + 1) level) among n known ones
    with a probability of at least the level.

    Source: Lei et al., J. Am. Stat. Assoc. 2018, 113, 1094, section 2.2; Papadopoulos et al., Proc.
    ECML 2002, 345 (normalised).

    Args:
        count: Number of scores.
        kept: All scores, ascending; of more than 1,000, those at 1,000 evenly spaced ranks, with
            the largest.

    Raises:
        InputError: Scores that are not such a list.
    """

    count: int
    kept: tuple[float, ...]

    def __post_init__(self) -> None:
        kept = np.asarray(self.kept, dtype=np.float64)
        fits = kept.shape == (min(self.count, _MOST_SCORES),) and bool(np.isfinite(kept).all())
        if not fits or (kept < 0.0).any() or (np.diff(kept) < 0.0).any():
            raise InputError(
                f"calibration: got {len(self.kept)} scores of {self.count}, expected ascending "
                f"numbers from 0, all or {_MOST_SCORES}"
            )

    @classmethod
    def from_scores(cls, scores: Array) -> "ConformalScores":
        """Select the scores to keep, ``[n]`` in any order.

        Raises:
            ValueError: A score that is not finite.
        """
        if not np.isfinite(scores).all():
            raise ValueError("scores: got some that are not finite, expected finite numbers")
        ranks = cls._ranks(len(scores))
        return cls(len(scores), tuple(np.sort(scores)[ranks - 1].tolist()))

    @staticmethod
    def _ranks(count: int) -> NDArray[np.int64]:
        """Ranks of the scores that are kept, from 1."""
        if count <= _MOST_SCORES:
            return np.arange(1, count + 1)
        return -(-np.arange(1, _MOST_SCORES + 1) * count // _MOST_SCORES)

    def rank(self, level: float) -> int:
        """Return the rank of the score that bounds a new one; above ``count`` if none does."""
        # Rounded, as floating point puts (n + 1) * level slightly above some whole numbers.
        return max(1, math.ceil(round((self.count + 1) * level, 9)))

    def bound(self, level: float) -> float:
        """Return the bound of a new score at a level; infinite with too few scores.

        If the score of that rank was not kept, the next larger one that was is returned, at most a
        thousandth of the ranks away.

        Args:
            level: Between 0 and 1.
        """
        rank = self.rank(level)
        if rank > self.count:
            return math.inf
        return self.kept[int(np.searchsorted(self._ranks(self.count), rank))]

    def coverage_sd(self, level: float, rows: int) -> float:
        """Return the standard deviation of the fraction of new scores within the bound.

        The fraction has a beta-binomial distribution, as both the scores that determine the bound
        and the new ones are random.

        Source: Angelopoulos and Bates, arXiv:2107.07511, section 3.2 and appendix C.

        Args:
            level: Between 0 and 1, with a finite bound.
            rows: Number of new scores.
        """
        total, mean = self.count + 1, self.rank(level) / (self.count + 1)
        return math.sqrt(mean * (1.0 - mean) * (total + rows) / (rows * (total + 1)))

    @property
    def highest_level(self) -> float:
        """The highest level with a finite bound, n / (n + 1)."""
        return self.count / (self.count + 1)
