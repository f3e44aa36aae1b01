"""Scores from attention: mean weights, attention rollout, and gradients times weights."""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from molattn.errors import InputError
from molattn.explain.attention_hooks import Attention, attention_weights
from molattn.explain.instance import Instance
from molattn.explain.methods.base import METHODS, Method, MethodOptions, Scores, bond_entries

__all__ = ["gradient_attention", "raw_attention", "relevance", "rollout", "rollout_matrix"]


def raw_attention(instance: Instance, _: MethodOptions) -> Scores:
    r"""Score an atom by the mean attention it receives.

    .. math::
        s_j = \frac{1}{n L H} \sum_{l, h, i} g^{lh}_i \alpha^{lh}_{ij}

    the mean over receivers :math:`i`, layers, heads and members, with the gates :math:`g` where
    heads have any. Without gates the scores sum to 1, except for MAT. A bond's score is the mean of
    :math:`\alpha_{ij} + \alpha_{ji}`.
    """
    mean = _attention(instance).applied.mean(axis=(0, 1, 2))
    return Scores(mean.mean(axis=0), bond_entries(mean, instance.bonds))


def rollout(instance: Instance, _: MethodOptions) -> Scores:
    r"""Score an atom by its fraction of all atoms of the last layer.

    .. math::
        s_j = \frac 1 n \sum_i R_{ij}, \quad R = \hat A^L \cdots \hat A^1, \quad
        \hat A^l = \mathrm{normalize\ rows}\left(\tfrac 1 2 A^l + \tfrac 1 2 I\right)

    with the mean over heads :math:`A^l`: each layer is averaged with its residual connection (Abnar
    and Zuidema 2020, "Quantifying attention flow in transformers", equations 1 to 3). The mean over
    members; the scores sum to 1. The readout is treated as a mean over atoms, whichever it is. A
    bond's score is :math:`R_{ij} + R_{ji}`.
    """
    applied = _attention(instance).applied
    mean = np.mean([rollout_matrix(member.mean(axis=1)) for member in applied], axis=0)
    return Scores(mean.mean(axis=0), bond_entries(mean, instance.bonds))


def gradient_attention(instance: Instance, _: MethodOptions) -> Scores:
    r"""Score an atom by the attention it receives, weighted by the gradient of the prediction.

    .. math::
        s_j = \frac 1 n \sum_i (R - I)_{ij}, \quad R \leftarrow R + \bar A^l R, \quad
        \bar A^l = \frac 1 H \sum_h \left| \nabla A^{lh} \odot A^{lh} \right|

    from :math:`R = I`, after Chefer, Gur and Wolf 2021, "Generic attention-model explainability",
    equations 5 and 6. They take the positive part, which suits the score of the predicted class;
    here it is the absolute value, since in a regression an atom that lowers the prediction matters
    as much as one that raises it. The mean over members, each with the gradient of its own
    prediction. A bond's score is :math:`R_{ij} + R_{ji}`.
    """
    _attention(instance)
    model, batch = instance.model, instance.batch()
    with model.evaluating():
        found = attention_weights(model, batch, instance.member_values, gradients=True)
    members = zip(found.weights, cast(Any, found.gradients), strict=True)
    mean = np.mean([relevance(*member) for member in members], axis=0) - np.eye(instance.num_atoms)
    return Scores(mean.mean(axis=0), bond_entries(mean, instance.bonds))


def rollout_matrix(layers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return R of :func:`rollout` for means over heads ``[L, n receivers, n senders]``."""
    product = np.eye(layers.shape[-1])
    for layer in layers:
        mixed = 0.5 * layer + 0.5 * np.eye(layers.shape[-1])
        product = mixed / mixed.sum(axis=-1, keepdims=True) @ product
    return product


def relevance(layers: NDArray[np.float64], gradients: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return R of :func:`gradient_attention` for attention and gradients ``[L, heads, n, n]``."""
    total = np.eye(layers.shape[-1])
    for layer, gradient in zip(layers, gradients, strict=True):
        total = total + np.abs(layer * gradient).mean(axis=0) @ total
    return total


def _attention(instance: Instance) -> Attention:
    if not instance.attention.weights.size:
        raise InputError(
            "method: this method uses attention weights, but the model's custom encoder does not "
            "apply attention layers of molattn.nn, all with the same number of heads, to the edges "
            "of the molecule; use integrated_gradients or occlusion"
        )
    return instance.attention


METHODS.register("attention")(
    Method(
        raw_attention,
        False,
        "mean attention weight of the atom, over all receivers, layers and heads",
        "Vaswani et al. 2017",
    )
)
METHODS.register("rollout")(
    Method(
        rollout,
        False,
        "fraction of the atom in all atoms after the last layer, by attention and residual "
        "connections multiplied through the layers",
        "Abnar and Zuidema 2020",
    )
)
METHODS.register("gradient_attention")(
    Method(
        gradient_attention,
        False,
        "attention weight of the atom times the gradient of the prediction with respect to it, in "
        "absolute value, accumulated through the layers",
        "after Chefer, Gur and Wolf 2021",
    )
)
