"""Integrated gradients of the features of atoms and pairs."""

import numpy as np
import torch

from molattn.explain.instance import Instance
from molattn.explain.methods.base import METHODS, Method, MethodOptions, Scores, bond_entries

__all__ = ["integrated_gradients"]

_FIRST_STEPS = 16
_MOST_STEPS = 256
# Weight of an environment at the start of the path. Without any environment the kernel with a
# molecule of none would be 1, which is not its limit.
_TRACE = 1e-9


def integrated_gradients(instance: Instance, options: MethodOptions) -> Scores:
    r"""Score an atom by gradients integrated along the path from the average atom to its features.

    .. math::
        s_c = (z_c - \bar z_c) \int_0^1
        \frac{\partial f}{\partial z_c}\big(\bar z + t (z - \bar z)\big)\, dt

    (Sundararajan, Taly and Yan 2017, equation 1, by Captum), for each one-hot feature :math:`z_c`
    of each atom and pair of atoms, in which embeddings are linear. At :math:`t = 0` every atom is
    the average atom and all pair features are zero; the prediction there is the baseline. Weights
    of the environments that a Gaussian process counts, and of what atoms add to descriptors, grow
    from 0 to 1 along the path, and scaled features of the whole molecule from 0, the training mean.

    An atom's score is the sum over its features, plus half the sum over those of its pairs, plus
    an equal part of the score of each environment that it is in, plus that of its contribution to
    descriptors. The integral is computed by Gauss-Legendre quadrature with 16 steps, doubled up to
    256 until the residual is within ``options.tolerance``. A bond's score is the sum over the
    features of its pair, in both directions; the scores of its two atoms already include it.
    """
    from captum.attr import IntegratedGradients

    tolerance = options.tolerance * instance.target.spread
    environments = instance.environments.atoms.astype(np.float64)
    count, contributing, _ = instance.input_sizes
    weights = torch.zeros_like(instance.input_weights)
    weights[:, :count] = _TRACE
    whole = instance.atoms.unsqueeze(0), instance.pairs.unsqueeze(0), instance.input_weights
    baseline = instance.baseline_atoms.unsqueeze(0), instance.blank_pairs.unsqueeze(0), weights
    if not weights.numel():
        whole, baseline = whole[:2], baseline[:2]  # an input without elements has no gradient
    with torch.inference_mode(), instance.model.evaluating():
        prediction, at_baseline = float(instance(*whole)), float(instance(*baseline))
    attribute, steps = IntegratedGradients(instance).attribute, _FIRST_STEPS
    while True:
        size = min(steps, instance.batch_size)
        with torch.enable_grad(), instance.model.evaluating():
            gradients = attribute(whole, baseline, n_steps=steps, internal_batch_size=size)
        atoms, pairs, *of_weights = (part[0].cpu().double().numpy() for part in gradients)
        pairs = pairs.sum(axis=-1)
        scores = atoms.sum(axis=-1) + 0.5 * (pairs.sum(axis=0) + pairs.sum(axis=1))
        others: dict[str, float] = {}
        if of_weights:
            shared, added, rest = np.split(of_weights[0], [count, count + contributing])
            scores += shared / environments.sum(axis=1) @ environments
            scores[: len(added)] += added
            others = dict(zip(instance.number_groups, rest.tolist(), strict=True))
        residual = prediction - at_baseline - scores.sum() - sum(others.values())
        if abs(residual) <= tolerance or steps >= _MOST_STEPS:
            return Scores(scores, bond_entries(pairs, instance.bonds), at_baseline, others)
        steps *= 2


METHODS.register("integrated_gradients")(
    Method(
        integrated_gradients,
        True,
        "contribution of the features of the atom, and half of that of its atom pairs, "
        "relative to a molecule of average atoms without pair features",
        "Sundararajan, Taly and Yan 2017",
    )
)
