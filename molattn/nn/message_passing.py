"""PyG's message passing without the files that it leaves behind."""

import linecache
import sys
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from torch_geometric.nn import conv

_GENERATED = ("propagate", "edge_updater")
_STEPS = ("message", "aggregate", "update", "edge_update")


class MessagePassing(conv.MessagePassing):
    """PyG's base class of layers, without its files in the temporary folder.

    PyG writes ``propagate`` and ``edge_updater`` of each class to files, imports these, and leaves
    them there. They are removed once imported; their lines are kept for tracebacks and ``inspect``.
    """

    def _set_jittable_templates(self, *args: Any, **kwargs: Any) -> None:
        super()._set_jittable_templates(*args, **kwargs)
        for name in _GENERATED:
            module = _module_name(type(self), name)
            if getattr(type(self), name).__module__ != module:
                continue  # a subclass's own function, or that of its base class
            path = Path(getattr(sys.modules.get(module), "__file__", ""))
            is_temporary = str(path.parent) == gettempdir() and path.name.startswith(f"{module}_")
            if is_temporary and path.exists():
                text = path.read_text()
                lines = text.splitlines(keepends=True)
                linecache.cache[str(path)] = (len(text), None, lines, str(path))
                cache = Path(cache_from_source(path))
                cache.unlink(missing_ok=True)
                with suppress(OSError):  # it has files of others
                    cache.parent.rmdir()
                path.unlink()

    def changed_steps(self, base: type[conv.MessagePassing]) -> list[str]:
        """Steps of message passing that are not those of ``base``.

        These are methods that a subclass overrides, and functions that were set on the layer.
        """
        layer = type(self)

        def is_changed(name: str) -> bool:
            function = getattr(layer, name)
            if name in vars(self) or name in _STEPS:
                return name in vars(self) or function is not getattr(base, name)
            generated = (_module_name(parent, name) for parent in layer.__mro__)
            return function.__module__ not in (conv.MessagePassing.__module__, *generated)

        return [name for name in (*_GENERATED, *_STEPS) if is_changed(name)]


def _module_name(layer: type, function: str) -> str:
    """Name that PyG gives to the module that it generates for a function of a layer."""
    return f"{layer.__module__}_{layer.__name__}_{function}"
