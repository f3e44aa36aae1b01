"""Attention layers for molecules on PyTorch Geometric.

The public names below are loaded on first use, so that ``import molattn.nn`` needs neither RDKit
nor Lightning, and the command line answers at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from molattn.api import train as train
    from molattn.data.pyg_data import from_mol as from_mol
    from molattn.data.pyg_data import from_smiles as from_smiles
    from molattn.errors import InputError as InputError
    from molattn.errors import MolattnError as MolattnError
    from molattn.errors import SmilesError as SmilesError
    from molattn.evaluation.compare.comparison import compare as compare
    from molattn.model.model import MolAttn as MolAttn
    from molattn.model.model import MolAttnConfig as MolAttnConfig
    from molattn.sklearn import MolAttnClassifier as MolAttnClassifier
    from molattn.sklearn import MolAttnRegressor as MolAttnRegressor
    from molattn.version import __version__ as __version__

_HOMES = {
    "InputError": "errors",
    "MolattnError": "errors",
    "SmilesError": "errors",
    "MolAttnClassifier": "sklearn",
    "MolAttnRegressor": "sklearn",
    "MolAttn": "model.model",
    "MolAttnConfig": "model.config",
    "from_mol": "data.pyg_data",
    "from_smiles": "data.pyg_data",
    "compare": "evaluation.compare.comparison",
    "train": "api",
    "__version__": "version",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
