"""Attention layers for molecules on PyTorch Geometric.

The public names below are loaded on first use, so that ``import molattn.nn`` needs neither RDKit
nor Lightning, and the command line answers at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .errors import InputError as InputError
    from .errors import MolattnError as MolattnError
    from .errors import SmilesError as SmilesError
    from .estimators import MolAttnClassifier as MolAttnClassifier
    from .estimators import MolAttnRegressor as MolAttnRegressor
    from .model import MolAttn as MolAttn
    from .model import MolAttnConfig as MolAttnConfig
    from .molecules import from_mol as from_mol
    from .molecules import from_smiles as from_smiles
    from .quick import train as train
    from .version import __version__ as __version__

_HOMES = {
    "InputError": "errors",
    "MolattnError": "errors",
    "SmilesError": "errors",
    "MolAttnClassifier": "estimators",
    "MolAttnRegressor": "estimators",
    "MolAttn": "model",
    "MolAttnConfig": "model",
    "from_mol": "molecules",
    "from_smiles": "molecules",
    "train": "quick",
    "__version__": "version",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
