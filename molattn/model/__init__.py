"""The model: its configuration, network, saving and uncertainty.

Public are :class:`MolAttn` and :class:`MolAttnConfig`, also as ``molattn.MolAttn`` and
``molattn.MolAttnConfig``. The other modules of this package may change.
"""

from molattn.model.config import MolAttnConfig as MolAttnConfig
from molattn.model.model import MolAttn as MolAttn
