"""Explanation methods: functions from a molecule and options to scores of its atoms and bonds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Optional

import numpy as np
import torch
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem import BRICS

from molattn.errors import InputError, check_one_of, quoted
from molattn.explain.instance import Instance
from molattn.utils.registry import Registry

_FIRST_STEPS = 16
_MOST_STEPS = 256
# Weight of an environment at the start of the path. Without any environment the kernel with a
# molecule of none would be 1, which is not its limit. Also of the features of pairs, so that blocks
# that read bonds alone find them.
_TRACE = 1e-9


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
    """Options of explanation methods; each method reads only the options that it documents.

    Args:
        groups: Atoms that occlusion masks together, see
            :func:`molattn.explain.methods.atom_groups`.
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
        summary: What a score measures, in a phrase, and its source.
    """

    compute: Callable[[Instance, MethodOptions], Scores]
    signed: bool
    summary: str

    def __call__(self, instance: Instance, options: MethodOptions) -> Scores:
        """Compute the scores of a molecule.

        Raises:
            NotFiniteError: Scores that are NaN or infinite.
            ValueError: Scores of another shape, or a baseline that does not fit to ``signed``.
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


METHODS: Registry[Method] = Registry("method")
"""Explanation methods by name; register a :class:`Method` to add one.

Example:
    >>> def degree(instance, options):
    ...     degrees = [float(atom.GetDegree()) for atom in instance.mol.GetAtoms()]
    ...     return Scores(np.array(degrees), np.zeros(len(instance.bonds)))
    >>> METHODS.register("degree")(Method(degree, signed=False, summary="number of neighbors"))
"""


def _over_bonds(matrix: NDArray[np.float64], instance: Instance) -> NDArray[np.float64]:
    """Sum the entries of a matrix ``[n, n]`` over both directions of each bond."""
    begin, end = np.array(instance.bonds, dtype=np.int64).reshape(-1, 2).T
    return matrix[begin, end] + matrix[end, begin]


def raw_attention(instance: Instance, _: MethodOptions) -> Scores:
    r"""Score an atom by the mean attention it receives.

    .. math::
        s_j = \frac{1}{n L H} \sum_{l, h, i} g^{lh}_i \alpha^{lh}_{ij}

    the mean over receivers :math:`i`, layers, heads and members, with the gates :math:`g` where
    heads have any. Without gates the scores sum to 1, except for MAT and for atoms without a bond
    in blocks that read bonds. A bond's score is the mean of :math:`\alpha_{ij} + \alpha_{ji}`.
    """
    if not instance.attention.weights.size:
        raise InputError(
            "this method uses attention weights, but the model's custom encoder does not apply "
            "attention layers of molattn.nn, all with the same number of heads, to the edges of "
            "the molecule; use integrated_gradients or occlusion",
            option="method",
        )
    mean = instance.attention.applied.mean(axis=(0, 1, 2))
    return Scores(mean.mean(axis=0), _over_bonds(mean, instance))


