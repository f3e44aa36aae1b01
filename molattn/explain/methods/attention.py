"""Scores read from attention: the weights, their rollout, and their gradients."""

import numpy as np
from numpy.typing import NDArray

from molattn.errors import InputError
from molattn.explain.attention_hooks import Attention, attention_gradients
from molattn.explain.instance import Instance
from molattn.explain.methods.base import MethodOptions, Scores, at_bonds

__all__ = ["gradient_attention", "raw_attention", "relevance", "rollout", "rollout_matrix"]


def raw_attention(instance: Instance, _: MethodOptions) -> Scores:
    r"""Score an atom by the attention it gets.

    .. math::
        s_j = \frac{1}{n L H} \sum_{l, h, i} g^{lh}_i \alpha^{lh}_{ij}

    the mean over receivers :math:`i`, layers, heads and members, with the gates where there are
    any. Without gates the scores add up to 1. A bond's score is the mean of
    :math:`\alpha_{ij} + \alpha_{ji}`.
    """
    mean = _attention(instance).applied.mean(axis=(0, 1, 2))
    return Scores(mean.mean(axis=0), at_bonds(mean, instance.bonds))


def rollout(instance: Instance, _: MethodOptions) -> Scores:
    r"""Score an atom by its share in all atoms after the last layer; see :func:`rollout_matrix`.

    .. math::
        s_j = \frac 1 n \sum_i R_{ij}

    The mean over members; the scores add up to 1. The readout is taken for a mean over atoms,
    whatever it is. A bond's score is :math:`R_{ij} + R_{ji}`.
    """
    found = _attention(instance).applied
    mean = np.mean([rollout_matrix(member.mean(axis=1)) for member in found], axis=0)
    return Scores(mean.mean(axis=0), at_bonds(mean, instance.bonds))


def gradient_attention(instance: Instance, _: MethodOptions) -> Scores:
    r"""Score an atom by the attention paid to it that the output depends on.

    With :math:`R` of :func:`relevance`,

    .. math::
        s_j = \frac 1 n \sum_i (R - I)_{ij}

    The mean over members, each by the gradient of its own output. A bond's score is
    :math:`R_{ij} + R_{ji}`.
    """
    _attention(instance)
    with instance.evaluating():
        found = attention_gradients(instance.model, *instance.batch(), instance.output)
    members = zip(*found, strict=True)
    mean = np.mean([relevance(*member) for member in members], axis=0) - np.eye(instance.num_atoms)
    return Scores(mean.mean(axis=0), at_bonds(mean, instance.bonds))


def rollout_matrix(layers: NDArray[np.float64]) -> NDArray[np.float64]:
    r"""Multiply attention through the layers, half of each being the residual connection.

    .. math::
        R = \hat A^L \cdots \hat A^1, \quad
        \hat A^l = \mathrm{rows\ to\ 1}\left(\tfrac 1 2 A^l + \tfrac 1 2 I\right)

    Abnar and Zuidema 2020, "Quantifying attention flow in transformers", equations 1 to 3.

    Args:
        layers: Attention of each layer, the mean over heads, ``[L, n receivers, n senders]``.

    Returns:
        The share of each atom at the input (column) in each at the output (row), ``[n, n]``.
    """
    identity = np.eye(layers.shape[-1])
    found = identity
    for layer in layers:
        mixed = 0.5 * layer + 0.5 * identity
        found = mixed / mixed.sum(axis=-1, keepdims=True) @ found
    return found


def relevance(layers: NDArray[np.float64], gradients: NDArray[np.float64]) -> NDArray[np.float64]:
    r"""Add up attention, weighted by its gradient, through the layers.

    .. math::
        R \leftarrow R + \bar A^l R, \quad
        \bar A^l = \frac 1 H \sum_h \left| \nabla A^{lh} \odot A^{lh} \right|

    from :math:`R = I`, after Chefer, Gur and Wolf 2021, "Generic attention-model explainability",
    equations 5 and 6. They take the positive part where this takes the size: for a number, unlike
    the class that won, what lowers it counts as much as what raises it.

    Args:
        layers: Attention ``[L, heads, n receivers, n senders]``.
        gradients: Of the output with respect to it, likewise.
    """
    found = np.eye(layers.shape[-1])
    for layer, gradient in zip(layers, gradients, strict=True):
        found = found + np.abs(layer * gradient).mean(axis=0) @ found
    return found


def _attention(instance: Instance) -> Attention:
    attention = instance.attention
    if not attention.weights.size:
        raise InputError(
            "method: got a method that reads attention weights, but the model's custom encoder "
            "does not apply attention layers of molattn.nn, with the same number of heads in each, "
            "to the edges it is given; expected another method, such as integrated_gradients or "
            "occlusion"
        )
    return attention
