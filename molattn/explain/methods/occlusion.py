"""Occlusion: the change of the prediction when atoms, or groups of atoms, are masked."""

from collections.abc import Sequence

import numpy as np
from rdkit import Chem
from rdkit.Chem import BRICS

from molattn.errors import InputError, check_one_of, quoted
from molattn.explain.instance import Instance
from molattn.explain.methods.base import METHODS, Method, MethodOptions, Scores

__all__ = ["atom_groups", "occlusion"]


def occlusion(instance: Instance, options: MethodOptions) -> Scores:
    r"""Score an atom by the mean change of the prediction when it is masked after others.

    .. math::
        s_i = \frac{1}{|\Pi|} \sum_{\pi \in \Pi}
        f(S_\pi(i) \cup \{i\}) - f(S_\pi(i))

    over random orders :math:`\pi` and their reverses, where :math:`S_\pi(i)` are the atoms after
    :math:`i`, and :math:`f(S)` is the prediction with all atoms outside :math:`S` masked: a sampled
    Shapley value (Castro, Gómez and Tejada 2009). In every order, and so in the mean, the changes
    sum to the prediction minus the baseline, in which all atoms are masked. Features of the whole
    molecule, such as all descriptors together, are masked in these orders like an atom: they are
    replaced by their training means. A second molecule stays as it is.

    The atoms of a group are masked together and share its score equally. Without groups,
    symmetry-equivalent atoms get the mean of their scores. Orders are drawn over canonical ranks,
    so that scores do not depend on the order of atoms in the SMILES. A bond's score is the change
    of the prediction when the features of its pair are set to zero; the substructures that a
    Gaussian process counts stay as they are.
    """
    groups = atom_groups(instance.mol, options.groups)
    n, m = instance.num_atoms, len(groups)
    ranks = np.array(Chem.CanonicalRankAtoms(instance.mol))
    group_of = np.empty(n, dtype=np.int64)
    # Sorted by canonical rank too, so that scores do not depend on the order of the groups.
    for k, group in enumerate(sorted(groups, key=lambda group: min(ranks[[*group]]))):
        group_of[[*group]] = k
    others = instance.number_groups
    half = np.tile(np.arange(m + len(others)), (-(-options.orders // 2), 1))
    half = np.random.default_rng(options.seed).permuted(half, axis=1)
    drawn = np.concatenate([half, half[:, ::-1]])
    # Position of each player, a group of atoms or of features, in each order; after k steps the
    # players at positions < k are masked.
    position = np.argsort(drawn, axis=1)
    steps = np.arange(m + len(others) + 1)[:, np.newaxis]
    kept = (position[:, np.newaxis, :] >= steps).reshape(-1, m + len(others))
    values = instance.predict_kept(kept[:, group_of], kept[:, m:])
    values = values.reshape(len(drawn), -1)
    changes = np.take_along_axis(values[:, :-1] - values[:, 1:], position, axis=1).mean(axis=0)
    atoms = (changes[:m] / np.bincount(group_of))[group_of]
    if m == n:
        tied = Chem.CanonicalRankAtoms(instance.mol, breakTies=False)
        _, same = np.unique(tied, return_inverse=True)
        atoms = (np.bincount(same, atoms) / np.bincount(same))[same]
    masked = np.zeros((len(instance.bonds), n, n), dtype=bool)
    for k, (i, j) in enumerate(instance.bonds):
        masked[k, [i, j], [j, i]] = True
    bonds = values[0, 0] - instance.predict_masked_pairs(masked)
    named = dict(zip(others, changes[m:].tolist(), strict=True))
    return Scores(atoms, bonds, float(values[0, -1]), named)


def atom_groups(mol: Chem.Mol, groups: str | Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """Partition the atoms of a molecule into groups.

    Args:
        mol: The molecule.
        groups: ``atoms``: single atoms; ``rings``: systems of fused rings, and single atoms outside
            rings; ``brics``: BRICS fragments (Degen et al. 2008); or the atoms of each group,
            counted from 0, where every other atom is a group of its own.

    Raises:
        InputError: An unknown name, an empty group, an atom that does not exist, or an atom in two
            groups.
    """
    if isinstance(groups, str):
        check_one_of("groups", groups, ("atoms", "rings", "brics"))
        if groups == "brics":
            return _brics_fragments(mol)
        groups = _ring_systems(mol) if groups == "rings" else []
    groups = [tuple(np.asarray(group).tolist()) for group in groups]
    atoms, n = [atom for group in groups for atom in group], mol.GetNumAtoms()
    if not all(groups) or len({*atoms}) < len(atoms) or not {*atoms} <= {*range(n)}:
        raise InputError(
            f"groups: got {quoted(groups)}, expected lists of atom indices from 0 to {n - 1}, each "
            "index in at most one list"
        )
    return [*groups, *((atom,) for atom in range(n) if atom not in atoms)]


def _ring_systems(mol: Chem.Mol) -> list[list[int]]:
    systems: list[set[int]] = []
    for ring in map(set, mol.GetRingInfo().AtomRings()):
        fused = [system for system in systems if system & ring]
        systems = [system for system in systems if not system & ring] + [ring.union(*fused)]
    return [sorted(system) for system in systems]


def _brics_fragments(mol: Chem.Mol) -> list[tuple[int, ...]]:
    bonds = [mol.GetBondBetweenAtoms(*ends).GetIdx() for ends, _ in BRICS.FindBRICSBonds(mol)]
    cut = Chem.FragmentOnBonds(mol, bonds, addDummies=False) if bonds else mol
    return [*Chem.GetMolFrags(cut)]


METHODS.register("occlusion")(
    Method(
        occlusion,
        True,
        "mean change of the prediction when the atom is masked, after other atoms in "
        "random orders (a sampled Shapley value)",
        "Zeiler and Fergus 2014; Castro, Gómez and Tejada 2009",
    )
)
