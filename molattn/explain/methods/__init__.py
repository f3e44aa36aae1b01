"""Explanation methods; each file registers its methods in :data:`METHODS`."""

from molattn.explain.methods import attention, integrated_gradients, occlusion
from molattn.explain.methods.base import METHODS as METHODS
from molattn.explain.methods.base import Method as Method
from molattn.explain.methods.base import MethodOptions as MethodOptions
from molattn.explain.methods.base import Scores as Scores

__all__ = ["attention", "integrated_gradients", "occlusion"]
