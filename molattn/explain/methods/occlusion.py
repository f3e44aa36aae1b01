"""Occlusion: the change of the prediction when atoms, or groups of atoms, are masked."""

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem

from molattn.explain.instance import Instance
from molattn.explain.methods.atom_groups import atom_groups
from molattn.explain.methods.base import METHODS, Method, MethodOptions, Scores

__all__ = ["atom_orders", "occlusion"]


def occlusion(instance: Instance, options: MethodOptions) -> Scores:
    r"""Score an atom by the mean change of the prediction when it is masked after others.

    .. math::
        s_i = \frac{1}{|\Pi|} \sum_{\pi \in \Pi}
        f(S_\pi(i) \cup \{i\}) - f(S_\pi(i))

    over random orders :math:`\pi`, where :math:`S_\pi(i)` are the atoms after :math:`i`, and
    :math:`f(S)` is the prediction with all atoms outside :math:`S` masked. Each order is used
    together with its reverse. It is the Shapley value by sampling (Castro, Gómez and Tejada 2009).
    In every order the changes sum to the prediction minus the baseline, in which all atoms are
    masked; so do their means, whatever the number of orders.

    The atoms of a group are masked together and share its score equally. Without groups,
    symmetry-equivalent atoms get the mean of their scores. Orders are drawn over canonical ranks,
    so that scores do not depend on the order of atoms in the SMILES.

    A bond's score is the change of the prediction when the features of its pair are set to zero;
    it is not part of the sum.

    Args:
        instance: The molecule.
        options: ``orders``, ``masking``, ``groups`` and ``seed`` are read.
    """
    groups = atom_groups(instance.mol, options.groups)
    n, m = instance.num_atoms, len(groups)
    ranks = np.array(Chem.CanonicalRankAtoms(instance.mol))
    group_of = np.empty(n, dtype=np.int64)
    # Sorted by canonical rank too, so that scores do not depend on the order of the groups.
    for place, group in enumerate(sorted(groups, key=lambda group: min(ranks[[*group]]))):
        group_of[[*group]] = place
    drawn = atom_orders(m, -(-options.orders // 2), options.seed)
    drawn = np.concatenate([drawn, drawn[:, ::-1]])
    # Position of each group in each order; after k steps the groups at positions < k are masked.
    position = np.argsort(drawn, axis=1)
    kept = position[:, np.newaxis, :] >= np.arange(m + 1)[:, np.newaxis]
    values = instance.predict_kept(kept.reshape(-1, m)[:, group_of], options.masking).reshape(
        -1, m + 1
    )
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
    return Scores(atoms, values[0, 0] - instance.predict_masked_pairs(masked), float(values[0, -1]))


def atom_orders(n: int, count: int, seed: int) -> NDArray[np.int64]:
    """Draw random permutations of ``n`` indices, ``[count, n]``."""
    rng = np.random.default_rng(seed)
    return rng.permuted(np.tile(np.arange(n), (count, 1)), axis=1)


METHODS.register("occlusion")(
    Method(
        occlusion,
        signed=True,
        summary="the mean change of the prediction when an atom is masked after others in "
        "random orders, a sampled Shapley value",
        source="Zeiler and Fergus 2014; Castro, Gómez and Tejada 2009",
    )
)
