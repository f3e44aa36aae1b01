"""Integrated gradients of the features of atoms and pairs."""

import numpy as np
import torch

from molattn.explain.instance import Instance
from molattn.explain.methods.base import METHODS, Method, MethodOptions, Scores, bond_entries

__all__ = ["integrated_gradients"]

_FIRST_STEPS = 16
_MOST_STEPS = 256


def integrated_gradients(instance: Instance, options: MethodOptions) -> Scores:
    r"""Score an atom by gradients integrated along the path from the average atom to its features.

    .. math::
        s_c = (z_c - \bar z_c) \int_0^1
        \frac{\partial f}{\partial z_c}\big(\bar z + t (z - \bar z)\big)\, dt

    (Sundararajan, Taly and Yan 2017, equation 1, by Captum), for each one-hot feature :math:`z_c`
    of each atom and of each pair of atoms; a model's embeddings are linear in these, so that the
    result equals the integrated gradients of its embeddings. At :math:`t = 0` every atom is the
    average atom and all pair features are zero; the prediction there is the baseline.

    An atom's score is the sum over its features plus half the sum over those of its pairs. Scores
    sum to the prediction minus the baseline, up to the error of the integral, which is computed by
    Gauss-Legendre quadrature with 16 steps, doubled up to 256 until the error is within the
    tolerance. A bond's score is the sum over the features of its pair, in both directions; the
    scores of its two atoms already include it.

    Args:
        instance: The molecule.
        options: ``tolerance`` is read.
    """
    from captum.attr import IntegratedGradients

    tolerance = options.tolerance * instance.target.spread
    whole = (instance.atoms.unsqueeze(0), instance.pairs.unsqueeze(0))
    baseline = (instance.baseline_atoms.unsqueeze(0), instance.blank_pairs.unsqueeze(0))
    method = IntegratedGradients(instance)
    n = instance.num_atoms
    prediction, at_baseline = instance.predict_kept(np.array([[True] * n, [False] * n]), "blank")
    steps = _FIRST_STEPS
    while True:
        with torch.enable_grad(), instance.evaluating():
            of_atoms, of_pairs = method.attribute(
                whole,
                baseline,
                n_steps=steps,
                internal_batch_size=min(steps, instance.batch_size),
            )
        atoms = of_atoms[0].double().sum(dim=-1).cpu().numpy()
        pairs = of_pairs[0].double().sum(dim=-1).cpu().numpy()
        scores = atoms + 0.5 * (pairs.sum(axis=0) + pairs.sum(axis=1))
        if abs(prediction - at_baseline - scores.sum()) <= tolerance or steps >= _MOST_STEPS:
            return Scores(scores, bond_entries(pairs, instance.bonds), float(at_baseline))
        steps *= 2


METHODS.register("integrated_gradients")(
    Method(
        integrated_gradients,
        signed=True,
        summary="contribution of the features of the atom, and half of that of its atom pairs, "
        "relative to a molecule of average atoms without pair features",
        source="Sundararajan, Taly and Yan 2017",
    )
)
