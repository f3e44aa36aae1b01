"""Updates of model configurations saved by earlier versions.

Each update is a pure function from one format to the next. Updates are never changed: a new format
adds one, and a model saved in the previous format to ``tests/model/golden``.
"""

from collections.abc import Callable, Mapping
from typing import Any

from molattn.errors import InputError

__all__ = ["FIRST_WITH_MANIFEST", "FORMAT", "OLDEST_FORMAT", "update_config"]

FORMAT = 9
"""Format of the configurations that this version writes."""

FIRST_WITH_MANIFEST = 5
"""The first format whose models have a manifest."""

Config = dict[str, Any]


def update_config(config: Mapping[str, Any]) -> Config:
    """Return a model's configuration in the current format; one of an unknown format as it is.

    Raises:
        InputError: A key that every configuration of its format has is missing.
    """
    updated = dict(config)
    while (number := updated.get("format")) in (*_UPDATES,):
        updated = _UPDATES[number](updated)
    return updated


def _from_3(config: Config) -> Config:
    """Rename ``architecture``, and add the options introduced during format 3."""
    if not isinstance(network := config.get("architecture"), dict):
        raise InputError("model config: missing key 'architecture'")
    kept = {key: value for key, value in config.items() if key != "architecture"}
    added = {
        "layer": "edge_attention",
        "pairs": "all",
        "distances": True,
        "edge_value": True,
        "head": "mlp",
        "head_dropout": 0.5,
    }
    return {**kept, "format": 4, "network": {**added, **network}, "custom_parts": {}}


def _from_4(config: Config) -> Config:
    """Change the number only: the manifest is a file of its own."""
    return {**config, "format": 5}


def _from_5(config: Config) -> Config:
    """Add the transforms of targets and the kernels of a Gaussian process: there was none."""
    transforms = [{"kind": "none"} for _ in config.get("tasks", ())]
    return {**config, "format": 6, "target_transforms": transforms, "kernels": []}


def _from_6(config: Config) -> Config:
    """Add the columns of relations, and whether molecules are standardized: there was neither."""
    return {**config, "format": 7, "relation_columns": [], "standardize": False}


def _from_7(config: Config) -> Config:
    """Add the radius of attention: there was none."""
    network = config.get("network")
    added = {"radius": None, **network} if isinstance(network, dict) else network
    return {**config, "format": 8, "network": added}


def _from_8(config: Config) -> Config:
    """Change the number only: the Gaussian process may have points in half precision."""
    return {**config, "format": 9}


_UPDATES: dict[int, Callable[[Config], Config]] = {
    3: _from_3,
    4: _from_4,
    5: _from_5,
    6: _from_6,
    7: _from_7,
    8: _from_8,
}

OLDEST_FORMAT = min(_UPDATES)
"""The oldest format that can be read."""
