"""PyG's message passing without the files that it leaves behind."""

import linecache
from importlib.util import cache_from_source
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from torch_geometric.nn import conv


class MessagePassing(conv.MessagePassing):
    """PyG's base class of layers, without its files in the temporary folder.

    PyG writes ``propagate`` and ``edge_updater`` of each class to files, imports these, and leaves
    them there. They are removed once imported; their lines are kept for tracebacks and ``inspect``.
    """

    def _set_jittable_templates(self, *args: Any, **kwargs: Any) -> None:
        super()._set_jittable_templates(*args, **kwargs)
        for function in (type(self).propagate, type(self).edge_updater):
            path = Path(function.__code__.co_filename)
            if path.exists() and str(path.parent) == gettempdir():
                text = path.read_text()
                lines = text.splitlines(keepends=True)
                linecache.cache[str(path)] = (len(text), None, lines, str(path))
                Path(cache_from_source(path)).unlink(missing_ok=True)
                path.unlink()
