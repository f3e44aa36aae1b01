r"""Let the Gaussian process of a model learn from more rows, with the same hyperparameters.

With the inducing points :math:`Z`, n more rows :math:`X` with labels :math:`y`, weights :math:`w`
and predictions :math:`f(X)`, and the noise :math:`\sigma` relative to the signal, the weights
:math:`\alpha` of the inducing points change by :math:`\Delta`, and the rows join them with the
weights :math:`\beta`:

.. math::
    \begin{pmatrix}
        k(Z, Z) + \sigma I & k(Z, X) \\ k(X, Z) & k(X, X) + \sigma\, \mathrm{diag}(1 / w)
    \end{pmatrix}
    \begin{pmatrix} \Delta \\ \beta \end{pmatrix}
    = \begin{pmatrix} 0 \\ y - f(X) \end{pmatrix}

Where the inducing points are all rows that the process was fitted to, with equal weights, this is
the exact process of all rows. Otherwise the rows that are no inducing points count in :math:`f`,
but make it no more certain, so that it follows the new labels more than a fit to all rows does.
Labels of other targets count in :math:`f` alone.

Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, sections 2.2 and
5.4.2 (leave-one-out).
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from molattn.model.gaussian_process.fit import latent_labels
from molattn.model.gaussian_process.head import GaussianProcessHead
from molattn.model.gaussian_process.process import Array
from molattn.model.kernel import KernelInputs


class Conditioned(NamedTuple):
    """A Gaussian process that has learned from n more rows."""

    process: GaussianProcessHead
    unseen: Array  # its outputs for these rows, each without its own label, [n, outputs]


def condition(
    process: GaussianProcessHead,
    inputs: KernelInputs,
    targets: Array,
    weights: Array | None = None,
) -> Conditioned:
    """Learn from n labeled rows; targets and weights, all above 0, are those of the fit.

    A target without labels in the fit has no hyperparameters, and learns nothing.
    """
    first = len(process.weights)
    kernel = process.kernel.with_rows(inputs)
    points = kernel.inputs(first + len(inputs))
    between = kernel(points, rounded=True)
    labels = np.hstack([*map(latent_labels, process.tasks, targets.T)])
    sizes = [task.num_outputs for task in process.tasks]
    noise_factors = np.ones((len(between), labels.shape[1]))
    if weights is not None:
        of_tasks = np.broadcast_to(weights.reshape(len(inputs), -1), targets.shape)
        noise_factors[first:] = 1.0 / np.repeat(of_tasks, sizes, axis=1)
    alpha = np.concatenate([process.weights, np.zeros(labels.shape)])
    labeled = np.concatenate([process.labeled, ~np.isnan(labels)])
    latent = process.means + between[first:, :first] @ process.weights
    residuals = labels - latent
    for output, noise in enumerate(process.noises):
        new = np.flatnonzero(labeled[first:, output])
        rows = np.flatnonzero(labeled[:, output])
        if not noise or not len(new):
            continue
        system = between[np.ix_(rows, rows)] + np.diag(noise * noise_factors[rows, output])
        sides = np.zeros((len(rows), 1 + len(new)))
        sides[-len(new) :, 0] = residuals[new, output]
        sides[-len(new) :, 1:] = np.eye(len(new))
        solution = np.linalg.solve(system, sides)
        alpha[rows, output] += solution[:, 0]
        beta = solution[-len(new) :, 0]
        latent[:, output] += between[first:, rows] @ solution[:, 0]
        latent[new, output] = labels[new, output] - beta / solution[-len(new) :, 1:].diagonal()
    conditioned = replace(
        process,
        kernel=kernel,
        rows=np.append(process.rows, np.full(len(inputs), -1)),
        weights=alpha,
        labeled=labeled,
    )
    return Conditioned(conditioned, process.outputs(torch.from_numpy(latent)).numpy())
