"""Explanation methods: functions from a molecule and options to scores."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Integral
from types import MappingProxyType
from typing import Any, NamedTuple, Optional, get_args

import numpy as np
from numpy.typing import NDArray

from molattn.errors import InputError, check_one_of
from molattn.explain.instance import Instance, Masking
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
    others: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True)
class MethodOptions:
    """Options of explanation methods; each method reads only those it documents.

    Args:
        groups: Atoms that occlusion masks together: see
            :func:`molattn.explain.methods.occlusion.atom_groups`.
        orders: Number of orders in which occlusion masks atoms; an odd number is rounded up, since
            each order comes with its reverse.
        masking: How occlusion masks an atom, ``remove`` or ``blank``: see
            :meth:`molattn.explain.Instance.predict_kept`.
        tolerance: Largest residual of a signed method, in standard deviations of the training
            targets (in log-odds for a class). One of a transformed target is half the distance
            in own units between the ends of mean ± standard deviation on the transformed scale.
        seed: Seed of the random orders.

    Raises:
        InputError: An invalid value.
    """

    groups: str | Sequence[Sequence[int]] = "atoms"
    orders: int = 16
    masking: Masking = "remove"
    tolerance: float = 0.005
    seed: int = 0

    def __post_init__(self) -> None:
        check_one_of("masking", self.masking, get_args(Masking))
        if not isinstance(self.orders, Integral) or self.orders < 1:
            raise InputError(f"orders: got {self.orders!r}, expected a whole number of at least 1")
        if not self.tolerance > 0:
            raise InputError(f"tolerance: got {self.tolerance}, expected more than 0")

    @classmethod
    def named(cls, options: Mapping[str, Any]) -> "MethodOptions":
        """Return options by name.

        Raises:
            InputError: An unknown name, or an invalid value.
        """
        for name in options:
            check_one_of("options", name, [field.name for field in fields(cls)])
        return cls(**options)


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
        for name, values, count in (
            ("atom", scores.atoms, instance.num_atoms),
            ("bond", scores.bonds, len(instance.bonds)),
        ):
            if values.shape != (count,):
                raise ValueError(
                    f"{self.name}: got {name} scores of shape {list(values.shape)}, expected "
                    f"[{count}]"
                )
            if not np.isfinite(values).all():
                raise NotFiniteError(f"{self.name}: got {name} scores that are not finite")
        if not np.isfinite([*scores.others.values()]).all():
            raise NotFiniteError(f"{self.name}: got other scores that are not finite")
        if self.signed == (scores.baseline is None) or (scores.others and not self.signed):
            raise ValueError(
                f"{self.name}: got a baseline or other scores of an unsigned method, or a signed "
                "one without a baseline"
            )
        return scores

    @property
    def name(self) -> str:
        """The name in :data:`METHODS`; the summary of a method that is not registered."""
        return next((name for name, method in METHODS.items() if method is self), self.summary)

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
    ends = np.array(bonds, dtype=np.int64).reshape(-1, 2)
    return matrix[ends[:, 0], ends[:, 1]] + matrix[ends[:, 1], ends[:, 0]]
