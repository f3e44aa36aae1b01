"""Configurations of models that earlier versions saved, brought up to the present format.

Each rung of the ladder is a pure update from one format to the next. A rung is never changed: a new
format adds one, and a model saved in the former format to ``tests/model/golden``.
"""

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["FORMAT", "update_config"]

FORMAT = 4
"""Format of the configurations that this version writes."""

Config = dict[str, Any]


def update_config(config: Mapping[str, Any]) -> Config:
    """Return a model's configuration in the present format.

    Args:
        config: As :func:`molattn.model.artefact.read_config` read it. One of an unknown format is
            returned as it is.
    """
    config = dict(config)
    while update := _UPDATES.get(config.get("format", 0)):
        config = update(config)
    return config


def _from_3(config: Config) -> Config:
    """Rename ``architecture``; state options that did not exist when format 3 was new."""
    network = config["architecture"]
    kept = {key: value for key, value in config.items() if key != "architecture"}
    added = {
        "layer": "edge_attention",
        "pairs": "all",
        "distances": True,
        "edge_value": True,
        "head": "mlp",
        "head_dropout": 0.5,
    }
    return {**kept, "format": 4, "network": {**added, **network}}


_UPDATES: dict[int, Callable[[Config], Config]] = {3: _from_3}