def integrated_gradients(instance: Instance, options: MethodOptions) -> Scores:
    r"""Score an atom by gradients integrated along the path from the average atom to its features.

    .. math::
        s_c = (z_c - \bar z_c) \int_0^1
        \frac{\partial f}{\partial z_c}\big(\bar z + t (z - \bar z)\big)\, dt

    (Sundararajan, Taly and Yan 2017, equation 1, by Captum), for each one-hot feature :math:`z_c`
    of each atom and pair of atoms, in which embeddings are linear. At :math:`t = 0` every atom is
    the average atom and all pair features are next to zero, though bonds remain where blocks read
    them alone; the prediction there is the baseline. Weights of the environments that a Gaussian
    process counts, and of what atoms add to descriptors, grow from 0 to 1 along the path, and
    scaled features of the whole molecule from 0, the training mean.

    An atom's score is the sum over its features, plus half the sum over those of its pairs, plus
    an equal part of the score of each environment that it is in, plus that of its contribution to
    descriptors. The integral is computed by Gauss-Legendre quadrature with 16 steps, doubled up to
    256 until the residual is within ``options.tolerance``. A bond's score is the sum over the
    features of its pair, in both directions; the scores of its two atoms already include it.
    """
    from captum.attr import IntegratedGradients

    environments = instance.environments.atoms.astype(np.float64)
    count, contributing, _ = instance.input_sizes
    weights = torch.zeros_like(instance.input_weights)
    weights[:, :count] = _TRACE
    inputs = instance.atoms.unsqueeze(0), instance.pairs.unsqueeze(0), instance.input_weights
    blank = instance.blank_pairs + _TRACE * (instance.pairs - instance.blank_pairs)
    baseline = instance.baseline_atoms.unsqueeze(0), blank.unsqueeze(0), weights
    if not weights.numel():
        inputs = inputs[:2]  # an input without elements has no gradient
        baseline = baseline[:2]
    with torch.inference_mode(), instance.model.networks.evaluating():
        prediction = float(instance(*inputs))
        at_baseline = float(instance(*baseline))
    attribute = IntegratedGradients(instance).attribute
    steps = _FIRST_STEPS
    while True:
        size = min(steps, instance.batch_size)
        with torch.enable_grad(), instance.model.networks.evaluating():
            gradients = attribute(inputs, baseline, n_steps=steps, internal_batch_size=size)
        atoms, pairs, *of_weights = (gradient[0].cpu().double().numpy() for gradient in gradients)
        pairs = pairs.sum(axis=-1)
        scores = atoms.sum(axis=-1) + 0.5 * (pairs.sum(axis=0) + pairs.sum(axis=1))
        others: dict[str, float] = {}
        if of_weights:
            shared, added, of_groups = np.split(of_weights[0], [count, count + contributing])
            scores += shared / environments.sum(axis=1) @ environments
            scores[: len(added)] += added
            others = dict(zip(instance.number_groups, of_groups.tolist(), strict=True))
        residual = prediction - at_baseline - scores.sum() - sum(others.values())
        is_near = abs(residual) <= options.tolerance * instance.target.spread
        if is_near or steps >= _MOST_STEPS:
            return Scores(scores, _over_bonds(pairs, instance), at_baseline, others)
        steps *= 2


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
    n = instance.num_atoms
    m = len(groups)
    ranks = np.array(Chem.CanonicalRankAtoms(instance.mol))
    group_of = np.empty(n, dtype=np.int64)
    # Sorted by canonical rank too, so that scores do not depend on the order of the groups.
    for k, group in enumerate(sorted(groups, key=lambda group: min(ranks[[*group]]))):
        group_of[[*group]] = k
    others = instance.number_groups
    half = np.tile(np.arange(m + len(others)), (-(-options.orders // 2), 1))
    half = np.random.default_rng(options.seed).permuted(half, axis=1)
    orders = np.concatenate([half, half[:, ::-1]])
    # Position of each player, a group of atoms or of features, in each order; after k steps the
    # players at positions < k are masked.
    position = np.argsort(orders, axis=1)
    steps = np.arange(m + len(others) + 1)[:, np.newaxis]
    unmasked = (position[:, np.newaxis, :] >= steps).reshape(-1, m + len(others))
    values = instance.predict_kept(unmasked[:, group_of], unmasked[:, m:])
    values = values.reshape(len(orders), -1)
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

    These are ``atoms``; ``rings``, systems of fused rings, and single atoms outside of rings;
    ``brics``, BRICS fragments (Degen et al. 2008); or the atoms of each group, counted from 0,
    where every other atom is a group of its own. An ``InputError`` if groups are empty or overlap.
    """
    if isinstance(groups, str):
        check_one_of("groups", groups, ("atoms", "rings", "brics"))
        kind = groups
        groups = []
        if kind == "rings":
            for ring in map(set, mol.GetRingInfo().AtomRings()):
                fused = [system for system in groups if {*system} & ring]
                others = [system for system in groups if not {*system} & ring]
                groups = [*others, sorted(ring.union(*fused))]
        elif kind == "brics":
            ends = [ends for ends, _ in BRICS.FindBRICSBonds(mol)]
            bonds = [mol.GetBondBetweenAtoms(*pair).GetIdx() for pair in ends]
            cut = Chem.FragmentOnBonds(mol, bonds, addDummies=False) if bonds else mol
            groups = Chem.GetMolFrags(cut)
    groups = [tuple(np.asarray(group).tolist()) for group in groups]
    atoms = [atom for group in groups for atom in group]
    n = mol.GetNumAtoms()
    if not all(groups) or len({*atoms}) < len(atoms) or not {*atoms} <= {*range(n)}:
        raise InputError(
            f"got {quoted(groups)}, expected lists of atom indices from 0 to {n - 1}, each index "
            "in at most one list",
            option="groups",
        )
    return [*groups, *((atom,) for atom in range(n) if atom not in atoms)]


_SUMMARIES = {
    "attention": "mean attention weight of the atom, over all receivers, layers and heads "
    "(Vaswani et al. 2017)",
    "integrated_gradients": "contribution of the features of the atom, and half of that of its "
    "atom pairs, relative to a molecule of average atoms without pair features (Sundararajan, Taly "
    "and Yan 2017)",
    "occlusion": "mean change of the prediction when the atom is masked, after other atoms in "
    "random orders (a sampled Shapley value; Castro, Gómez and Tejada 2009)",
}
METHODS.register("attention")(Method(raw_attention, False, _SUMMARIES["attention"]))
_SIGNED = {"integrated_gradients": integrated_gradients, "occlusion": occlusion}
for _name, _compute in _SIGNED.items():
    METHODS.register(_name)(Method(_compute, True, _SUMMARIES[_name]))
