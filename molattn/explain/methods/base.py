"""Explanation methods: functions from a molecule and options to scores."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Optional

import numpy as np
from numpy.typing import NDArray

from molattn.explain.instance import Instance
from molattn.utils.registry import Registry

__all__ = ["METHODS", "Method", "MethodOptions", "NotFiniteError", "Scores", "bond_entries"]


class NotFiniteError(ValueError):
    """A method gave scores that are NaN or infinite."""


class Scores(NamedTuple):
    """Scores of one molecule.

    Args:
        atoms: Score of each atom ``[n]``.
        bonds: Score of each bond, in the order of :attr:`Instance.bonds`.
        baseline: For a signed method, the prediction that the atom scores are relative to: baseline
            plus scores is the prediction for the molecule. None for an unsigned method.
        others: For a signed method, the scores of features of the whole molecule, which are part
            of that sum: of :attr:`Instance.number_groups`. Those left out are in the baseline.
    """

    atoms: NDArray[np.float64]
    bonds: NDArray[np.float64]
    baseline: Optional[float] = None
    others: Mapping[str, float] = {}


@dataclass(frozen=True)
class MethodOptions:
    """Options of explanation methods; each method reads only those it documents.

    Args:
        groups: Atoms that occlusion masks together, see
            :func:`molattn.explain.methods.occlusion.atom_groups`.
        orders: Number of orders in which occlusion masks atoms, rounded up to an even number.
        tolerance: Largest residual of a signed method, in standard deviations of the training
            targets (in log-odds for a class). One of a transformed target is half the distance
            in own units between the ends of mean ± standard deviation on the transformed scale.
        seed: Seed of the random orders.
    """

    groups: str | Sequence[Sequence[int]] = "atoms"
    orders: int = 16
    tolerance: float = 0.005
    seed: int = 0


@dataclass(frozen=True)
class Method:
    """An explanation method.

    Args:
        compute: The function that computes scores.
        signed: Whether scores are contributions in the target's unit, positive or negative, that
            sum to the prediction minus a baseline, together with those of ``Scores.others``.
        summary: What a score measures, in a phrase.
        source: Publication of the method.
    """

    compute: Callable[[Instance, MethodOptions], Scores]
    signed: bool
    summary: str
    source: str = ""

    def __call__(self, instance: Instance, options: MethodOptions) -> Scores:
        """Compute the scores of a molecule.

        Raises:
            NotFiniteError: Scores that are NaN or infinite.
            ValueError: Scores that are not a number for each atom and bond, or a baseline that is
                missing for a signed method or present for an unsigned one.
        """
        scores = self.compute(instance, options)
        shapes = [*scores.atoms.shape, *scores.bonds.shape]
        expected = [instance.num_atoms, len(instance.bonds)]
        if shapes != expected:
            raise ValueError(f"{self.summary}: got scores of {shapes}, expected {expected}")
        if self.signed == (scores.baseline is None) or (scores.others and not self.signed):
            raise ValueError(f"{self.summary}: a method has a baseline if and only if it is signed")
        if not np.isfinite([*scores.atoms, *scores.bonds, *scores.others.values()]).all():
            raise NotFiniteError(f"{self.summary}: got scores that are not finite")
        return scores

    @property
    def meaning(self) -> str:
        """The summary with its source."""
        return f"{self.summary} ({self.source})" if self.source else self.summary


METHODS: Registry[Method] = Registry("method")
"""Explanation methods by name; register a :class:`Method` to add one.

Example:
    >>> def degree(instance, options):
    ...     degrees = [float(atom.GetDegree()) for atom in instance.mol.GetAtoms()]
    ...     return Scores(np.array(degrees), np.zeros(len(instance.bonds)))
    >>> METHODS.register("degree")(Method(degree, signed=False, summary="number of neighbors"))
"""


def bond_entries(
    matrix: NDArray[np.float64], bonds: Sequence[tuple[int, int]]
) -> NDArray[np.float64]:
    """Sum the entries of a matrix ``[n, n]`` over both directions of each bond."""
    begin, end = np.array(bonds, dtype=np.int64).reshape(-1, 2).T
    return matrix[begin, end] + matrix[end, begin]
