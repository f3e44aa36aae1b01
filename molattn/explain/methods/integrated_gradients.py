"""Integrated gradients on the features of atoms and pairs."""

import numpy as np
import torch

from molattn.explain.instance import Instance
from molattn.explain.methods.base import MethodOptions, Scores, at_bonds

__all__ = ["integrated_gradients"]

_FIRST_STEPS = 16
_MOST_STEPS = 256


def integrated_gradients(instance: Instance, options: MethodOptions) -> Scores:
    r"""Score an atom by the gradients of its features, on the way to them from the average atom.

    .. math::
        s_c = (z_c - \bar z_c) \int_0^1
        \frac{\partial f}{\partial z_c}\big(\bar z + t (z - \bar z)\big)\, dt

    (Sundararajan, Taly and Yan 2017, equation 1, by Captum), for the amount :math:`z_c` of each
    code of each atom and of each pair of atoms; a model's embeddings are linear in them, so these
    are the integrated gradients of its embeddings. At :math:`t = 0` every atom is the average atom
    and pairs have no features; the prediction there is the baseline.

    An atom's score is the sum over its codes, and half of what each of its pairs got: scores add
    up to the prediction minus the baseline, but for the error of the integral. That is by
    Gauss-Legendre with 16 steps, twice as many and so on to 256, until the error is within the
    tolerance. A bond's score is what the pair of its ends got, both ways; it is already shared out
    to the two atoms.

    Args:
        instance: The molecule.
        options: Its ``tolerance``.
    """
    from captum.attr import IntegratedGradients

    tolerance = options.tolerance * instance.output.scale
    whole = (instance.atoms.unsqueeze(0), instance.pairs.unsqueeze(0))
    average = (instance.average_atoms.unsqueeze(0), instance.blank_pairs.unsqueeze(0))
    method = IntegratedGradients(instance)
    n = instance.num_atoms
    everything, nothing = instance.keep(np.array([[True] * n, [False] * n]), "blank")
    steps = _FIRST_STEPS
    while True:
        with torch.enable_grad(), instance.evaluating():
            of_atoms, of_pairs = method.attribute(
                whole,
                average,
                n_steps=steps,
                internal_batch_size=min(steps, instance.most_at_once),
            )
        atoms = of_atoms[0].double().sum(dim=-1).cpu().numpy()
        pairs = of_pairs[0].double().sum(dim=-1).cpu().numpy()
        scores = atoms + 0.5 * (pairs.sum(axis=0) + pairs.sum(axis=1))
        if abs(everything - nothing - scores.sum()) <= tolerance or steps >= _MOST_STEPS:
            return Scores(scores, at_bonds(pairs, instance.bonds), float(nothing))
        steps *= 2
