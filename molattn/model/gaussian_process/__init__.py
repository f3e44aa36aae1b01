"""Gaussian processes that predict the tasks of a model from similarity to training molecules.

``process`` has the Gaussian process of one target, ``fit`` fits all targets of a table, ``sharing``
lets targets learn from each other, ``head`` is what a model keeps and predicts with, and
``conditioning`` lets that learn from more rows.
"""

from molattn.model.gaussian_process.conditioning import condition as condition
from molattn.model.gaussian_process.fit import log_bayes_factor as log_bayes_factor
from molattn.model.gaussian_process.head import GaussianProcessHead as GaussianProcessHead
from molattn.model.gaussian_process.head import Neighbor as Neighbor
from molattn.model.gaussian_process.sharing import MOST_SHARED_ROWS as MOST_SHARED_ROWS
