"""Occlusion: what a prediction loses when atoms, or groups of them, are masked."""

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem

from molattn.explain.instance import Instance
from molattn.explain.methods.atom_groups import atom_groups
from molattn.explain.methods.base import MethodOptions, Scores

__all__ = ["atom_orders", "occlusion"]


def occlusion(instance: Instance, options: MethodOptions) -> Scores:
    r"""Score an atom by the mean change when it is masked after others.

    .. math::
        s_i = \frac{1}{|\Pi|} \sum_{\pi \in \Pi}
        f(\mathrm{those\ after\ } i \mathrm{\ in\ } \pi \mathrm{, and\ } i)
        - f(\mathrm{those\ after\ } i \mathrm{\ in\ } \pi)

    over random orders :math:`\pi`, each with its reverse: the Shapley value by sampling (Castro,
    Gómez and Tejada 2009). A pair of orders masks each atom once among all others and once alone.
    In every order the changes add up to the prediction minus the baseline, in which all are masked;
    so do their means, whatever the number of orders.

    Atoms of a group are masked together, and share its score equally. Where each is by itself,
    atoms that no symmetry tells apart share the sum of theirs. Orders are drawn over canonical
    ranks, so that scores follow the atoms when a SMILES lists them in another order.

    A bond's score is what the prediction loses when the pair of its ends has no features, all else
    staying; it has no part in the sum.

    Args:
        instance: The molecule.
        options: Its ``orders``, ``masking``, ``groups`` and ``seed``.
    """
    groups = atom_groups(instance.mol, options.groups)
    n, m = instance.num_atoms, len(groups)
    ranks = np.array(Chem.CanonicalRankAtoms(instance.mol))
    group_of = np.empty(n, dtype=np.int64)
    # By canonical rank too, so that the order in which groups were named is of no account.
    for place, group in enumerate(sorted(groups, key=lambda group: min(ranks[[*group]]))):
        group_of[[*group]] = place
    drawn = atom_orders(m, -(-options.orders // 2), options.seed)
    drawn = np.concatenate([drawn, drawn[:, ::-1]])
    # Position of each group in each order; after k steps those at positions below k are masked.
    position = np.argsort(drawn, axis=1)
    kept = position[:, np.newaxis, :] >= np.arange(m + 1)[:, np.newaxis]
    values = instance.keep(kept.reshape(-1, m)[:, group_of], options.masking).reshape(-1, m + 1)
    changes = np.take_along_axis(values[:, :-1] - values[:, 1:], position, axis=1)
    atoms = (changes.mean(axis=0) / np.bincount(group_of))[group_of]
    if m == n:
        _, same = np.unique(
            Chem.CanonicalRankAtoms(instance.mol, breakTies=False), return_inverse=True
        )
        atoms = (np.bincount(same, atoms) / np.bincount(same))[same]
    masked = np.zeros((len(instance.bonds), n, n), dtype=bool)
    for place, (i, j) in enumerate(instance.bonds):
        masked[place, [i, j], [j, i]] = True
    return Scores(atoms, values[0, 0] - instance.masked_pairs(masked), float(values[0, -1]))


def atom_orders(n: int, count: int, seed: int) -> NDArray[np.int64]:
    """Draw orders of ``n`` things, ``[count, n]``."""
    draw = np.random.default_rng(seed)
    return draw.permuted(np.tile(np.arange(n), (count, 1)), axis=1)
